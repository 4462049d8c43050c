//! The pacing rate of a leg. It follows the rate of the other leg, which brings the data (Shikama §3).
//!
//! The paper paces at the rate of the wireless section and leaves better estimates for further study. Midspan
//! measures: it takes the largest rate at which in-order data arrived recently. A loss delays this data, but
//! the data behind the lost segment then becomes in-order data at least at the rate of the inbound path. So
//! the largest rate is not below the rate of the inbound path, if the sender fills this path.
//!
//! The largest rate can be too high: when a retransmission fills a hole, many segments that arrived one by
//! one become in-order data at once. So while the inbound leg fills its path, a window of the measurement
//! counts at most as many bytes as arrived in this window, in order or not.
//!
//! A pacing rate that is too high costs little, because chunks still do not leave as one burst. A pacing rate
//! that is too low costs throughput. Four rules follow from this:
//!
//! - The pacing rate is a quarter (`GAIN`) above the measured rate.
//! - Nothing is paced until the measured rate has stopped growing (`GROWN`, `STEADY`).
//! - If pacing holds data back for `BINDING` windows in a row, the pacing rate is doubled.
//! - If pacing holds data back for `ESCAPE` windows in a row, pacing stops until the rate is measured again.
//!
//! With [`Pacing::Auto`], the delivery rate of the outbound leg is a further bound. It applies while that leg
//! has a queue after its slow start, and for `CALM` windows after a loss with a queue.

use std::num::NonZero;

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::recent_maximum::RecentMaximum;
use crate::{LegSample, Pacing};

/// Shortest and longest window of a measurement. Between them, a window lasts one round trip of the
/// inbound leg.
const SHORTEST_WINDOW: TimeSpan = TimeSpan::from_milliseconds(100);
const LONGEST_WINDOW: TimeSpan = TimeSpan::from_seconds(1);
/// A measured rate counts for at least this many windows, and for at most twice as many.
const REMEMBERED: u8 = 16;
/// A window that brought fewer segments than this is no evidence of the path's rate.
const EVIDENCE: u64 = 10;
/// If at least one byte goes to the sender for each `TURNS` bytes that come from it, the connection
/// alternates requests and responses, and the path could bring more than it does.
const TURNS: u64 = 1000;
/// The pacing rate divided by the measured rate, as a fraction.
const GAIN: (u64, u64) = (5, 4);
/// The pacing rate divided by the outbound leg's delivery rate, as a fraction, for `CALM` windows
/// after a loss with a queue: while there is a queue (`DRAINING_GAIN`), in the first window without one
/// (`FILLING_GAIN`), and in those after it (`RISING_GAIN`). Alternating between them keeps the queue short. Where no
/// queue appears, the path carries more than before, and the rate follows faster.
const DRAINING_GAIN: (u64, u64) = (19, 20);
const FILLING_GAIN: (u64, u64) = (21, 20);
const RISING_GAIN: (u64, u64) = (9, 8);
const CALM: u8 = 32;
/// The measured rate grows while a window reaches at least this multiple of the largest before.
const GROWN: (u64, u64) = (5, 4);
/// After this many windows without growth, the measured rate counts as the path's, as in BBR.
const STEADY: u8 = 3;
/// After this many windows in a row in which pacing held data back, the rate is doubled.
const BINDING: u8 = 2;
/// After this many such windows in a row, pacing is given up until the rate is measured again.
const ESCAPE: u8 = 6;
/// After this many windows in a row that each brought about as much as the one before (within
/// `GROWN`), the inbound leg counts as filling its path: its arrivals then show the path's rate.
const FILLED: u8 = 8;
/// The lowest pacing rate, in bit/s.
const LEAST: u64 = 100_000;
/// Means no limit, in bit/s.
const UNLIMITED: u64 = u64::MAX;
/// Changes of the rate by less than a twentieth are not worth a system call.
const NOTABLE: u64 = 20;

/// Finds the rate for what is sent on one leg of a session.
///
/// Call [`handle_sample`](Self::handle_sample) at each sample of the session; it returns the rate
/// when the rate changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacingRate {
    mode: Pacing,
    limit: Option<BitRate>,
    window: Option<Window>,
    inbound: RecentMaximum,
    delivered: RecentMaximum,
    state: State,
    binding: u8,
    /// Bytes that arrived in the newest window, and the number of windows in a row like it.
    arrivals: (u64, u8),
    /// In bytes: data that filled holes and has not been forwarded yet.
    backlog: u64,
    /// Windows for which the caution after a loss with a queue still lasts.
    calm: u8,
    /// Windows in a row without a queue.
    clear: u8,
    /// The rate that was returned last, in bit/s.
    rate: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    begin: Time,
    /// Bytes received in order on the inbound leg.
    received: u64,
    /// Segments with data received on the inbound leg, in order or not.
    arrived: u32,
    /// Bytes sent on the outbound leg: acknowledged or in flight.
    forwarded: u64,
    /// Bytes acknowledged by the inbound leg's peer.
    acknowledged: u64,
    retransmitted: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The measured rate grows, or stopped growing only a few windows ago: nothing is paced.
    Growing {
        largest: u64,
        steady: u8,
    },
    Paced,
}

