//! What is said of a point's measurements: ratios of its arms and their bounds. The runs are held
//! against it in [`judging`](super::judging).

use std::fmt;

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

/// What a ratio or a value must keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
    /// No more than this share above 1, or no more than so many seconds; of a ratio of times.
    NotSlower {
        /// Such as 0.02.
        share: f64,
        /// Such as 0.001.
        seconds: f64,
    },
}

/// A sentence about an arm, alone or against others.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// What is looked at.
    pub metric: Metric,
    /// Whose.
    pub arm: &'static str,
    /// Against whom: nobody, one, or the one of several with the greatest value; of times, the
    /// least.
    pub against: Vec<&'static str>,
    /// What must hold.
    pub bound: Option<Bound>,
    /// What the paper prints.
    pub paper: Option<f64>,
}

impl Statement {
    /// A ratio of an arm to another, or the value of the arm where `against` is empty.
    pub(super) fn new(metric: Metric, arm: &'static str, against: &[&'static str]) -> Self {
        Self {
            metric,
            arm,
            against: against.to_vec(),
            bound: None,
            paper: None,
        }
    }

    pub(super) const fn at_least(mut self, least: f64) -> Self {
        self.bound = Some(Bound::AtLeast(least));
        self
    }

    pub(super) const fn at_most(mut self, most: f64) -> Self {
        self.bound = Some(Bound::AtMost(most));
        self
    }

    pub(super) const fn not_slower(mut self, share: f64, seconds: f64) -> Self {
        self.bound = Some(Bound::NotSlower { share, seconds });
        self
    }

    pub(super) const fn with_paper(mut self, value: f64) -> Self {
        self.paper = Some(value);
        self
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::NotSlower { share, seconds } => {
                let (most, more) = (1.0 + share, seconds * 1000.0);
                write!(f, "at most {most}, or {more} ms more")
            }
        }
    }
}

impl Metric {
    /// Whether less of it is better.
    pub(super) const fn is_time(self) -> bool {
        matches!(
            self,
            Self::Completion | Self::CompletionOf(_) | Self::CompletionAt(_) | Self::Responses(_)
        )
    }

    /// As it is called in records.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Goodput => "goodput".to_owned(),
            Self::GoodputOf(0) => "goodput of the first flow".to_owned(),
            Self::GoodputOf(_) => "goodput of the other flow".to_owned(),
            Self::ShareOfLink => "share of the downstream".to_owned(),
            Self::ShareOfFirst => "share of the first flow".to_owned(),
            Self::Completion => "completion time".to_owned(),
            Self::CompletionOf(size) => format!("completion time of {} KB", size / 1000),
            Self::Acks => "ACKs sent upstream".to_owned(),
            Self::Overflows => "packets that found a queue full".to_owned(),
            Self::Timeouts => "time-outs for 1,000 transfers".to_owned(),
            Self::Burst => "bursts, p99.9".to_owned(),
            Self::LongestBurst => "longest burst".to_owned(),
            Self::Dropped => "packets dropped behind the proxy".to_owned(),
            Self::Fairness(_) => "Jain's index".to_owned(),
            Self::CompletionAt(_) => "completion time of a page".to_owned(),
            Self::Responses(_) => "time of a response, p95".to_owned(),
        }
    }

    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Goodput | Self::GoodputOf(_) => "bit/s",
            Self::ShareOfLink | Self::ShareOfFirst => "share",
            Self::Completion
            | Self::CompletionOf(_)
            | Self::CompletionAt(_)
            | Self::Responses(_) => "s",
            Self::Acks | Self::Burst | Self::LongestBurst => "segments",
            Self::Dropped | Self::Overflows => "packets",
            Self::Timeouts | Self::Fairness(_) => "",
        }
    }
}
