//! What is said of a point's measurements: ratios of its arms and their bounds. The runs are held
//! against it in [`judging`](super::judging).

use midspan_records::quantity::{ACKS_UPSTREAM, COMPLETION_TIME, GOODPUT, SHARE_OF_LINK};
use midspan_records::{Better, Bound, Quantity};

/// A number, or several, of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Of all flows together.
    Goodput,
    /// Of one flow by its place.
    GoodputOf(usize),
    /// Goodput against the narrowest rate on the first flow's way, headers counted in the rate.
    ShareOfLink,
    /// Goodput of the first flow against that of all.
    ShareOfFirst,
    /// Of each flow.
    Completion,
    /// Of each flow of so many bytes.
    CompletionOf(u64),
    /// Pure ACKs sent into the narrow upstream.
    Acks,
    /// Packets of the first flow's direction that found a queue full.
    Overflows,
    /// Retransmission time-outs for 1,000 transfers.
    Timeouts,
    /// Of the first flow, what 99.9 % of the bursts that proxies send do not exceed.
    Burst,
    /// The longest of them.
    LongestBurst,
    /// Packets that found no room in the queues behind proxies, after the start.
    Dropped,
    /// Jain's index of the goodput of so many flows, the first ones.
    Fairness(usize),
    /// Completion time of one flow by its place.
    CompletionAt(usize),
    /// What 95 % of the responses of a flow do not exceed.
    Responses(usize),
}

/// A sentence about an arm, alone or against others.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// What is looked at.
    pub metric: Metric,
    /// Whose.
    pub arm: &'static str,
    /// Against whom: nobody, one, or the best of several.
    pub against: Vec<&'static str>,
    /// What must hold.
    pub bound: Option<Bound>,
    /// What the paper prints.
    pub paper: Option<f64>,
}

impl Statement {
    /// A ratio of an arm to another, or the value of the arm where `against` is empty.
    pub(crate) fn new(metric: Metric, arm: &'static str, against: &[&'static str]) -> Self {
        Self {
            metric,
            arm,
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
    /// The quantity whose values these are.
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
