//! Shikama: §5.1 by analysis, Figs 7 to 17 by simulation, Figs 10, 12, 14 and 16 on the lab.

mod bursts;
mod conditions;
mod distributions;
mod lab;
mod measure;
mod scenario;
mod subscribers;
#[cfg(test)]
mod tests;

use midspan_model::papers;
use midspan_records::{Record, statistics};
use midspan_report::{Axis, LinePlot, Series};
use midspan_sim::LinkId;

use crate::figure::{Figure, Simulating};
use crate::run::{number, simulated};
use crate::{Effort, Error, FigurePlot};
use conditions::{Condition, FIGURE_10, FIGURE_12, FIGURE_14, FIGURE_16, LOSSES, TIGHTER};
use distributions::bursts;
use measure::{Measured, Runs, SCHEMES, measure};
use scenario::{Scheme, Setting};

/// The link from n2 to n3.
const NARROW: LinkId = LinkId(2);
/// The P_L at which B must be below C, with a B_L of 20 packets.
const RARE: [&str; 2] = ["0.0001", "0.0002"];
/// Two throughputs count as the same within this share.
const SAME: f64 = 0.005;
/// The largest loss on the wired section for cases in which the paper has none.
const NO_LOSS: f64 = 1e-5;

const NO_OVERFLOW: &str = "the paper sees losses of B here; a burst of 43 packets cannot overflow \
    a queue of 50, so they do not follow from its model";
const SLOW_START: &str = "all in the first slow start";
const TOO_SHORT: &str = "too short a run for the bound of 10⁻⁵ with the first slow start in it";

/// The figures of the paper.
pub(crate) const FIGURES: &[Figure] = &[
    Figure::new(&["section 5.1"]).by_analysis(|| {
        Ok(crate::printed([
            papers::shikama::largest_bursts().as_slice()
        ]))
    }),
    Figure::new(&["figure 7", "figure 8"])
        .by_simulation(|run| run.make(distributions::distributions)),
    Figure::new(&["figure 9"]).by_simulation(|run| run.make(|_, _| distributions::cwnd_examples())),
    Figure::new(&["figure 10", "figure 11"])
        .by_simulation(|run| over_losses(&FIGURE_10, run))
        .by_lab(lab::figure_10),
    Figure::new(&["figure 12", "figure 13"])
        .by_simulation(|run| over_losses(&FIGURE_12, run))
        .by_lab(lab::figure_12),
    Figure::new(&["figure 14", "figure 15"])
        .by_simulation(|run| over_losses(&FIGURE_14, run))
        .by_lab(|extent| lab::whole_grid(FIGURE_14, extent)),
    Figure::new(&["figure 16", "figure 17"])
        .by_simulation(|run| over_losses(&FIGURE_16, run))
        .by_lab(|extent| lab::whole_grid(FIGURE_16, extent)),
    Figure::new(&["tighter"]).by_lab(|extent| lab::at_one_loss(TIGHTER, extent)),
    Figure::new(&["many subscribers"]).by_lab(subscribers::points),
];

/// The name under which the first condition keeps the throughput of A at each P_L.
const FIRST: &str = "throughput of A under the first condition";

impl Condition {
    fn name(&self) -> String {
        let (queue, delay, rate) = (self.queue, self.delay, self.rate);
        format!("B_L = {queue}, D_W = {delay} ms, B_W = {rate} Mbit/s")
    }

    fn settings(&self) -> Vec<Setting> {
        let of = |loss| SCHEMES.map(|scheme| Setting::new(scheme, loss).under(*self));
        LOSSES.into_iter().flat_map(of).collect()
    }
}

/// The two figures of a condition.
fn over_losses(condition: &Condition, run: &mut Simulating<'_>) -> Result<(), Error> {
    let (effort, progress) = run.parts();
    let points = points(condition, effort, progress)?;
    for point in &points {
        run.out.records.extend(point.records(condition));
    }
    let of_a: Vec<f64> = points
        .iter()
        .map(|point| point.measured[0].mean())
        .collect();
    match run.kept.get(FIRST) {
        None => {
            run.kept.insert(FIRST, of_a);
        }
        Some(first) => run.out.records.extend(unchanged(condition, first, &of_a)),
    }
    run.out.figures.extend(plots(condition, &points));
    Ok(())
}

/// The three schemes at one P_L.
#[derive(Debug)]
struct Point {
    loss: &'static str,
    /// The results of A, B and C.
    measured: Vec<Measured>,
    runs: Runs,
}

