//! The interface of all stages: packets go in, and come out delivered or dropped.

use std::collections::VecDeque;

use midspan_units::Time;

use crate::counters::Counters;
use crate::drop_reason::DropReason;
use crate::packet::Packet;

/// A packet that leaves a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output<P> {
    /// The packet passes to the next stage.
    Delivered {
        /// When the packet left the stage, even if the stage was polled later.
        due: Time,
        /// The packet.
        packet: P,
    },
    /// The packet is not passed on.
    Dropped {
        /// When the packet was dropped, even if the stage was polled later.
        due: Time,
        /// The packet.
        packet: P,
        /// The reason.
        reason: DropReason,
    },
}

impl<P> Output<P> {
    /// When the packet left the stage.
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

impl<P: Packet> Output<P> {
    /// Counts the packet as delivered or dropped.
    pub(crate) fn count(&self, counters: &mut Counters) {
        let size = self.packet().size();
        match self {
            Self::Delivered { .. } => counters.delivered.add(size),
            Self::Dropped { reason, .. } => counters.add_dropped(size, *reason),
        }
    }
}

/// A part of a link with one effect; several stages in a row make a link.
///
/// # Contract
///
/// - **Order of calls.** [`poll`](Stage::poll) until it returns `None` after every
///   [`handle`](Stage::handle), and again when the time of [`poll_timeout`](Stage::poll_timeout)
///   has come.
/// - **Time never goes back.** A `now` earlier than a previous one is replaced by that one.
/// - **Exact time.** Each event happens at the time at which it is due, even if the stage is polled
///   later: a late caller gets its packet late, but the times of other packets do not change. So
///   `handle` first does everything that was due up to and including `now`; only then does the
///   packet arrive.
/// - **Order of outputs.** Deliveries are returned in order of their due times. A drop may be returned as soon
///   as it is certain, even before its due time, and is returned at the latest with the next delivery. Drops
///   that are returned when they are due are in order of their due times.
/// - **Every packet comes out once**, delivered or dropped. A stage that creates packets (such as
///   fragments) counts those that have not come out yet as held.
pub trait Stage<P> {
    /// A packet arrives at `now`.
    fn handle(&mut self, now: Time, packet: P);

    /// The next packet that has left the stage up to and including `now`.
    fn poll(&mut self, now: Time) -> Option<Output<P>>;

    /// When to poll again; `None` when nothing will happen before the next
    /// [`handle`](Stage::handle). Valid once [`poll`](Stage::poll) has returned `None`.
    ///
    /// No packet is delivered before that time. A poll at that time may still return `None`.
    fn poll_timeout(&self) -> Option<Time>;

    /// Packets that were handed in and have not been polled out.
    fn held(&self) -> usize;

    /// The packets that wait for the transmitter. A stage without a queue has none.
    fn waiting(&self) -> Waiting {
        Waiting::default()
    }

    /// The packets that have passed; all zero for a stage that does not count.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// How full a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Number of waiting packets.
    pub packets: usize,
    /// Number of waiting bytes, at the network layer.
    pub bytes: u64,
}

/// Stages that are chosen when the program runs: one stage behind a pointer.
impl<P, S: Stage<P> + ?Sized> Stage<P> for Box<S> {
    fn handle(&mut self, now: Time, packet: P) {
        (**self).handle(now, packet);
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        (**self).poll(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        (**self).poll_timeout()
    }

    fn held(&self) -> usize {
        (**self).held()
    }

    fn waiting(&self) -> Waiting {
        (**self).waiting()
    }

    fn counters(&self) -> Counters {
        (**self).counters()
    }
}

/// The outputs that a stage has ready for [`Stage::poll`], oldest first.
///
/// The caller can always drain it: it holds only what was handed to the stage and not polled yet.
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
