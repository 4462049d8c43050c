//! FQ-CoDel compared packet by packet with `fq_codel.py`, a program that was written from RFC 8290 and
//! RFC 8289 without the code of this crate. It gets the hash of `docs/link-model.md`.

#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use midspan_link::{
    Configuration, Direction, DropReason, Management, Output, Packet, Pipeline, QueueLimit,
    QueueManagement, Stage, State, Stream, Streams, stream,
};
use midspan_units::Time;
use rand_pcg::rand_core::Rng;

const SEED: u64 = 7;
const LINK: &str = "link";
/// Nanoseconds for a byte at 8 Mbit/s.
const PACE: u64 = 1000;

#[derive(Debug, Clone, Copy)]
struct OfFlow {
    number: usize,
    size: u32,
    identity: u64,
}

impl Packet for OfFlow {
    fn size(&self) -> u32 {
        self.size
    }

    fn flow(&self) -> u64 {
        self.identity
    }
}

/// Packets that arrive: time in ns, size, identity of the flow.
type Arrivals = Vec<(u64, u32, u64)>;

/// The fates as lines of text, "NUMBER FATE TIME".
fn ours(arrivals: &Arrivals, limit: u32) -> String {
    let configuration = Configuration {
        state: State {
            rate: Some("8 Mbit/s".parse().unwrap()),
            ..State::default()
        },
        queue: QueueLimit::Packets(limit),
        queue_management: Some(QueueManagement::new(Management::FqCoDel)),
        ..Configuration::default()
    };
    let streams = Streams {
        seed: SEED,
        link: LINK,
        direction: Direction::Up,
    };
    let mut link: Pipeline<OfFlow> = Pipeline::new(&configuration, streams).unwrap();
    let mut fates = vec![None; arrivals.len()];
    let mut take = |link: &mut Pipeline<OfFlow>, end: Time| {
        loop {
            let now = link.poll_timeout().unwrap_or(end).min(end);
            while let Some(output) = link.poll(now) {
                let fate = match &output {
                    Output::Delivered { .. } => "sent",
                    Output::Dropped {
                        reason: DropReason::Early,
                        ..
                    } => "early",
                    Output::Dropped { .. } => "full",
                };
                let number = output.packet().number;
                let line = format!("{number} {fate} {}", output.due().nanoseconds());
                assert_eq!(fates[number].replace(line), None);
            }
            if link.poll_timeout().is_none_or(|at| at > end) {
                return;
            }
        }
    };
    for (number, (at, size, identity)) in arrivals.iter().copied().enumerate() {
        let at = Time::from_nanoseconds(at);
        take(&mut link, at);
        link.handle(
            at,
            OfFlow {
                number,
                size,
                identity,
            },
        );
    }
    take(&mut link, Time::from_nanoseconds(u64::MAX));
    let lines = fates.into_iter().map(|fate| fate.unwrap() + "\n");
    lines.collect()
}

/// The same by the Python program; `None` if there is no Python.
fn theirs(arrivals: &Arrivals, limit: u32) -> Option<String> {
    let random = stream(SEED, &format!("{LINK}/fq_codel"), Direction::Up).next_u64();
    let mut input = format!("{random} {limit} {PACE}\n");
    for (at, size, identity) in arrivals {
        input += &format!("{at} {size} {identity}\n");
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fq_codel.py");
    let child = Command::new("python3")
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        child => child.unwrap(),
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap())
}

fn below(random: &mut Stream, bound: u64) -> u64 {
    random.next_u64() % bound
}

/// Some seconds of packets of several flows, which together bring more or less than the link
/// carries, with pauses.
fn arrivals(random: &mut Stream) -> Arrivals {
    let flows = [1, 2, 4, 12, 3000][usize::try_from(below(random, 5)).unwrap()];
    let mean_gap = 200_000 + below(random, 2_000_000);
    // The clock of the Python program does not begin at 0, which is "no time".
    let mut now = 1_000_000_000;
    let mut arrivals = Vec::new();
    for _ in 0..3000 {
        now += match below(random, 200) {
            0 => below(random, 400_000_000),
            1..80 => 0,
            _ => below(random, 3 * mean_gap),
        };
        // The first flows bring the most.
        let flow = below(random, flows).min(below(random, flows));
        let size = match flow % 3 {
            0 => 1500,
            1 => 40 + below(random, 1460),
            _ => 1000 + below(random, 2000),
        };
        arrivals.push((now, u32::try_from(size).unwrap(), flow * 2 + 1));
    }
    arrivals
}

#[test]
fn every_packet_has_the_fate_that_an_independent_program_gives() {
    let mut random = stream(1, "fq_codel test", Direction::Up);
    let (mut early, mut full) = (0, 0);
    for case in 0..20 {
        let limit = [1000, 100, 30][case % 3];
        let arrivals = arrivals(&mut random);
        let ours = ours(&arrivals, limit);
        let Some(theirs) = theirs(&arrivals, limit) else {
            eprintln!("skipped: no python3");
            return;
        };
        for (our, their) in ours.lines().zip(theirs.lines()) {
            assert_eq!(our, their, "case {case}, limit {limit}");
        }
        assert_eq!(ours.lines().count(), theirs.lines().count());
        early += ours.matches(" early ").count();
        full += ours.matches(" full ").count();
    }
    // What is compared are drops of both kinds.
    assert!(early > 1000 && full > 1000, "{early} early, {full} full");
}
