//! Fig. 8: throughput against the loss of the WAN, for each of its delays.

use midspan_model::papers::maki_figures::{self, FIGURE_8_DELAYS, LOSSES, figure_8_networks};
use midspan_records::Record;
use midspan_report::Axis;

use super::CHOICES;
use super::measure::Measured;
use super::points::{Analysed, PROXIES, Point, measure_alone, measure_points, plot};
use super::scenario::Case;
use crate::run::simulated;
use crate::{Effort, Error, FigurePlot, Simulated};

const ITEM: &str = "figure 8";
/// Indexes of the networks.
const WAN: usize = 1;
const LAN2: usize = 2;
/// Buffers, in bytes, so large that they do not limit.
const LARGE: u64 = 4_000_000;
/// The loss of the WAN that the text names for each of its delays.
const BORDERS: [f64; 3] = [0.01, 0.01, 0.0001];
/// A border that is read off a figure in powers of ten is right within this factor.
const POWER_OF_TEN: f64 = 10.0;
/// If the WAN is not the slowest network, at most this share of LAN2's own throughput is missing.
const SAME: f64 = 0.05;

pub(super) fn simulate(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    if !effort.wants(ITEM) {
        return Ok(Simulated::default());
    }
    let points = Point::all(&FIGURE_8_DELAYS, figure_8_networks);
    let case = |point: &Point| Case::new(&point.networks).with_buffers(LARGE, LARGE);
    let mut done = |point: &Point| progress(&format!("{ITEM}, {}", point.case("WAN")));
    let split = measure_points(&points, effort, &mut done, |point| {
        case(point).split_at(&PROXIES)
    })?;
    let wan = measure_alone(&points, effort, &mut done, |point| case(point).alone(WAN))?;
    let lan2 = measure_points(&points[..1], effort, done, |point| case(point).alone(LAN2))?;
    let lan2 = lan2.first().map_or(0.0, Measured::mean);

    let record = simulated(ITEM, "LAN2 alone", "throughput", "bit/s", lan2);
    let mut records = vec![record.with_note(format!("{CHOICES}; buffers of 4 MB"))];
    let analysed = Analysed::new(maki_figures::figure_8)?;
    for (index, (point, split)) in points.iter().zip(&split).enumerate() {
        let record = split.record(ITEM, &point.case("WAN"), "throughput", "bit/s");
        records.extend(analysed.beside(record, index));
    }
    let lines = points.chunks(LOSSES.len()).zip(wan.chunks(LOSSES.len()));
    for (((points, wan), split), paper) in lines.zip(split.chunks(LOSSES.len())).zip(BORDERS) {
        records.push(border(points, wan, lan2, paper));
        let below = points.iter().zip(split);
        let least = below
            .filter(|(point, _)| point.loss * POWER_OF_TEN <= paper)
            .map(|(_, split)| split.mean() / lan2)
            .fold(f64::MAX, f64::min);
        let case = format!(
            "WAN {} ms, a power of ten below the border",
            points[0].delay
        );
        let quantity = "least share of LAN2's own throughput";
        let mut record = simulated(ITEM, &case, quantity, "share", least)
            .with_ok(least >= 1.0 - SAME)
            .with_note("the paper: \"equals that of C_LAN2\"");
        record.paper = Some(1.0);
        records.push(record);
    }
    let ys: Vec<f64> = split.iter().map(Measured::mean).collect();
    let y = Axis::new("throughput", "bit/s").on_a_logarithmic_scale();
    let plot = plot(
        "Throughput for each delay of the WAN",
        "WAN",
        y,
        &points,
        &ys,
    );
    Ok(Simulated {
        records,
        figures: vec![FigurePlot::new(ITEM, plot)],
    })
}

/// The loss from which the WAN alone is slower than LAN2 alone. Between the points of the figure,
/// it is interpolated linearly on the figure's scale.
fn border(points: &[Point], wan: &[Option<Measured>], lan2: f64, paper: f64) -> Record {
    let over: Vec<(f64, f64)> = points
        .iter()
        .zip(wan)
        .filter_map(|(point, wan)| {
            Some((
                libm::log(point.loss),
                libm::log(wan.as_ref()?.mean() / lan2),
            ))
        })
        .collect();
    // If the WAN is slower at the first point already, that point's loss.
    let first = over.first().map_or(0.0, |(loss, _)| *loss);
    let crossing = over
        .windows(2)
        .find(|pair| pair[0].1 >= 0.0 && pair[1].1 < 0.0)
        .map_or(first, |pair| {
            let share = pair[0].1 / (pair[0].1 - pair[1].1);
            pair[0].0 + share * (pair[1].0 - pair[0].0)
        });
    let value = libm::exp(crossing);
    let case = format!("WAN {} ms", points[0].delay);
    let within = value <= paper * POWER_OF_TEN && value >= paper / POWER_OF_TEN;
    let mut record = simulated(
        ITEM,
        &case,
        "loss from which the WAN limits",
        "share",
        value,
    )
    .with_ok(within)
    .with_note("read off the figure, in powers of ten");
    record.paper = Some(paper);
    record
}
