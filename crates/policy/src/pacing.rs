//! The rate at which a leg is sent on: that of the leg that brings the data (Shikama §3).
//!
//! The paper paces at the rate of the wireless section and leaves better estimates for study.
//! This one measures: the largest rate at which in-order data came lately is, but for what the
//! sender left unused, the rate of the inbound path, since after each stall what had piled up
//! behind a loss comes at least as fast as the path brings it. What fills a hole makes many segments
//! in-order data at once, though they came one by one: while the inbound leg fills its path, no window
//! counts for more than what arrived in it, in order or not.
//!
//! An estimate that is too high costs nothing (chunks still do not leave as one burst), one that is too
//! low costs throughput. So the rate stays a quarter (`GAIN`) above the measured one, nothing is
//! paced until the measured rate has stopped growing (`GROWN`), and a rate that holds data back for
//! some windows (`ESCAPE`) on end is given up.

use std::num::NonZero;

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::recent_maximum::RecentMaximum;
use crate::{LegSample, Pacing};

/// Shortest and longest window of a measurement; between them, a round trip of the inbound leg.
const SHORTEST_WINDOW: TimeSpan = TimeSpan::from_milliseconds(100);
const LONGEST_WINDOW: TimeSpan = TimeSpan::from_seconds(1);
/// Windows that are remembered: at least so many, at most twice as many.
const REMEMBERED: u8 = 16;
/// A window that brought fewer segments than this says nothing of the path.
const EVIDENCE: u64 = 10;
/// Where at least a byte goes to the sender for so many that come from it, requests and answers
/// take turns, and the path could bring more than they do.
const TURNS: u64 = 1000;
/// The pacing rate over the measured rate, as a fraction.
const GAIN: (u64, u64) = (5, 4);
/// The rate over what the outbound leg delivers, for some windows (`CALM`) after a loss with a queue:
/// while there is a queue, and while there is none. Between them the queue stays short.
const DRAINING_GAIN: (u64, u64) = (19, 20);
const FILLING_GAIN: (u64, u64) = (21, 20);
const CALM: u8 = 32;
/// A rate grows while each window has at least this fraction of the largest before.
const GROWN: (u64, u64) = (5, 4);
/// Windows without growth after which the rate is taken as that of the path, as BBR takes it.
const STEADY: u8 = 3;
/// Windows in a row in which pacing held data back, until the rate is doubled.
const BINDING: u8 = 2;
/// The same, until it is given up.
const ESCAPE: u8 = 6;
/// Windows in a row that brought about as much as the one before, within `GROWN`, until the inbound leg
/// is taken to fill its path, so that what arrived bounds what it carries.
const FILLED: u8 = 8;
/// Nothing is paced below this rate.
const LEAST: u64 = 100_000;
/// Stands for no limit at all.
const UNLIMITED: u64 = u64::MAX;
/// Changes below a twentieth are not worth a system call.
const NOTABLE: u64 = 20;

/// Finds the rate for what is sent on one leg of a session.
///
/// Feed it with [`handle_sample`](Self::handle_sample) at each sample of the session; it returns
/// the rate when that is to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacingRate {
    mode: Pacing,
    limit: Option<BitRate>,
    window: Option<Window>,
    inbound: RecentMaximum,
    delivered: RecentMaximum,
    state: State,
    binding: u8,
    /// Bytes that arrived in the newest window, and windows in a row that were like it.
    arrivals: (u64, u8),
    /// Bytes that filled holes and are still to be worked off.
    backlog: u64,
    /// Windows that are left since a loss with a queue.
    calm: u8,
    /// Said last.
    rate: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    begin: Time,
    /// In order, by the inbound leg.
    received: u64,
    /// Segments with data, in order or not.
    arrived: u32,
    /// Handed to the outbound leg's peer, or under way to it.
    forwarded: u64,
    /// By the inbound leg's peer.
    acknowledged: u64,
    retransmitted: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The measured rate grows, or did so until a few windows ago: nothing is paced.
    Growing {
        largest: u64,
        steady: u8,
    },
    Paced,
}

impl PacingRate {
    /// Of a leg that nothing is known of. With `limit`, the rate is never above it.
    #[must_use]
    pub const fn new(mode: Pacing, limit: Option<BitRate>) -> Self {
        Self {
            mode,
            limit,
            window: None,
            inbound: RecentMaximum::new(REMEMBERED),
            delivered: RecentMaximum::new(REMEMBERED),
            state: State::Growing {
                largest: 0,
                steady: 0,
            },
            binding: 0,
            arrivals: (0, 0),
            backlog: 0,
            calm: 0,
            rate: UNLIMITED,
        }
    }

