//! The fast path: a first-in, first-out link that never changes.

use std::collections::VecDeque;

use midspan_units::{BitRate, Time, TimeSpan};

use crate::counters::Counters;
use crate::drop_reason::DropReason;
use crate::loss::{Bernoulli, LossModel};
use crate::packet::Packet;
use crate::queue::{QueueLimit, Room};
use crate::schedule::State;
use crate::work::{Moment, Transmission};

/// One direction of a link without a schedule: the fate of a packet is decided when it arrives.
///
/// It gives the same results as [`Link`](crate::Link), without holding packets, timers or polls.
/// The caller keeps the packet until its time has come. Packets are delivered in the order in which
/// they were handled.
#[derive(Debug, Clone)]
pub struct FixedLink<L = Bernoulli> {
    rate: Option<BitRate>,
    overhead: u32,
    delay: TimeSpan,
    loss: L,
    /// When the transmission of the last accepted packet ends.
    free: Moment,
    transmission: Transmission,
    room: Room,
    /// For each waiting packet, the start of its transmission, and its size in bytes.
    waiting: VecDeque<(Time, u32)>,
    /// All counters except `handled`, which is the sum of the others.
    counters: Counters,
    now: Time,
}

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It will arrive at the far end.
    Delivered {
        /// The time of its delivery.
        due: Time,
    },
    /// It is, or will be, dropped.
    Dropped {
        /// The time of the drop: at once if the queue is full, after the transmission if the packet
        /// is lost.
        due: Time,
        /// The reason.
        reason: DropReason,
    },
}

impl<L: LossModel> FixedLink<L> {
    /// A link with these properties, a plain queue and a loss model; the loss probability of
    /// `state` is not used.
    pub(crate) fn from_parts(state: State, queue: QueueLimit, overhead: u32, loss: L) -> Self {
        Self {
            rate: state.rate,
            overhead,
            delay: state.delay,
            loss,
            free: Moment::rest(Time::ZERO),
            transmission: Transmission::default(),
            room: Room::new(queue),
            waiting: VecDeque::new(),
            counters: Counters::default(),
            now: Time::ZERO,
        }
    }

    /// Whether every packet takes time: there is a delay, or a rate so low that each byte takes
    /// time.
    #[must_use]
    pub fn takes_time(&self) -> bool {
        // Less than 8 Gbit/s: a byte takes more than a nanosecond.
        let slow = |rate: BitRate| rate.bits_per_second() < 8_000_000_000;
        self.delay > TimeSpan::ZERO || self.rate.is_some_and(slow)
    }

    /// A packet arrives at `now`. A `now` earlier than the previous one is replaced by that one.
    #[inline]
    pub fn handle<P: Packet>(&mut self, now: Time, packet: &P) -> Verdict {
        self.now = self.now.max(now);
        let size = packet.size();
        let verdict = self.decide(size);
        match verdict {
            Verdict::Delivered { .. } => self.counters.delivered.add(size),
            Verdict::Dropped { reason, .. } => self.counters.add_dropped(size, reason),
        }
        self.check_invariants();
        verdict
    }

    /// The counters so far. A packet counts as delivered or lost at once, although it is still in
    /// transit.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        let mut counters = self.counters;
        counters.handled = counters.passed();
        counters
    }

    /// Packets that waited when the last packet was handled, including that packet.
    #[must_use]
    pub const fn queue_packets(&self) -> usize {
        self.room.packets()
    }

    /// Bytes that waited when the last packet was handled, including that packet.
    #[must_use]
    pub const fn queue_bytes(&self) -> u64 {
        self.room.bytes()
    }

    #[inline]
    fn decide(&mut self, size: u32) -> Verdict {
        self.leave_queue();
        let start = if self.free.at <= self.now {
            Moment::rest(self.now)
        } else if self.room.take(size) {
            self.waiting.push_back((self.free.at, size));
            let (packets, bytes) = (self.room.packets(), self.room.bytes());
            self.counters.see_queue(packets, bytes);
            self.free
        } else {
            return Verdict::Dropped {
                due: self.now,
                reason: DropReason::QueueFull,
            };
        };
        self.free = match self.rate {
            Some(rate) => {
                let bytes = u64::from(size) + u64::from(self.overhead);
                self.transmission.end(start, bytes, rate)
            }
            None => Moment::rest(start.at),
        };
        let sent = self.free.at;
        if self.loss.is_lost(sent, size) {
            return Verdict::Dropped {
                due: sent,
                reason: DropReason::Lost,
            };
        }
        Verdict::Delivered {
            due: sent + self.delay,
        }
    }

    /// Frees the room of the packets whose transmission has started by now.
    #[inline]
    fn leave_queue(&mut self) {
        let now = self.now;
        while let Some((_, size)) = self.waiting.pop_front_if(|(start, _)| *start <= now) {
            self.room.give_back(size);
        }
    }

    fn check_invariants(&self) {
        debug_assert_eq!(self.room.packets(), self.waiting.len());
        debug_assert!(
            self.waiting
                .back()
                .is_none_or(|(start, _)| *start <= self.free.at),
            "the last packet starts before it ends"
        );
    }
}
