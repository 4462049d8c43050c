//! Sending ahead of the window that a client advertises, without a profile of its access link: on
//! long legs only, and only as far and as long as measurements allow.
//!
//! A client of today offers 64 KB at first, and doubles its window in each round trip. Over a
//! satellite, this window limits every transfer of up to some megabytes (Hasegawa §3: TGW). Data that is sent
//! ahead arrives half a round trip later. By then, a client that reads its data has moved its window over the
//! data that was sent ahead. A client that does not read, or that misses an earlier segment, discards this
//! data, and it has to be sent again. So a leg goes through these states:
//!
//! | state | data in flight | changes to |
//! | --- | --- | --- |
//! | [`Watching`](AheadState::Watching) | the client's window; for a known client whose window can grow, at least [`FIRST_FLIGHT`] segments | *ahead*, when the window is the limit, the client reads, the rate is measured, and there is no queue |
//! | [`Ahead`](AheadState::Ahead) | 1.25 times what the measured rate carries in a round trip, at most [`MOST`], and at most 16 times what is acknowledged if the rate is not from earlier sessions | *watching*, when the client's window has grown to this |
//! | [`TakenBack`](AheadState::TakenBack) | after a loss twice the client's window, if the client has taken data ahead; otherwise the client's window | no other state |
//!
//! A leg begins in *watching*, or in *ahead* if earlier sessions have measured the rate and their client took
//! data ahead. A loss, a window that shrinks to less than half, and a shortage of memory lead to *taken back*.
//! While the client's window is at least twice the congestion window and the data that waits to be sent, there is
//! no limit. While [other sessions](crate::network_load) of the client's network carry data, the client's window
//! is the limit in every state.
//!
//! The limit is the number of bytes that may have been written since the leg began
//! ([`write_limit`](AutomaticAhead::write_limit)), and it counts from the right edge of the client's window. A client
//! that stops reading still acknowledges what arrives, but it no longer moves this edge, nor the limit. A limit of the
//! bytes in flight would move with each ACK until the next reading, and the client would discard the data beyond its
//! window. The kernel then waits for a retransmission time-out, which doubles with each try, and the leg would send
//! nothing for a long time after the client reads again. A sender that stays within the window requests the next
//! window instead, and continues as soon as the window opens.
//!
//! The window scale can be changed only before the first byte is sent. So it is raised on each leg
//! that might send ahead, and the cap keeps the leg within the client's true window.

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};
use serde::{Deserialize, Serialize};

use crate::LegSample;
use crate::ack_train::AckTrain;
use crate::ahead_history::{AheadHistory, AheadRecord};
use crate::pacing::has_queue;

/// A leg with a shorter handshake is never sent ahead on: a few round trips more cost it little.
pub const LONG_HANDSHAKE: TimeSpan = TimeSpan::from_milliseconds(150);
/// Most bytes in flight of a leg that sends ahead: the default maximum of Linux's send buffers
/// (`tcp_wmem`), and the window of the path file `geo-ahead`.
pub const MOST: ByteSize = ByteSize::from_bytes(4 << 20);
/// Segments that a first flight to a known client may have, whatever its window. A cold start may have as
/// many segments already (`cold_start`), so the path carries no more than before. The client gets 34 segments
/// beyond its first window of 64 KB. These segments are spread, so that the client has time to read the
/// segments before them. The first session of a client gets no such flight: nothing shows yet that the session
/// is alone on its link, and a larger flight would give it a lead over sessions that begin a little later.
pub const FIRST_FLIGHT: u32 = 80;
/// A client with a smaller window scale in bits cannot offer 1 MB. Its window is that of a small,
/// fixed buffer, and its first flight stays within it.
const GROWING_SCALE: u8 = 4;
/// A client with a smaller window, in segments, is short of memory, or reads slowly.
const LEAST_WINDOW: u64 = 8;
/// Largest window scale (RFC 7323 §2.3).
const LARGEST_SCALE: u8 = 14;
/// In flight: the measured rate times the round trip, times this fraction, so that the cap does not
/// hold the rate down.
const HEADROOM: (u64, u64) = (5, 4);
/// At most this many times the bytes that have been acknowledged, so that ACKs that arrive in a
/// burst do not permit far more than the path has carried.
const PROVEN: u64 = 16;
/// The window shrinks if it falls below 1/`SHRUNK` of the largest one.
const SHRUNK: u64 = 2;
/// Shortest and longest time between two readings while the rate is measured, and later.
const SOON: (TimeSpan, TimeSpan) = (
    TimeSpan::from_milliseconds(5),
    TimeSpan::from_milliseconds(10),
);
const LATER: (TimeSpan, TimeSpan) = (
    TimeSpan::from_milliseconds(5),
    TimeSpan::from_milliseconds(100),
);
/// For this many round trips from the first byte on, and after the last ACK while the cap is the limit,
/// readings follow each other soon.
const NEW: u64 = 4;

