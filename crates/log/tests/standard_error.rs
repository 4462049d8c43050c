//! Standard error of a whole process: this program runs itself as that process.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, PipeReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "MIDSPAN_LOG_TEST";
const LIMIT: Duration = Duration::from_secs(20);

/// With the environment variable: not a test, but the process under test.
#[test]
fn process() {
    match std::env::var(ROLE).as_deref() {
        Ok("panic") => {
            midspan_log::report_panics(midspan_log::say);
            wait_for_start();
            let panicking = std::thread::Builder::new()
                .name("unlucky".to_owned())
                .spawn(|| panic!("on purpose"));
            assert!(panicking.unwrap().join().is_err());
            end();
        }
        Ok("many lines") => {
            midspan_log::start(|| {}).unwrap();
            wait_for_start();
            for number in 0..30_000 {
                midspan_log::say(&format!("line {number}"));
            }
            end();
        }
        _ => {}
    }
}

fn wait_for_start() {
    std::io::stdin().read_exact(&mut [0; 1]).unwrap();
}

fn end() -> ! {
    midspan_log::finish();
    println!("\nlost {}", midspan_log::lost());
    std::process::exit(7);
}

fn run(role: &str) -> (Child, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process", "--nocapture"])
        .env(ROLE, role)
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .unwrap();
    (child, reader)
}

/// Lets the process continue and end normally; returns the number of lines that it has lost.
fn lost(mut child: Child) -> u64 {
    use std::io::Write;
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < LIMIT, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(7));
    let mut said = String::new();
    child.stdout.unwrap().read_to_string(&mut said).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("lost "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_panic_is_one_line() {
    let (child, reader) = run("panic");
    assert_eq!(lost(child), 0);
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let line = lines.next().unwrap();
    assert!(line.starts_with("thread 'unlucky' panicked at "), "{line}");
    assert!(line.ends_with(": on purpose"), "{line}");
    assert_eq!(lines.next(), None);
}

#[test]
fn a_panic_without_a_reader_ends_its_thread_only() {
    let (child, reader) = run("panic");
    drop(reader);
    assert_eq!(lost(child), 1);
}

#[test]
fn a_reader_that_does_not_read_does_not_keep_the_process() {
    let (child, reader) = run("many lines");
    let lost = lost(child);
    // The queue holds 4,096 lines, and the pipe at most 64 KiB: fewer than 7,000 of these lines.
    assert!(lost > 0, "{lost}");
    drop(reader);
}