    /// The rate as it was said last; `None` where there is no limit.
    #[must_use]
    pub const fn rate(&self) -> Option<BitRate> {
        match self.rate {
            UNLIMITED => self.limit,
            rate => BitRate::from_bits_per_second(rate),
        }
    }

    /// A reading of the leg that brings the data and of the one that takes it away, with what the
    /// proxy `held` between them: the new rate, if it changes. The largest rate there is stands for
    /// no limit.
    pub fn handle_sample(
        &mut self,
        now: Time,
        inbound: &LegSample,
        outbound: &LegSample,
        held: ByteSize,
    ) -> Option<BitRate> {
        if self.mode == Pacing::Fixed {
            return None;
        }
        let length = inbound.minimum_round_trip_time.unwrap_or_default();
        let length = length.clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
        let next = Window {
            begin: now,
            received: inbound.bytes_received.bytes(),
            arrived: inbound.data_segments_received,
            forwarded: forwarded(outbound),
            acknowledged: inbound.bytes_acknowledged.bytes(),
            retransmitted: outbound.segments_retransmitted,
        };
        let Some(window) = self.window else {
            self.window = Some(next);
            return None;
        };
        let elapsed = now.since(window.begin);
        // A sample is never early by more than what its clock is off.
        if elapsed < length - length / 10 {
            return None;
        }
        self.window = Some(next);
        if elapsed > length * 4 {
            // Still for a while: what comes next may be faster than anything before.
            return self.start_again();
        }
        let is_path_limited = is_path_limited(outbound);
        let has_queue = has_queue(outbound);
        let lost = next.retransmitted != window.retransmitted;
        self.calm = match lost && has_queue {
            true => CALM,
            false => self.calm.saturating_sub(1),
        };
        let is_full = has_queue && !is_growing(outbound);
        let holds_back = held.bytes() > 0 || outbound.not_sent.bytes() > 0;
        let binds = holds_back && !is_path_limited && self.bound(is_full).is_none();
        let received = next.received.saturating_sub(window.received);
        let arrived = arrived(inbound, &window).unwrap_or(received);
        // What had piled up behind a loss is being worked off: the rate is high enough.
        let is_filled = self.is_filled(arrived);
        let forwarded = next.forwarded.saturating_sub(window.forwarded);
        let drains = forwarded > arrived && (is_filled || self.backlog > 0);
        let filled = received.saturating_sub(arrived);
        let drained = forwarded.saturating_sub(arrived);
        self.backlog = self.backlog.saturating_add(filled).saturating_sub(drained);
        self.binding = match self.state == State::Paced && binds {
            true if drains => self.binding,
            true => self.binding.saturating_add(1),
            false => 0,
        };
        if self.binding >= ESCAPE {
            return self.start_again();
        }
        if let Some(rate) = outbound.delivery_rate {
            // Without a queue, or of a flight that grows, the path takes more than is delivered.
            match is_path_limited && is_full {
                true => self.delivered.add(rate.bits_per_second()),
                false => self.delivered.add_lower_bound(rate.bits_per_second()),
            }
        }
        if received < EVIDENCE * u64::from(inbound.segment_size) {
            return match self.state {
                State::Growing { .. } => self.say(UNLIMITED),
                State::Paced => self.say(self.wanted(is_full)),
            };
        }
        let told = next.acknowledged.saturating_sub(window.acknowledged);
        if told.saturating_mul(TURNS) >= received {
            return self.start_again();
        }
        let brought = match is_filled {
            true => received.min(arrived),
            false => received,
        };
        let rate = BitRate::from_transfer(brought, elapsed)?.bits_per_second();
        // While data waits here, our own window may be what held its sender back.
        match holds_back {
            true => self.inbound.add_lower_bound(rate),
            false => self.inbound.add(rate),
        }
        if let State::Growing { largest, steady } = &mut self.state {
            let grows = scaled(*largest, GROWN) <= rate;
            *largest = rate.max(*largest);
            *steady = if grows { 0 } else { *steady + 1 };
            if *steady < STEADY {
                return self.say(UNLIMITED);
            }
            self.state = State::Paced;
        }
        self.say(self.wanted(is_full))
    }

