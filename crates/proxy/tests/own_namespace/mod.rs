//! A test program that is the proxy, too, and runs its tests in a network namespace of its own.
#![allow(missing_docs)]

use std::os::fd::AsFd;

use midspan_linux::namespace;
use midspan_proxy::{RunOptions, relay_main, run};

use crate::tries::{Test, run_all};

/// The helper or the relay of a proxy where the arguments say so; else the tests whose names
/// contain the argument, after `set_up` within the namespace.
///
/// # Panics
/// A test failed; the others have run.
pub fn main(set_up: fn(), tests: &[Test]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["relay"] => end(relay_main()),
        ["run", file] => end(run(RunOptions {
            configuration: file.into(),
            relay_arguments: vec!["relay".to_owned()],
            ready: Some(std::io::stdout().as_fd().try_clone_to_owned().unwrap()),
        })),
        [filter] if !filter.starts_with('-') => test(filter, set_up, tests),
        _ => test("", set_up, tests),
    }
}

fn end(result: Result<(), midspan_proxy::Error>) {
    if let Err(error) = result {
        midspan_log::say(&format!("error: {error}"));
        midspan_log::finish();
        std::process::exit(1);
    }
}

fn test(filter: &str, set_up: fn(), tests: &[Test]) {
    let privilege = match namespace::isolate() {
        Ok(privilege) => privilege,
        Err(error) => return println!("skipped: {error}"),
    };
    println!("in a network namespace of its own, as {privilege:?}");
    set_up();
    run_all(filter, tests);
}
