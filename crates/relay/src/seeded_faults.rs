//! Deliberate faults, to test that the conformance suite finds them.
//!
//! Without the feature `seeded-faults` the program contains none of them: [`is`] is `false` at
//! compile time. With the feature, the environment variable `MIDSPAN_SEEDED_FAULT` selects one by
//! name.

use std::process::Command;

#[cfg(all(feature = "seeded-faults", not(debug_assertions)))]
compile_error!("the feature `seeded-faults` is for tests only, never for a release");

/// A fault that a relay may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A session is closed with a FIN instead of a reset.
    FinForReset,
    /// When the end of the data arrives, the bytes in the pipe are lost.
    LastPipeDropped,
    /// The client is answered before the server has answered.
    AcceptBeforeConnect,
    /// The end of one direction ends both.
    HalfCloseEndsBoth,
    /// Small writes wait until they fill a segment.
    CorkedSmallWrites,
    /// A reset overtakes the data before it.
    ResetOvertakesData,
}

#[cfg(feature = "seeded-faults")]
const VARIABLE: &str = "MIDSPAN_SEEDED_FAULT";

#[cfg(feature = "seeded-faults")]
impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::FinForReset => "fin-for-reset",
            Self::LastPipeDropped => "last-pipe-dropped",
            Self::AcceptBeforeConnect => "accept-before-connect",
            Self::HalfCloseEndsBoth => "half-close-ends-both",
            Self::CorkedSmallWrites => "corked-small-writes",
            Self::ResetOvertakesData => "reset-overtakes-data",
        }
    }
}

/// Whether this build has this fault now.
#[cfg(feature = "seeded-faults")]
pub fn is(fault: Fault) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var(VARIABLE).unwrap_or_default());
    *chosen == fault.name()
}

/// Whether this build has this fault: never.
#[cfg(not(feature = "seeded-faults"))]
pub const fn is(_: Fault) -> bool {
    false
}

/// Passes the fault on to the relay process, whose environment is otherwise empty.
#[cfg(feature = "seeded-faults")]
pub fn pass_on(command: &mut Command) {
    if let Some(chosen) = std::env::var_os(VARIABLE) {
        command.env(VARIABLE, chosen);
    }
}

/// There is nothing to pass on.
#[cfg(not(feature = "seeded-faults"))]
pub const fn pass_on(_: &mut Command) {}
