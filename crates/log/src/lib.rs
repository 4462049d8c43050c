//! Lines on standard error, written by one thread of the process.
//!
//! The reader of a log may be slow, may stop reading, or may end: a terminal that is stopped, a full disk, a
//! supervisor that dies. A thread that logs does not wait for the reader, apart from two cases with a limit
//! of time: [`later_until`], and a panic. Lines are put into a queue of at most 4096 lines and 4 MiB. One
//! thread writes them; no other code of the process writes to standard error. The flags of the descriptor do
//! not change, because other processes share it.
//!
//! A line that finds no room, or cannot be written, is counted ([`lost`]). As soon as lines can be written
//! again, one line contains the number of missing lines. A writer that is stuck in `write(2)` does not
//! prevent the process from ending: [`finish`] waits only while lines are being read, and for 2 s at most.
//!
//! Reasons against `tracing-appender`: it does not log the number of missing lines, does not count lines that
//! `write(2)` refuses, limits lines but not bytes, and has no waiting for the last lines that ends when
//! nothing reads them.

mod captured;
mod queue;
mod rate;
mod writer;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use queue::Entry;
pub use rate::LogRate;
use writer::Log;
pub use writer::Notice;

/// Longest line; a longer line is truncated.
const LINE_LIMIT: usize = 64 << 10;
/// How long the end of the process waits for lines that are being read slowly.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long a thread that panics waits for its last line.
const PANIC_LINES: Duration = Duration::from_millis(500);

static LOG: OnceLock<Arc<Log>> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

/// Starts the writer's thread, which first calls `begin`. If the thread already runs, nothing
/// changes. The first line that is logged without a start also starts the thread.
///
/// # Errors
/// The thread cannot be created.
pub fn start(begin: fn()) -> io::Result<()> {
    log_or_start(begin).map(|_| ())
}

/// Sets how the log reports missing lines from now on: `notice` makes that line, on the writer's
/// thread.
pub fn set_notice(notice: Notice) {
    if let Some(log) = log() {
        log.set_notice(notice);
    }
}

fn log() -> Option<&'static Arc<Log>> {
    log_or_start(|| {}).ok()
}

fn log_or_start(begin: fn()) -> io::Result<&'static Arc<Log>> {
    if let Some(log) = LOG.get() {
        return Ok(log);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(log) = LOG.get() {
        return Ok(log);
    }
    let log = Log::start(io::stderr(), begin, plain_notice)?;
    Ok(LOG.get_or_init(|| log))
}

fn plain_notice(missing: u64) -> Vec<u8> {
    format!("{missing} lines of the log were lost\n").into_bytes()
}

/// A line that is being composed; it is queued when it goes out of scope.
#[derive(Debug, Default)]
pub struct Line(Vec<u8>);

/// A new line, for code that needs a writer.
#[must_use]
pub fn line() -> Line {
    Line::default()
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LINE_LIMIT.saturating_sub(self.0.len());
        self.0.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut line = std::mem::take(&mut self.0);
        if line.is_empty() {
            return;
        }
        if line.len() >= LINE_LIMIT {
            line.truncate(LINE_LIMIT - 1);
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        if let Some(line) = captured::take(line)
            && let Some(log) = log()
        {
            log.put(Entry::Line(line));
        }
    }
}

/// Queues a line as it is.
pub fn say(text: &str) {
    let _ = line().write_all(text.as_bytes());
}

/// Queues lines that the writer's thread makes: the lines that `make` logs. Returns `false` if there
/// is no room, which counts as one lost line.
pub fn later(make: impl FnOnce() + Send + 'static) -> bool {
    log().is_some_and(|log| log.put(Entry::Later(Box::new(make))))
}

/// As [`later`], but waits for room until `limit`, as long as lines are being read.
pub fn later_until(make: impl FnOnce() + Send + 'static, limit: Instant) -> bool {
    log().is_some_and(|log| log.put_until(Entry::Later(Box::new(make)), Some(limit)))
}

/// The lines that `make` logs in this thread, which are not queued. For a [`Notice`].
pub fn capture(make: impl FnOnce()) -> Vec<u8> {
    captured::capture(make).1.concat()
}

/// Lines of this process that were not written, because there was no room or no reader.
#[must_use]
pub fn lost() -> u64 {
    LOG.get().map_or(0, |log| log.lost())
}

/// Waits for the last lines before the process ends: until they are written, for at most 2 s, and
/// for at most 0.25 s if nothing reads them.
pub fn finish() {
    finish_within(LAST_LINES);
}

fn finish_within(limit: Duration) {
    if let Some(log) = LOG.get() {
        log.finish(Instant::now() + limit);
    }
}

/// From now on, `report` reports panics in one line, instead of the standard library, which would
/// wait for the reader of standard error. The thread that panics waits a short time for its line.
pub fn report_panics(report: fn(&str)) {
    std::panic::set_hook(Box::new(move |panic| {
        report(&describe(panic));
        finish_within(PANIC_LINES);
    }));
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name").to_owned();
    let message = panic.payload_as_str().unwrap_or("something");
    let place = panic.location().map(ToString::to_string);
    let place = place.unwrap_or_else(|| "an unknown place".to_owned());
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => format!("\n{backtrace}"),
        _ => String::new(),
    };
    format!("thread '{name}' panicked at {place}: {message}{backtrace}")
}