impl PacingRate {
    /// For a leg without measurements. The rate never exceeds `limit`.
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
            clear: 0,
            rate: UNLIMITED,
        }
    }

    /// The rate that was returned last, or the limit; `None` if there is neither.
    #[must_use]
    pub const fn rate(&self) -> Option<BitRate> {
        match self.rate {
            UNLIMITED => self.limit,
            rate => BitRate::from_bits_per_second(rate),
        }
    }

    /// Takes a reading of the inbound leg, of the outbound leg, and of the bytes `held` between
    /// them in the proxy. Returns the new rate, if it changes; the largest possible rate means no
    /// limit.
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
        // The sampling timer may be early by up to a tenth of a window.
        if elapsed < length - length / 10 {
            return None;
        }
        self.window = Some(next);
        if elapsed > length * 4 {
            // The session was idle: from now on data may come faster than before.
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
        self.clear = match is_full {
            true => 0,
            false => self.clear.saturating_add(1),
        };
        let holds_back = held.bytes() > 0 || outbound.not_sent.bytes() > 0;
        let binds = holds_back && !is_path_limited && self.bound(is_full).is_none();
        let received = next.received.saturating_sub(window.received);
        let arrived = arrived(inbound, &window).unwrap_or(received);
        // The data that accumulated behind a loss is draining: the pacing rate is high enough.
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
            // Without a queue, or in slow start, the path could take more than is delivered.
            match is_path_limited && is_full {
                true => self.delivered.add(rate.bits_per_second()),
                false => self.delivered.add_lower_bound(rate.bits_per_second()),
            }
        }
        if received < EVIDENCE * u64::from(inbound.segment_size) {
            return match self.state {
                State::Growing { .. } => self.announce(UNLIMITED),
                State::Paced => self.announce(self.wanted(is_full)),
            };
        }
        let returned = next.acknowledged.saturating_sub(window.acknowledged);
        if returned.saturating_mul(TURNS) >= received {
            return self.start_again();
        }
        let brought = match is_filled {
            true => received.min(arrived),
            false => received,
        };
        let rate = BitRate::from_transfer(brought, elapsed)?.bits_per_second();
        // While data waits in the proxy, our own receive window may have held the sender back.
        match holds_back {
            true => self.inbound.add_lower_bound(rate),
            false => self.inbound.add(rate),
        }
        if let State::Growing { largest, steady } = &mut self.state {
            let grows = scaled(*largest, GROWN) <= rate;
            *largest = rate.max(*largest);
            *steady = if grows { 0 } else { *steady + 1 };
            if *steady < STEADY {
                return self.announce(UNLIMITED);
            }
            self.state = State::Paced;
        }
        self.announce(self.wanted(is_full))
    }

    /// Whether the inbound leg fills its path: then each window brings about the same, whatever is
    /// lost. If the sender's congestion window is the limit, the windows differ, and each brings
    /// less than the path could.
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

    /// The pacing rate that follows from the measurements, in bit/s.
    fn wanted(&self, is_full: bool) -> u64 {
        let mut wanted = scaled(self.inbound.get(), GAIN);
        if self.binding >= BINDING && self.rate != UNLIMITED {
            wanted = wanted.max(self.rate.saturating_mul(2));
        }
        let bound = self.bound(is_full).unwrap_or(UNLIMITED);
        wanted.min(bound).max(LEAST)
    }

    /// The bound that the outbound leg's delivery rate sets, in bit/s; `None` if that rate is
    /// unknown or is no bound at the moment.
    fn bound(&self, is_full: bool) -> Option<u64> {
        let delivered = self.delivered.get();
        if self.mode != Pacing::Auto || delivered == 0 {
            return None;
        }
        let gain = match (self.calm > 0, is_full) {
            (true, true) => DRAINING_GAIN,
            (true, false) if self.clear > 1 => RISING_GAIN,
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
        self.announce(UNLIMITED)
    }

    fn announce(&mut self, rate: u64) -> Option<BitRate> {
        let limit = self.limit.map_or(UNLIMITED, BitRate::bits_per_second);
        let rate = rate.min(limit);
        let notable = self.rate / NOTABLE;
        // The leg started at the configured limit, so that rate is already in force.
        let known = self.rate.min(limit);
        if rate == known || (rate != limit && rate.abs_diff(known) < notable) {
            return None;
        }
        self.rate = rate;
        BitRate::from_bits_per_second(rate)
    }
}

/// Bytes of data that have arrived since the beginning of the window, in order or not; `None` where
/// segments are not counted. A peer may send larger segments than it accepts: then the mean size so
/// far is used, which is as exact as losses allow.
fn arrived(inbound: &LegSample, window: &Window) -> Option<u64> {
    let in_all = NonZero::new(u64::from(inbound.data_segments_received))?;
    let mean = inbound.bytes_received.bytes().div_ceil(in_all.get());
    let size = mean.max(u64::from(inbound.segment_size));
    let segments = inbound.data_segments_received.wrapping_sub(window.arrived);
    Some(u64::from(segments).saturating_mul(size))
}

/// Bytes that the leg has sent so far, retransmissions not counted.
fn forwarded(outbound: &LegSample) -> u64 {
    let in_flight = u64::from(outbound.unacknowledged) * u64::from(outbound.segment_size);
    outbound
        .bytes_acknowledged
        .bytes()
        .saturating_add(in_flight)
}

/// Whether the path or the peer limits what is sent, and not a lack of data or pacing.
pub(crate) fn is_path_limited(outbound: &LegSample) -> bool {
    let in_flight = u64::from(outbound.unacknowledged);
    let window = u64::from(outbound.congestion_window)
        .min(outbound.peer_window / u64::from(outbound.segment_size.max(1)));
    outbound.not_sent.bytes() > 0 && in_flight * 10 >= window * 9
}

/// Whether the leg is in slow start: its flights do not show yet how much the path takes.
fn is_growing(outbound: &LegSample) -> bool {
    let window = outbound.congestion_window;
    outbound
        .slow_start_threshold
        .is_none_or(|threshold| window < threshold)
}

/// Whether the round-trip time is notably above its minimum.
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