/// What is known of a client's leg before its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedLeg {
    /// The round trip of its handshake.
    pub round_trip: TimeSpan,
    /// The window that the client advertised, in bytes.
    pub window: u64,
    /// The agreed window scale of the client, in bits.
    pub window_scale: u8,
    /// Bytes of data in a segment.
    pub segment_size: u32,
}

impl AcceptedLeg {
    /// Whether the leg is long enough to send ahead on it.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.round_trip >= LONG_HANDSHAKE
    }
}

/// How far the data in flight on a leg may go beyond the client's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum AheadState {
    /// The window scale is raised; the client's window holds.
    #[default]
    Watching,
    /// Data is sent beyond the client's window.
    Ahead,
    /// A loss, a window that shrank, or a shortage of memory ended it.
    TakenBack,
}

impl AheadState {
    /// The name in logs and lists.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watching => "watching",
            Self::Ahead => "ahead",
            Self::TakenBack => "taken_back",
        }
    }
}

/// Decides how far ahead of the client's window one leg may send.
///
/// Another process may continue a leg ([`KeptLeg`](crate::narrow_leg::KeptLeg)). Fields that are skipped then begin
/// again; a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomaticAhead {
    state: AheadState,
    leg: AcceptedLeg,
    /// Bits that are added to the scale.
    added: u8,
    /// What may be in flight in any case until the leg is taken back, in bytes.
    allowance: u64,
    /// In bit/s; 0 while it is unknown.
    rate: u64,
    /// Whether the rate is that of earlier sessions of a client that took data ahead of its window:
    /// then no ACK has to prove it.
    is_proven: bool,
    /// Whether data may go beyond the window now: no other session of the network carries data.
    is_allowed: bool,
    /// Bytes that may have been written since the leg began.
    limit: u64,
    /// The same as bytes that may be in flight, at the newest reading.
    cap: u64,
    is_free: bool,
    /// Nearly as much is in flight as the cap allows: the time by which the next reading is late is
    /// lost.
    #[serde(skip)]
    is_limit: bool,
    /// The client's window at the last reading, and the largest one.
    truth: u64,
    largest_truth: u64,
    /// The acknowledged byte at which the client's window ends: its right edge.
    edge: u64,
    /// Whether the client reads: it does not only acknowledge, but also moves its window.
    is_reading: bool,
    /// The most that was in flight, in bytes.
    peak: u64,
    began: Option<Time>,
    #[serde(skip)]
    train: AckTrain,
    retransmitted: Option<u32>,
    /// The acknowledged byte at which the first data ends that was sent beyond the window.
    beyond: Option<u64>,
    /// Losses before this acknowledged byte do not count, because data was beyond the window.
    uncounted: u64,
    /// No loss has taken the leg back, but a window that shrank, or a shortage of memory.
    is_over: bool,
    /// What was in flight at the last loss is acknowledged when this many bytes are.
    repaired: u64,
    /// Bytes acknowledged at the newest reading, and since when.
    acknowledged: u64,
    #[serde(skip)]
    moved: Option<Time>,
    /// Segments sent and sent again, at the reading before.
    counted: (u32, u32),
    record: AheadRecord,
}

