//! Figs 8 to 10: the loss and the delay of one of three networks vary.

use midspan_model::ModelError;
use midspan_model::overlay::Reading;
use midspan_model::papers::maki_figures::{LOSSES, Line, Network};
use midspan_records::{By, Record};
use midspan_report::{Axis, LinePlot, Series};

use super::measure::{Measured, Runs, measure};
use super::scenario::Case;
use crate::{Effort, Error};

/// The proxies of Fig. 7.
pub(super) const PROXIES: [usize; 2] = [1, 2];
/// Seconds of a run.
const SECONDS: u64 = 1000;

/// A point of a figure: the loss and the delay of the varied network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) loss: f64,
    /// One-way delay in ms.
    pub(super) delay: u64,
    pub(super) networks: [Network; 3],
}

impl Point {
    /// All losses for each delay.
    pub(super) fn all(delays: &[u64], networks: fn(f64, u64) -> [Network; 3]) -> Vec<Self> {
        let of = |&delay: &u64| {
            LOSSES.map(|loss| Self {
                loss,
                delay,
                networks: networks(loss, delay),
            })
        };
        delays.iter().flat_map(of).collect()
    }

    /// Whether the varied network may be the slowest. It cannot be if it has a lower loss than the
    /// network with p = 0.01 and 50 ms, and no longer delay.
    pub(super) const fn may_be_slowest(&self) -> bool {
        self.loss >= 0.01 || self.delay > 50
    }

    pub(super) fn case(&self, varied: &str) -> String {
        format!("{varied} {} ms, loss {}", self.delay, self.loss)
    }
}

/// Measures one case for each point.
pub(super) fn measure_points(
    points: &[Point],
    effort: &Effort,
    mut progress: impl FnMut(&Point),
    case: impl Fn(&Point) -> Case,
) -> Result<Vec<Measured>, Error> {
    let cases: Vec<Case> = points.iter().map(case).collect();
    measure(&cases, Runs::of(effort, SECONDS), |case| {
        progress(&points[case]);
    })
}

/// Like [`measure_points`] over the varied network alone, for points at which it may be the
/// slowest.
pub(super) fn measure_alone(
    points: &[Point],
    effort: &Effort,
    progress: impl FnMut(&Point),
    case: impl Fn(&Point) -> Case,
) -> Result<Vec<Option<Measured>>, Error> {
    let slow: Vec<Point> = points
        .iter()
        .copied()
        .filter(Point::may_be_slowest)
        .collect();
    let mut measured = measure_points(&slow, effort, progress, case)?.into_iter();
    let of = |point: &Point| point.may_be_slowest().then(|| measured.next()).flatten();
    Ok(points.iter().map(of).collect())
}

/// The analysis of each point, in both readings.
#[derive(Debug)]
pub(super) struct Analysed {
    readings: [(&'static str, Vec<f64>); 2],
}

impl Analysed {
    pub(super) fn new(
        figure: fn(Reading) -> Result<Vec<Line>, ModelError>,
    ) -> Result<Self, ModelError> {
        let of = |reading| -> Result<Vec<f64>, ModelError> {
            let lines = figure(reading)?;
            let points = lines.into_iter().flat_map(|line| line.points);
            Ok(points.map(|(_, y)| y).collect())
        };
        Ok(Self {
            readings: [
                ("as printed", of(Reading::Printed)?),
                ("packets conserved", of(Reading::Conserving)?),
            ],
        })
    }

    /// `simulated`, the record of a point, followed by the analysis records of the same point.
    pub(super) fn beside(&self, simulated: Record, point: usize) -> Vec<Record> {
        let mut records = vec![simulated];
        for (reading, values) in &self.readings {
            let Some(value) = values.get(point) else {
                continue;
            };
            let (of, by) = (&records[0], By::Analysis);
            let case = format!("{}, {reading}", of.case);
            records.push(Record::new(
                &of.item,
                &case,
                &of.quantity,
                &of.unit,
                by,
                *value,
            ));
        }
        records
    }
}

/// A plot against the loss of the varied network, with a line for each of its delays.
pub(super) fn plot(title: &str, varied: &str, y: Axis, points: &[Point], ys: &[f64]) -> LinePlot {
    let series = points.chunks(LOSSES.len()).zip(ys.chunks(LOSSES.len()));
    LinePlot {
        title: title.to_owned(),
        x: Axis::new(&format!("loss of {varied}"), "share").on_a_logarithmic_scale(),
        y,
        series: series
            .map(|(points, ys)| Series {
                name: format!("{} ms", points[0].delay),
                points: points
                    .iter()
                    .map(|point| point.loss)
                    .zip(ys.iter().copied())
                    .collect(),
            })
            .collect(),
    }
}
