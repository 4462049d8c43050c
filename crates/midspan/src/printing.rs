//! The output of commands, on standard output and standard error.
//!
//! The reader of the output may end early (`midspan status | head -1`). This is no error: the
//! command continues, prints nothing more, and its exit status is the same as with a reader. Any
//! other failure of standard output is an error, because the output is incomplete.
//!
//! Results, errors and warnings are always printed; notes and progress unless `--quiet` is given, and
//! the name of each step only with `--verbose`.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind, Stdout, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The first failure of standard output; nothing is printed there after it.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a text on standard output.
pub fn text(text: impl Display) {
    print(format_args!("{text}"));
}

/// Prints a text and the end of a line on standard output.
pub fn line(text: impl Display) {
    print(format_args!("{text}\n"));
}

/// How much is printed in addition to results, errors and warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verbosity {
    /// Nothing.
    Quiet,
    /// Notes and progress.
    #[default]
    Normal,
    /// Also each step.
    Verbose,
}

static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

/// Sets how much is printed, once, before anything is printed.
pub fn set_verbosity(verbosity: Verbosity) {
    // It is set at one place only.
    let _ = VERBOSITY.set(verbosity);
}

/// How much is printed.
pub fn verbosity() -> Verbosity {
    VERBOSITY.get().copied().unwrap_or_default()
}

/// Prints a line on standard error that the user can do without.
pub fn note(text: impl Display) {
    if verbosity() != Verbosity::Quiet {
        warning(text);
    }
}

/// Prints a line on standard error that the user needs, also with `--quiet`.
pub fn warning(text: impl Display) {
    // If standard error has no reader, there is no place to report this.
    let _ = writeln!(io::stderr(), "{text}");
}

/// The command as it was typed, for reports.
#[cfg(feature = "lab")]
pub fn command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("midspan {}", arguments.join(" "))
}

/// Flushes standard output, after the last text.
///
/// # Errors
/// Standard output failed. An output without a reader is no error.
pub fn finish() -> io::Result<()> {
    act(Stdout::flush);
    match failure().take() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

fn print(text: fmt::Arguments<'_>) {
    act(|output| output.write_fmt(text));
}

/// Runs an action on standard output, unless it has failed before.
fn act(action: impl FnOnce(&mut Stdout) -> io::Result<()>) {
    let mut failure = failure();
    if failure.is_none() {
        *failure = action(&mut io::stdout()).err();
    }
}

/// The lock; a poisoned one too, because no code panics while it holds the lock.
fn failure() -> MutexGuard<'static, Option<io::Error>> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner)
}
