//! Bulk transfers of a fixed time by iperf3.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::program::{Launch, Program as Running};
use serde::Deserialize;

use super::wait_until_listening;
use crate::LabError;
use crate::programs::Program;

/// The port of iperf3's server.
pub const PORT: u16 = 5201;

/// The direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the server to the client.
    Download,
    /// From the client to the server.
    Upload,
}

/// A running server; it is stopped when this value is dropped.
pub struct BulkServer {
    _program: Running,
}

impl BulkServer {
    /// Starts iperf3 on `host`; its log is written to `folder`.
    pub fn start(
        host: &NetworkNamespace,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Self, LabError> {
        let launch = Launch::new(Program::Iperf3.command()?.get_program())
            .args(["--server", "--port", &address.port().to_string()])
            .folder(folder)
            .log_file("iperf3.log")
            .without_output()
            .inside(host)
            .grace(Duration::from_secs(1));
        let mut program = launch.start()?;
        wait_until_listening(host, address, "iperf3", &mut program)?;
        Ok(Self { _program: program })
    }
}

/// The parts of iperf3's report that the lab uses.
#[derive(Debug, Deserialize)]
struct Report {
    error: Option<String>,
    end: Option<End>,
}

#[derive(Debug, Deserialize)]
struct End {
    sum_received: Option<Sum>,
}

#[derive(Debug, Deserialize)]
struct Sum {
    bits_per_second: f64,
}

/// Transfers data for `duration`; returns the goodput in bit/s at the receiver.
pub fn transfer(
    client: &NetworkNamespace,
    to: SocketAddr,
    direction: Direction,
    duration: Duration,
) -> Result<f64, LabError> {
    let mut command = Program::Iperf3.command()?;
    command
        .args(["--json", "--client", &to.ip().to_string()])
        .args(["--port", &to.port().to_string()])
        .args(["--time", &duration.as_secs().max(1).to_string()])
        .args(["--connect-timeout", "20000"]);
    if direction == Direction::Download {
        command.arg("--reverse");
    }
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let output = client
        .spawn(command)?
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    let report: Report =
        serde_json::from_slice(&output.stdout).map_err(|error| LabError::Output {
            program: "iperf3",
            reason: error.to_string(),
        })?;
    if let Some(error) = report.error {
        return Err(failed(error));
    }
    report
        .end
        .and_then(|end| end.sum_received)
        .map(|sum| sum.bits_per_second)
        .ok_or_else(|| failed("its report has no sum".into()))
}

fn failed(reason: String) -> LabError {
    LabError::Program {
        program: "iperf3".into(),
        reason,
    }
}
