//! The results of the simulator and of the analysis for the path of a case.

use midspan_plan::{Answer, DataPath};
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT};
use midspan_records::{Bound, By, Record, Spread};
use midspan_units::ByteSize;

use super::plan::{Arm, Point};
use super::run::Run;
use crate::comparison::simulations;

/// The simulator's goodput in bit/s, one value for each repetition, with the lab's seeds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Simulations(Vec<f64>);

impl Simulations {
    /// `None` if the simulator does not support the path.
    pub(super) fn of(arm: &Arm, repetitions: u32) -> Option<Self> {
        let (path, proxies) = arm.simulated()?;
        let repetitions = repetitions.max(1);
        let values = match size(arm) {
            Some(size) => simulations(&path, proxies, repetitions, &COMPLETION_TIME)
                .ok()?
                .into_iter()
                .map(|time| size / time)
                .collect(),
            None => simulations(&path, proxies, repetitions, &GOODPUT).ok()?,
        };
        if values.len() != usize::try_from(repetitions).ok()? {
            return None;
        }
        Some(Self(values))
    }

    /// The spread of the repetitions.
    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of(&self.0)
    }

    /// The ratio of the lab's goodput to the simulator's, paired by seed. The bound is met if the
    /// median is as near to one as the case requires, and missed if the whole interval is farther
    /// away.
    pub(super) fn ratio(&self, point: &Point, arm: &Arm, runs: &[Run]) -> Option<Record> {
        let bound = Bound::NearOne(arm.within?);
        let valid = runs
            .iter()
            .filter(|run| run.arm == arm.name && run.void.is_none());
        let ratios: Vec<f64> = valid
            .filter_map(|run| {
                let simulated = self.0.get(usize::try_from(run.repetition).ok()?)?;
                let goodput: f64 = run.transfers.iter().map(|one| one.goodput).sum();
                Some(goodput / simulated).filter(|ratio| ratio.is_finite())
            })
            .collect();
        let spread = Spread::of(&ratios)?;
        let case = format!("{}, lab against simulation", point.case(arm));
        let mut record = Record::new(
            point.item,
            &case,
            "ratio, goodput",
            "",
            By::Lab,
            spread.median,
        )
        .with_interval(&spread)
        .with_note(format!("bound: {bound}; {}", spread.note("paired ratios")));
        record.ok = bound.verdict(&spread, None);
        Some(record)
    }
}

/// Goodput of the same path by the analysis: from the completion time, or of a transfer without an
/// end.
pub(super) fn analyse(arm: &Arm) -> Option<f64> {
    let (path, proxies) = arm.simulated()?;
    // The analysis does not support thinning.
    if path != arm.path {
        return None;
    }
    let data_path = DataPath::of_flow(&path, path.flows.first()?).ok()?;
    let proxies = if proxies { &data_path.proxies[..] } else { &[] };
    let answer = Answer::new(&data_path, proxies).ok()?;
    let Some(bits) = size(arm) else {
        return Some(answer.throughput());
    };
    let bytes = path.flows.first()?.workload.total_size()?;
    answer.completion_time(bytes).map(|time| bits / time)
}

/// The number of bits that the only flow transfers.
fn size(arm: &Arm) -> Option<f64> {
    let size = arm.path.flows.first()?.workload.total_size();
    size.map(|size: ByteSize| 8.0 * crate::run::number(size.bytes()))
}
