//! Short forms for kernel tests. Where the other modules return an error, these panic: a test has
//! failed then.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used)]

mod midspan;
mod nodes;
mod processes;
mod servers;
mod streams;

pub use crate::program::LIMIT;
pub use midspan::{Midspan, assert_no_refused_call};
pub use nodes::{link, listen, node, output, route, rules, up};
pub use processes::stop_process;
pub use servers::{NamedServer, is_answered, name_of_server};
pub use streams::{
    abort, accept, bounded, carries, connect, connect_as, connect_from, echoes, exactly,
    is_refused, is_reset, rest, socket,
};

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

/// Waits until this holds, for at most [`LIMIT`].
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_within(LIMIT, what, condition);
}

/// Waits until this holds, for at most so long.
#[track_caller]
pub fn wait_within(limit: Duration, what: &str, condition: impl FnMut() -> bool) {
    assert!(
        crate::program::wait_until(limit, condition),
        "never: {what}"
    );
}

/// Ends a command of a test program: the error goes to the log, whose last line is then written.
#[must_use]
pub fn exit_code(result: Result<(), impl Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            midspan_log::say(&format!("error: {error}"));
            midspan_log::finish();
            ExitCode::FAILURE
        }
    }
}

/// The result of what must not fail.
#[track_caller]
fn done<T>(result: Result<T, impl Display>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
