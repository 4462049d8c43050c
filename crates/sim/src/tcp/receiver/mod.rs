//! The receiver of data: reassembly, acknowledgements, advertised window.
//!
//! Before you change this file, read RFC 9293 §3.8.6 (windows, delayed ACKs), RFC 5681 §4.2 (when
//! to acknowledge) and RFC 2018 (SACK blocks).

mod candidates;
mod reassembly;
#[cfg(test)]
mod tests;
mod window;

use midspan_policy::{AckEstimate, LegSample};
use midspan_units::{ByteSize, Time, TimeSpan};

use super::configuration::{AckRule, ReceiverConfiguration, WindowGrowth};
use super::timers::{Timer, Timers};
use crate::packet::{Acknowledgement, Data, DataKind, SelectiveBlocks, Signals};
use candidates::{Candidates, Place};
use reassembly::Reassembly;
use window::Window;

/// A receiver of data as a state machine.
#[derive(Debug, Clone)]
pub struct Receiver {
    configuration: ReceiverConfiguration,
    /// RCV.NXT: the next byte expected.
    next: u64,
    /// The first byte that still uses room in the buffer.
    released: u64,
    /// The end of the window that was advertised.
    edge: u64,
    window: Window,
    /// When the SYN-ACK was sent; `None` after data has arrived.
    answered: Option<Time>,
    /// Time from the SYN-ACK to the first data.
    round_trip: Option<TimeSpan>,
    reassembly: Reassembly,
    /// Segments that arrived in order since the last ACK.
    waiting: u32,
    /// Bytes read whose room no ACK has announced yet; only for [`AckRule::Bsd`].
    unannounced: u64,
    acknowledge_now: bool,
    /// A policy that decides which ACKs leave.
    candidates: Option<Box<Candidates>>,
    timers: Timers<{ Timer::DelayedAck as usize }, 1>,
    counters: ReceiverCounters,
}

/// The counters of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiverCounters {
    /// Segments with data that arrived.
    pub segments: u64,
    /// Those of them that contained nothing new.
    pub duplicate_segments: u64,
    /// Bytes that arrived beyond the advertised window and were dropped.
    pub bytes_beyond_window: u64,
    /// ACKs sent, window updates included.
    pub acknowledgements: u64,
    /// ACKs sent only because the window had opened.
    pub window_updates: u64,
}

impl Receiver {
    /// A receiver that waits for a SYN or data.
    #[must_use]
    pub fn new(configuration: ReceiverConfiguration) -> Self {
        let window = Window::new(&configuration);
        let segments = configuration.buffer / u64::from(configuration.segment_size.max(1));
        let candidates = match configuration.acknowledge {
            AckRule::Thinned(thinning) => Some((thinning, Place::Receiver)),
            AckRule::DelayedAndThinned { thinning, .. } => Some((thinning, Place::Path)),
            AckRule::Every | AckRule::Delayed { .. } | AckRule::Bsd { .. } => None,
        };
        let candidates = candidates.map(|(thinning, place)| {
            let segments = u32::try_from(segments).unwrap_or(u32::MAX);
            Box::new(Candidates::new(thinning, segments, place))
        });
        Self {
            edge: window.initial(),
            window,
            answered: None,
            round_trip: None,
            configuration,
            next: 0,
            released: 0,
            reassembly: Reassembly::default(),
            waiting: 0,
            unannounced: 0,
            acknowledge_now: false,
            candidates,
            timers: Timers::new(),
            counters: ReceiverCounters::default(),
        }
    }

    /// A segment of the sender arrives.
    #[inline]
    pub fn handle_segment(&mut self, now: Time, segment: &Data) {
        match segment.kind {
            DataKind::Synchronise => {
                self.window.handle_open(now);
                self.answered = Some(now);
                self.acknowledge_now = true;
                if let Some(candidates) = &mut self.candidates {
                    candidates.handle_answered(now);
                }
            }
            DataKind::Probe => self.acknowledge_now = true,
            DataKind::Payload => {
                let gap = !self.reassembly.is_empty();
                self.handle_payload(now, segment);
                match &self.candidates {
                    None => {}
                    Some(candidates) if candidates.place() == Place::Receiver => {
                        self.judge(now, gap);
                    }
                    Some(_) => self.judge_made(now),
                }
            }
        }
        self.check_invariants();
    }

    /// The application has read all bytes before `up_to`, and they need no more room. It cannot
    /// read more than has arrived.
    #[inline]
    pub fn handle_release(&mut self, now: Time, up_to: u64) {
        self.released = self.released.max(up_to.min(self.next));
        self.window.handle_read(now, self.released);
        let advertised = self.edge - self.next;
        // A small window is reported when it has doubled (as Linux does): the sender may be
        // waiting for it.
        let offered = self.offered_edge();
        if offered - self.next >= 2 * advertised && offered > self.edge {
            self.acknowledge_now = true;
            self.counters.window_updates += 1;
        }
        self.check_invariants();
    }

    /// The application responds: the response carries an ACK, so no ACK is held any longer.
    pub fn handle_answer(&mut self) {
        let held = self
            .candidates
            .as_ref()
            .is_some_and(|policy| policy.holds());
        self.acknowledge_now |= self.waiting > 0 || held;
    }

