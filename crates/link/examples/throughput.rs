//! Measures roughly how many packets per second both paths carry on this machine.
//!
//! `cargo run --release -p midspan-link --example throughput`

#![allow(clippy::disallowed_methods)] // Measures, so it reads the clock.

use std::hint::black_box;
use std::time::Instant;

use midspan_link::{
    Configuration, Direction, FixedLink, Link, Packet, QueueLimit, Schedule, Stage, State, Step,
    stream,
};
use midspan_units::{BitRate, Probability, Time, TimeSpan};

const PACKETS: u32 = 10_000_000;
/// Time between arrivals: a load of 1.09 at 100 Mbit/s and 1,500 bytes, so the queue is full most
/// of the time.
const GAP: TimeSpan = TimeSpan::from_nanoseconds(110_000);

/// As large as the headers of a simulated TCP segment.
struct Header {
    size: u32,
    _fields: [u64; 8],
}

impl Packet for Header {
    fn size(&self) -> u32 {
        self.size
    }
}

const fn header() -> Header {
    Header {
        size: 1500,
        _fields: [0; 8],
    }
}

fn configuration(schedule: Schedule) -> Configuration {
    Configuration {
        state: State {
            rate: BitRate::from_bits_per_second(100_000_000),
            delay: TimeSpan::from_milliseconds(280),
            loss: Probability::from_f64(0.001).unwrap_or_default(),
        },
        queue: QueueLimit::Packets(1000),
        schedule,
        ..Configuration::default()
    }
}

fn report(name: &str, start: Instant, delivered: u64) {
    let seconds = start.elapsed().as_secs_f64();
    let rate = f64::from(PACKETS) / seconds / 1e6;
    println!("{name}: {rate:.1} million packets/s ({delivered} of {PACKETS} delivered)");
}

fn fixed() -> Result<(), Box<dyn std::error::Error>> {
    let stream = stream(1, "throughput", Direction::Up);
    let mut link = FixedLink::new(&configuration(Schedule::default()), stream)?;
    let start = Instant::now();
    let mut now = Time::ZERO;
    for _ in 0..PACKETS {
        now += GAP;
        black_box(link.handle(now, black_box(&header())));
    }
    report("FixedLink", start, link.counters().delivered.packets);
    Ok(())
}

fn general(name: &str, schedule: Schedule) -> Result<(), Box<dyn std::error::Error>> {
    let stream = stream(1, "throughput", Direction::Up);
    let mut link = Link::new(configuration(schedule), stream)?;
    let start = Instant::now();
    let mut now = Time::ZERO;
    for _ in 0..PACKETS {
        now += GAP;
        // As a simulator does: first each deadline, then the arrival.
        while let Some(deadline) = link.poll_timeout().filter(|deadline| *deadline <= now) {
            while let Some(output) = link.poll(deadline) {
                black_box(output);
            }
        }
        link.handle(now, black_box(header()));
        while let Some(output) = link.poll(now) {
            black_box(output);
        }
    }
    report(name, start, link.counters().delivered.packets);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    fixed()?;
    general("Link", Schedule::default())?;
    let fading = |milliseconds, rate| Step {
        at: TimeSpan::from_milliseconds(milliseconds),
        rate: BitRate::from_bits_per_second(rate),
        ..Step::default()
    };
    let schedule = Schedule {
        steps: vec![fading(0, 100_000_000), fading(10, 50_000_000)],
        repeat: Some(TimeSpan::from_milliseconds(20)),
    };
    general("Link with a change every 10 ms", schedule)
}
