//! The errors of the predictions, as records and as a plot.

use midspan_records::{Bound, By, Record, Records};
use midspan_report::{Axis, LinePlot, Series};
use midspan_sim::tcp::Variant;

use super::draw::Draw;
use super::summary::{Agreement, Compared};

/// Bounds for the errors.
const MEDIAN: Bound = Bound::AtMost(0.10);
const PERCENTILE_90: Bound = Bound::AtMost(0.25);

/// The errors of all paths, of each number of legs and of each variant of TCP, and those of the
/// `worst` paths. The errors of all paths have a bound.
#[must_use]
pub fn records(drawn: &[(Draw, Compared)], worst: usize) -> Records {
    let mut records = Records::default();
    let mut group = |case: &str, bounded: bool, keep: &dyn Fn(&Draw) -> bool| {
        let of_group: Vec<Compared> = drawn
            .iter()
            .filter(|(draw, _)| keep(draw))
            .map(|(_, compared)| *compared)
            .collect();
        let Some(found) = Agreement::of(&of_group) else {
            return;
        };
        let count = of_group.len() as f64;
        let push = |quantity: &str, value: f64, bound: Option<Bound>| {
            let record = Record::new("agreement", case, quantity, "share", By::Analysis, value);
            match bound.filter(|_| bounded) {
                Some(bound) => record.with_ok(bound.is_met(value, None)),
                None => record,
            }
        };
        let paths = Record::new("agreement", case, "paths", "paths", By::Analysis, count);
        records.records.extend([
            paths,
            push("median error", found.median, Some(MEDIAN)),
            push(
                "90th percentile of the error",
                found.percentile_90,
                Some(PERCENTILE_90),
            ),
            push("bias", found.bias, None),
        ]);
    };
    group("all", true, &|_| true);
    for legs in 1..=4 {
        let case = if legs == 1 {
            "1 leg".to_owned()
        } else {
            format!("{legs} legs")
        };
        group(&case, false, &|draw| draw.legs.len() == legs);
    }
    for (case, variant) in [("Reno", Variant::Reno), ("NewReno", Variant::NewReno)] {
        group(case, false, &|draw| draw.variant == variant);
    }
    let mut by_error: Vec<&(Draw, Compared)> = drawn.iter().collect();
    by_error.sort_by(|a, b| b.1.error().abs().total_cmp(&a.1.error().abs()));
    for (draw, compared) in by_error.into_iter().take(worst) {
        let case = format!(
            "seed {}, {} legs, {:?}",
            compared.seed,
            draw.legs.len(),
            draw.variant
        );
        let push = |quantity: &str, unit: &str, by: By, value: f64| {
            Record::new("worst", &case, quantity, unit, by, value)
        };
        records.records.extend([
            push("predicted", "bit/s", By::Analysis, compared.predicted),
            push("simulated", "bit/s", By::Analysis, compared.simulated),
            push("error", "share", By::Analysis, compared.error()),
        ]);
    }
    records
}

/// The share of paths whose error is at most this large.
#[must_use]
pub fn plot(drawn: &[(Draw, Compared)]) -> LinePlot {
    let mut errors: Vec<f64> = drawn
        .iter()
        .map(|(_, compared)| compared.error().abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    let share = |index: usize| (index + 1) as f64 / errors.len() as f64;
    let points = errors
        .iter()
        .enumerate()
        .map(|(index, error)| (*error, share(index)));
    LinePlot {
        title: "Error of the analysis against the simulator".to_owned(),
        x: Axis::new("error", "share"),
        y: Axis::new("paths with at most that error", "share"),
        series: vec![Series {
            name: "paths".to_owned(),
            points: points.collect(),
        }],
    }
}
