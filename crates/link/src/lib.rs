//! Pure link cells: rate, delay, loss, queue; generic over the packet type.
//!
//! One direction of a link is a chain of cells: queue → transmitter → loss → delay. The caller
//! passes the time in, virtual or real, and takes out what is due:
//!
//! | kind | calls |
//! | --- | --- |
//! | input | [`handle`](Cell::handle): a packet arrives |
//! | output | [`poll`](Cell::poll): a packet that was delivered or dropped; [`poll_timeout`](Cell::poll_timeout): when to ask again |
//! | getters | [`held`](Cell::held), [`Link::counters`] |
//!
//! Two types implement the same model:
//!
//! - [`Link`] works in every case: any queue discipline, any loss model, changes by schedule;
//! - [`FixedLink`] is for a link that never changes: the fate of a packet is decided when it
//!   arrives, so there is no timer and nothing to poll. A property test compares it with [`Link`].
//!
//! [`PolledMedium`] is one upstream channel that several modems share, and [`header_compression`]
//! compresses the headers of packets on a link (RFC 1144).
//!
//! Two cells are not part of a link: [`Fragmentation`] is placed before its entrance, and
//! [`Reassembly`] at the end of a packet's path.
//!
//! [`Bursts`] and [`Histogram`] measure how packets are grouped in time.
//!
//! `docs/link-model.md` describes the model in one page.
//!
//! This crate is pure: no clock, no I/O; random numbers come from the [`stream`] of a seed.

mod bursts;
mod cell;
mod chain;
mod configuration;
mod counters;
mod delay;
mod fixed;
mod fragments;
pub mod header_compression;
mod link;
mod loss;
mod polled_medium;
mod queue;
mod schedule;
mod seed;
mod transmitter;
mod work;

pub use bursts::{Bursts, Histogram};
pub use cell::{Cell, DropReason, Output, Outputs, Packet};
pub use chain::Chain;
pub use configuration::{Configuration, QueueLimit, Schedule, State, Step};
pub use counters::{Count, Counters};
pub use delay::Delay;
pub use fixed::{FixedLink, NotFixed, Verdict};
pub use fragments::{
    FRAGMENT_HEADER, Fragment, Fragmentation, LEAST_MTU, Piece, Reassembly, fragments,
};
pub use link::Link;
pub use loss::{Bernoulli, Loss, LossModel};
pub use polled_medium::{PolledConfiguration, PolledCounters, PolledMedium, Station};
pub use queue::{DropTail, Queue};
pub use schedule::ScheduleError;
pub use seed::{Direction, Stream, stream};
pub use transmitter::Transmitter;
