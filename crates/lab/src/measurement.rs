//! What one run measured.

use midspan_path::{Direction, Flow, LinkIndex, Path};
use midspan_units::{BitRate, TimeSpan};

use crate::emulator::{DirectionReport, LinkReport};
use crate::{Case, Validity};

/// One run: the flows that ran at the same time, under one case.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// What was done at the proxies.
    pub case: Case,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Seed of the links' random draws.
    pub seed: u64,
    /// The flows that ran.
    pub flows: Vec<FlowMeasurement>,
    /// What passed each link, in the order of the path file.
    pub links: Vec<LinkReport>,
    /// Segments that all nodes sent again, from the kernels' counters.
    pub retransmissions: u64,
    /// Retransmission time-outs of all nodes, from the kernels' counters.
    pub timeouts: u64,
    /// Whether the run counts.
    pub validity: Validity,
}

/// How one flow went.
#[derive(Debug, Clone)]
pub struct FlowMeasurement {
    /// Its place in the path file.
    pub flow: usize,
    /// What it measured.
    pub result: FlowResult,
}

/// What a flow measured, by its workload.
#[derive(Debug, Clone, PartialEq)]
pub enum FlowResult {
    /// One file down or up.
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
    /// As much as possible in a fixed time.
    Bulk {
        /// Goodput at the receiver in bit/s.
        goodput: f64,
    },
    /// Requests and responses in turn.
    RequestResponse {
        /// Time of each.
        times: Vec<TimeSpan>,
    },
}

impl FlowMeasurement {
    /// Goodput in bit/s; `None` for requests and responses, which do not ask for rate.
    #[must_use]
    pub fn goodput(&self, flow: &Flow) -> Option<f64> {
        match &self.result {
            FlowResult::Bulk { goodput } => Some(*goodput),
            FlowResult::File { completion, .. } | FlowResult::Page { completion } => {
                let size = flow.workload.total_size()?;
                let rate = BitRate::from_transfer(size.bytes(), *completion)?;
                #[allow(clippy::cast_precision_loss)]
                Some(rate.bits_per_second() as f64)
            }
            FlowResult::RequestResponse { .. } => None,
        }
    }

    /// The time to the end; `None` for bulk, whose time is fixed. For requests and responses the
    /// median of them.
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
            FlowResult::Bulk { .. } => None,
        }
    }
}

impl Measurement {
    /// Pure ACKs that a flow's receiver (or the proxy beside it) sent into the narrowest link on
    /// its way; all flows of the run counted.
    #[must_use]
    pub fn acks_sent(&self, path: &Path, flow: &Flow) -> u64 {
        let (link, direction) = narrowest(path, flow);
        self.direction(link, direction.other()).pure_acks
    }

    /// What passed one direction of a link.
    #[must_use]
    pub fn direction(&self, link: LinkIndex, direction: Direction) -> &DirectionReport {
        let report = &self.links[link.0];
        match direction {
            Direction::Up => &report.up,
            Direction::Down => &report.down,
        }
    }
}

/// The link with the lowest rate on a flow's way, with the direction of its data; the first of
/// several, seen from the sender.
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
        // A checked path joins the ends of every flow by at least one link.
        .unwrap_or((LinkIndex(0), Direction::Down))
}