    /// The signals that accompany a segment of the sender; call it before
    /// [`handle_segment`](Self::handle_segment). Only a policy uses them.
    #[inline]
    pub fn handle_signals(&mut self, now: Time, signals: Signals) {
        if let Some(candidates) = &mut self.candidates {
            candidates.handle_signals(now, signals);
        }
    }

    /// The number of an echo request that should leave now.
    #[inline]
    pub fn poll_echo(&mut self, now: Time) -> Option<u16> {
        self.candidates.as_mut()?.poll_echo(now)
    }

    /// The reply to an echo request arrived.
    pub fn handle_echo_reply(&mut self, now: Time, number: u16) {
        if let Some(candidates) = &mut self.candidates {
            candidates.handle_echo_reply(now, number);
        }
    }

    /// The estimates of the policy that decides about ACKs; `None` if there is no policy.
    #[must_use]
    pub fn estimate(&self) -> Option<AckEstimate> {
        Some(self.candidates.as_ref()?.estimate())
    }

    /// An ACK left at `now`, with this timestamp.
    #[inline]
    pub fn handle_sent(&mut self, now: Time, timestamp: u32) {
        if let Some(candidates) = &mut self.candidates {
            candidates.handle_sent(now, timestamp);
        }
    }

    /// The deadline of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.timers.expire(now).is_some() {
            self.unannounced = 0;
            self.acknowledge_now = true;
        }
        if let Some(candidates) = &mut self.candidates
            && candidates.place() == Place::Path
        {
            candidates.expire(now);
            self.judge_made(now);
        }
    }

    /// The next ACK to be sent.
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<Acknowledgement> {
        if let Some(candidates) = &mut self.candidates
            && let Some(ack) = candidates.take_overtaken()
        {
            self.edge = self.edge.max(ack.window_edge);
            self.counters.acknowledgements += 1;
            // The fields are copied one by one, so that the other cases need not build the ACK in
            // memory.
            return Some(Acknowledgement {
                number: ack.number,
                window_edge: ack.window_edge,
                blocks: ack.blocks,
            });
        }
        if !self.acknowledge_now {
            return None;
        }
        self.acknowledge_now = false;
        self.advertise();
        if let Some(candidates) = &mut self.candidates {
            candidates.drop_held();
        }
        self.counters.acknowledgements += 1;
        self.check_invariants();
        Some(self.acknowledgement())
    }

    /// An ACK is made now: the data that has arrived waits no longer, and the window is announced.
    #[inline]
    fn advertise(&mut self) {
        self.waiting = 0;
        self.timers.stop(Timer::DelayedAck);
        self.edge = self.offered_edge();
        self.window.handle_advertised(self.edge - self.next);
    }

    /// The ACK for the data that has arrived.
    #[inline]
    fn acknowledgement(&self) -> Acknowledgement {
        Acknowledgement {
            number: self.next,
            window_edge: self.edge,
            blocks: if self.configuration.selective && !self.reassembly.is_empty() {
                self.reassembly.blocks(self.next)
            } else {
                SelectiveBlocks::default()
            },
        }
    }

    /// Gets the policy's verdict on the ACK for the segment that has just arrived. `gap`: data was
    /// missing before it.
    fn judge(&mut self, now: Time, gap: bool) {
        let candidate = self.acknowledgement();
        let segment = self.configuration.segment_size;
        let Some(candidates) = &mut self.candidates else {
            return;
        };
        match candidates.judge(now, candidate, segment, gap) {
            None => self.acknowledge_now = true,
            Some(at) => {
                self.acknowledge_now = false;
                self.timers.set(Timer::DelayedAck, at);
            }
        }
    }

    /// Gets the policy's verdict on the ACK that the host makes now, if it makes one.
    fn judge_made(&mut self, now: Time) {
        if !self.acknowledge_now {
            return;
        }
        self.advertise();
        let made = self.acknowledgement();
        let segment = self.configuration.segment_size;
        if let Some(candidates) = &mut self.candidates {
            self.acknowledge_now = candidates.judge_made(now, made, segment);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, Timer)> {
        let own = self.timers.next();
        let Some(candidates) = &self.candidates else {
            return own;
        };
        let held = candidates.deadline_on_path();
        let held = held.map(|deadline| (deadline, Timer::DelayedAck));
        own.into_iter().chain(held).min()
    }

    /// Size of an ACK on the wire in bytes, with its SACK blocks (RFC 2018 §3: 8n + 2 bytes,
    /// padded).
    #[must_use]
    #[inline]
    pub fn size_of(&self, acknowledgement: &Acknowledgement) -> u32 {
        if acknowledgement.blocks.is_empty() {
            return self.configuration.header_size;
        }
        #[allow(clippy::cast_possible_truncation)] // At most three.
        let blocks = acknowledgement.blocks.as_slice().len() as u32;
        self.configuration.header_size + 8 * blocks + 4
    }

    /// IP and TCP headers of the packets that it sends, in bytes, without SACK blocks.
    #[must_use]
    pub const fn header_size(&self) -> u32 {
        self.configuration.header_size
    }

    /// The scale of the windows that it advertises, in bits: the smallest with which 16 bits can
    /// express the whole buffer, at most 14 (RFC 7323 §2.3).
    #[must_use]
    pub fn window_scale(&self) -> u8 {
        let fits = |bits: &u8| self.configuration.buffer >> bits <= u64::from(u16::MAX);
        (0..14).find(fits).unwrap_or(14)
    }

    /// Whether every segment is acknowledged when it arrives; then there is never a timer.
    pub(crate) fn acknowledges_every_segment(&self) -> bool {
        self.configuration.acknowledge == AckRule::Every
    }

    /// RCV.NXT: all bytes before this have arrived.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The window that it advertises before any data has arrived, in bytes.
    #[must_use]
    pub const fn initial_window(&self) -> u64 {
        self.window.initial()
    }

    /// The end of the advertised window.
    #[must_use]
    pub const fn window_edge(&self) -> u64 {
        self.edge
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    /// A reading of this receiver, like a policy's reading of a real socket that only receives. The
    /// values of a sender have their defaults. The round-trip time is that of the handshake.
    #[must_use]
    pub fn sample(&self) -> LegSample {
        LegSample {
            round_trip_time: self.round_trip,
            minimum_round_trip_time: self.round_trip,
            segment_size: self.configuration.segment_size,
            advertised_window: self.edge - self.next,
            bytes_received: ByteSize::from_bytes(self.next),
            data_segments_received: u32::try_from(self.counters.segments).unwrap_or(u32::MAX),
            ..LegSample::default()
        }
    }

    fn handle_payload(&mut self, now: Time, segment: &Data) {
        self.counters.segments += 1;
        if let Some(answered) = self.answered.take() {
            self.round_trip = Some(now.since(answered));
        }
        let end = segment.sequence + u64::from(segment.length);
        if self.configuration.window_growth == WindowGrowth::Linux24 && segment.sequence < self.edge
        {
            let room = self.released + self.configuration.buffer;
            self.edge = self.edge.max(end.min(room));
        }
        let fits = end.min(self.edge);
        self.counters.bytes_beyond_window += end - fits.max(segment.sequence.min(end));
        if fits <= self.next || segment.sequence >= fits {
            self.counters.duplicate_segments += u64::from(end <= self.next);
            self.acknowledge_now = true;
            return;
        }
        if segment.sequence > self.next {
            let new = self.reassembly.insert(segment.sequence, fits);
            self.counters.duplicate_segments += u64::from(!new);
            self.acknowledge_now = true;
            return;
        }
        // RFC 5681 §4.2: a segment that fills a gap is acknowledged at once.
        self.acknowledge_now |= !self.reassembly.is_empty();
        self.next = self.reassembly.take_from(fits);
        self.window
            .handle_data(now, segment.length, self.next, self.edge);
        self.handle_in_order(now, segment.length);
    }

    fn handle_in_order(&mut self, now: Time, length: u32) {
        self.waiting += 1;
        match self.configuration.acknowledge {
            AckRule::Every => self.acknowledge_now = true,
            AckRule::Thinned(_) => {}
            AckRule::Delayed { segments, timeout }
            | AckRule::DelayedAndThinned {
                segments, timeout, ..
            } => {
                let quick = self.configuration.quick_acks > 0;
                self.configuration.quick_acks -= u32::from(quick);
                if self.waiting >= segments || quick {
                    self.acknowledge_now = true;
                } else if !self.timers.is_running(Timer::DelayedAck) {
                    self.timers.set(Timer::DelayedAck, now + timeout);
                }
            }
            AckRule::Bsd { timeout } => {
                let is_due = self.waiting >= 2;
                self.unannounced += u64::from(length);
                if is_due {
                    // Data that waits to be read makes the window that this ACK announces smaller.
                    self.unannounced = u64::from(length);
                }
                let opened = self.unannounced >= 2 * u64::from(self.configuration.segment_size);
                if opened {
                    self.unannounced = 0;
                }
                if is_due || opened {
                    self.acknowledge_now = true;
                } else if !self.timers.is_running(Timer::DelayedAck) {
                    self.timers.set(Timer::DelayedAck, now + timeout);
                }
            }
        }
    }

    /// The end of the window that may be advertised now. It never goes back, and moves only in
    /// steps that are worth sending (RFC 9293 §3.8.6.2.2).
    fn offered_edge(&self) -> u64 {
        let free = self.window.edge(
            self.released + self.configuration.buffer,
            self.next,
            self.edge,
        );
        if free >= self.edge + self.window.step() {
            free
        } else {
            self.edge
        }
    }

    /// Panics in debug builds if the state is inconsistent.
    pub fn check_invariants(&self) {
        debug_assert!(self.released <= self.next);
        debug_assert!(self.next <= self.edge, "data beyond the window was taken");
        debug_assert!(
            self.edge <= self.released + self.configuration.buffer,
            "more was advertised than there is room for"
        );
        self.reassembly.check_invariants(self.next, self.edge);
    }
}
