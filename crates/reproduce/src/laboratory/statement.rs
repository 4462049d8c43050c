//! What is said of a point's measurements: ratios of its arms and their bounds.

use std::fmt;

use midspan_path::Workload;
use midspan_records::statistics::{Median, median};
use midspan_records::{By, Record};

use super::plan::{Arm, Point};
use super::run::Run;
use crate::run::number;

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

    /// The sentence as a record; `None` where no valid runs speak of it. `runs` are those of the
    /// point.
    pub(super) fn record(&self, point: &Point, runs: &[Run]) -> Option<Record> {
        let values = self.values(point, runs)?;
        let middle = median(&values)?;
        let (case, quantity, unit) = if self.against.is_empty() {
            let case = format!("{}, {}", point.name, self.arm);
            (case, self.metric.name(), self.metric.unit())
        } else {
            let others = self.against.join(" or ");
            let which = if self.against.len() > 1 {
                "the better of "
            } else {
                ""
            };
            let case = format!("{}, {} against {which}{others}", point.name, self.arm);
            (case, format!("ratio, {}", self.metric.name()), "")
        };
        let mut record = Record::new(point.item, &case, &quantity, unit, By::Lab, middle.value)
            .with_spread(middle.low, middle.high);
        record.paper = self.paper;
        // What the ratio is to, for a bound in seconds.
        let other = self.against.first().and_then(|other| {
            let alone = Self::new(self.metric, other, &[]);
            median(&alone.values(point, runs)?)
        });
        let other = other.map(|median| median.value);
        record.ok = self.bound.and_then(|bound| bound.verdict(&middle, other));
        record.note = Some(self.note(values.len(), &middle));
        Some(record)
    }

    fn values(&self, point: &Point, runs: &[Run]) -> Option<Vec<f64>> {
        let arm = |name: &str| point.arms.iter().find(|arm| arm.name == name);
        let ours = arm(self.arm)?;
        let mut values = Vec::new();
        for repetition in 0..point.repetitions {
            let of = |arm: &Arm| {
                let mut runs = runs.iter();
                let run = runs.find(|run| run.arm == arm.name && run.repetition == repetition);
                let valid = run.filter(|run| run.void.is_none());
                valid.map(|run| self.metric.values(arm, run))
            };
            let Some(mine) = of(ours) else { continue };
            if self.against.is_empty() {
                values.extend(mine);
                continue;
            }
            let others: Option<Vec<Vec<f64>>> =
                self.against.iter().map(|name| of(arm(name)?)).collect();
            let Some(others) = others else { continue };
            for (place, value) in mine.iter().enumerate() {
                let all = others.iter().filter_map(|one| one.get(place));
                let best = if self.metric.is_time() {
                    all.copied().fold(f64::INFINITY, f64::min)
                } else {
                    all.copied().fold(f64::NEG_INFINITY, f64::max)
                };
                // None of either kind is as many as the other.
                let ratio = if *value == 0.0 && best == 0.0 {
                    1.0
                } else {
                    value / best
                };
                values.extend(ratio.is_finite().then_some(ratio));
            }
        }
        Some(values)
    }

    fn note(&self, count: usize, middle: &Median) -> String {
        let of = if self.against.is_empty() {
            "values"
        } else {
            "paired ratios"
        };
        let bound = self
            .bound
            .map_or_else(String::new, |bound| format!("asked: {bound}; "));
        format!(
            "{bound}median of {count} {of}; the interval covers the true median with {:.0} %",
            middle.coverage * 100.0
        )
    }
}

impl Bound {
    /// Met where the median keeps it, missed where the whole interval is beyond it. `other` is
    /// what a ratio is to.
    fn verdict(self, middle: &Median, other: Option<f64>) -> Option<bool> {
        let (met, missed) = match self {
            Self::AtLeast(least) => (middle.value >= least, middle.high < least),
            Self::AtMost(most) => (middle.value <= most, middle.low > most),
            Self::NotSlower { share, seconds } => {
                let by_seconds = other.map_or(0.0, |other| seconds / other);
                return Self::AtMost(1.0 + share.max(by_seconds)).verdict(middle, None);
            }
        };
        match (met, missed) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
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
    const fn is_time(self) -> bool {
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

    /// Its values in a run: one, or one for each flow.
    pub(super) fn values(self, arm: &Arm, run: &Run) -> Vec<f64> {
        let goodput = || run.transfers.iter().map(|one| one.goodput).sum::<f64>();
        let of = |place: usize| run.transfers.get(place).map(|one| one.goodput);
        match self {
            Self::Goodput => vec![goodput()],
            Self::GoodputOf(place) => of(place).into_iter().collect(),
            Self::ShareOfLink => {
                let flow = arm.path.flows.first();
                let rate = flow.and_then(|flow| arm.path.data_rate(flow));
                rate.map(|rate| goodput() / number(rate.bits_per_second()))
                    .into_iter()
                    .collect()
            }
            Self::ShareOfFirst => of(0).map(|first| first / goodput()).into_iter().collect(),
            Self::Completion => run
                .transfers
                .iter()
                .filter_map(|one| one.completion)
                .collect(),
            Self::CompletionOf(bytes) => {
                let wanted = |workload: &Workload| {
                    workload
                        .total_size()
                        .is_some_and(|size| size.bytes() == bytes)
                };
                let flows = arm.path.flows.iter().zip(&run.transfers);
                flows
                    .filter(|(flow, _)| wanted(&flow.workload))
                    .filter_map(|(_, one)| one.completion)
                    .collect()
            }
            Self::Acks => vec![run.acks],
            Self::Burst => vec![run.wire.burst],
            Self::LongestBurst => vec![run.wire.longest],
            Self::Dropped => vec![run.wire.dropped],
            Self::Fairness(flows) => {
                let first = run.transfers.iter().take(flows);
                jain(first.map(|one| one.goodput)).into_iter().collect()
            }
            Self::CompletionAt(place) => {
                let found = run.transfers.get(place);
                found.and_then(|one| one.completion).into_iter().collect()
            }
            Self::Responses(place) => {
                let found = run.transfers.get(place);
                found.and_then(|one| one.p95).into_iter().collect()
            }
            Self::Overflows => vec![run.overflows],
            Self::Timeouts => {
                let transfers = number(run.transfers.len().max(1) as u64);
                vec![run.timeouts * 1000.0 / transfers]
            }
        }
    }
}

/// Jain's index of shares: 1 where all are equal, 1/n where one has everything.
fn jain(shares: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn equal_shares_are_fair_and_one_for_all_is_not() {
        assert_eq!(jain([2.0; 4].into_iter()), Some(1.0));
        assert_eq!(jain([1.0, 0.0, 0.0, 0.0].into_iter()), Some(0.25));
        assert_eq!(jain([0.0].into_iter()), None);
    }
}
