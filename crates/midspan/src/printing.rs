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

use miette::IntoDiagnostic;
use serde::Serialize;

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

/// Prints a value on standard output as JSON, indented.
///
/// # Errors
/// The value is not possible in JSON.
pub fn json(value: &impl Serialize) -> miette::Result<()> {
    line(indented(&serde_json::to_string(value).into_diagnostic()?));
    Ok(())
}

/// Indents JSON without white space, as [`serde_json::to_string_pretty`] does. The library's function is compiled for
/// each type once more, which makes the program larger.
pub fn indented(json: &str) -> String {
    let mut text = String::with_capacity(2 * json.len());
    let (mut depth, mut is_string, mut is_escaped, mut is_begun) = (0, false, false, false);
    let new_line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth));
    };
    for next in json.chars() {
        let ends = !is_string && matches!(next, ']' | '}');
        if ends {
            depth -= 1;
        }
        // An empty list or object stays on its line.
        if is_begun != ends {
            new_line(&mut text, depth);
        }
        is_begun = false;
        text.push(next);
        if is_string {
            is_string = next != '"' || is_escaped;
            is_escaped = next == '\\' && !is_escaped;
            continue;
        }
        match next {
            '"' => is_string = true,
            '[' | '{' => {
                depth += 1;
                is_begun = true;
            }
            ',' => new_line(&mut text, depth),
            ':' => text.push(' '),
            _ => {}
        }
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_as_by_the_library() {
        let value = serde_json::json!({
            "empty": [], "nothing": {}, "text": "a \"quoted\" [text], \\ {and: more}\\",
            "list": [1, 2.5, null, [true, []], {"deep": [{}]}], "é\n": -1e-9
        });
        for value in [value, serde_json::json!("[]"), serde_json::json!([[]])] {
            let expected = serde_json::to_string_pretty(&value).unwrap();
            assert_eq!(indented(&value.to_string()), expected);
        }
    }
}
