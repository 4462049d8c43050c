//! Phases in which every [fault](Fault) happens again and again: nothing is cut short, nothing is wrong, nothing is left.
//!
//! `make phases` runs ten phases of 100,000 sessions. A phase that has passed with the same build is in the record,
//! and is not repeated.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::faults::{Fault, Struck, Victim};
use super::{callers, lossy_network};
use crate::soaking::order::Order;
use crate::soaking::resources::{Installed, Use};
use crate::soaking::traffic::{Outcomes, call, hold, serve};
use crate::transparent::support::*;

/// The file that keeps the phases that have passed; without it, there is one short phase.
const RECORD: &str = "MIDSPAN_PHASES";
const PHASES: usize = 10;
/// Short sessions of a phase, and sessions that last.
const FULL: (usize, usize) = (100_000, 300);
const QUICK: (usize, usize) = (1500, 30);
/// A time limit far above the time that any machine needs.
const TIME: Duration = Duration::from_secs(1800);
/// Between two faults.
const PAUSE: Duration = Duration::from_millis(500);
/// Descriptors of a relay at rest: those that it begins with, and some of its threads.
const MOST_LEFT: usize = 16;

#[kernel_test]
fn every_fault_happens_again_and_again() {
    let Some(file) = std::env::var_os(RECORD).map(PathBuf::from) else {
        println!("  {}", phase(0, QUICK));
        return;
    };
    let build = build();
    for number in 0..PHASES {
        let name = format!("{build} {number}: ");
        let record = fs::read_to_string(&file).unwrap_or_default();
        if let Some(line) = record.lines().find(|line| line.starts_with(&name)) {
            println!("  passed before: {line}");
            continue;
        }
        let line = format!("{name}{}", phase(number, FULL));
        println!("  {line}");
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(&file).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// A number for this test program.
fn build() -> String {
    let mut hasher = DefaultHasher::new();
    let program = std::env::current_exe().unwrap();
    fs::read(program).unwrap().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// One phase; what happened in it.
fn phase(number: usize, (short, long): (usize, usize)) -> String {
    let network = lossy_network();
    let before = Installed::of(&network.gateway);
    let stop = Arc::new(AtomicBool::new(false));
    let server = serve(network.listen(PORT), &stop);
    let mut victim = Victim::start(&network);
    let relay = || victim.relay().as_raw_nonzero().get();
    let (installed, at_first) = (
        Installed::of(&network.gateway),
        Use::of(relay(), &network.gateway),
    );
    let outcomes = Arc::new(Outcomes::default());
    let start = Instant::now();
    let long = hold(callers(&network), long, &outcomes, &stop);
    let callers = call(callers(&network), number, short, &outcomes);
    let mut order = Order::new(&Fault::ALL, number as u64);
    let mut happened = BTreeMap::new();
    // Each fault happens at least once.
    while !callers.is_finished() || order.round == 0 {
        assert!(start.elapsed() < TIME, "{}", outcomes.shown());
        let fault = order.next();
        let struck = victim.strike(fault);
        println!("  {:.1?}: {fault:?}: {struck}", start.elapsed());
        match struck {
            Struck::Done => *happened.entry(fault).or_insert(0) += 1,
            Struck::Impossible(error) => {
                if order.round == 0 {
                    skip_part(&format!("{fault:?}: {error}"));
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
    callers.join().unwrap();
    stop.store(true, Ordering::Relaxed);
    long.join().unwrap();
    let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    assert_eq!(read(&outcomes.short), 0, "{}", outcomes.shown());
    assert_eq!(read(&outcomes.wrong), 0, "{}", outcomes.shown());
    let complete = read(&outcomes.complete);
    assert!(complete > short / 3, "{}", outcomes.shown());
    wait_within(Duration::from_secs(120), "without sessions", || {
        network.taken(PORT) == 0
    });
    wait_until("the rules are back", || {
        Installed::of(&network.gateway).lines() == installed.lines()
    });
    let relay = || victim.relay().as_raw_nonzero().get();
    wait_until("without descriptors of sessions", || {
        Use::of(relay(), &network.gateway).descriptors <= at_first.descriptors + MOST_LEFT
    });
    let at_last = Use::of(relay(), &network.gateway);
    server.join().unwrap();
    let restarts = victim.restarts;
    victim.stop();
    assert_eq!(Installed::of(&network.gateway), before);
    let faults: Vec<String> = (happened.iter())
        .map(|(fault, count)| format!("{fault:?} {count}"))
        .collect();
    format!(
        "{:.0} s; {}; {restarts} restarts; faults: {}; at rest {} descriptors and {} kB",
        start.elapsed().as_secs_f64(),
        outcomes.shown(),
        faults.join(", "),
        at_last.descriptors,
        at_last.memory_kb
    )
}
