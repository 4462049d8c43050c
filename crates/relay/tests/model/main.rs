//! The relay compared with a model, under random operations, pauses and failing system calls.
//!
//! One seed determines a case: the operations of several sessions, their order, and the results of
//! the relay's system calls. The test prints a seed that fails. `MIDSPAN_MODEL_SEED=<seed>` runs
//! only this seed; `MIDSPAN_MODEL_CASES=<n>` runs more cases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

mod model;
#[path = "../support/mod.rs"]
mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use midspan_policy::SessionSettings;
use midspan_relay::failing_calls::{self, Rates};
use midspan_relay::{Relay, Settings, Statistics};
use midspan_units::{ByteSize, TimeSpan};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rustix::net::SendFlags;

use model::{Outcome, Session, State};
use support::*;

const CASES: u64 = 1000;
/// Time limit of all cases together, unless more are requested.
const TIME: Duration = Duration::from_secs(45);
/// The most bytes of one direction that both ends' sockets, the relay's sockets and a pipe can
/// hold.
const MOST_BETWEEN: u64 = 40 << 20;

/// System calls fail for all relays of the process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation of a side of a session.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Write(u32),
    /// One byte, urgent; read in line.
    WriteUrgent,
    Read(u32),
    ShutDown,
    Close,
    Reset,
    Pause(u16),
    /// All sessions move to another relay.
    HandOver,
}

fn operation() -> impl Strategy<Value = Operation> {
    let size = prop_oneof![1..200_u32, 1..20_000_u32, 100_000..1_500_000_u32];
    prop_oneof![
        12 => size.clone().prop_map(Operation::Write),
        12 => size.prop_map(Operation::Read),
        1 => Just(Operation::WriteUrgent),
        2 => Just(Operation::ShutDown),
        1 => Just(Operation::Close),
        1 => Just(Operation::Reset),
        2 => (0..3000_u16).prop_map(Operation::Pause),
        1 => Just(Operation::HandOver),
    ]
}

/// A case: the number of sessions, the operations in their order, and the rates of failing calls.
#[derive(Debug, Clone)]
struct Case {
    sessions: usize,
    operations: Vec<(usize, usize, Operation)>,
    rates: Rates,
    pipes: u64,
}

