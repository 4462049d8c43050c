//! The interface of all cells: packets go in, and come out delivered or dropped.

use std::collections::VecDeque;
use std::fmt;

use midspan_units::Time;

/// The unit that a link carries: a header in a simulator, bytes in an emulator.
pub trait Packet {
    /// Bytes at the network layer, IP header included.
    fn size(&self) -> u32;
}

/// An IP packet, from the first byte of its IP header.
impl Packet for Vec<u8> {
    fn size(&self) -> u32 {
        u32::try_from(self.len()).unwrap_or(u32::MAX)
    }
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The queue had no room for it.
    QueueFull,
    /// It was sent, and lost during propagation.
    Lost,
    /// A fragment of a packet whose other fragments did not arrive in time; only in reassembly.
    Incomplete,
    /// Its frame collided too often; only on a shared medium.
    Contention,
    /// The far end restored its compressed header wrongly, because an earlier packet was lost; only
    /// with header compression.
    Damaged,
    /// A later ACK contains the same information; only in a queue that filters ACKs.
    Filtered,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "queue full",
            Self::Lost => "lost",
            Self::Incomplete => "incomplete",
            Self::Contention => "contention",
            Self::Damaged => "damaged",
            Self::Filtered => "filtered",
        })
    }
}

/// A packet that leaves a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output<P> {
    /// The packet passes to the next cell.
    Delivered {
        /// When the packet left the cell, even if the cell was polled later.
        due: Time,
        /// The packet.
        packet: P,
    },
    /// The packet is not passed on.
    Dropped {
        /// When the packet was dropped, even if the cell was polled later.
        due: Time,
        /// The packet.
        packet: P,
        /// The reason.
        reason: DropReason,
    },
}

impl<P> Output<P> {
    /// When the packet left the cell.
    pub const fn due(&self) -> Time {
        match self {
            Self::Delivered { due, .. } | Self::Dropped { due, .. } => *due,
        }
    }

    /// The packet, whether delivered or dropped.
    pub const fn packet(&self) -> &P {
        match self {
            Self::Delivered { packet, .. } | Self::Dropped { packet, .. } => packet,
        }
    }
}

/// A part of a link with one effect; several cells in a row make a link.
///
/// # Contract
///
/// - **Order of calls.** [`poll`](Cell::poll) until it returns `None` after every
///   [`handle`](Cell::handle), and again when the time of [`poll_timeout`](Cell::poll_timeout)
///   has come.
/// - **Time never goes back.** A `now` earlier than a previous one is replaced by that one.
/// - **Exact time.** Each event happens at the time at which it is due, even if the cell is polled
///   later: a late caller gets its packet late, but the times of other packets do not change. So
///   `handle` first performs all events that were due up to and including `now`. The packet
///   arrives after them.
/// - **Order of outputs.** Deliveries come in order of their due times, and drops too. A drop may
///   be reported before or after deliveries that were due at about the same time, at the latest
///   with the next delivery.
/// - **Every packet comes out once**, delivered or dropped. A cell that creates packets (such as
///   fragments) counts those that have not come out yet as held.
pub trait Cell<P> {
    /// A packet arrives at `now`.
    fn handle(&mut self, now: Time, packet: P);

    /// The next packet that has left the cell up to and including `now`.
    fn poll(&mut self, now: Time) -> Option<Output<P>>;

    /// When to poll again; `None` when nothing will happen before the next
    /// [`handle`](Cell::handle). Valid once [`poll`](Cell::poll) has returned `None`.
    ///
    /// No packet is delivered before that time. A poll at that time may still return `None`.
    fn poll_timeout(&self) -> Option<Time>;

    /// Packets that were handed in and have not been polled out.
    fn held(&self) -> usize;
}

/// The outputs that a cell has ready for [`Cell::poll`], oldest first.
///
/// The caller can always drain it: it holds only what was handed to the cell and not polled yet.
#[derive(Debug, Clone)]
pub struct Outputs<P>(VecDeque<Output<P>>);

impl<P> Default for Outputs<P> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<P> Outputs<P> {
    /// Adds `output`.
    pub fn push(&mut self, output: Output<P>) {
        self.0.push_back(output);
    }

    /// Adds a packet that was dropped at `due`.
    pub fn push_dropped(&mut self, due: Time, packet: P, reason: DropReason) {
        self.push(Output::Dropped {
            due,
            packet,
            reason,
        });
    }

    /// Removes the oldest output.
    pub fn pop(&mut self) -> Option<Output<P>> {
        self.0.pop_front()
    }

    /// When the oldest output was due.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.0.front().map(Output::due)
    }

    /// Number of outputs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no output.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
