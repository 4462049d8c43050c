//! A modem on a shared channel.

use midspan_units::{Time, TimeSpan};

use super::back_off;
use crate::counters::Counters;
use crate::loss::LossModel;
use crate::packet::Packet;
use crate::queue::Queue;
use crate::seed::Stream;
use crate::stage::Outputs;

/// A modem: its queue, and its path to the router.
#[derive(Debug, Clone)]
pub struct Station<P, Q, L> {
    pub(super) queue: Q,
    pub(super) loss: L,
    pub(super) delay: TimeSpan,
    pub(super) overhead: u32,
    pub(super) counters: Counters,
    /// End of its last frame's transmission.
    pub(super) last_sent: Option<Time>,
    /// The frame that collided, until it is sent or discarded.
    pending: Option<P>,
    pub(super) state: State,
    stream: Stream,
}

/// The state of contention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    collisions: u32,
    /// Contention slots that the modem still lets pass.
    slots: u64,
    /// The time at which the modem learns the fate of its frame; it does not send again before.
    known: Time,
}

impl<P: Packet, Q: Queue<P>, L: LossModel> Station<P, Q, L> {
    /// A modem with an empty queue. `delay`: propagation delay to the router. `overhead`: bytes
    /// that framing adds to each packet. Back-off draws from `stream`.
    pub fn new(queue: Q, loss: L, delay: TimeSpan, overhead: u32, stream: Stream) -> Self {
        Self {
            queue,
            loss,
            delay,
            overhead,
            counters: Counters::default(),
            last_sent: None,
            pending: None,
            state: State::default(),
            stream,
        }
    }

    /// The counters so far. A packet counts as delivered or dropped when it is polled.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The queue.
    pub const fn queue(&self) -> &Q {
        &self.queue
    }

    /// Number of waiting packets, including one that has collided.
    pub fn held(&self) -> usize {
        self.queue.packets() + usize::from(self.pending.is_some())
    }

    /// Removes the next frame to send.
    pub(super) fn take(&mut self, now: Time, dropped: &mut Outputs<P>) -> Option<P> {
        let pending = self.pending.take();
        if pending.is_some() {
            self.state = State::default();
        }
        pending.or_else(|| self.queue.dequeue(now, dropped))
    }

    /// Holds the next frame as the one that collides. Returns its size in bytes.
    pub(super) fn prepare(&mut self, now: Time, dropped: &mut Outputs<P>) -> Option<u32> {
        if self.pending.is_none() {
            self.pending = self.queue.dequeue(now, dropped);
        }
        self.pending.as_ref().map(Packet::size)
    }

    /// Whether the modem sends in the contention slot that begins now. Counts a slot that it lets
    /// pass.
    pub(super) fn sends_in_slot(&mut self, now: Time) -> bool {
        if self.held() == 0 || now < self.state.known {
            return false;
        }
        if self.state.slots > 0 {
            self.state.slots -= 1;
            return false;
        }
        true
    }

    /// The modem's frame has collided, and the modem learns this at `known`. Returns the frame if
    /// it is discarded.
    pub(super) fn handle_collision(&mut self, known: Time, rounds: u32) -> Option<P> {
        self.state.collisions += 1;
        self.state.known = known;
        if self.state.collisions >= rounds {
            // The next frame starts with no collisions counted, but not before this one is known.
            self.state = State {
                known,
                ..State::default()
            };
            return self.pending.take();
        }
        self.state.slots = back_off(&mut self.stream, self.state.collisions);
        None
    }
}