fn rates() -> impl Strategy<Value = Rates> {
    let rate = || prop_oneof![Just(0_u64), 1..30_u64, 100..250_u64];
    let refused = prop_oneof![Just(0_u64), 1..100_u64];
    (rate(), rate(), rate(), rate(), refused, rate(), 0..30_u64).prop_map(
        |(blocked, interrupted, short, no_memory, refused, no_pipe, late)| Rates {
            blocked,
            interrupted,
            short,
            no_memory,
            refused,
            no_pipe,
            late,
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    let rates = prop_oneof![1 => Just(Rates::default()), 4 => rates()];
    (1..7_usize, rates, 0..3_u64).prop_flat_map(|(sessions, rates, pipes)| {
        let step = (0..sessions, 0..2_usize, operation());
        let operations = proptest::collection::vec(step, 1..120);
        operations.prop_map(move |operations| Case {
            sessions,
            operations,
            rates,
            pipes: [0, 1 << 20, 64 << 20][pipes as usize],
        })
    })
}

/// The byte at a position of a side's data.
const fn byte_at(session: usize, side: usize, place: u64) -> u8 {
    let number = place ^ ((session as u64) << 40) ^ ((side as u64) << 56);
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8
}

fn bytes(session: usize, side: usize, from: u64, count: usize) -> Vec<u8> {
    (from..from + count as u64)
        .map(|place| byte_at(session, side, place))
        .collect()
}

/// A session of the model, and the sockets of its ends as long as they are open.
struct Joined {
    number: usize,
    model: Session,
    ends: [Option<TcpStream>; 2],
}

impl Joined {
    fn carry_out(&mut self, side: usize, operation: Operation) -> Result<(), String> {
        match operation {
            Operation::Write(count) => self.write(side, count as usize, false),
            Operation::WriteUrgent => self.write(side, 1, true),
            Operation::Read(count) => self.read(side, count as usize).map(|_| ()),
            Operation::ShutDown => {
                if self.model.may_write(side)
                    && let Some(end) = &self.ends[side]
                    && end.shutdown(Shutdown::Write).is_ok()
                {
                    self.model.sides[side].state = State::HalfClosed;
                    self.model.sides[side].finished = true;
                }
                Ok(())
            }
            Operation::Close => {
                if self.ends[side].take().is_some() {
                    let here = &mut self.model.sides[side];
                    if here.state != State::WasReset {
                        here.state = State::Closed;
                        here.finished = true;
                    }
                }
                Ok(())
            }
            Operation::Reset => {
                if let Some(end) = self.ends[side].take() {
                    reset(end);
                    self.model.sides[side].state = State::HasReset;
                }
                Ok(())
            }
            Operation::Pause(microseconds) => {
                thread::sleep(Duration::from_micros(microseconds.into()));
                Ok(())
            }
            // This is for all sessions.
            Operation::HandOver => Ok(()),
        }
    }

    fn write(&mut self, side: usize, count: usize, urgent: bool) -> Result<(), String> {
        if !self.model.may_write(side) {
            return Ok(());
        }
        let Some(end) = &mut self.ends[side] else {
            return Ok(());
        };
        let data = bytes(self.number, side, self.model.sides[side].sent, count);
        let result = match urgent {
            false => end.write(&data),
            true => rustix::net::send(&*end, &data, SendFlags::OOB | SendFlags::NOSIGNAL)
                .map_err(Into::into),
        };
        match result {
            Ok(count) => {
                self.model.sides[side].sent += count as u64;
                let between = self.model.queued_to(1 - side);
                match between <= MOST_BETWEEN {
                    true => Ok(()),
                    false => Err(format!("{between} bytes between the ends")),
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(_) => self.model.read(side, Outcome::Reset),
        }
    }

    /// Reads; returns whether any data was read.
    fn read(&mut self, side: usize, most: usize) -> Result<bool, String> {
        if !self.model.may_read(side) {
            return Ok(false);
        }
        let Some(end) = &mut self.ends[side] else {
            return Ok(false);
        };
        let mut buffer = vec![0; most];
        let outcome = match end.read(&mut buffer) {
            Ok(0) => Outcome::End,
            Ok(count) => {
                let from = self.model.sides[side].received;
                let wanted = bytes(self.number, 1 - side, from, count);
                let first = wanted.iter().zip(&buffer).position(|(a, b)| a != b);
                if let Some(first) = first {
                    let place = from + first as u64;
                    return Err(format!("side {side}: another byte at {place}"));
                }
                Outcome::Bytes(count as u64)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(false),
            Err(_) => Outcome::Reset,
        };
        self.model.read(side, outcome)?;
        Ok(true)
    }

    /// Both sides end their data, and read until nothing more can arrive.
    fn finish(&mut self) -> Result<(), String> {
        for side in 0..2 {
            self.carry_out(side, Operation::ShutDown)?;
        }
        let mut last = Instant::now();
        while (0..2).any(|side| self.model.may_read(side) && self.ends[side].is_some()) {
            let moved = self.read(0, 1 << 18)? | self.read(1, 1 << 18)?;
            if moved {
                last = Instant::now();
            } else if last.elapsed() > DEADLINE {
                return Err(format!("stuck: {:?}", self.model));
            } else {
                thread::sleep(Duration::from_micros(100));
            }
        }
        for side in 0..2 {
            let (here, other) = (&self.model.sides[side], &self.model.sides[1 - side]);
            if self.model.must_complete(side) && !(here.end_read && here.received == other.sent) {
                return Err(format!("side {side} is not complete: {:?}", self.model));
            }
        }
        Ok(())
    }
}

/// Opens a session; `None` if the relay had to shed it.
fn open(bench: &Bench, number: usize) -> Option<Joined> {
    let client = bench.connect();
    let start = Instant::now();
    bench.server.set_nonblocking(true).unwrap();
    loop {
        assert!(start.elapsed() < DEADLINE, "session {number} is not opened");
        match bench.server.accept() {
            Ok((server, _)) => {
                client.set_nonblocking(true).unwrap();
                server.set_nonblocking(true).unwrap();
                for end in [&client, &server] {
                    socket2::SockRef::from(end)
                        .set_out_of_band_inline(true)
                        .unwrap();
                }
                return Some(Joined {
                    number,
                    model: Session::new(),
                    ends: [Some(client), Some(server)],
                });
            }
            Err(_) if client.take_error().unwrap().is_some() => {
                // The relay may have connected to the server before it shed the session; this
                // connection must not count as the next one's.
                return bench.server.accept().err().and(None);
            }
            Err(_) => thread::sleep(Duration::from_micros(100)),
        }
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn run(seed: u64, case: &Case) -> Result<(), String> {
    let settings = Settings {
        threads: 1,
        pipe_memory: ByteSize::from_bytes(case.pipes),
        reset_timeout: TimeSpan::from_milliseconds(500),
        ..Settings::default()
    };
    let before = descriptors();
    let mut bench = bench_with(settings.clone(), SessionSettings::default());
    failing_calls::begin(seed, case.rates);
    let mut sessions: Vec<Option<Joined>> = (0..case.sessions)
        .map(|number| open(&bench, number))
        .collect();
    let shed = sessions.iter().filter(|session| session.is_none()).count() as u64;
    bench.wait_for("all are opened", |now| {
        now.sessions_opened + now.shed_descriptors == case.sessions as u64
    });
    // One of the sessions had both sockets, and they could not be watched.
    let some_fail = bench.statistics().shed_descriptors > shed;
    for joined in sessions.iter_mut().flatten() {
        joined.model.may_fail = some_fail;
    }
    let mut result = Ok(());
    let mut former: Vec<Relay> = Vec::new();
    for (session, side, operation) in &case.operations {
        // If a call fails that another relay needs, some sessions stay, or all.
        if let Operation::HandOver = operation
            && let Ok((relay, _)) = move_sessions(&bench.relay, &settings, Vec::new(), Vec::new())
        {
            former.push(std::mem::replace(&mut bench.relay, relay));
        }
        if let Some(joined) = &mut sessions[*session] {
            result = result.and_then(|()| joined.carry_out(*side, *operation));
        }
    }
    for joined in sessions.iter_mut().flatten() {
        result = result.and_then(|()| {
            joined
                .finish()
                .map_err(|error| format!("session {}: {error}", joined.number))
        });
    }
    drop(sessions);
    failing_calls::end();
    let relays = || former.iter().chain([&bench.relay]);
    let ended = |now: &Statistics| now.sessions_active == 0 && now.pipes_in_use == 0;
    if result.is_ok() && !eventually(|| relays().all(|relay| ended(&relay.statistics()))) {
        let left: Vec<Statistics> = relays().map(Relay::statistics).collect();
        result = Err(format!("sessions are left: {left:?}"));
    }
    let memory = || {
        relays()
            .map(|relay| relay.observer().memory().used)
            .sum::<u64>()
    };
    if result.is_ok() && !eventually(|| memory() == 0) {
        result = Err(format!("{} bytes count as used by nobody", memory()));
    }
    let running = bench.statistics().threads_running;
    drop((former, bench));
    let after = descriptors();
    result?;
    match (running, before == after) {
        (1, true) => Ok(()),
        (1, false) => Err(format!("{before} descriptors before, {after} after")),
        _ => Err("the relay's thread has ended".to_owned()),
    }
}

fn generate(seed: u64) -> Case {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    case().new_tree(&mut runner).unwrap().current()
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn the_relay_does_what_the_model_says() {
    let _alone = alone();
    let wanted = from_environment("MIDSPAN_MODEL_CASES");
    let seeds = match from_environment("MIDSPAN_MODEL_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=wanted.unwrap_or(CASES),
    };
    let start = Instant::now();
    let failed = failing_calls::end();
    let mut tried = 0;
    for seed in seeds {
        if wanted.is_none() && start.elapsed() > TIME {
            break;
        }
        let case = generate(seed);
        if let Err(error) = run(seed, &case) {
            let case = shrink(seed, case);
            panic!("MIDSPAN_MODEL_SEED={seed}: {error}\nthe shortest that fails: {case:#?}");
        }
        tried += 1;
    }
    let failed = failing_calls::end() - failed;
    println!(
        "{tried} cases in {:?}, {failed} calls made to fail",
        start.elapsed()
    );
    assert!(failed > 0 || tried < 5);
}

/// Removes operations that are not needed for the failure.
fn shrink(seed: u64, mut case: Case) -> Case {
    let mut size = case.operations.len() / 2;
    let limit = Instant::now() + Duration::from_secs(60);
    while size > 0 {
        let mut at = 0;
        while at < case.operations.len() && Instant::now() < limit {
            let mut shorter = case.clone();
            let end = (at + size).min(shorter.operations.len());
            shorter.operations.drain(at..end);
            match run(seed, &shorter) {
                Err(_) => case = shorter,
                Ok(()) => at += size,
            }
        }
        size /= 2;
    }
    case
}

#[test]
fn a_seed_makes_the_same_case_again() {
    let text = |seed| format!("{:?}", generate(seed));
    assert_eq!(text(3), text(3));
    assert_ne!(text(3), text(4));
}

/// An urgent byte with an end directly behind it: splice returns 0 at this byte, as at an end.
#[test]
fn an_end_behind_urgent_data_loses_nothing() {
    let _alone = alone();
    let bench = bench();
    for seed in 0..300 {
        let (mut client, mut server) = bench.pair();
        socket2::SockRef::from(&server)
            .set_out_of_band_inline(true)
            .unwrap();
        let data = Pattern::new(seed).bytes(120_001);
        let sent = &data;
        thread::scope(|scope| {
            scope.spawn(move || {
                client.write_all(&sent[..100_000]).unwrap();
                let urgent = &sent[100_000..100_001];
                let flags = SendFlags::OOB | SendFlags::NOSIGNAL;
                rustix::net::send(&client, urgent, flags).unwrap();
                client.write_all(&sent[100_001..]).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                server_ends(&mut client);
            });
            let (received, ending) = read_all(&mut server);
            assert_same(&received, sent);
            assert_eq!(ending, Ending::Clean);
            drop(server);
        });
    }
}

fn server_ends(client: &mut TcpStream) {
    assert_eq!(read_all(client), (Vec::new(), Ending::Clean));
}

/// A shortage of kernel memory in the middle of a transfer is temporary, and not the peer's reset.
#[test]
fn a_transfer_survives_want_of_memory() {
    let _alone = alone();
    let bench = bench_with(
        Settings {
            threads: 1,
            ..settings()
        },
        SessionSettings::default(),
    );
    let (client, mut server) = bench.pair();
    let rates = Rates {
        no_memory: 200,
        ..Rates::default()
    };
    failing_calls::begin(1, rates);
    let data = Pattern::new(1).bytes(3_000_000);
    thread::scope(|scope| {
        scope.spawn(|| send_and_finish(client, &data, 1));
        let (received, ending) = read_all(&mut server);
        assert_same(&received, &data);
        assert_eq!(ending, Ending::Clean);
    });
    assert!(failing_calls::end() > 0);
}
