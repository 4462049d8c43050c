//! Tests on real kernels, one after another, each in as many tries as the environment allows.
#![allow(missing_docs)]

use std::time::Instant;

/// A test with its name.
pub type Test = (&'static str, fn());

/// Runs the tests whose names contain `filter`. One that fails is tried again as often as
/// `MIDSPAN_TEST_TRIES` says (once, unless set), and each failure is told: they run on real kernels
/// beside other programs, and one late process must not hide what the tests after it would say.
///
/// # Panics
/// A test failed in all its tries; the others have run.
pub fn run_all(filter: &str, tests: &[Test]) {
    let tries: u32 = std::env::var("MIDSPAN_TEST_TRIES").map_or(1, |tries| {
        tries.parse().expect("MIDSPAN_TEST_TRIES: a number")
    });
    let mut failed = Vec::new();
    for (name, test) in tests.iter().filter(|(name, _)| name.contains(filter)) {
        let start = Instant::now();
        let passed = (1..=tries).any(|attempt| {
            let passed = std::panic::catch_unwind(test).is_ok();
            if !passed {
                println!("test {name} ... failed in try {attempt} of {tries}");
            }
            passed
        });
        if passed {
            println!(
                "test {name} ... ok ({:.1} s)",
                start.elapsed().as_secs_f64()
            );
        } else {
            println!("test {name} ... FAILED");
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "tests failed: {failed:?}");
}

/// Fails where the log tells of a system call that a sandbox has refused: it is missing on the list
/// of calls, or a call is made that should not be.
///
/// # Panics
/// As said.
#[allow(dead_code)]
pub fn assert_no_refused_call(log: &str) {
    let refused: Vec<&str> = (log.lines())
        .filter(|line| line.contains("sandbox") && line.contains("has refused"))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
