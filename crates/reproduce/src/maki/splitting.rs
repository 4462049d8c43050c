//! Figs 9 and 10: the gain by splitting, and the cost of the interaction of the legs, against the
//! loss of LAN2, for each of its delays.

use midspan_model::papers::maki_figures::{
    LAN2_DELAYS, RECEIVE_BUFFER, figure_9, figure_10, lan2_networks,
};
use midspan_records::Record;
use midspan_report::Axis;

use super::CHOICES;
use super::measure::Measured;
use super::points::{Analysed, PROXIES, Point, measure_alone, measure_points, plot};
use super::scenario::Case;
use crate::run::simulated;
use crate::{Effort, Error, FigurePlot, Simulated};

const GAIN: &str = "figure 9";
const COST: &str = "figure 10";
/// Indexes of LAN1 and LAN2.
const FIRST: usize = 0;
const LAN2: usize = 2;
/// Send buffer in bytes: little more than a leg's largest amount of data in flight.
const SEND_BUFFER: u64 = 32_000;
/// "Up to about 3 times": between these.
const ABOUT_3: [f64; 2] = [2.0, 4.0];
/// "Up to about 40 %": between these.
const ABOUT_40_PERCENT: [f64; 2] = [0.25, 0.5];

pub(super) fn simulate(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let mut out = Simulated::default();
    if !effort.wants(GAIN) && !effort.wants(COST) {
        return Ok(out);
    }
    let points = Point::all(&LAN2_DELAYS, lan2_networks);
    let case = |point: &Point| {
        Case::new(&point.networks).with_buffers(RECEIVE_BUFFER.bytes(), SEND_BUFFER)
    };
    let mut done = |point: &Point| progress(&format!("{GAIN}, {}", point.case("LAN2")));
    let split = measure_points(&points, effort, &mut done, |point| {
        case(point).split_at(&PROXIES)
    })?;
    if effort.wants(GAIN) {
        let unsplit = measure_points(&points, effort, &mut done, case)?;
        let gains: Vec<Measured> = split
            .iter()
            .zip(&unsplit)
            .map(|(split, unsplit)| split.over(unsplit))
            .collect();
        gain(&mut out, &points, &gains)?;
    }
    if effort.wants(COST) {
        let first = measure_points(&points[..1], effort, &mut done, |point| {
            case(point).alone(FIRST)
        })?;
        let first = first.first().map_or(0.0, Measured::mean);
        let lan2 = measure_alone(&points, effort, &mut done, |point| case(point).alone(LAN2))?;
        let shares: Vec<Measured> = split
            .iter()
            .zip(&lan2)
            .map(|(split, lan2)| {
                let lan2 = lan2.as_ref().map_or(f64::MAX, Measured::mean);
                split.over_fixed(first.min(lan2))
            })
            .collect();
        cost(&mut out, &points, &shares)?;
    }
    Ok(out)
}

fn note() -> String {
    format!(
        "{CHOICES}; send buffers of {} KB, receive buffers of {} KB",
        SEND_BUFFER / 1000,
        RECEIVE_BUFFER.bytes() / 1000
    )
}

/// Records and plot of Fig. 9.
fn gain(out: &mut Simulated, points: &[Point], gains: &[Measured]) -> Result<(), Error> {
    let analysed = Analysed::new(figure_9)?;
    for (index, (point, gain)) in points.iter().zip(gains).enumerate() {
        let mut record = gain.record(GAIN, &point.case("LAN2"), "gain", "");
        if index == 0 {
            record = record.with_note(note());
        }
        out.records.extend(analysed.beside(record, index));
    }
    let means: Vec<f64> = gains.iter().map(Measured::mean).collect();
    let least = means.iter().copied().fold(f64::MAX, f64::min);
    let record = simulated(GAIN, "everywhere", "least gain", "", least)
        .with_ok(least >= 1.0)
        .with_note("the paper: \"always larger than 1\"");
    out.records.push(with_paper(record, 1.0));
    // Only where LAN2 has at least the loss and the delay of the others, as section III C assumes.
    let (_, most) = greatest(points, &means, |point| {
        point.loss >= 0.01 && point.delay >= 50
    });
    let record = simulated(GAIN, "LAN2 the worst", "greatest gain", "", most)
        .with_ok(within(most, ABOUT_3))
        .with_note("the paper: \"about\"");
    out.records.push(with_paper(record, 3.0));
    let y = Axis::new("gain", "");
    let plot = plot(
        "Gain of splitting for each delay of LAN2",
        "LAN2",
        y,
        points,
        &means,
    );
    out.figures.push(FigurePlot::new(GAIN, plot));
    Ok(())
}

/// Records and plot of Fig. 10.
fn cost(out: &mut Simulated, points: &[Point], shares: &[Measured]) -> Result<(), Error> {
    let analysed = Analysed::new(figure_10)?;
    let quantity = "share of the slowest leg's own throughput";
    for (index, (point, share)) in points.iter().zip(shares).enumerate() {
        let mut record = share.record(COST, &point.case("LAN2"), quantity, "share");
        if index == 0 {
            record = record.with_note(note());
        }
        out.records.extend(analysed.beside(record, index));
    }
    let means: Vec<f64> = shares.iter().map(Measured::mean).collect();
    let costs: Vec<f64> = means.iter().map(|share| 1.0 - share).collect();
    let (at, most) = greatest(points, &costs, |_| true);
    let case = at.map_or_else(String::new, |point| point.case("LAN2"));
    let record = simulated(COST, &case, "greatest coupling loss", "share", most)
        .with_ok(within(most, ABOUT_40_PERCENT))
        .with_note("the paper: \"up to about\", where P is about 0.01 and D about 0.05 s");
    out.records.push(with_paper(record, 0.4));
    let (_, alike) = greatest(points, &costs, |point| {
        point.loss == 0.01 && point.delay == 50
    });
    let record = simulated(COST, "legs alike", "coupling loss", "share", alike)
        .with_ok(within(alike, ABOUT_40_PERCENT));
    out.records.push(with_paper(record, 0.4));
    let title = "Share of the slowest leg's own throughput for each delay of LAN2";
    let plot = plot(title, "LAN2", Axis::new("share", "share"), points, &means);
    out.figures.push(FigurePlot::new(COST, plot));
    Ok(())
}

/// The greatest of `values` at points for which `wanted` returns true, and its point.
fn greatest<'a>(
    points: &'a [Point],
    values: &[f64],
    wanted: impl Fn(&Point) -> bool,
) -> (Option<&'a Point>, f64) {
    let mut most = (None, f64::MIN);
    for (point, value) in points.iter().zip(values) {
        if wanted(point) && *value > most.1 {
            most = (Some(point), *value);
        }
    }
    most
}

fn within(value: f64, [low, high]: [f64; 2]) -> bool {
    value >= low && value <= high
}

fn with_paper(mut record: Record, paper: f64) -> Record {
    record.paper = Some(paper);
    record
}
