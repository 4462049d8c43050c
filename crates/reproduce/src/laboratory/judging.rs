//! Evaluates the statements of a point with its runs.

use midspan_lab::Case;
use midspan_path::Workload;
use midspan_records::{By, Record, Spread};

use super::point::Point;
use super::run::Run;
use super::statement::{Metric, Statement};
use crate::run::number;

impl Statement {
    /// The statement's value as a record; `None` if no valid run has the value. `runs` are those of
    /// the point.
    pub(super) fn record(&self, point: &Point, runs: &[Run]) -> Option<Record> {
        let values = self.values(point, runs)?;
        let spread = Spread::of(&values)?;
        let quantity = self.metric.quantity();
        let (case, name, unit) = if self.against.is_empty() {
            let case = format!("{}, {}", point.name, self.case);
            (case, quantity.name.to_string(), quantity.unit)
        } else {
            let others = self.against.join(" or ");
            let which = if self.against.len() > 1 {
                "the better of "
            } else {
                ""
            };
            let case = format!("{}, {} against {which}{others}", point.name, self.case);
            (case, format!("ratio, {}", quantity.name), "")
        };
        let mut record = Record::new(point.item, &case, &name, unit, By::Lab, spread.median)
            .with_interval(&spread);
        record.paper = self.paper;
        // The denominator of the ratio, for a bound in seconds.
        let other = self.against.first().and_then(|other| {
            let alone = Self::new(self.metric, other, &[]);
            Spread::of(&alone.values(point, runs)?)
        });
        let other = other.map(|spread| spread.median);
        record.ok = self.bound.and_then(|bound| bound.verdict(&spread, other));
        record.note = Some(self.note(&spread));
        Some(record)
    }

    fn values(&self, point: &Point, runs: &[Run]) -> Option<Vec<f64>> {
        let find = |name: &str| point.cases.iter().find(|case| case.name == name);
        let ours = find(self.case)?;
        let mut values = Vec::new();
        for repetition in 0..point.repetitions {
            let of = |case: &Case| {
                let mut runs = runs.iter();
                let run = runs.find(|run| run.case == case.name && run.repetition == repetition);
                let valid = run.filter(|run| run.void.is_none());
                valid.map(|run| self.metric.values(case, run))
            };
            let Some(mine) = of(ours) else { continue };
            if self.against.is_empty() {
                values.extend(mine);
                continue;
            }
            let others: Option<Vec<Vec<f64>>> =
                self.against.iter().map(|name| of(find(name)?)).collect();
            let Some(others) = others else { continue };
            for (place, value) in mine.iter().enumerate() {
                let all = others.iter().filter_map(|one| one.get(place));
                let best = self.metric.quantity().best(all.copied());
                // Zero compared with zero is a ratio of one.
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

    fn note(&self, spread: &Spread) -> String {
        let of = if self.against.is_empty() {
            "values"
        } else {
            "paired ratios"
        };
        let bound = self
            .bound
            .map_or_else(String::new, |bound| format!("bound: {bound}; "));
        format!("{bound}{}", spread.note(of))
    }
}

impl Metric {
    /// The metric's values in a run: one, or one for each flow.
    pub(super) fn values(self, case: &Case, run: &Run) -> Vec<f64> {
        let goodput = || run.transfers.iter().map(|one| one.goodput).sum::<f64>();
        let of = |place: usize| run.transfers.get(place).map(|one| one.goodput);
        match self {
            Self::Goodput => vec![goodput()],
            Self::GoodputOf(place) => of(place).into_iter().collect(),
            Self::ShareOfLink => {
                let flow = case.path.flows.first();
                let rate = flow.and_then(|flow| case.path.data_rate(flow));
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
                let flows = case.path.flows.iter().zip(&run.transfers);
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

/// Jain's index of shares: 1 if all shares are equal, 1/n if one flow has everything.
pub(crate) fn jain(shares: impl Iterator<Item = f64>) -> Option<f64> {
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
