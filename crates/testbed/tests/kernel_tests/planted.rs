//! Tests that the harness must find out.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use midspan_testbed::{KernelTests, kernel_test, skip, skip_part};

/// Where it is set, these tests are those of the program. Its value is a folder for notes.
pub const VARIABLE: &str = "MIDSPAN_PLANTED";

/// These tests, with their set-up.
pub const TESTS: KernelTests =
    KernelTests::new().set_up(|| IS_SET_UP.store(true, Ordering::Relaxed));
static IS_SET_UP: AtomicBool = AtomicBool::new(false);

/// Whether the set-up of these tests has run in this process.
pub fn is_set_up() -> bool {
    IS_SET_UP.load(Ordering::Relaxed)
}

fn folder() -> std::path::PathBuf {
    std::env::var_os(VARIABLE).unwrap().into()
}

#[kernel_test]
fn passes() {
    println!("nobody sees this");
    assert!(Path::new("/proc/self/net/dev").exists());
}

#[kernel_test]
fn has_the_set_up_of_its_module() {
    assert!(is_set_up());
}

#[kernel_test]
fn is_skipped() {
    skip("there is no such thing");
}

#[kernel_test]
fn is_skipped_in_part() {
    skip_part("half of it is missing");
}

#[kernel_test]
fn fails_always() {
    println!("printed before the failure");
    panic!("planted failure");
}

#[kernel_test]
fn fails_at_first() {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if options.open(folder().join("was-here")).is_ok() {
        panic!("planted failure of the first try");
    }
}

#[kernel_test]
fn aborts() {
    std::process::abort();
}

#[kernel_test]
fn hangs() {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let mut file = std::fs::File::create(folder().join("sleeper")).unwrap();
    writeln!(file, "{}", child.id()).unwrap();
    child.wait().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}