fn points(
    condition: &Condition,
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Point>, Error> {
    let runs = Runs::of(effort);
    let name = condition.name();
    let measured = measure(&condition.settings(), runs, effort.threads, |setting| {
        progress(&format!("{name}, P_L = {}", setting.loss));
    })?;
    let mut measured = measured.into_iter();
    let points = LOSSES.into_iter().map(|loss| Point {
        loss,
        measured: measured.by_ref().take(SCHEMES.len()).collect(),
        runs,
    });
    Ok(points.collect())
}

impl Point {
    fn case(&self, condition: &Condition, scheme: &str) -> String {
        format!("{scheme}, {}, P_L = {}", condition.name(), self.loss)
    }

    /// The measured values of each scheme, and the comparisons of the schemes.
    fn records(&self, condition: &Condition) -> Vec<Record> {
        let mut records = Vec::new();
        for (scheme, measured) in SCHEMES.into_iter().zip(&self.measured) {
            let case = self.case(condition, &format!("{scheme:?}"));
            let value = measured.mean();
            let record = simulated(condition.throughput, &case, "throughput", "bit/s", value);
            let mean = statistics::mean(&measured.throughputs);
            records.push(match mean.and_then(|mean| mean.interval()) {
                Some((low, high)) => record.with_spread(low, high),
                None => record,
            });
            records.extend(bursts("section 5.1", &case, scheme, measured));
            records.extend(self.drops(condition, &case, scheme, measured));
        }
        records.extend(self.against(condition));
        records
    }

    /// Packets that node n2 dropped, in all runs. In the paper, none of A and C are dropped.
    fn drops(
        &self,
        condition: &Condition,
        case: &str,
        scheme: Scheme,
        measured: &Measured,
    ) -> [Record; 3] {
        let (drops, late) = (number(measured.drops), number(measured.bursts.late_drops));
        let record = |quantity, unit, value| simulated(condition.loss, case, quantity, unit, value);
        let mut all = record("wired drops", "packets", drops);
        let mut after = record("wired drops after the first slow start", "packets", late);
        let mut loss = record("wired loss", "share", measured.loss());
        if scheme == Scheme::B {
            if condition.queue == 50 {
                loss.note = Some(NO_OVERFLOW.to_owned());
            }
            return [all, after, loss];
        }
        all.paper = Some(0.0);
        if drops > 0.0 && late == 0.0 {
            all.note = Some(SLOW_START.to_owned());
        }
        after.ok = Some(late < NO_LOSS * number(measured.handled));
        // In each run, the slow start may drop three packets, even if the run is short.
        if self.runs.are_full() {
            loss.ok = Some(measured.loss() < NO_LOSS);
        } else {
            loss.note = Some(TOO_SHORT.to_owned());
        }
        [all, after, loss]
    }

    /// The comparisons of the schemes' throughput in the paper's text. Runs with the same index
    /// have the same losses on the wireless section.
    fn against(&self, condition: &Condition) -> Vec<Record> {
        let [a, b, c] = self.measured.as_slice() else {
            return Vec::new();
        };
        let (a, b, c) = (a.mean(), b.mean(), c.mean());
        let ratio = |pair: &str, value| {
            let case = self.case(condition, pair);
            simulated(
                condition.throughput,
                &case,
                "ratio of throughputs",
                "",
                value,
            )
        };
        let mut last = ratio("B against C", b / c);
        if condition.queue == 20 && RARE.contains(&self.loss) {
            last.ok = Some(b < c);
        }
        vec![
            ratio("A against B", a / b).with_ok(a >= b * (1.0 - SAME)),
            ratio("A against C", a / c).with_ok(a >= c * (1.0 - SAME)),
            last,
        ]
    }
}

/// Checks that the wired section does not change the throughput of A.
fn unchanged(condition: &Condition, first: &[f64], here: &[f64]) -> Vec<Record> {
    let pairs = LOSSES.into_iter().zip(first.iter().zip(here));
    pairs
        .map(|(loss, (first, here))| {
            let case = format!("A, {}, P_L = {loss}", condition.name());
            let quantity = "throughput against figure 10";
            let ratio = here / first;
            simulated(condition.throughput, &case, quantity, "", ratio)
                .with_ok((ratio - 1.0).abs() <= SAME)
        })
        .collect()
}

/// Throughput and loss over P_L.
fn plots(condition: &Condition, points: &[Point]) -> [FigurePlot; 2] {
    let series = |value: fn(&Measured) -> f64| {
        let of = |(index, scheme): (usize, Scheme)| Series {
            name: format!("{scheme:?}"),
            points: points
                .iter()
                .filter_map(|point| {
                    let loss: f64 = point.loss.parse().ok()?;
                    Some((loss, value(point.measured.get(index)?)))
                })
                .collect(),
        };
        SCHEMES.into_iter().enumerate().map(of).collect()
    };
    let x = || Axis::new("loss on the wireless section", "share").on_a_logarithmic_scale();
    let plot = |y, series| LinePlot {
        title: condition.name(),
        x: x(),
        y,
        series,
    };
    let throughput = Axis::new("throughput", "bit/s");
    let loss = Axis::new("loss on the wired section", "share");
    [
        FigurePlot::new(
            condition.throughput,
            plot(throughput, series(Measured::mean)),
        ),
        FigurePlot::new(condition.loss, plot(loss, series(Measured::loss))),
    ]
}
