//! The checks of the emulator, and their bounds.

mod capacity;
mod delay;
mod loss;
mod queue;
mod rate;
mod replay;

use std::fmt;

use midspan_path::Direction;
use midspan_records::{By, Record};

use crate::{LabError, Purpose, Validity};

/// One check of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The rate, within 1 %, measured by overload.
    Rate {
        /// In Mbit/s.
        megabits: u64,
        /// The direction.
        direction: Direction,
        /// The duration.
        seconds: u64,
    },
    /// The one-way delay of both directions, within 0.5 ms at the median and the 99th percentile.
    Delay {
        /// The one-way delay, in ms.
        milliseconds: u64,
        /// Number of pings.
        count: u32,
    },
    /// The loss, within its binomial bound, and equal for equal seeds.
    Loss {
        /// The direction.
        direction: Direction,
        /// Number of packets sent.
        packets: u64,
    },
    /// The queue's limit, exactly, measured by a burst.
    Queue {
        /// In packets.
        limit: u64,
    },
    /// Deliveries at the opportunities of a recorded trace, within 1 ms for 99 % of the packets.
    Replay {
        /// The direction.
        direction: Direction,
        /// Number of packets sent.
        packets: u64,
    },
    /// One fast link, measured by a TCP transfer.
    Capacity {
        /// In Mbit/s.
        megabits: u64,
        /// The duration.
        seconds: u64,
    },
}

/// All checks; `quick` selects short ones for tests.
#[must_use]
pub fn checks(quick: bool) -> Vec<Check> {
    let both = [Direction::Up, Direction::Down];
    let mut checks = Vec::new();
    let rates: &[(u64, u64)] = if quick {
        &[(2, 3), (50, 1)]
    } else {
        &[(2, 10), (10, 6), (50, 4), (200, 4)]
    };
    for &(megabits, seconds) in rates {
        checks.extend(both.map(|direction| Check::Rate {
            megabits,
            direction,
            seconds,
        }));
    }
    let delays: &[u64] = if quick { &[20] } else { &[1, 20, 280] };
    checks.extend(delays.iter().map(|&milliseconds| Check::Delay {
        milliseconds,
        count: if quick { 100 } else { 500 },
    }));
    let packets = if quick { 5_000 } else { 20_000 };
    checks.extend(both.map(|direction| Check::Loss { direction, packets }));
    checks.push(Check::Queue { limit: 50 });
    let packets = if quick { 200 } else { 600 };
    checks.extend(both.map(|direction| Check::Replay { direction, packets }));
    if !quick {
        checks.push(Check::Capacity {
            megabits: 400,
            seconds: 6,
        });
    }
    checks
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate {
                megabits,
                direction,
                ..
            } => write!(f, "{megabits} Mbit/s {}", way(*direction)),
            Self::Delay { milliseconds, .. } => write!(f, "{milliseconds} ms"),
            Self::Loss { direction, .. } => write!(f, "1 % {}", way(*direction)),
            Self::Queue { limit } => write!(f, "{limit} packets"),
            Self::Replay { direction, .. } => write!(f, "recorded trace {}", way(*direction)),
            Self::Capacity { megabits, .. } => write!(f, "TCP through {megabits} Mbit/s"),
        }
    }
}

const fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

/// The result of a check.
struct Measured {
    records: Vec<Record>,
    validity: Validity,
}

/// Bytes of a full packet at the network layer.
const FULL: usize = 1500;

impl Check {
    /// Makes the check. A void measurement is repeated, at most three attempts in all.
    pub fn run(&self) -> Result<Vec<Record>, LabError> {
        let mut measured = self.measure()?;
        for _ in 1..Purpose::Measurement.attempts() {
            if measured.validity.is_valid() {
                break;
            }
            measured = self.measure()?;
        }
        Ok(measured.records)
    }

    fn measure(&self) -> Result<Measured, LabError> {
        match *self {
            Self::Rate {
                megabits,
                direction,
                seconds,
            } => rate::check(self, megabits, direction, seconds),
            Self::Delay {
                milliseconds,
                count,
            } => delay::check(self, milliseconds, count),
            Self::Loss { direction, packets } => loss::check(self, direction, packets),
            Self::Queue { limit } => queue::check(self, limit),
            Self::Replay { direction, packets } => replay::check(self, direction, packets),
            Self::Capacity { megabits, seconds } => capacity::check(self, megabits, seconds),
        }
    }

    /// A record that contains whether its bound is met. A void run meets no bound.
    fn judged(
        &self,
        (quantity, unit): (&str, &str),
        value: f64,
        within: bool,
        bound: &str,
        validity: &Validity,
    ) -> Record {
        let note = if validity.is_valid() {
            bound.to_owned()
        } else {
            format!("{bound}; {validity}")
        };
        Record::new(
            "lab verify",
            &self.to_string(),
            quantity,
            unit,
            By::Lab,
            value,
        )
        .with_ok(within && validity.is_valid())
        .with_note(note)
    }
}

fn nothing(reason: &str) -> LabError {
    LabError::Program {
        program: "lab verify".into(),
        reason: reason.to_owned(),
    }
}
