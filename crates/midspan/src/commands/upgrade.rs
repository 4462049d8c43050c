//! `midspan upgrade`: another program for a running proxy.

use std::time::Duration;

use midspan_proxy::command::{UpgradeError, find_socket, upgrade as upgrade_proxy};
use miette::{IntoDiagnostic, miette};

use super::Outcome;
use crate::arguments::UpgradeOptions;
use crate::printing;

/// How long an upgrade may take: the trial, and the start of the new program.
const LIMIT: Duration = Duration::from_secs(60);

/// Upgrades the proxy, and waits for the result.
pub fn upgrade(options: &UpgradeOptions) -> Outcome {
    let control = &options.control;
    let socket = find_socket(control.socket.as_deref(), control.config.as_deref())?;
    // The proxy may have another working directory.
    let program = options
        .program
        .as_ref()
        .map(std::path::absolute)
        .transpose();
    let program = program.into_diagnostic()?;
    let program = program.map(|path| path.to_string_lossy().into_owned());
    let (status, upgrade) = match upgrade_proxy(&socket, program, LIMIT) {
        Ok(done) => done,
        Err(error @ UpgradeError::TooOld) => {
            printing::warning(error);
            return Ok(false);
        }
        Err(UpgradeError::Command(error)) => return Err(error.into()),
        Err(error) => return Err(miette!("{error}")),
    };
    if control.output.json {
        printing::json(&upgrade)?;
    }
    match upgrade.error {
        Some(error) => Err(miette!(
            "no upgrade, the running program continues: {error}"
        )),
        None if control.output.json => Ok(true),
        None => {
            printing::line(format_args!(
                "upgraded from Midspan {} to {}: the process is still {}, sessions continue",
                upgrade.former_version, status.version, status.pid
            ));
            Ok(true)
        }
    }
}
