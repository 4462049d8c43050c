//! Fig. 9 as the lab measures it, by simulation: Linux's hosts with and without `midspan thin`, on
//! the paths of the lab.

use midspan_path::{Acknowledge, NodeKind, Path};
use midspan_records::statistics;
use midspan_report::{Axis, LinePlot, Series};
use midspan_sim::{Flow, Results, Scenario, Simulation};
use midspan_sweep::in_parallel;
use midspan_units::{Time, TimeSpan};

use super::lab;
use crate::run::{number, simulated};
use crate::{Effort, Error, FigurePlot, Simulated};

/// Number of segments that Linux acknowledges at once at the start of a connection
/// (`TCP_MAX_QUICKACKS`).
const QUICK_ACKS: u32 = 16;
/// The runs of a case differ in the delay of the backbone, by this much. Nothing else varies them:
/// no packet is lost except in a full queue.
const STEP: TimeSpan = TimeSpan::from_nanoseconds(300_000);

/// A download on the lab's path.
#[derive(Debug, Clone, Copy)]
struct Download {
    up: u32,
    queue: u32,
    sender: &'static str,
    megabytes: f64,
    acknowledge: Option<Acknowledge>,
    run: u32,
}

/// What a download gives.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// bit/s.
    goodput: f64,
    timeouts: u64,
    /// ACKs that left the host.
    acks: u64,
}

impl Download {
    fn path(&self) -> Result<Path, Error> {
        let failed = |error: crate::laboratory::LaboratoryError| Error::Network(error.to_string());
        let mut path =
            lab::download_path(self.up, self.queue, self.sender, self.megabytes).map_err(failed)?;
        let client = path.flows.first().map(|flow| flow.from.0);
        if let Some(node) = client.and_then(|client| path.nodes.get_mut(client))
            && let NodeKind::Host(host) = &mut node.kind
            && let Some(acknowledge) = self.acknowledge
        {
            host.acknowledge = acknowledge;
        }
        let varied = path.links.iter_mut().find(|link| link.name == "backbone");
        if let Some(link) = varied {
            for direction in [&mut link.up, &mut link.down] {
                direction.state.delay = direction.state.delay + STEP * u64::from(self.run);
            }
        }
        Ok(path)
    }

    fn run(&self) -> Result<Outcome, Error> {
        let path = self.path()?;
        let mut scenario = Scenario::network(&path, false);
        scenario.duration = TimeSpan::from_seconds(3600);
        for flow in &path.flows {
            let mut flow = Flow::of_path(&path, flow, false)?;
            flow.receiver.quick_acks = QUICK_ACKS;
            scenario.add_flow(flow);
        }
        self.outcome(&Simulation::new(&scenario)?.run())
    }

    fn outcome(&self, results: &Results) -> Result<Outcome, Error> {
        let ended = Error::Ended {
            until: results.until,
            reason: results.stop,
        };
        let flow = results.flows.first().ok_or(ended.clone())?;
        let leg = flow.legs.first().ok_or(ended.clone())?;
        let seconds = flow.finished.ok_or(ended)?.since(Time::ZERO).as_seconds();
        Ok(Outcome {
            goodput: self.megabytes * 8e6 / seconds,
            timeouts: leg.sender.timeouts,
            acks: leg.receiver.acknowledgements,
        })
    }
}

