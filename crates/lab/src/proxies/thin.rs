//! `midspan thin` on a client's host.

use std::path::Path;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::program::{Launch, LaunchError, Program};
use midspan_units::BitRate;

use crate::LabError;

/// How `midspan thin` is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThinOptions {
    /// Every ACK passes. Otherwise ACKs are thinned by the default policy.
    pub pass: bool,
    /// In the host's queue, ACKs are sent before data, for an upstream of this rate.
    pub ack_first: Option<BitRate>,
}

/// Starts `midspan thin` on `node`, from the executable of this process, for packets that leave by
/// `interface`; returns when thinning has begun.
pub fn start(
    node: &NetworkNamespace,
    interface: &str,
    options: ThinOptions,
    folder: &Path,
) -> Result<Program, LabError> {
    let failed = |reason: String| LabError::Program {
        program: "midspan thin".into(),
        reason,
    };
    let this = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut launch = Launch::new(this).args(["thin", "--interface", interface]);
    if options.pass {
        launch = launch.args(["--policy", "pass"]);
    }
    if let Some(rate) = options.ack_first {
        launch = launch.args(["--ack-first", "--upstream", &rate.to_string()]);
    }
    // `midspan thin` prints one line on standard output when it is ready.
    let launch = launch.folder(folder).log_file("thin.log").inside(node);
    let launch = launch.grace(Duration::from_secs(5));
    launch.ready().map_err(|error| match error {
        LaunchError::NotReady { log, .. } => failed(log),
        error => error.into(),
    })
}