impl AutomaticAhead {
    /// Prepares a leg on which nothing has been sent: with the rate that earlier sessions have
    /// measured, if any, and what they have found out about the client. Data may go ahead at once if
    /// `is_allowed`, otherwise only after [`set_allowed`](Self::set_allowed). `None` if data is never
    /// sent ahead on this leg.
    #[must_use]
    pub fn prepare(
        leg: &AcceptedLeg,
        rate: Option<BitRate>,
        history: &AheadHistory,
        is_allowed: bool,
    ) -> Option<Self> {
        let segment = u64::from(leg.segment_size.max(1));
        if !leg.is_long() || leg.window < LEAST_WINDOW * segment || history.is_refused() {
            return None;
        }
        let room = LARGEST_SCALE.saturating_sub(leg.window_scale);
        let reaches = |bits: &u8| leg.window << bits >= MOST.bytes();
        let added = (0..=room).find(reaches).unwrap_or(room);
        if added == 0 {
            return None;
        }
        let is_trusted = history.is_trusted();
        let grows = leg.window_scale >= GROWING_SCALE;
        let allowance = match grows && history.is_known() && !history.is_doubted() {
            true => u64::from(FIRST_FLIGHT) * segment,
            false => 0,
        };
        let mut ahead = Self {
            state: AheadState::Watching,
            leg: *leg,
            added,
            allowance,
            rate: rate.map_or(0, BitRate::bits_per_second),
            is_proven: is_trusted && rate.is_some(),
            is_allowed,
            limit: 0,
            cap: 0,
            is_free: false,
            is_limit: false,
            truth: leg.window,
            largest_truth: leg.window,
            edge: leg.window,
            is_reading: true,
            peak: 0,
            began: None,
            train: AckTrain::default(),
            retransmitted: None,
            beyond: None,
            uncounted: 0,
            is_over: false,
            repaired: 0,
            acknowledged: 0,
            moved: None,
            counted: (0, 0),
            record: AheadRecord::default(),
        };
        if ahead.is_proven && is_allowed {
            ahead.state = AheadState::Ahead;
        }
        ahead.set_limit(segment, 0);
        Some(ahead)
    }

    /// Whether a leg can be in this state.
    #[must_use]
    pub const fn is_possible(&self) -> bool {
        self.added > 0 && self.added <= LARGEST_SCALE
    }

    /// Bits that are added to the scale with which the client's window is read.
    #[must_use]
    pub const fn added_scale(&self) -> u8 {
        self.added
    }

    /// The window in bytes that the client's present window is with the added scale.
    #[must_use]
    pub const fn scaled_window(&self) -> u64 {
        self.leg.window << self.added
    }

    /// Bytes that may have been written to the leg since it began, acknowledged ones included; `None`: no limit.
    #[must_use]
    pub const fn write_limit(&self) -> Option<u64> {
        match self.is_free {
            true => None,
            false => Some(self.limit),
        }
    }

    /// The same as bytes that may be sent and not acknowledged, at the newest reading; `None`: no cap. It fits only
    /// as long as nothing more is acknowledged.
    #[must_use]
    pub const fn cap(&self) -> Option<ByteSize> {
        match self.is_free {
            true => None,
            false => Some(ByteSize::from_bytes(self.cap)),
        }
    }

    /// The present state.
    #[must_use]
    pub const fn state(&self) -> AheadState {
        self.state
    }

    /// The evidence that the leg leaves for later sessions of the client.
    #[must_use]
    pub const fn record(&self) -> AheadRecord {
        self.record
    }

    /// When to read the leg again, while data is in flight.
    #[must_use]
    pub fn poll_timeout(&self, now: Time) -> Time {
        let round_trip = self.leg.round_trip;
        let is_recent = |at: Time| now.since(at) < round_trip * NEW;
        let is_new = self.began.is_none_or(is_recent);
        // A client that does not read must not cost much CPU time.
        let is_late = self.is_limit && self.moved.is_some_and(is_recent);
        let ((least, most), part) = match is_new || is_late {
            true => (SOON, 64),
            false => (LATER, 8),
        };
        now + (round_trip / part).max(least).min(most)
    }