/// A point of the figure: upstream rate in kbit/s, queue in packets, congestion control of the
/// server, size in MB, and the least ratio of goodputs.
type Point = (u32, u32, &'static str, f64, f64);

/// The points of the lab, and more rates with a queue of 200 packets and CUBIC. At the rates of the lab, thinning has
/// the lab's target there. Elsewhere thinning must not slow the download.
const POINTS: [Point; 14] = [
    (100, 200, "cubic", 4.0, 1.1),
    (80, 200, "cubic", 4.0, NOT_SLOWER),
    (60, 200, "cubic", 4.0, NOT_SLOWER),
    (50, 200, "cubic", 4.0, 1.9),
    (40, 200, "cubic", 4.0, NOT_SLOWER),
    (32, 200, "cubic", 4.0, 2.3),
    (20, 200, "cubic", 4.0, NOT_SLOWER),
    (10, 200, "cubic", 1.0, 3.0),
    (100, 20, "cubic", 4.0, NOT_SLOWER),
    (50, 20, "cubic", 4.0, NOT_SLOWER),
    (32, 20, "cubic", 4.0, NOT_SLOWER),
    (10, 20, "cubic", 1.0, NOT_SLOWER),
    (32, 200, "reno", 4.0, NOT_SLOWER),
    (32, 20, "reno", 4.0, NOT_SLOWER),
];
const NOT_SLOWER: f64 = 0.97;

/// How the client's host sends ACKs.
const CASES: [(&str, Option<Acknowledge>); 3] = [
    ("not thinned", None),
    ("thinned, at most 5", Some(Acknowledge::Thin(Some(5)))),
    ("thinned", Some(Acknowledge::Thin(None))),
];

const fn runs(effort: &Effort) -> u32 {
    if effort.quick { 6 } else { 24 }
}

/// The medians of the runs of a case: goodput, ACKs; and the sum of their time-outs.
fn medians(outcomes: &[Outcome]) -> Outcome {
    let median = |of: fn(&Outcome) -> f64| {
        let values: Vec<f64> = outcomes.iter().map(of).collect();
        statistics::quantile(&values, 0.5).unwrap_or(0.0)
    };
    Outcome {
        goodput: median(|one| one.goodput),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A count.
        acks: median(|one| number(one.acks)) as u64,
        timeouts: outcomes.iter().map(|one| one.timeouts).sum(),
    }
}

/// Fig. 9 with Linux's hosts.
pub(super) fn figure_9(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let item = "figure 9, Linux hosts";
    progress(item);
    let runs = runs(effort);
    let mut downloads = Vec::new();
    for (up, queue, sender, megabytes, _) in POINTS {
        for (_, acknowledge) in CASES {
            downloads.extend((0..runs).map(|run| Download {
                up,
                queue,
                sender,
                megabytes,
                acknowledge,
                run,
            }));
        }
    }
    let outcomes = in_parallel(
        downloads.len(),
        effort.threads,
        |index| downloads[index].run(),
        |_| (),
    )?;
    let mut out = Simulated::default();
    let mut lines: Vec<Series> = Vec::new();
    let of_case: Vec<Outcome> = outcomes.chunks(runs as usize).map(medians).collect();
    for ((up, queue, sender, _, least), outcomes) in
        POINTS.into_iter().zip(of_case.chunks(CASES.len()))
    {
        let name = format!("{up} kbit/s up, queue of {queue}, {sender}");
        for ((case, _), outcome) in CASES.iter().zip(outcomes) {
            let case_name = format!("{name}, {case}");
            let record = |quantity, unit, value| simulated(item, &case_name, quantity, unit, value);
            out.records
                .push(record("goodput", "bit/s", outcome.goodput));
            out.records.push(record("ACKs", "", number(outcome.acks)));
            let line = format!("queue of {queue}, {sender}, {case}");
            let point = (f64::from(up), outcome.goodput);
            match lines.iter_mut().find(|series| series.name == line) {
                Some(series) => series.points.push(point),
                None => lines.push(Series {
                    name: line,
                    points: vec![point],
                }),
            }
        }
        let [without, .., with] = outcomes else {
            continue;
        };
        let ratio = with.goodput / without.goodput;
        let record = simulated(item, &name, "ratio of goodputs", "", ratio);
        out.records.push(record.with_ok(ratio >= least));
        let more = with.timeouts.saturating_sub(without.timeouts);
        let record = simulated(item, &name, "time-outs more than without", "", number(more));
        out.records.push(record.with_ok(more == 0));
    }
    let plot = LinePlot {
        title: "Goodput of Linux's hosts by upstream rate".to_owned(),
        x: Axis::new("upstream", "kbit/s"),
        y: Axis::new("goodput", "bit/s"),
        series: lines,
    };
    out.figures.push(FigurePlot::new(item, plot));
    Ok(out)
}
