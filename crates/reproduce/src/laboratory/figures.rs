//! Measurements as records and plots.

use midspan_lab::Case;
use midspan_records::quantity::GOODPUT;
use midspan_records::{By, Record, Spread};
use midspan_report::{Axis, LinePlot, Series};
use midspan_sweep::in_parallel;

use super::beside::{Simulations, analyse};
use super::point::Point;
use super::run::Run;
use super::statement::{Metric, Statement};
use crate::{FigurePlot, Simulated};

/// A statement with a bound, and its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The point's name.
    pub point: String,
    /// The statement.
    pub statement: Statement,
    /// The result of the valid runs; `None` if there are none.
    pub record: Option<Record>,
}

/// The records and figures of points, and the results of their bounds. Each case has its measurement
/// in the lab and, if they support the case, the results of the simulator and of the analysis.
/// `runs` are all runs that were made.
pub(super) fn tell(points: &[Point], runs: &[Run], threads: usize) -> (Simulated, Vec<Judged>) {
    let (mut out, mut judged) = (Simulated::default(), Vec::new());
    let cases: Vec<(&Point, &Case)> = points
        .iter()
        .flat_map(|point| point.cases.iter().map(move |case| (point, case)))
        .collect();
    let simulated = in_parallel(
        cases.len(),
        threads,
        |index| {
            let (point, case) = cases[index];
            let simulated = point
                .beside
                .then(|| Simulations::of(case, point.repetitions));
            Ok::<_, std::convert::Infallible>(simulated.flatten())
        },
        |_| (),
    );
    let mut simulated = simulated.unwrap_or_default().into_iter();
    for point in points {
        let own: Vec<Run> = runs
            .iter()
            .filter(|run| run.point == point.name)
            .cloned()
            .collect();
        for case in &point.cases {
            out.records.extend(lab_records(point, case, &own));
            let name = point.name_of(case);
            let record = |by, value| Record::of(point.item, &name, &GOODPUT, by, value);
            if let Some(simulated) = simulated.next().flatten() {
                if let Some(spread) = simulated.spread() {
                    out.records.push(
                        record(By::Simulation, spread.median)
                            .with_spread(spread.least, spread.greatest),
                    );
                }
                out.records.extend(simulated.ratio(point, case, &own));
            }
            let analysed = point.beside.then(|| analyse(case)).flatten();
            let analysed = analysed.map(|value| record(By::Analysis, value));
            out.records.extend(analysed);
        }
        for statement in &point.statements {
            let record = statement.record(point, &own);
            out.records.extend(record.clone());
            judged.extend(statement.bound.map(|_| Judged {
                point: point.name.clone(),
                statement: statement.clone(),
                record,
            }));
        }
    }
    out.figures = plots(points, &out.records);
    (out, judged)
}

/// Medians over the valid runs, with the least and the greatest value. If no run is valid, medians
/// over the void runs, with a note.
fn lab_records(point: &Point, case: &Case, runs: &[Run]) -> Vec<Record> {
    let of_case = || runs.iter().filter(|run| run.case == case.name);
    let valid: Vec<&Run> = of_case().filter(|run| run.void.is_none()).collect();
    let void = of_case().count() - valid.len();
    let mut note = (void > 0).then(|| format!("{void} void runs left out"));
    let runs = if valid.is_empty() {
        note = of_case().find_map(|run| run.void.clone());
        of_case().collect()
    } else {
        valid
    };
    let mut metrics = point.shown.to_vec();
    // The metrics of ratios are shown too. A statement without a ratio has a record of its own.
    for said in &point.statements {
        if !said.against.is_empty() && !metrics.contains(&said.metric) {
            metrics.push(said.metric);
        }
    }
    let alone = |metric: &Metric| {
        let mut said = point.statements.iter();
        said.any(|one| one.case == case.name && one.against.is_empty() && one.metric == *metric)
    };
    // If the transfers start one after another, most of them are alone, and the sum of their
    // goodputs means nothing.
    let staggered = case.is_staggered();
    let idle = |metric: &Metric| staggered && *metric == Metric::Goodput;
    metrics.retain(|metric| !alone(metric) && !idle(metric));
    let mut records = Vec::new();
    for metric in metrics {
        let values: Vec<f64> = runs
            .iter()
            .flat_map(|run| metric.values(case, run))
            .collect();
        let Some(spread) = Spread::of(&values) else {
            continue;
        };
        let (name, quantity) = (point.name_of(case), metric.quantity());
        let mut record =
            Record::of(point.item, &name, &quantity, By::Lab, spread.median).with_range(&spread);
        if metric == Metric::Goodput {
            let mut printed = point.printed.iter();
            record.paper = printed.find_map(|(of, goodput)| (*of == case.name).then_some(*goodput));
        }
        record.note.clone_from(&note);
        records.push(record);
    }
    records
}

/// Goodput against the varied value: a plot for each title, a line for each case.
fn plots(points: &[Point], records: &[Record]) -> Vec<FigurePlot> {
    let mut figures: Vec<FigurePlot> = Vec::new();
    for point in points {
        let Some(place) = &point.place else { continue };
        let at = figures.iter().position(|one| one.plot.title == place.plot);
        let at = at.unwrap_or_else(|| {
            let plot = LinePlot {
                title: place.plot.clone(),
                x: place.axis.clone(),
                y: Axis::new("goodput", "bit/s"),
                series: Vec::new(),
            };
            figures.push(FigurePlot::new(point.item, plot));
            figures.len() - 1
        });
        for case in &point.cases {
            let name = point.name_of(case);
            let found = records.iter().find(|record| {
                record.by == By::Lab && record.case == name && record.quantity == GOODPUT.name
            });
            let Some(record) = found else { continue };
            let series = &mut figures[at].plot.series;
            let line = series.iter().position(|one| one.name == case.name);
            let line = line.unwrap_or_else(|| {
                series.push(Series {
                    name: case.name.to_owned(),
                    points: Vec::new(),
                });
                series.len() - 1
            });
            series[line].points.push((place.at, record.value));
        }
    }
    // Several plots of one item get different names by their titles.
    for figure in &mut figures {
        let title = figure.plot.title.replace([',', ':'], "");
        figure.item = format!("{} {title}", figure.item);
    }
    figures
}
