//! Deliberate faults, to test that the conformance suite finds them.
//!
//! Without the feature `seeded-faults` the program contains none of them: [`is`] is `false` at
//! compile time. With the feature, the environment variable `MIDSPAN_SEEDED_FAULT` selects one by
//! name. A unit test can plant one in its own thread.

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
    /// A byte that has been read is not written.
    ByteLost,
    /// A pipe is never used again.
    PipeLeaked,
    /// A socket is never closed.
    SocketLeaked,
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
            Self::ByteLost => "byte-lost",
            Self::PipeLeaked => "pipe-leaked",
            Self::SocketLeaked => "socket-leaked",
        }
    }
}

/// Whether this build has this fault now.
#[cfg(feature = "seeded-faults")]
pub fn is(fault: Fault) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var(VARIABLE).unwrap_or_default());
    *chosen == fault.name() || planted::is(fault)
}

/// Whether a test has planted this fault.
#[cfg(all(test, not(feature = "seeded-faults")))]
pub fn is(fault: Fault) -> bool {
    planted::is(fault)
}

/// Whether this build has this fault: never.
#[cfg(not(any(test, feature = "seeded-faults")))]
pub const fn is(_: Fault) -> bool {
    false
}

#[cfg(all(feature = "seeded-faults", not(test)))]
mod planted {
    pub const fn is(_: super::Fault) -> bool {
        false
    }
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

/// Faults that a unit test plants.
#[cfg(test)]
pub mod planted {
    use std::cell::Cell;

    use super::Fault;

    thread_local! {
        static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// From now on, this thread has this fault.
    pub fn plant(fault: Fault) {
        PLANTED.set(Some(fault));
    }

    /// Whether this thread has this fault.
    pub fn is(fault: Fault) -> bool {
        PLANTED.get() == Some(fault)
    }
}
