//! Bulk transfers of a fixed time by iperf3.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_records::statistics::quantile;
use midspan_testbed::program::{Launch, Program as Running};
use midspan_units::TimeSpan;
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

/// The result of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transferred {
    /// Goodput at the receiver in bit/s.
    pub goodput: f64,
    /// The median of the sender's smoothed round trip after each second, if the client sends.
    pub round_trip: Option<TimeSpan>,
}

/// The parts of iperf3's report that the lab uses.
#[derive(Debug, Deserialize)]
struct Report {
    error: Option<String>,
    #[serde(default)]
    intervals: Vec<Interval>,
    end: Option<End>,
}

/// The report of each second.
#[derive(Debug, Deserialize)]
struct Interval {
    #[serde(default)]
    streams: Vec<Stream>,
}

#[derive(Debug, Deserialize)]
struct Stream {
    /// The smoothed round trip in microseconds; only of a sender.
    rtt: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct End {
    sum_received: Option<Sum>,
}

#[derive(Debug, Deserialize)]
struct Sum {
    bits_per_second: f64,
}

/// Transfers data for `duration`.
pub fn transfer(
    client: &NetworkNamespace,
    to: SocketAddr,
    direction: Direction,
    duration: Duration,
) -> Result<Transferred, LabError> {
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
        .result()
        .ok_or_else(|| failed("its report has no sum".into()))
}

impl Report {
    fn result(&self) -> Option<Transferred> {
        let sum = self.end.as_ref()?.sum_received.as_ref()?;
        let streams = self.intervals.iter().flat_map(|second| &second.streams);
        let round_trips: Vec<f64> = streams.filter_map(|stream| stream.rtt).collect();
        // In whole nanoseconds; an impossible value saturates.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let span = |microseconds: f64| TimeSpan::from_nanoseconds((microseconds * 1e3) as u64);
        Some(Transferred {
            goodput: sum.bits_per_second,
            round_trip: quantile(&round_trips, 0.5)
                .filter(|rtt| *rtt > 0.0)
                .map(span),
        })
    }
}

fn failed(reason: String) -> LabError {
    LabError::Program {
        program: "iperf3".into(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_sender_has_round_trips() {
        let second = |rtt| format!(r#"{{"streams":[{{"bytes":1,"rtt":{rtt}}}]}}"#);
        let text = format!(
            r#"{{"intervals":[{},{},{}],"end":{{"sum_received":{{"bits_per_second":5e6}}}}}}"#,
            second(70_000),
            second(90_000),
            second(80_500)
        );
        let report: Report = serde_json::from_str(&text).unwrap();
        let expected = Transferred {
            goodput: 5e6,
            round_trip: Some(TimeSpan::from_nanoseconds(80_500_000)),
        };
        assert_eq!(report.result(), Some(expected));
        // A receiver's report has none.
        let text = r#"{"intervals":[{"streams":[{"bytes":1}]}],
            "end":{"sum_received":{"bits_per_second":5e6}}}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!(report.result().unwrap().round_trip, None);
    }
}
