//! What is said of a point's measurements: ratios of its arms and their bounds.

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
}

/// What a ratio or a value must keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
}

/// A sentence about an arm, alone or against others.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// What is looked at.
    pub metric: Metric,
    /// Whose.
    pub arm: &'static str,
    /// Against whom: nobody, one, or the one of several with the greatest value.
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
        record.ok = self.bound.and_then(|bound| bound.verdict(&middle));
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
                let best = all.copied().fold(f64::NEG_INFINITY, f64::max);
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
        let bound = match self.bound {
            Some(Bound::AtLeast(least)) => format!("asked: at least {least}; "),
            Some(Bound::AtMost(most)) => format!("asked: at most {most}; "),
            None => String::new(),
        };
        format!(
            "{bound}median of {count} {of}; the interval covers the true median with {:.0} %",
            middle.coverage * 100.0
        )
    }
}

impl Bound {
    /// Met where the median keeps it, missed where the whole interval is beyond it.
    fn verdict(self, middle: &Median) -> Option<bool> {
        let (met, missed) = match self {
            Self::AtLeast(least) => (middle.value >= least, middle.high < least),
            Self::AtMost(most) => (middle.value <= most, middle.low > most),
        };
        match (met, missed) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }
}

impl Metric {
    pub(super) fn name(self) -> String {
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
        }
    }

    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Goodput | Self::GoodputOf(_) => "bit/s",
            Self::ShareOfLink | Self::ShareOfFirst => "share",
            Self::Completion | Self::CompletionOf(_) => "s",
            Self::Acks => "segments",
            Self::Overflows => "packets",
            Self::Timeouts => "",
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
            Self::Overflows => vec![run.overflows],
            Self::Timeouts => {
                let transfers = number(run.transfers.len().max(1) as u64);
                vec![run.timeouts * 1000.0 / transfers]
            }
        }
    }
}
