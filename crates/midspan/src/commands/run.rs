//! `midspan run`: the proxy.

use std::fs::File;
use std::os::fd::OwnedFd;

use miette::{Context, IntoDiagnostic};

use super::Outcome;
use crate::arguments::RunOptions;

/// The privileged helper.
pub fn run(options: RunOptions) -> Outcome {
    let ready = options.ready_fd.map(inherited).transpose()?;
    midspan_proxy::run(midspan_proxy::RunOptions {
        configuration: options.config,
        relay_arguments: vec!["relay".to_owned()],
        ready,
    })?;
    Ok(true)
}

/// The relay process, which the helper starts.
pub fn relay() -> Outcome {
    midspan_proxy::relay_main()?;
    Ok(true)
}

/// A descriptor that whoever started this program left open, opened anew.
fn inherited(descriptor: u32) -> miette::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{descriptor}");
    File::options()
        .write(true)
        .open(path)
        .map(OwnedFd::from)
        .into_diagnostic()
        .wrap_err_with(|| format!("--ready-fd {descriptor} is not open for writing"))
}
