//! The upstream channel of a cable network: one channel, many modems, and a router that decides
//! which modem may send (Tam §4).
//!
//! The router polls the modems that have sent recently, one after the other; each may send one
//! frame when it is polled. A modem that was silent for long is not polled. It sends in a
//! contention slot. If several modems send in the same slot, their frames collide, and the modems wait for
//! the router's confirmation. After a collision, a modem lets a random number of slots pass; after the allowed
//! number of collisions, it discards the frame.

mod station;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use midspan_units::{BitRate, Time, TimeSpan};

use crate::drop_reason::DropReason;
use crate::loss::LossModel;
use crate::packet::Packet;
use crate::queue::Queue;
use crate::seed::Stream;
use crate::stage::{Output, Outputs};
use crate::work::{self, Moment};
use station::State;
pub use station::Station;

/// The channel, and the router that controls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolledConfiguration {
    /// Rate at which frames are sent.
    pub rate: BitRate,
    /// Time that each poll takes in addition to the frame, whether or not it is answered: the
    /// router's message, and the signal's round trip. Above zero.
    pub poll: TimeSpan,
    /// Time that a contention slot takes in addition to its frames. Above zero.
    pub slot: TimeSpan,
    /// Time from the start of a contention slot to the next slot, which is later if a frame is
    /// still being sent then. Above zero.
    pub contention_interval: TimeSpan,
    /// Time from the end of a contention slot until its users learn the fate of their frames.
    pub confirmation: TimeSpan,
    /// A modem is polled until this long after the end of its last frame (Tam §4: 5 s).
    pub polled_for: TimeSpan,
    /// Collisions after which a frame is discarded (Tam §4: 10); above zero.
    pub rounds: u32,
}

/// Counters of the events on the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolledCounters {
    /// Polls that were answered with a frame.
    pub polls: u64,
    /// Polls of modems without data to send.
    pub empty_polls: u64,
    /// Contention slots in which one modem sent.
    pub contention_frames: u64,
    /// Contention slots in which several modems sent.
    pub collisions: u64,
}

/// The back-off doubles at most this often.
const BACK_OFF_LIMIT: u32 = 10;

/// The channel with all its modems. It is driven like a [`Stage`](crate::Stage), with the modem given
/// at each end.
#[derive(Debug, Clone)]
pub struct PolledMedium<P, Q, L> {
    configuration: PolledConfiguration,
    stations: Vec<Station<P, Q, L>>,
    /// When the channel is free and the router decides again.
    free: Moment,
    next_contention: Time,
    /// The modem that is polled next.
    turn: usize,
    /// Packets that have left a modem, in order of time.
    outputs: VecDeque<(usize, Output<P>)>,
    counters: PolledCounters,
    now: Time,
}

impl<P: Packet, Q: Queue<P>, L: LossModel> PolledMedium<P, Q, L> {
    /// A channel with these modems, which are counted from 0.
    #[must_use]
    pub const fn new(configuration: PolledConfiguration, stations: Vec<Station<P, Q, L>>) -> Self {
        Self {
            configuration,
            stations,
            free: Moment::rest(Time::ZERO),
            next_contention: Time::ZERO,
            turn: 0,
            outputs: VecDeque::new(),
            counters: PolledCounters {
                polls: 0,
                empty_polls: 0,
                contention_frames: 0,
                collisions: 0,
            },
            now: Time::ZERO,
        }
    }

    /// A packet arrives at a modem, which must exist.
    pub fn handle(&mut self, now: Time, modem: usize, packet: P) {
        self.run(now);
        if self.next_decision().is_none() {
            // All modems were idle: nothing was decided before now.
            self.free = if self.free.at < self.now {
                Moment::rest(self.now)
            } else {
                self.free
            };
        }
        let Some(station) = self.stations.get_mut(modem) else {
            return;
        };
        station.counters.handled.add(packet.size());
        let mut dropped = Outputs::default();
        station.queue.enqueue(self.now, packet, &mut dropped);
        let queue = &station.queue;
        station.counters.see_queue(queue.packets(), queue.bytes());
        self.take_dropped(modem, &mut dropped);
    }

