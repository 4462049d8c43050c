//! What can be seen of a running proxy: metrics, live sessions, lines of the log, captures; and
//! that nobody who asks for them disturbs it.
//!
//! Everything happens on the loopback interface of a network namespace of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../capture_file/mod.rs"]
mod capture_file;
mod capturing;
mod hostile;
mod seen;
mod support;

use std::os::fd::AsFd;

use midspan_linux::namespace;
use midspan_proxy::{RunOptions, relay_main, run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["relay"] => end(relay_main()),
        ["run", file] => end(run(RunOptions {
            configuration: file.into(),
            relay_arguments: vec!["relay".to_owned()],
            ready: Some(std::io::stdout().as_fd().try_clone_to_owned().unwrap()),
        })),
        [filter] if !filter.starts_with('-') => test(filter),
        _ => test(""),
    }
}

fn end(result: Result<(), midspan_proxy::Error>) {
    if let Err(error) = result {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn test(filter: &str) {
    let privilege = match namespace::isolate() {
        Ok(privilege) => privilege,
        Err(error) => return println!("skipped: {error}"),
    };
    println!("in a network namespace of its own, as {privilege:?}");
    support::set_up_network();
    let tests: [(&str, fn()); 8] = [
        ("each end is counted and logged", seen::each_end_is_counted),
        ("a live session is shown", seen::a_live_session_is_shown),
        ("many sessions by pages", seen::sessions_come_by_pages),
        ("legs are sampled while they live", seen::legs_are_sampled),
        (
            "a stuck log stops nothing",
            hostile::a_stuck_log_stops_nothing,
        ),
        ("hostile requests", hostile::requests_disturb_nothing),
        ("pages and errors", seen::pages_and_errors),
        (
            "a capture of a forward session",
            capturing::a_forward_session,
        ),
    ];
    for (name, test) in tests {
        if name.contains(filter) {
            test();
            println!("test {name} ... ok");
        }
    }
}
