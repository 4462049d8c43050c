//! Figs 7, 8 and 9: distributions of forward data and bursts with a queue at node n2 that never
//! overflows, and examples of cwnd.

use midspan_records::Record;
use midspan_report::{Axis, LinePlot, Series};
use midspan_sim::trace::Histogram;

use super::conditions::AMPLE;
use super::measure::{Measured, Runs, measure};
use super::scenario::{Scheme, Setting};
use crate::run::{number, simulated};
use crate::{Effort, Error, FigurePlot, Simulated};

const LOSSES: [&str; 2] = ["0.001", "0.01"];
/// The largest size that a histogram's plot shows, in packets.
const WIDEST: u64 = 50;

/// Figs 7 and 8.
pub(super) fn distributions(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let mut out = Simulated::default();
    for (item, scheme, paper) in [("figure 7", Scheme::B, 43.0), ("figure 8", Scheme::A, 2.0)] {
        if !effort.wants(item) {
            continue;
        }
        let settings = LOSSES.map(|loss| Setting::new(scheme, loss).under(AMPLE));
        let measured = measure(&settings, Runs::of(effort), effort.threads, |_| ())?;
        let mut series = Vec::new();
        for (loss, measured) in LOSSES.into_iter().zip(&measured) {
            let case = format!("{scheme:?}, P_L = {loss}");
            out.records
                .push(largest_forward_data(item, &case, measured));
            let mut bursts = bursts(item, &case, scheme, measured);
            if let [longest, ..] = bursts.as_mut_slice() {
                longest.paper = Some(paper);
            }
            out.records.append(&mut bursts);
            let forward = shares(&measured.bursts.forward);
            series.push(named(format!("forward data, P_L = {loss}"), forward));
            let lengths = shares(&measured.bursts.lengths);
            series.push(named(format!("bursts, P_L = {loss}"), lengths));
        }
        let pacing = if scheme == Scheme::A {
            "paced"
        } else {
            "not paced"
        };
        let plot = LinePlot {
            title: format!("Forward data and bursts, {pacing}"),
            x: Axis::new("size", "packets"),
            y: Axis::new("share", "share").on_a_logarithmic_scale(),
            series,
        };
        out.figures.push(FigurePlot::new(item, plot));
        progress(item);
    }
    Ok(out)
}

/// Fig. 9: cwnd on the wireless section for rare and for frequent losses.
pub(super) fn cwnd_examples() -> Result<Simulated, Error> {
    let mut out = Simulated::default();
    let mut series = Vec::new();
    for loss in LOSSES {
        let (points, mean) = Setting::new(Scheme::B, loss).under(AMPLE).cwnd()?;
        let case = format!("P_L = {loss}");
        let record = simulated("figure 9", &case, "mean cwnd", "segments", mean);
        out.records.push(record);
        series.push(named(case, points));
    }
    // The paper: frequent losses keep cwnd small.
    if let [rare, often] = out.records.as_mut_slice() {
        often.ok = Some(often.value < rare.value);
    }
    let plot = LinePlot {
        title: "cwnd on the wireless section".into(),
        x: Axis::new("time", "s"),
        y: Axis::new("cwnd", "segments"),
        series,
    };
    out.figures.push(FigurePlot::new("figure 9", plot));
    Ok(out)
}

const fn named(name: String, points: Vec<(f64, f64)>) -> Series {
    Series { name, points }
}

/// Each size, with the share of events that have this size.
fn shares(histogram: &Histogram) -> Vec<(f64, f64)> {
    let all = number(histogram.count().max(1));
    histogram
        .iter()
        .filter(|(size, _)| *size <= WIDEST)
        .map(|(size, count)| (number(size), number(count) / all))
        .collect()
}

fn largest_forward_data(item: &str, case: &str, measured: &Measured) -> Record {
    let largest = number(measured.bursts.forward.largest().unwrap_or(0));
    let mut record =
        simulated(item, case, "largest forward data", "segments", largest).with_ok(largest <= 43.0);
    record.paper = Some(43.0);
    record
}

/// The longest burst and p99.9 of the bursts. With pacing, p99.9 must be at most 2. Without a
/// proxy, there are no records.
pub(super) fn bursts(item: &str, case: &str, scheme: Scheme, measured: &Measured) -> Vec<Record> {
    let lengths = &measured.bursts.lengths;
    let (Some(longest), Some(most)) = (lengths.largest(), lengths.quantile(999)) else {
        return Vec::new();
    };
    let longest = simulated(item, case, "largest burst", "packets", number(longest));
    let mut p999 = simulated(item, case, "p99.9 burst", "packets", number(most));
    if scheme == Scheme::A {
        p999.ok = Some(most <= 2);
    }
    vec![longest, p999]
}
