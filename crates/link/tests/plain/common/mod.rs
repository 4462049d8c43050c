//! Numbered packets, and their fates.

#![allow(dead_code)] // Each test file uses a part.
#![allow(clippy::unwrap_used)]

use midspan_link::{
    Configuration, Direction, DropReason, Link, Output, Packet, Stage, State, Step, Stream, stream,
};
use midspan_units::{Probability, Time, TimeSpan};
use proptest::test_runner::{Config, RngSeed};

/// A packet that can be distinguished from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    pub number: usize,
    pub size: u32,
}

impl Packet for Numbered {
    fn size(&self) -> u32 {
        self.size
    }
}

/// `cases` cases, the same ones each time; `PROPTEST_CASES` and `PROPTEST_RNG_SEED` select others.
pub fn cases(cases: u32) -> Config {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}

/// What happened to a packet, and when (ns).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Delivered(u64),
    Dropped(u64, DropReason),
}

pub fn fate(output: &Output<Numbered>) -> Fate {
    match *output {
        Output::Delivered { due, .. } => Fate::Delivered(due.nanoseconds()),
        Output::Dropped { due, reason, .. } => Fate::Dropped(due.nanoseconds(), reason),
    }
}

/// The longest time that the tests use.
pub const END: Time = Time::from_nanoseconds(u64::MAX);

pub const fn ns(nanoseconds: u64) -> Time {
    Time::from_nanoseconds(nanoseconds)
}

pub const fn us(microseconds: u64) -> Time {
    Time::from_nanoseconds(microseconds * 1000)
}

pub const fn ms(milliseconds: u64) -> Time {
    Time::from_nanoseconds(milliseconds * 1_000_000)
}

pub fn span(text: &str) -> TimeSpan {
    text.parse().unwrap()
}

/// A state from texts; an empty rate means no limit.
pub fn state(rate: &str, delay: &str, loss: &str) -> State {
    State {
        rate: (!rate.is_empty()).then(|| rate.parse().unwrap()),
        delay: span(delay),
        loss: loss.parse().unwrap(),
    }
}

pub fn constant(rate: &str, delay: &str, loss: &str) -> Configuration {
    Configuration {
        state: state(rate, delay, loss),
        ..Configuration::default()
    }
}

/// A step that changes nothing, to be filled in.
pub fn step(at: &str) -> Step {
    Step {
        at: span(at),
        ..Step::default()
    }
}

pub fn rate_step(at: &str, rate: &str) -> Step {
    Step {
        rate: Some(rate.parse().unwrap()),
        ..step(at)
    }
}

pub fn loss_step(at: &str, loss: Probability) -> Step {
    Step {
        loss: Some(loss),
        ..step(at)
    }
}

pub fn loss_stream() -> Stream {
    stream(1, "test", Direction::Up)
}

pub fn link(configuration: Configuration) -> Link<Numbered> {
    Link::new(configuration, loss_stream()).unwrap()
}

/// Polls the stage at `now` until it has no more outputs, and returns them.
pub fn drain(stage: &mut impl Stage<Numbered>, now: Time) -> Vec<Output<Numbered>> {
    std::iter::from_fn(|| stage.poll(now)).collect()
}

/// Runs `arrivals` (time, size) through a stage that is polled according to its contract, until it
/// is empty. Returns the fate of each packet, in the order of arrival.
pub fn run(stage: &mut impl Stage<Numbered>, arrivals: &[(Time, u32)]) -> Vec<Fate> {
    let mut outputs = Vec::new();
    for (number, (at, size)) in arrivals.iter().enumerate() {
        drive(stage, *at, &mut outputs);
        stage.handle(
            *at,
            Numbered {
                number,
                size: *size,
            },
        );
        outputs.extend(drain(stage, *at));
    }
    drive(stage, END, &mut outputs);
    by_number(&outputs, arrivals.len())
}

/// Polls at each deadline until `end`.
pub fn drive(stage: &mut impl Stage<Numbered>, end: Time, outputs: &mut Vec<Output<Numbered>>) {
    let mut last = Time::ZERO;
    while let Some(deadline) = stage.poll_timeout().filter(|deadline| *deadline <= end) {
        assert!(deadline >= last, "deadlines go back");
        let due = drain(stage, deadline);
        for output in &due {
            if let Output::Delivered { due, .. } = output {
                assert_eq!(*due, deadline, "delivered at its deadline");
            }
        }
        assert!(
            !due.is_empty() || stage.poll_timeout() > Some(deadline),
            "spins"
        );
        outputs.extend(due);
        last = deadline;
    }
}

/// The fates in the order of arrival; each packet must have exactly one.
pub fn by_number(outputs: &[Output<Numbered>], count: usize) -> Vec<Fate> {
    let mut fates = vec![None; count];
    for output in outputs {
        let number = output.packet().number;
        assert_eq!(fates[number], None, "packet {number} came out twice");
        fates[number] = Some(fate(output));
    }
    fates
        .into_iter()
        .enumerate()
        .map(|(number, fate)| fate.unwrap_or_else(|| panic!("packet {number} never came out")))
        .collect()
}

/// The due times, in order, of packets that were all delivered.
pub fn delivery_times(fates: &[Fate]) -> Vec<u64> {
    fates
        .iter()
        .map(|fate| match fate {
            Fate::Delivered(due) => *due,
            Fate::Dropped(due, reason) => panic!("dropped at {due}: {reason}"),
        })
        .collect()
}
