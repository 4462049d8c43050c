//! The writer with pipes that are full, closed and read again.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::pipe::pipe;

use super::*;
use crate::queue::LINES;

const LIMIT: Duration = Duration::from_secs(20);

fn notice(missing: u64) -> Vec<u8> {
    format!("{missing} missing\n").into_bytes()
}

fn log_to_pipe() -> (Arc<Log>, OwnedFd) {
    let (reader, writer) = pipe().unwrap();
    (Log::start(writer, || {}, notice).unwrap(), reader)
}

fn put(log: &Log, text: &str) -> bool {
    log.put(Entry::Line(format!("{text}\n").into_bytes()))
}

fn lines(reader: OwnedFd) -> impl Iterator<Item = String> {
    BufReader::new(File::from(reader))
        .lines()
        .map(Result::unwrap)
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Fills the pipe and the queue; returns the number of lines that will be written.
fn fill(log: &Log) -> usize {
    let mut count = 0;
    // The writer may still remove some lines.
    let mut refused = 0;
    while refused < 50 {
        if put(log, &format!("line {count}")) {
            count += 1;
            refused = 0;
        } else {
            refused += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    count
}

#[test]
fn lines_come_in_order() {
    let (log, reader) = log_to_pipe();
    for number in 0..100 {
        assert!(put(&log, &number.to_string()));
    }
    let expected: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    assert_eq!(lines(reader).take(100).collect::<Vec<_>>(), expected);
    assert_eq!(log.lost(), 0);
}

#[test]
fn lines_that_found_no_room_are_told_where_they_are_missing() {
    let (log, reader) = log_to_pipe();
    let count = fill(&log);
    assert!(count > LINES, "{count}");
    let lost = log.lost();
    assert!(lost >= 50, "{lost}");
    // A process that ends does not wait for a reader that does not read.
    let start = Instant::now();
    log.finish(start + LIMIT);
    assert!(start.elapsed() < LIMIT / 2);
    let mut lines = lines(reader);
    let mut told = 0;
    for number in 0..count {
        let mut line = lines.next().unwrap();
        // Some lines may have been lost while the pipe was still being filled.
        if let Some(missing) = line.strip_suffix(" missing") {
            told += missing.parse::<u64>().unwrap();
            line = lines.next().unwrap();
        }
        assert_eq!(line, format!("line {number}"));
    }
    let last = lines.next().unwrap();
    told += last
        .strip_suffix(" missing")
        .unwrap()
        .parse::<u64>()
        .unwrap();
    assert_eq!(told, lost);
    // The log continues.
    assert!(put(&log, "more"));
    assert_eq!(lines.next().unwrap(), "more");
}

#[test]
fn a_reader_that_goes_costs_lines_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let path = place.clone();
    let first = std::thread::spawn(move || File::open(path).unwrap());
    let writer = File::options().write(true).open(&place).unwrap();
    let mut reader = first.join().unwrap();
    let log = Log::start(writer, || {}, notice).unwrap();
    assert!(put(&log, "one"));
    let mut text = [0; 4];
    reader.read_exact(&mut text).unwrap();
    drop(reader);
    for _ in 0..3 {
        assert!(put(&log, "lost"));
    }
    wait_until("counted", || log.lost() == 3);
    // All steps are complete, although nothing was read.
    log.finish(Instant::now() + LIMIT);
    // The writer's end keeps a reader from waiting.
    let again = File::open(&place).unwrap();
    assert!(put(&log, "two"));
    let mut lines = BufReader::new(again).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "3 missing");
    assert_eq!(lines.next().unwrap(), "two");
}

#[test]
fn a_descriptor_that_others_made_non_blocking_loses_nothing() {
    let (reader, writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let log = Log::start(writer, || {}, notice).unwrap();
    let count = fill(&log);
    let lost = log.lost();
    let found = std::thread::spawn(move || {
        lines(reader)
            .filter(|line| line.starts_with("line"))
            .take(count)
            .count()
    });
    assert_eq!(found.join().unwrap(), count);
    assert_eq!(log.lost(), lost);
}

#[test]
fn what_waits_for_room_gets_it_when_lines_are_read_and_not_else() {
    let (log, reader) = log_to_pipe();
    fill(&log);
    let lost = log.lost();
    let later = || Entry::Later(Box::new(|| crate::say("made later")));
    wait_until("stuck", || {
        !log.put_until(later(), Some(Instant::now() + LIMIT / 4))
    });
    assert!(log.lost() > lost);
    let reading = std::thread::spawn(move || lines(reader).any(|line| line == "made later"));
    // As soon as the first line is read.
    wait_until("room", || {
        log.put_until(later(), Some(Instant::now() + LIMIT))
    });
    assert!(reading.join().unwrap());
}

#[test]
fn a_panic_while_a_line_is_made_costs_that_line() {
    let (log, reader) = log_to_pipe();
    assert!(log.put(Entry::Later(Box::new(|| panic!("on purpose")))));
    assert!(put(&log, "next"));
    let mut lines = lines(reader);
    assert_eq!(lines.next().unwrap(), "1 missing");
    assert_eq!(lines.next().unwrap(), "next");
    assert_eq!(log.lost(), 1);
}
