//! Tests that the harness must find out.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use midspan_testbed::{kernel_test, skip, skip_part};

/// Where it is set, these tests are those of the program. Its value is a folder for notes.
pub const VARIABLE: &str = "MIDSPAN_PLANTED";

fn folder() -> std::path::PathBuf {
    std::env::var_os(VARIABLE).unwrap().into()
}

#[kernel_test]
fn passes() {
    println!("nobody sees this");
    assert!(Path::new("/proc/self/net/dev").exists());
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
