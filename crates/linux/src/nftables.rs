//! Rulesets, by the program `nft` (nft(8)).
//!
//! A text is taken whole or not at all: `nft -f` sends it as one transaction. To be called by a
//! process that may run programs, with `CAP_NET_ADMIN` of its network namespace.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use thiserror::Error;

use crate::capability::{self, Capability};

/// Most of nft's complaint that is shown, in bytes.
const COMPLAINT_LIMIT: usize = 2_000;

/// A ruleset could not be read or changed.
#[derive(Debug, Error)]
pub enum NftablesError {
    /// There is no such program.
    #[error("cannot run nft: {0} (install it: apt install nftables)")]
    Run(#[source] io::Error),
    /// It refused.
    #[error("nft cannot {action}: {complaint}")]
    Refused {
        /// What was to be done.
        action: &'static str,
        /// What it said.
        complaint: String,
    },
}

/// Puts a ruleset in force, whole or not at all.
///
/// # Errors
/// See [`NftablesError`].
pub fn apply(ruleset: &str) -> Result<(), NftablesError> {
    succeed("set rules", &run(&["-f", "-"], ruleset)?)
}

/// Whether the kernel would take a ruleset; nothing is changed.
///
/// # Errors
/// `nft` cannot be run.
pub fn is_possible(ruleset: &str) -> Result<bool, NftablesError> {
    Ok(run(&["-c", "-f", "-"], ruleset)?.status.success())
}

/// A table as `nft` prints it, without counters; `None` where there is none.
///
/// # Errors
/// `nft` cannot be run.
pub fn table(family: &str, name: &str) -> Result<Option<String>, NftablesError> {
    let output = run(&["-s", "list", "table", family, name], "")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(output.status.success().then_some(text))
}

fn succeed(action: &'static str, output: &Output) -> Result<(), NftablesError> {
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.trim().chars().take(COMPLAINT_LIMIT).collect();
    Err(NftablesError::Refused { action, complaint })
}

fn run(arguments: &[&str], input: &str) -> Result<Output, NftablesError> {
    let start = || -> io::Result<Output> {
        let mut nft = Command::new("nft");
        nft.args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = capability::pass_on(Capability::CAP_NET_ADMIN, || nft.spawn())?;
        // It reads all of its input before it prints anything.
        if let Some(mut pipe) = child.stdin.take() {
            match pipe.write_all(input.as_bytes()) {
                // It has ended with a complaint, which is read below.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        child.wait_with_output()
    };
    start().map_err(NftablesError::Run)
}
