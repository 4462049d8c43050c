//! `midspan upgrade`: another program for a running proxy.

use std::path::Path;
use std::time::{Duration, Instant};

use midspan_proxy::command::{
    CommandError, Request, Status, UpgradeState, UpgradeStatus, ask, find_socket,
};
use miette::{IntoDiagnostic, miette};

use super::Outcome;
use crate::arguments::UpgradeOptions;
use crate::printing;

/// How long an upgrade may take: the trial, and the start of the new program.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

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
    let answer = match ask(&socket, &Request::Upgrade { program }) {
        // A version without this command.
        Err(CommandError::Format { .. }) => {
            printing::warning("the running Midspan cannot execute another program: restart it");
            return Ok(false);
        }
        answer => answer?,
    };
    let begun = answer
        .upgrade
        .ok_or_else(|| miette!("{}", answer.error.unwrap_or_default()))?;
    let (status, upgrade) = wait(&socket, &begun)?;
    if control.output.json {
        printing::line(serde_json::to_string_pretty(&upgrade).into_diagnostic()?);
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

/// Waits until the upgrade has succeeded or failed.
fn wait(socket: &Path, begun: &UpgradeStatus) -> miette::Result<(Status, UpgradeStatus)> {
    let until = Instant::now() + LIMIT;
    loop {
        // While the process executes the new program, it answers no request.
        let status = ask(socket, &Request::Status)
            .ok()
            .and_then(|answer| answer.status);
        if let Some(status) = status
            && let Some(last) = status.upgrade.clone()
            && last.number == begun.number
            && last.state != UpgradeState::Trying
        {
            return Ok((status, last));
        }
        if Instant::now() >= until {
            let seconds = LIMIT.as_secs();
            return Err(miette!(
                "the upgrade to {} is not over after {seconds} s: see `midspan status` and the log",
                begun.program
            ));
        }
        std::thread::sleep(PAUSE);
    }
}
