//! Fig. 5: `est_cwnd` compared with cwnd.

use midspan_report::{Axis, LinePlot, Series};
use midspan_sim::{FlowId, Simulation};
use midspan_units::{Time, TimeSpan};

use super::cable::{Download, SEGMENT, WARM_UP, WINDOW};
use super::scheme::Scheme;
use crate::run::{Points, number, simulated};
use crate::{Effort, Error, FigurePlot, Simulated};

/// The interval at which both are read.
const STEP: TimeSpan = TimeSpan::from_milliseconds(100);
/// In the second half of a download, `est_cwnd` has reached at least this share of cwnd.
const CAUGHT_UP: f64 = 0.9;

const OVERSHOOT: &str = "above 1: rcv_RTT by ICMP fluctuates, and a smaller count never takes the \
    place of a larger one (§3.2, 2)";

/// Fig. 5, in a download of scenario 1.
pub(super) fn figure_5(_: &Effort, progress: &mut dyn FnMut(&str)) -> Result<Simulated, Error> {
    let item = "figure 5";
    progress(item);
    let download = Download::scenario_1(Scheme::ICMP);
    let scenario = download.scenario(&download.path()?, 1);
    let mut simulation = Simulation::new(&scenario)?;
    let most = WINDOW / u64::from(SEGMENT);
    let [mut actual, mut estimated]: [Points; 2] = [Vec::new(), Vec::new()];
    let mut until = WARM_UP;
    loop {
        until = until + STEP;
        let results = simulation.run_until(until);
        if results
            .flows
            .first()
            .is_none_or(|flow| flow.finished.is_some())
            || until > scenario.duration
        {
            break;
        }
        let (sender, receiver) = (
            simulation.sender(FlowId(0), 0),
            simulation.receiver(FlowId(0), 0),
        );
        let estimate = receiver.and_then(|receiver| receiver.estimate());
        if let (Some(sender), Some(estimate)) = (sender, estimate) {
            let at = (simulation.now().since(Time::ZERO).as_seconds()) - WARM_UP.as_seconds();
            // The receiver's window limits the data in flight.
            let cwnd = (sender.cwnd() / u64::from(SEGMENT)).min(most);
            actual.push((at, number(cwnd)));
            estimated.push((at, f64::from(estimate.congestion_window)));
        }
    }
    let half = actual.len() / 2;
    let mean = |points: &[(f64, f64)]| {
        points.iter().map(|(_, value)| value).sum::<f64>() / number(points.len().max(1) as u64)
    };
    let (early, late) = (
        mean(&estimated[..half]) / mean(&actual[..half]),
        mean(&estimated[half..]) / mean(&actual[half..]),
    );
    let ratio = |case, value| simulated(item, case, "est_cwnd against cwnd", "", value);
    let mut records = vec![
        simulated(item, "scenario 1", "mean cwnd", "segments", mean(&actual)),
        simulated(
            item,
            "scenario 1",
            "mean est_cwnd",
            "segments",
            mean(&estimated),
        ),
        ratio("first half: est_cwnd lags behind", early).with_ok(early <= 1.0),
        ratio("second half: est_cwnd catches up", late).with_ok(late >= CAUGHT_UP && late >= early),
    ];
    if late > 1.0
        && let Some(record) = records.last_mut()
    {
        record.note = Some(OVERSHOOT.to_owned());
    }
    let series = |name: &str, points| Series {
        name: name.to_owned(),
        points,
    };
    let plot = LinePlot {
        title: "est_cwnd and cwnd".to_owned(),
        x: Axis::new("time", "s"),
        y: Axis::new("window", "segments"),
        series: vec![series("cwnd", actual), series("est_cwnd", estimated)],
    };
    Ok(Simulated {
        records,
        figures: vec![FigurePlot::new(item, plot)],
    })
}
