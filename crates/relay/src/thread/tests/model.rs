//! A model of a relay thread: the thread's own code above a simulated kernel ([`kernel`]), which random clients
//! and servers ([`driver`]) use in every order that a seed allows. One step is one turn of the thread.
//!
//! A short run is a test. `make model` runs more steps (`MIDSPAN_MODEL_STEPS`), with another seed
//! (`MIDSPAN_MODEL_SEED`): a failure names its seed and its step, and the same seed fails at the same step.

mod driver;
mod kernel;
mod random;
mod socket;

use std::time::{Duration, Instant};

use crate::seeded_faults::{Fault, planted};
use driver::Driver;

/// Steps of the test.
const STEPS: u64 = 200_000;
/// Steps within which a planted fault must be found.
const STEPS_OF_FAULTS: u64 = 1_000_000;
const SEED: u64 = 1;
/// How often a run shows its progress.
const PROGRESS: Duration = Duration::from_secs(10);

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text}")),
        Err(_) => otherwise,
    }
}

/// Runs the model.
fn run(seed: u64, steps: u64) -> Driver {
    let mut driver = Driver::new(seed);
    let (start, mut shown) = (Instant::now(), Instant::now());
    while driver.steps() < steps {
        driver.step();
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            let time = start.elapsed();
            println!(
                "{} of {steps} steps in {time:.0?}: {}",
                driver.steps(),
                driver.outcomes()
            );
        }
    }
    driver.settle();
    println!(
        "seed {seed}: {} steps in {:.1?}: {}",
        driver.steps(),
        start.elapsed(),
        driver.outcomes()
    );
    driver
}

#[test]
fn no_byte_is_lost_and_nothing_is_left_over_a_simulated_kernel() {
    let seed = number("MIDSPAN_MODEL_SEED", SEED);
    let driver = run(seed, number("MIDSPAN_MODEL_STEPS", STEPS));
    let counters = driver.counters();
    // The model reaches what it is to test.
    for (name, count) in [
        ("sessions that end in order", counters.sessions_closed.get()),
        ("sessions that are reset", counters.sessions_reset.get()),
        ("servers that refuse", counters.sessions_unconnected.get()),
        ("spliced bytes", counters.bytes_spliced.get()),
        ("copied bytes", counters.bytes_copied.get()),
        ("copies for want of a pipe", counters.pipe_shortages.get()),
    ] {
        assert!(count > 100, "{name}: {count}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| run(seed, 20_000).outcomes();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// The message with which a run with this fault ends.
fn found(fault: Fault) -> String {
    let seed = number("MIDSPAN_MODEL_SEED", SEED);
    let run = std::thread::spawn(move || {
        planted::plant(fault);
        run(seed, STEPS_OF_FAULTS).outcomes()
    });
    match run.join() {
        Ok(outcomes) => panic!("{fault:?} was not found: {outcomes}"),
        Err(message) => {
            let text = message.downcast_ref::<String>();
            text.map_or_else(String::new, String::clone)
        }
    }
}

#[test]
fn a_lost_byte_is_found() {
    let message = found(Fault::ByteLost);
    assert!(message.contains("wrong bytes"), "{message}");
}

#[test]
fn a_lost_pipe_full_of_data_is_found() {
    let message = found(Fault::LastPipeDropped);
    assert!(message.contains("bytes"), "{message}");
}

#[test]
fn a_leaked_pipe_is_found() {
    let message = found(Fault::PipeLeaked);
    assert!(message.contains("pipes are in use"), "{message}");
}

#[test]
fn a_leaked_socket_is_found() {
    let message = found(Fault::SocketLeaked);
    assert!(message.contains("sockets are open"), "{message}");
}

#[test]
fn a_reset_that_overtakes_data_is_found() {
    let message = found(Fault::ResetOvertakesData);
    assert!(message.contains("overtakes"), "{message}");
}

#[test]
fn an_end_of_one_direction_that_ends_both_is_found() {
    let message = found(Fault::HalfCloseEndsBoth);
    assert!(
        message.contains("reset") || message.contains("FIN"),
        "{message}"
    );
}