    /// Memory is short: nothing is sent ahead any more.
    pub const fn handle_shortage(&mut self) {
        self.state = AheadState::TakenBack;
        self.is_over = true;
    }

    /// Whether data may go beyond the client's window, from the next reading on.
    pub fn set_allowed(&mut self, is_allowed: bool) {
        self.is_allowed = is_allowed;
        if !is_allowed && self.state == AheadState::Ahead {
            self.state = AheadState::Watching;
        }
    }

    /// Takes a reading of the leg.
    pub fn handle_sample(&mut self, now: Time, sample: &LegSample) {
        let segment = u64::from(sample.segment_size.max(1));
        let in_flight = u64::from(sample.unacknowledged) * segment;
        let acknowledged = sample.bytes_acknowledged.bytes();
        let was_repairing = self.acknowledged < self.repaired;
        let has_moved = std::mem::replace(&mut self.acknowledged, acknowledged) != acknowledged;
        if has_moved {
            self.moved = Some(now);
        }
        if in_flight > 0 {
            self.began.get_or_insert(now);
        }
        let before = self.retransmitted.replace(sample.segments_retransmitted);
        let has_lost = before.is_some_and(|before| before != sample.segments_retransmitted);
        let is_repairing = has_lost || was_repairing;
        let truth = sample.peer_window >> self.added;
        self.note_window(truth, acknowledged, has_moved && !is_repairing);
        self.peak = self.peak.max(in_flight);
        match is_repairing {
            // An ACK that fills a gap also acknowledges what had arrived before: that is no rate.
            true => self.train.begin_again(now, acknowledged),
            false => self.train.handle_reading(now, acknowledged, segment),
        }
        let measured = self.train.rate().map_or(0, BitRate::bits_per_second);
        self.rate = self.rate.max(measured);
        self.record.rate = self.record.rate.max(self.train.long_rate());
        if in_flight > self.truth {
            self.uncounted = acknowledged.saturating_add(in_flight);
        }
        self.count(sample, acknowledged);
        if has_lost {
            // Beyond the window, the client may have had no room for the lost segment.
            let is_beyond = self.beyond.is_some() || in_flight > self.truth;
            self.record.has_failed |= is_beyond && self.state != AheadState::TakenBack;
            self.take_back();
            self.repaired = self.repaired.max(acknowledged.saturating_add(in_flight));
        }
        if self.truth < self.largest_truth / SHRUNK {
            self.is_over = true;
            self.take_back();
        }
        self.note_beyond(in_flight, acknowledged);
        let window = u64::from(sample.congestion_window) * segment;
        match self.state {
            AheadState::Watching => {
                let is_limit = window > self.truth && self.peak >= self.cap / 4 * 3;
                let is_measured = self.rate > 0 && acknowledged > 0;
                let is_ready = is_measured && self.is_reading && !has_queue(sample);
                if self.is_allowed && is_limit && is_ready {
                    self.state = AheadState::Ahead;
                }
            }
            AheadState::Ahead if acknowledged > 0 && self.truth >= self.target(acknowledged) => {
                self.state = AheadState::Watching;
            }
            AheadState::Ahead | AheadState::TakenBack => {}
        }
        self.set_limit(segment, acknowledged);
        // The client has promised room for all that can be in flight until the next reading. Data that was written
        // and not sent can no longer be held back.
        let written = window
            .max(in_flight)
            .saturating_add(sample.not_sent.bytes());
        self.is_free = self.truth / 2 >= written;
        self.is_limit = !self.is_free && in_flight >= self.cap / 4 * 3;
    }

