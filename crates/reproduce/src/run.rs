//! Runs a scenario for its whole time; common parts of all simulated records.

use midspan_records::{By, Record};
use midspan_sim::tcp::Sender;
use midspan_sim::{Observer, Results, Scenario, Simulation, StopReason};
use midspan_units::Time;
pub(crate) use midspan_units::number;

use crate::Error;

/// Runs `scenario` with `observer`.
pub(crate) fn run<O: Observer>(scenario: &Scenario, observer: O) -> Result<(Results, O), Error> {
    let mut simulation = Simulation::observed(scenario, observer)?;
    let results = simulation.run();
    match results.stop {
        StopReason::TimeIsUp => Ok((results, simulation.into_observer())),
        reason => Err(Error::Ended {
            until: results.until,
            reason,
        }),
    }
}

/// The points of a line in a plot.
pub(crate) type Points = Vec<(f64, f64)>;

/// cwnd against time of the first connections of a scenario.
#[derive(Debug)]
pub(crate) struct CwndWatch {
    /// The unit: cwnd is divided by this number.
    unit: f64,
    from: Time,
    points: Vec<Points>,
}

impl CwndWatch {
    /// Observes this number of connections from a time on.
    pub(crate) fn new(connections: usize, unit: f64, from: Time) -> Self {
        Self {
            unit,
            from,
            points: vec![Vec::new(); connections],
        }
    }

    /// For each connection, time in seconds and cwnd in units, in steps.
    pub(crate) fn into_points(self) -> Vec<Points> {
        self.points
    }
}

impl Observer for CwndWatch {
    fn sender(&mut self, now: Time, connection: u32, sender: &Sender) {
        let Some(points) = self.points.get_mut(connection as usize) else {
            return;
        };
        let at = now.since(Time::ZERO).as_seconds();
        let cwnd = number(sender.cwnd()) / self.unit;
        let last = points.last().map(|(_, cwnd)| *cwnd);
        if now < self.from || last == Some(cwnd) {
            return;
        }
        // The plot shows a step, not a slope.
        points.extend(last.map(|last| (at, last)));
        points.push((at, cwnd));
    }
}

/// A record of a simulation.
pub(crate) fn simulated(item: &str, case: &str, quantity: &str, unit: &str, value: f64) -> Record {
    Record::new(item, case, quantity, unit, By::Simulation, value)
}