    /// The next packet that was delivered or dropped up to and including `now`, with its modem.
    pub fn poll(&mut self, now: Time) -> Option<(usize, Output<P>)> {
        self.run(now);
        let now = self.now;
        let (modem, output) = self
            .outputs
            .pop_front_if(|(_, output)| output.due() <= now)?;
        if let Some(station) = self.stations.get_mut(modem) {
            let size = output.packet().size();
            match &output {
                Output::Delivered { .. } => station.counters.delivered.add(size),
                Output::Dropped { reason, .. } => station.counters.add_dropped(size, *reason),
            }
        }
        Some((modem, output))
    }

    /// When to poll again; `None` when nothing will happen before the next
    /// [`handle`](Self::handle).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let output = self.outputs.front().map(|(_, output)| output.due());
        [output, self.next_decision()].into_iter().flatten().min()
    }

    /// A modem, counted from 0.
    #[must_use]
    pub fn station(&self, modem: usize) -> Option<&Station<P, Q, L>> {
        self.stations.get(modem)
    }

    /// Counters of the events on the channel.
    pub const fn counters(&self) -> &PolledCounters {
        &self.counters
    }

    /// Packets that were handed in and have not been polled out.
    pub fn held(&self) -> usize {
        let waiting: usize = self.stations.iter().map(Station::held).sum();
        waiting + self.outputs.len()
    }

    /// When the router decides next, if the decision matters: polling a modem changes the turns of
    /// the others, even if that modem has nothing to send.
    fn next_decision(&self) -> Option<Time> {
        let free = self.free.at;
        let polled = |station: &Station<P, Q, L>| self.is_polled(station, free);
        if self.stations.iter().any(polled) {
            return Some(free);
        }
        let waits = self.stations.iter().any(|station| station.held() > 0);
        waits.then(|| self.contention_after(free))
    }

    /// The first contention slot that begins at `time` or later.
    fn contention_after(&self, time: Time) -> Time {
        if self.next_contention >= time {
            return self.next_contention;
        }
        let interval = self.configuration.contention_interval.nanoseconds().max(1);
        let passed = time.since(self.next_contention).nanoseconds();
        let slots = passed.div_ceil(interval);
        self.next_contention + TimeSpan::from_nanoseconds(slots.saturating_mul(interval))
    }

    fn is_polled(&self, station: &Station<P, Q, L>, at: Time) -> bool {
        station
            .last_sent
            .is_some_and(|last| at <= last + self.configuration.polled_for)
    }

    fn run(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(at) = self.next_decision().filter(|at| *at <= self.now) {
            if at >= self.next_contention {
                self.contend(at.max(self.free.at));
            } else {
                self.poll_next();
            }
        }
    }

    /// Polls the next modem in turn.
    fn poll_next(&mut self) {
        let start = self.free;
        let count = self.stations.len();
        let mut turns = (0..count).map(|step| (self.turn + step) % count);
        let Some(modem) = turns.find(|modem| {
            let station = self.stations.get(*modem);
            station.is_some_and(|station| self.is_polled(station, start.at))
        }) else {
            return;
        };
        self.turn = (modem + 1) % count;
        let start = start.later(self.configuration.poll);
        let mut dropped = Outputs::default();
        let Some(station) = self.stations.get_mut(modem) else {
            return;
        };
        let frame = station.take(start.at, &mut dropped);
        self.take_dropped(modem, &mut dropped);
        match frame {
            Some(frame) => {
                self.counters.polls += 1;
                self.free = self.transmit(modem, start, frame);
            }
            None => {
                self.counters.empty_polls += 1;
                self.free = start;
            }
        }
    }

    /// Runs a contention slot.
    fn contend(&mut self, at: Time) {
        self.next_contention = at + self.configuration.contention_interval;
        let start = Moment::rest(at);
        let polled_for = self.configuration.polled_for;
        let mut senders = Vec::new();
        for (modem, station) in self.stations.iter_mut().enumerate() {
            let polled = station
                .last_sent
                .is_some_and(|last| at <= last + polled_for);
            if !polled && station.sends_in_slot(at) {
                senders.push(modem);
            }
        }
        match senders.as_slice() {
            [] => self.free = start.later(self.configuration.slot),
            [modem] => self.contend_alone(start, *modem),
            _ => self.collide(start, &senders),
        }
    }

    fn contend_alone(&mut self, start: Moment, modem: usize) {
        let mut dropped = Outputs::default();
        let Some(station) = self.stations.get_mut(modem) else {
            return;
        };
        let frame = station.take(start.at, &mut dropped);
        station.state = State::default();
        self.take_dropped(modem, &mut dropped);
        let start = start.later(self.configuration.slot);
        self.free = start;
        if let Some(frame) = frame {
            self.counters.contention_frames += 1;
            self.free = self.transmit(modem, start, frame);
        }
    }

    fn collide(&mut self, start: Moment, senders: &[usize]) {
        self.counters.collisions += 1;
        let start = start.later(self.configuration.slot);
        let mut dropped = Outputs::default();
        let mut end = start;
        for modem in senders {
            let Some(station) = self.stations.get_mut(*modem) else {
                continue;
            };
            if let Some(size) = station.prepare(start.at, &mut dropped) {
                let sent = after(start, size, station.overhead, self.configuration.rate);
                if sent.at > end.at {
                    end = sent;
                }
            }
            // Taken apart by modem below.
            while let Some(output) = dropped.pop() {
                insert(&mut self.outputs, *modem, output);
            }
        }
        self.free = end;
        let known = end.at + self.configuration.confirmation;
        for modem in senders {
            let Some(station) = self.stations.get_mut(*modem) else {
                continue;
            };
            if let Some(packet) = station.handle_collision(known, self.configuration.rounds) {
                let output = Output::Dropped {
                    due: known,
                    packet,
                    reason: DropReason::Contention,
                };
                insert(&mut self.outputs, *modem, output);
            }
        }
    }

    /// Sends a frame from `start` on. Returns when the channel is free again.
    fn transmit(&mut self, modem: usize, start: Moment, packet: P) -> Moment {
        let Some(station) = self.stations.get_mut(modem) else {
            return start;
        };
        let size = packet.size();
        let end = after(start, size, station.overhead, self.configuration.rate);
        station.last_sent = Some(end.at);
        let output = if station.loss.is_lost(end.at, size) {
            Output::Dropped {
                due: end.at,
                packet,
                reason: DropReason::Lost,
            }
        } else {
            Output::Delivered {
                due: end.at + station.delay,
                packet,
            }
        };
        insert(&mut self.outputs, modem, output);
        end
    }

    fn take_dropped(&mut self, modem: usize, dropped: &mut Outputs<P>) {
        while let Some(output) = dropped.pop() {
            insert(&mut self.outputs, modem, output);
        }
    }
}

/// Keeps outputs in order of time; for equal times, in order of insertion.
fn insert<P>(outputs: &mut VecDeque<(usize, Output<P>)>, modem: usize, output: Output<P>) {
    let due = output.due();
    let later = outputs
        .iter()
        .rev()
        .take_while(|(_, other)| other.due() > due);
    let place = outputs.len() - later.count();
    outputs.insert(place, (modem, output));
}

fn after(start: Moment, size: u32, overhead: u32, rate: BitRate) -> Moment {
    start.after(
        work::of_bytes(u64::from(size) + u64::from(overhead)),
        Some(rate),
    )
}

/// Draws the number of slots that pass after this many collisions: 0 to 2ⁿ − 1.
fn back_off(stream: &mut Stream, collisions: u32) -> u64 {
    use rand_pcg::rand_core::Rng;
    // A power of two divides the range of draws, so all results are equally likely.
    stream.next_u64() & ((1_u64 << collisions.min(BACK_OFF_LIMIT)) - 1)
}
