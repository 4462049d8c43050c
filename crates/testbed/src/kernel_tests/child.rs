//! The process of one test.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use midspan_linux::namespace::{self, Privilege};

use super::KernelTests;

/// Begins a line with the reason why a test, or a part of it, was skipped.
pub(super) const SKIPPED: &str = "skipped: ";

/// The exit status of a test that was left out.
pub(super) const IS_SKIPPED: u8 = 77;

static PRIVILEGE: OnceLock<Privilege> = OnceLock::new();
static SKIPPED_WHOLE: AtomicBool = AtomicBool::new(false);

/// Notes that the test is left out: it counts as ignored, and the reason is shown. The caller
/// returns.
///
/// For what the machine lacks only: a kernel facility, a program.
pub fn skip(why: &str) {
    SKIPPED_WHOLE.store(true, Ordering::Relaxed);
    skip_part(why);
}

/// Notes that a part of the test is left out. The note is shown at the end of the run; the test
/// counts all the same.
pub fn skip_part(why: &str) {
    println!("{SKIPPED}{}", why.replace('\n', " "));
}

/// With which rights this process has entered its namespaces; `None` where it is no test's.
#[must_use]
pub fn privilege() -> Option<Privilege> {
    PRIVILEGE.get().copied()
}

/// Runs a test in this process, after it has left the namespaces in which it was started.
pub(super) fn run(tests: &KernelTests, name: &str) -> ExitCode {
    let Some(test) = tests.tests().into_iter().find(|test| test.name() == name) else {
        eprintln!("error: there is no kernel test \"{name}\"");
        return ExitCode::FAILURE;
    };
    let of = tests.of(name);
    (of.before)(name);
    match namespace::isolate() {
        Ok(privilege) => {
            println!("in a network namespace of its own, as {privilege:?}");
            let _ = PRIVILEGE.set(privilege);
        }
        Err(error) => {
            skip(&error.to_string());
            return ExitCode::from(IS_SKIPPED);
        }
    }
    match (of.needs)() {
        Ok(()) => {
            (of.set_up)();
            (test.run)();
        }
        Err(reason) => skip(&reason),
    }
    match SKIPPED_WHOLE.load(Ordering::Relaxed) {
        true => ExitCode::from(IS_SKIPPED),
        false => ExitCode::SUCCESS,
    }
}
