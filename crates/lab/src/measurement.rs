//! The results of one run.

use midspan_path::{Direction, Flow, LinkIndex, Path};
use midspan_units::{BitRate, TimeSpan, number};
use serde::{Deserialize, Serialize};

use crate::emulator::{DirectionReport, LinkReport};
use crate::{CaseKind, Validity};

/// One run: the flows that ran at the same time, under one case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    /// What ran on the path.
    pub case: CaseKind,
    /// The number of the repetition, from 0.
    pub repetition: u32,
    /// Seed of the links' random draws.
    pub seed: u64,
    /// The flows that ran.
    pub flows: Vec<FlowMeasurement>,
    /// The traffic of each link, in the order of the path file.
    pub links: Vec<LinkReport>,
    /// Segments that all nodes retransmitted, from the kernels' counters.
    pub retransmissions: u64,
    /// Retransmission time-outs of all nodes, from the kernels' counters.
    pub timeouts: u64,
    /// Whether the run is valid.
    pub validity: Validity,
}

/// The measurement of one flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowMeasurement {
    /// The flow's position in the path file.
    pub flow: usize,
    /// The flow's result.
    pub result: FlowResult,
}

/// The result of a flow; its kind depends on the workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FlowResult {
    /// One file, downloaded or uploaded.
    File {
        /// From the start to the first byte of the answer.
        first_byte: TimeSpan,
        /// From the start to the last byte.
        completion: TimeSpan,
    },
    /// A page.
    Page {
        /// From the start to the last byte of the last object.
        completion: TimeSpan,
    },
    /// As much data as possible in a fixed time.
    Bulk {
        /// Goodput at the receiver in bit/s.
        goodput: f64,
        /// The median of the sender's smoothed round trip after each second; `None` if the server
        /// sends, because only the client reports it.
        round_trip: Option<TimeSpan>,
    },
    /// Requests and responses in turn.
    RequestResponse {
        /// Time of each request.
        times: Vec<TimeSpan>,
    },
    /// A command.
    Command {
        /// From its start to its end.
        completion: TimeSpan,
        /// Its exit status; 128 and the number of the signal if a signal ended it.
        status: i32,
        /// The end of its output.
        output: String,
    },
}

impl FlowMeasurement {
    /// Goodput in bit/s; `None` for requests and responses, whose goodput is not of interest.
    #[must_use]
    pub fn goodput(&self, flow: &Flow) -> Option<f64> {
        match &self.result {
            FlowResult::Bulk { goodput, .. } => Some(*goodput),
            FlowResult::File { completion, .. } | FlowResult::Page { completion } => {
                let size = flow.workload.total_size()?;
                let rate = BitRate::from_transfer(size.bytes(), *completion)?;
                Some(number(rate.bits_per_second()))
            }
            FlowResult::RequestResponse { .. } | FlowResult::Command { .. } => None,
        }
    }

    /// The exit status of a command that has failed.
    #[must_use]
    pub const fn failed_status(&self) -> Option<i32> {
        match self.result {
            FlowResult::Command { status, .. } if status != 0 => Some(status),
            _ => None,
        }
    }

    /// The completion time; `None` for bulk, which has a fixed time. For requests and responses,
    /// the median of their times. `None` also for a command that has failed: a
    /// failure may be fast.
    #[must_use]
    pub fn completion(&self) -> Option<TimeSpan> {
        match &self.result {
            FlowResult::File { completion, .. } | FlowResult::Page { completion } => {
                Some(*completion)
            }
            FlowResult::RequestResponse { times } => {
                let mut times = times.clone();
                times.sort_unstable();
                times.get(times.len() / 2).copied()
            }
            FlowResult::Command {
                completion, status, ..
            } => (*status == 0).then_some(*completion),
            FlowResult::Bulk { .. } => None,
        }
    }

    /// The completion time in seconds, or the time for each bit if the time is fixed: the less, the better.
    #[must_use]
    pub fn time_per_work(&self, flow: &Flow) -> Option<f64> {
        self.completion()
            .map(TimeSpan::as_seconds)
            .or_else(|| self.goodput(flow).map(|goodput| 1.0 / goodput))
    }
}

impl Measurement {
    /// Pure ACKs that entered the flow's narrowest link from the side of the receiver, of all flows
    /// of the run. The receiver sent them, or a proxy between the receiver and this link.
    #[must_use]
    pub fn acks_sent(&self, path: &Path, flow: &Flow) -> u64 {
        let (link, direction) = narrowest(path, flow);
        self.direction(link, direction.other()).pure_acks
    }

    /// The traffic of one direction of a link.
    #[must_use]
    pub fn direction(&self, link: LinkIndex, direction: Direction) -> &DirectionReport {
        let report = &self.links[link.0];
        match direction {
            Direction::Up => &report.up,
            Direction::Down => &report.down,
        }
    }
}

/// The link with the lowest rate on a flow's path, with the direction of the flow's data. If
/// several links have this rate, the one nearest to the sender.
#[must_use]
pub fn narrowest(path: &Path, flow: &Flow) -> (LinkIndex, Direction) {
    let rate = |link: LinkIndex, direction| {
        path.link(link)
            .direction(direction)
            .state
            .rate
            .map_or(u64::MAX, BitRate::bits_per_second)
    };
    path.data_way(flow)
        .iter()
        .map(|hop| (hop.link, hop.direction))
        .min_by_key(|(link, direction)| rate(*link, *direction))
        // In a checked path, at least one link joins the ends of every flow.
        .unwrap_or((LinkIndex(0), Direction::Down))
}
