//! What commands print, on standard output and standard error.
//!
//! Whoever reads may go away in the middle (`midspan status | head -1`). That is no fault of the
//! command: it goes on, prints nothing more, and its exit status is what it would be. Any other
//! failure of standard output is one: what was to be read there is incomplete.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind, Stdout, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Prints a line on standard error, for people.
pub fn note(text: impl Display) {
    // Nobody is left to be told that nobody reads it.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Nothing more will be printed.
///
/// # Errors
/// Why standard output did not take all; not that nobody reads it any more.
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

/// Does something with standard output, unless that has failed before.
fn act(action: impl FnOnce(&mut Stdout) -> io::Result<()>) {
    let mut failure = failure();
    if failure.is_none() {
        *failure = action(&mut io::stdout()).err();
    }
}

/// Nothing here panics while it holds the lock.
fn failure() -> MutexGuard<'static, Option<io::Error>> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner)
}