    /// Whether the inbound leg fills its path: windows bring the same, whatever is lost. Where its own
    /// congestion window holds it back, they do not, and what arrives in one is less than the path
    /// would bring.
    fn is_filled(&mut self, arrived: u64) -> bool {
        let (before, steady) = self.arrivals;
        let (less, more) = (arrived.min(before), arrived.max(before));
        let is_steady = more > 0 && scaled(less, GROWN) >= more;
        let steady = if is_steady {
            steady.saturating_add(1)
        } else {
            0
        };
        self.arrivals = (arrived, steady);
        steady >= FILLED
    }

    /// The rate by what was measured.
    fn wanted(&self, is_full: bool) -> u64 {
        let mut wanted = scaled(self.inbound.get(), GAIN);
        if self.binding >= BINDING && self.rate != UNLIMITED {
            wanted = wanted.max(self.rate.saturating_mul(2));
        }
        let bound = self.bound(is_full).unwrap_or(UNLIMITED);
        wanted.min(bound).max(LEAST)
    }

    /// What the outbound leg takes, as far as that is known and to be kept to.
    fn bound(&self, is_full: bool) -> Option<u64> {
        let delivered = self.delivered.get();
        if self.mode != Pacing::Auto || delivered == 0 {
            return None;
        }
        let gain = match (self.calm > 0, is_full) {
            (true, true) => DRAINING_GAIN,
            (true, false) => FILLING_GAIN,
            (false, true) => GAIN,
            (false, false) => return None,
        };
        Some(scaled(delivered, gain))
    }

    fn start_again(&mut self) -> Option<BitRate> {
        self.state = State::Growing {
            largest: 0,
            steady: 0,
        };
        self.binding = 0;
        self.backlog = 0;
        self.calm = 0;
        self.inbound = RecentMaximum::new(REMEMBERED);
        self.delivered = RecentMaximum::new(REMEMBERED);
        self.say(UNLIMITED)
    }

    fn say(&mut self, rate: u64) -> Option<BitRate> {
        let limit = self.limit.map_or(UNLIMITED, BitRate::bits_per_second);
        let rate = rate.min(limit);
        let notable = self.rate / NOTABLE;
        // Of a configured limit the start has said it.
        let known = self.rate.min(limit);
        if rate == known || (rate != limit && rate.abs_diff(known) < notable) {
            return None;
        }
        self.rate = rate;
        BitRate::from_bits_per_second(rate)
    }
}

/// Bytes of data that have arrived since the beginning of the window, in order or not; `None` where
/// segments are not counted. A peer may send larger segments than it takes: then the mean
/// size so far tells, as nearly as losses allow.
fn arrived(inbound: &LegSample, window: &Window) -> Option<u64> {
    let in_all = NonZero::new(u64::from(inbound.data_segments_received))?;
    let mean = inbound.bytes_received.bytes().div_ceil(in_all.get());
    let size = mean.max(u64::from(inbound.segment_size));
    let segments = inbound.data_segments_received.wrapping_sub(window.arrived);
    Some(u64::from(segments).saturating_mul(size))
}

/// Bytes that the leg has sent so far.
fn forwarded(outbound: &LegSample) -> u64 {
    let in_flight = u64::from(outbound.unacknowledged) * u64::from(outbound.segment_size);
    outbound
        .bytes_acknowledged
        .bytes()
        .saturating_add(in_flight)
}

/// Whether what is sent is held back by the path or the peer, and not by want of data or by
/// pacing.
pub(crate) fn is_path_limited(outbound: &LegSample) -> bool {
    let in_flight = u64::from(outbound.unacknowledged);
    let window = u64::from(outbound.congestion_window)
        .min(outbound.peer_window / u64::from(outbound.segment_size.max(1)));
    outbound.not_sent.bytes() > 0 && in_flight * 10 >= window * 9
}

/// Whether the congestion window grows by what it delivers: a flight says nothing yet of what the
/// path takes.
fn is_growing(outbound: &LegSample) -> bool {
    let window = outbound.congestion_window;
    outbound
        .slow_start_threshold
        .is_none_or(|threshold| window < threshold)
}

/// Whether round trips take notably longer than the shortest one.
pub(crate) fn has_queue(leg: &LegSample) -> bool {
    match (leg.round_trip_time, leg.minimum_round_trip_time) {
        (Some(time), Some(least)) => {
            time > least + least / 4 && time > least + TimeSpan::from_milliseconds(2)
        }
        _ => false,
    }
}

fn scaled(value: u64, (numerator, denominator): (u64, u64)) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