    /// Notes the window that the client advertises with its newest ACK. `has_arrived`: the ACK is for new data, and
    /// no gap before this data keeps the client from reading it.
    fn note_window(&mut self, truth: u64, acknowledged: u64, has_arrived: bool) {
        let edge = acknowledged.saturating_add(truth);
        let edge_before = std::mem::replace(&mut self.edge, edge);
        self.truth = truth;
        self.largest_truth = self.largest_truth.max(truth);
        if edge > edge_before || truth >= self.largest_truth {
            self.is_reading = true;
        } else if has_arrived {
            self.is_reading = false;
        }
    }

    /// Whether the client has taken data ahead of its window, now or before, and reads.
    const fn takes_data(&self) -> bool {
        (self.record.is_taken || self.is_proven) && !self.is_over
    }

    fn take_back(&mut self) {
        self.state = AheadState::TakenBack;
        self.beyond = None;
    }

    /// What may be in flight while data is sent ahead.
    fn target(&self, acknowledged: u64) -> u64 {
        let Some(rate) = BitRate::from_bits_per_second(self.rate) else {
            return self.allowance;
        };
        let (numerator, denominator) = HEADROOM;
        let carried = rate.bytes_in(self.leg.round_trip) / denominator;
        let carried = carried.saturating_mul(numerator).min(MOST.bytes());
        match self.is_proven {
            true => carried,
            false => carried.min(acknowledged.saturating_mul(PROVEN)),
        }
    }

    /// Sets the limit: the right edge of the client's window, and what may go beyond it.
    fn set_limit(&mut self, segment: u64, acknowledged: u64) {
        // The client makes room for data beyond its edge only while it reads.
        let allowed = match self.state {
            _ if !self.is_allowed || !self.is_reading => 0,
            AheadState::Watching => self.allowance,
            // ACKs that come later do not lower it.
            AheadState::Ahead => self.allowance.max(self.target(acknowledged)),
            // The lost segment is sent again first, so data that is sent afterwards arrives after it. By then
            // the client can read the whole first window, and its window has moved on by a full length. So
            // the client has room for twice its window.
            AheadState::TakenBack if self.takes_data() => {
                self.truth.saturating_mul(2).min(MOST.bytes())
            }
            AheadState::TakenBack => 0,
        };
        let window = match self.state {
            AheadState::TakenBack => self.truth,
            // While the client has not read yet what has arrived, its window is smaller.
            AheadState::Watching | AheadState::Ahead => self.largest_truth,
        };
        // A window of zero stops the kernel in any case. With a segment to send, it requests the next window
        // again and again, should the ACK get lost that opens the window.
        let least = match self.truth {
            0 => segment,
            _ => 0,
        };
        let beyond = allowed.saturating_sub(window).max(least);
        self.limit = self.edge.saturating_add(beyond);
        self.cap = self.limit.saturating_sub(acknowledged);
    }

    /// Notes data beyond the client's window, and whether the client has taken it.
    fn note_beyond(&mut self, in_flight: u64, acknowledged: u64) {
        if self.state == AheadState::TakenBack {
            return;
        }
        match self.beyond {
            None if in_flight > self.truth => {
                self.beyond = Some(acknowledged.saturating_add(in_flight));
            }
            Some(end) if acknowledged >= end => {
                self.record.is_taken = true;
                self.beyond =
                    (in_flight > self.truth).then_some(acknowledged.saturating_add(in_flight));
            }
            None | Some(_) => {}
        }
    }

    /// Counts how much is lost while nothing is beyond the window.
    fn count(&mut self, sample: &LegSample, acknowledged: u64) {
        let (sent, lost) = (sample.segments_sent, sample.segments_retransmitted);
        let (sent_before, lost_before) = std::mem::replace(&mut self.counted, (sent, lost));
        if acknowledged >= self.uncounted {
            let record = &mut self.record;
            record.sent = (record.sent).saturating_add(sent.wrapping_sub(sent_before));
            record.lost = (record.lost).saturating_add(lost.wrapping_sub(lost_before));
        }
    }
}

#[cfg(test)]
mod tests;
