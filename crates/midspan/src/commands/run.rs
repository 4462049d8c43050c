//! `midspan run`: the proxy.

use midspan_linux::descriptor_passing::inherited;
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
        .map(|number| {
            inherited(number)
                .into_diagnostic()
                .wrap_err_with(|| format!("--ready-fd {number} cannot be used"))
        })
        .transpose()?;
    midspan_proxy::run(midspan_proxy::RunOptions {
        configuration: options.config,
        relay_arguments: vec!["relay".to_owned()],
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
