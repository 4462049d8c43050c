//! Running a scenario for its whole time, and what all simulated records have in common.

use midspan_link::{Configuration, QueueLimit, State};
use midspan_records::{By, Record};
use midspan_sim::{Observer, Results, Scenario, Simulation, StopReason};
use midspan_units::{BitRate, Probability, TimeSpan};

use crate::Error;

/// Runs `scenario` while `observer` watches.
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

/// A link that never changes; `rate` in Mbit/s, `queue` in packets.
pub(crate) fn link(rate: u64, delay: TimeSpan, loss: Probability, queue: u32) -> Configuration {
    Configuration {
        state: State {
            rate: megabits(rate),
            delay,
            loss,
        },
        queue: QueueLimit::Packets(queue),
        ..Configuration::default()
    }
}

/// A rate of so many Mbit/s; `None`, which is no limit, for zero.
pub(crate) const fn megabits(rate: u64) -> Option<BitRate> {
    BitRate::from_bits_per_second(rate * 1_000_000)
}

/// A record of a simulation.
pub(crate) fn simulated(item: &str, case: &str, quantity: &str, unit: &str, value: f64) -> Record {
    Record::new(item, case, quantity, unit, By::Simulation, value)
}

/// A count as a record's value.
#[allow(clippy::cast_precision_loss)] // Counts of packets and bits: far below 2⁵³.
pub(crate) const fn number(count: u64) -> f64 {
    count as f64
}
