//! The messages by which a relay hands its sessions over to another relay; pure.
//!
//! The relay that has the sessions is the *predecessor*, the one that gets them the *successor*. They may be
//! different versions of the program, so the messages have a version, and everything in them is bounded and
//! checked. Sockets, pipes and data in memory come with a message as descriptors.
//! `docs/upgrade.md` describes the exchange.
//!
//! | module | content |
//! | --- | --- |
//! | `message` | the messages of both relays: [`FromPredecessor`], [`FromSuccessor`], and versions |
//! | `batch` | [`BatchWriter`]: as many sessions in one message as fit |
//! | `session` | [`SessionState`]: a session without its descriptors |

mod batch;
mod message;
mod session;

pub use batch::BatchWriter;
pub use message::{Batch, FormatError, FromPredecessor, FromSuccessor, WRITTEN, newest_common};
pub use session::{
    DirectionState, HeldState, InboundState, LongLegState, OutboundState, PacingState, PhaseState,
    ReadingState, RecordState, SessionState, ThrottleState, TransferState, Wrong,
};

/// Most bytes of a message.
pub const LARGEST_MESSAGE: usize = 64 * 1024;

/// Most descriptors with a message.
pub const MOST_DESCRIPTORS: usize = 250;

/// Most bytes that one direction of a session has in memory.
pub const MOST_COPIED: u32 = 64 << 10;

/// Most bytes that one direction of a session has in a pipe: the largest pipe of Linux.
pub const MOST_PIPED: u32 = 1 << 30;

/// Longest name of a server, as DNS allows.
pub const LONGEST_NAME: usize = 255;
