//! `midspan run`: the proxy.

use midspan_linux::descriptor_passing::inherited;
use midspan_linux::execution;
use midspan_proxy::LogLevel;
use midspan_proxy::configuration::Configuration;
use miette::{Context, IntoDiagnostic};

use super::Outcome;
use crate::arguments::RunOptions;
use crate::printing::{self, Verbosity};

/// The privileged helper.
pub fn run(options: RunOptions) -> Outcome {
    if options.dry_run {
        let configuration = Configuration::load(&options.config)?;
        printing::text(midspan_proxy::describe_rules(&configuration)?);
        return Ok(true);
    }
    let ready = options
        .ready_fd
        // It belongs to the first program of this process.
        .filter(|_| !execution::has_inherited())
        .map(|number| {
            inherited(number)
                .into_diagnostic()
                .wrap_err_with(|| format!("--ready-fd {number} cannot be used"))
        })
        .transpose()?;
    midspan_proxy::run(midspan_proxy::RunOptions {
        configuration: options.config,
        relay_arguments: vec!["relay".to_owned()],
        trial_arguments: vec!["upgrade-trial".to_owned()],
        ready,
        log_level: match printing::verbosity() {
            Verbosity::Quiet => Some(LogLevel::Warn),
            Verbosity::Normal => None,
            Verbosity::Verbose => Some(LogLevel::Debug),
        },
    })?;
    Ok(true)
}

/// The relay process, which the helper starts.
pub fn relay() -> Outcome {
    midspan_proxy::relay_main()?;
    Ok(true)
}

/// The trial of this program, which a running proxy starts before an upgrade.
pub fn upgrade_trial() -> Outcome {
    midspan_proxy::trial_main()?;
    Ok(true)
}
