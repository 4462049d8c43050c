//! Statements about a point's measurements: ratios of its cases, and their bounds.
//! [`judging`](super::judging) compares the runs with them.

use midspan_records::quantity::{ACKS_UPSTREAM, COMPLETION_TIME, GOODPUT, SHARE_OF_LINK};
use midspan_records::{Better, Bound, Quantity};

/// A quantity of a run, with one or several values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The goodput of all flows together.
    Goodput,
    /// The goodput of one flow, by its index.
    GoodputOf(usize),
    /// The goodput of all flows divided by the smallest rate on the path of the first flow's data.
    /// The rate includes headers.
    ShareOfLink,
    /// The goodput of the first flow divided by that of all flows.
    ShareOfFirst,
    /// The completion time of each flow.
    Completion,
    /// The completion time of each flow of this number of bytes.
    CompletionOf(u64),
    /// Pure ACKs sent into the narrow upstream.
    Acks,
    /// Packets of the first flow's direction that found a queue full.
    Overflows,
    /// Retransmission time-outs for 1,000 transfers.
    Timeouts,
    /// The length that 99.9 % of the bursts of proxies do not exceed, for the first flow.
    Burst,
    /// The longest of these bursts.
    LongestBurst,
    /// Packets that proxies sent and that found a queue full, after the start.
    Dropped,
    /// Jain's index of the goodputs of the first flows, of this number.
    Fairness(usize),
    /// Completion time of one flow, by its index.
    CompletionAt(usize),
    /// The time that 95 % of a flow's responses do not exceed.
    Responses(usize),
}

/// A statement about a case, alone or compared with others.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// The metric that is evaluated.
    pub metric: Metric,
    /// The name of the case.
    pub case: &'static str,
    /// The cases with which it is compared: none, one, or the best of several.
    pub against: Vec<&'static str>,
    /// The bound of the value or ratio.
    pub bound: Option<Bound>,
    /// The value or ratio that the paper prints.
    pub paper: Option<f64>,
}

impl Statement {
    /// The ratio of a case to another one. If `against` is empty, the value of the case.
    pub(crate) fn new(metric: Metric, case: &'static str, against: &[&'static str]) -> Self {
        Self {
            metric,
            case,
            against: against.to_vec(),
            bound: None,
            paper: None,
        }
    }

    pub(crate) const fn at_least(mut self, least: f64) -> Self {
        self.bound = Some(Bound::AtLeast(least));
        self
    }

    pub(crate) const fn at_most(mut self, most: f64) -> Self {
        self.bound = Some(Bound::AtMost(most));
        self
    }

    pub(crate) const fn not_slower(mut self, share: f64, seconds: f64) -> Self {
        self.bound = Some(Bound::NotSlower { share, seconds });
        self
    }

    pub(crate) const fn with_paper(mut self, value: f64) -> Self {
        self.paper = Some(value);
        self
    }
}

impl Metric {
    /// The quantity of this metric's values.
    #[must_use]
    pub fn quantity(self) -> Quantity {
        let named = |name: &str, of: &Quantity| Quantity {
            name: name.to_owned().into(),
            ..of.clone()
        };
        match self {
            Self::Goodput => GOODPUT.clone(),
            Self::GoodputOf(0) => named("goodput of the first flow", &GOODPUT),
            Self::GoodputOf(_) => named("goodput of the other flow", &GOODPUT),
            Self::ShareOfLink => named("share of the downstream", &SHARE_OF_LINK),
            Self::ShareOfFirst => {
                Quantity::new("share of the first flow", "share", Better::Neither)
            }
            Self::Completion => COMPLETION_TIME.clone(),
            Self::CompletionOf(size) => {
                let name = format!("completion time of {} KB", size / 1000);
                named(&name, &COMPLETION_TIME)
            }
            Self::CompletionAt(_) => named("completion time of a page", &COMPLETION_TIME),
            Self::Responses(_) => named("time of a response, p95", &COMPLETION_TIME),
            Self::Acks => ACKS_UPSTREAM.clone(),
            Self::Overflows => {
                Quantity::new("packets that found a queue full", "packets", Better::Less)
            }
            Self::Timeouts => Quantity::new("time-outs for 1,000 transfers", "", Better::Less),
            Self::Burst => Quantity::new("bursts, p99.9", "segments", Better::Less),
            Self::LongestBurst => Quantity::new("longest burst", "segments", Better::Less),
            Self::Dropped => {
                Quantity::new("packets dropped behind the proxy", "packets", Better::Less)
            }
            Self::Fairness(_) => Quantity::new("Jain's index", "", Better::Greater),
        }
    }
}
