//! When oversized segments are used, without ever breaking a client.

use std::sync::Arc;

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use super::{Measured, Verdict};
use crate::{LegDecision, LegSample};

/// Segments of normal size that the client must have acknowledged before a probe.
const FLOWING: u64 = 2;
/// How many probes may be lost before the client is left alone.
const PROBES: u8 = 2;
/// After this many returns to the normal size, a session stays there.
const FALLBACKS: u8 = 3;
/// Least pause after the first lost probe or the first return, as a time and in round trips; each
/// further one doubles it.
const PAUSE: TimeSpan = TimeSpan::from_seconds(1);
const PAUSE_ROUND_TRIPS: u64 = 16;
/// Shortest and longest time between two readings while a probe is in flight or the window is
/// bounded.
const CLOSE_LOOK: (TimeSpan, TimeSpan) = (
    TimeSpan::from_milliseconds(2),
    TimeSpan::from_milliseconds(20),
);
/// Time between two readings otherwise: a time-out takes 200 ms or more.
const LOOK: TimeSpan = TimeSpan::from_milliseconds(50);

/// An event that is worth counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An oversized segment is sent to test whether it arrives.
    Probed,
    /// The probe was acknowledged, or the client is known to accept them: segments are oversized
    /// from now on.
    Raised,
    /// The probe was lost.
    ProbeLost,
    /// Oversized segments stayed unacknowledged for a time-out.
    FellBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Segments of the client's own size, until data flows.
    Own,
    /// Nothing more is written until everything is acknowledged, so that the probe is alone in
    /// flight.
    Draining { size: u32 },
    /// One oversized segment is about to be sent.
    Probing(Probe),
    /// The probe has left. Segments are of the client's own size again, so that already the
    /// kernel's first retransmission is.
    Awaiting(Probe),
    /// Segments are oversized.
    Raised { size: u32 },
    /// Segments are of the client's own size for a while.
    Pausing { until: Time },
    /// Segments are of the client's own size for good.
    Ended,
}

/// An oversized segment that is sent alone, and the state of the leg before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Probe {
    size: u32,
    acknowledged_before: u64,
    segments_before: u32,
    sent_again_before: u32,
    /// The leg was still in its first slow start.
    in_first_slow_start: bool,
}

/// The result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Not all bytes of the probe are acknowledged.
    Open,
    /// Too little data came at a time to fill the segment: the result is unknown.
    Unsent,
    Arrived,
    Lost,
}

impl Probe {
    const fn sent_again(self, sample: &LegSample) -> u32 {
        (sample.segments_retransmitted).wrapping_sub(self.sent_again_before)
    }

    fn outcome(self, own: u32, sample: &LegSample) -> Outcome {
        let acknowledged = sample.bytes_acknowledged.bytes();
        let arrived = acknowledged.saturating_sub(self.acknowledged_before);
        // It is also open while a time-out waits for its answer.
        if arrived < u64::from(self.size) || sample.timeouts_pending > 0 {
            return Outcome::Open;
        }
        let sent = sample.segments_sent.wrapping_sub(self.segments_before);
        let again = self.sent_again(sample);
        // Segments that arrived at their first transmission. Their mean exceeds the client's own
        // size only if one of them was oversized.
        let first = sent
            .saturating_sub(again)
            .saturating_sub(sample.unacknowledged);
        if first == 0 || arrived <= u64::from(first) * u64::from(own) {
            return Outcome::Unsent;
        }
        // One retransmission may be a tail loss probe for a late answer (RFC 8985 §7); a lost
        // oversized segment takes at least two.
        match again {
            0 | 1 => Outcome::Arrived,
            _ => Outcome::Lost,
        }
    }
}

/// The segment size of one leg towards a client, while data flows.
///
/// The leg starts at the client's own segment size. Once data flows and all of it is acknowledged, one
/// oversized segment is sent as a probe and nothing after it ([`LegDecision::in_flight_cap`]). As soon as the
/// probe has left, the size is the client's own again, so if the probe is lost, its bytes are sent again in
/// segments of the client's own size. A lost probe is no sign of congestion, so slow start continues as
/// before ([`LegDecision::slow_start_again`]). If the probe is acknowledged with at most one retransmission,
/// which may be a tail loss probe (RFC 8985 §7), the size is raised. A later time-out takes it back. A client
/// that is known to accept oversized segments needs no probe. Until the kernel's
/// congestion window is the smaller limit, data in flight is bounded in bytes, not in segments (RFC
/// 3465), so that larger segments take no larger share of the path.
///
/// | kind | calls |
/// | --- | --- |
/// | input | [`handle_sample`](Self::handle_sample), which returns what is to change; [`handle_end`](Self::handle_end) |
/// | output | [`poll_event`](Self::poll_event) until `None`; [`poll_timeout`](Self::poll_timeout): when to read the leg again, while data is in flight |
/// | getters | [`is_oversized`](Self::is_oversized), [`holds_to_fill`](Self::holds_to_fill), [`verdict`](Self::verdict), [`size`](Self::size) |
#[derive(Debug, Clone)]
pub struct OversizedSegments {
    sizes: Arc<[u32]>,
    downstream: Option<BitRate>,
    upstream: Option<BitRate>,
    own: u32,
    state: State,
    /// Bytes that may be in flight before any acknowledgement; `None` until the first sample.
    initial: Option<u64>,
    /// The present in-flight cap in bytes; 0: nothing may be written; `None`: the kernel's
    /// congestion window is the smaller limit.
    cap: Option<u64>,
    lost_probes: u8,
    fallbacks: u8,
    round_trip: TimeSpan,
    delivered: Option<BitRate>,
    verdict: Option<Verdict>,
    known: bool,
    event: Option<Event>,
    slow_start_again: bool,
    /// Retransmissions of lost probes, which are no evidence of the path's loss.
    again_for_probes: u32,
}

impl OversizedSegments {
    /// For a client whose own segment size is `own` bytes. `sizes`: the possible sizes, ascending.
    /// The rates are those of the access link, as far as they are known. A client known to accept
    /// oversized segments needs no probe; a client known to refuse them gets none. For a client in
    /// doubt, one more lost probe decides, so that several short sessions together reach a verdict.
    #[must_use]
    pub fn new(
        sizes: Arc<[u32]>,
        own: u32,
        downstream: Option<BitRate>,
        upstream: Option<BitRate>,
        known: Option<Verdict>,
    ) -> Self {
        let is_of_use = known != Some(Verdict::Refuses) && sizes.iter().any(|size| *size > own);
        Self {
            sizes,
            downstream,
            upstream,
            own: own.max(1),
            state: if is_of_use { State::Own } else { State::Ended },
            initial: None,
            cap: None,
            lost_probes: u8::from(known == Some(Verdict::Doubted)),
            fallbacks: 0,
            round_trip: TimeSpan::ZERO,
            delivered: None,
            verdict: None,
            known: known == Some(Verdict::Accepts),
            event: None,
            slow_start_again: false,
            again_for_probes: 0,
        }
    }

    /// The segment size at present, in bytes of data.
    #[must_use]
    pub const fn size(&self) -> u32 {
        match self.state {
            State::Probing(Probe { size, .. }) | State::Raised { size } => size,
            State::Own
            | State::Draining { .. }
            | State::Awaiting(_)
            | State::Pausing { .. }
            | State::Ended => self.own,
        }
    }

    /// Whether segments are larger than the client's own.
    #[must_use]
    pub const fn is_oversized(&self) -> bool {
        matches!(self.state, State::Probing(_) | State::Raised { .. })
    }

    /// Whether data should wait until it fills a segment (Hasegawa §3: Nagle).
    #[must_use]
    pub const fn holds_to_fill(&self) -> bool {
        self.is_oversized()
    }

    /// The verdict on the client from this leg, if there is one.
    #[must_use]
    pub const fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// The event since the last call, if any.
    pub const fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// When to read the leg again, while data is in flight; `None` if nothing will change.
    #[must_use]
    pub fn poll_timeout(&self, now: Time) -> Option<Time> {
        let (least, most) = CLOSE_LOOK;
        let close = TimeSpan::from_nanoseconds(self.round_trip.nanoseconds() / 4);
        let close = close.max(least).min(most);
        match self.state {
            State::Ended if self.cap.is_none() => None,
            State::Pausing { until } if self.cap.is_none() => Some(until.max(now + close)),
            State::Raised { .. } if self.cap.is_none() => Some(now + LOOK),
            _ => Some(now + close),
        }
    }

    /// Takes a reading of the leg; returns what changes on it.
    pub fn handle_sample(&mut self, now: Time, sample: &LegSample) -> LegDecision {
        self.round_trip = sample.round_trip_time.unwrap_or(self.round_trip);
        self.delivered = self.delivered.max(sample.delivery_rate);
        let before = (self.size(), self.cap);
        self.change(now, sample);
        self.bound(sample);
        let bytes = |bytes: u64| ByteSize::from_bytes(bytes);
        LegDecision {
            segment_size: (self.size() != before.0).then(|| bytes(u64::from(self.size()))),
            in_flight_cap: (self.cap != before.1).then(|| bytes(self.cap.unwrap_or(u64::MAX))),
            slow_start_again: std::mem::take(&mut self.slow_start_again),
            ..LegDecision::default()
        }
    }

    /// Takes the last reading of a leg that ends, because the answer to a probe may have come with
    /// the client's FIN. See [`verdict`](Self::verdict) and [`poll_event`](Self::poll_event).
    pub fn handle_end(&mut self, now: Time, sample: &LegSample) {
        if let State::Probing(probe) | State::Awaiting(probe) = self.state {
            self.conclude(now, probe, sample);
        }
    }

    fn change(&mut self, now: Time, sample: &LegSample) {
        let acknowledged = sample.bytes_acknowledged.bytes();
        match self.state {
            State::Own if self.known => {
                if let Some(size) = self.choose(sample) {
                    self.raise(size);
                }
            }
            State::Own => {
                let flows = acknowledged >= FLOWING * u64::from(self.own);
                if let Some(size) = self.choose(sample).filter(|_| flows) {
                    self.probe_when_drained(size, sample);
                }
            }
            State::Draining { size } => self.probe_when_drained(size, sample),
            State::Probing(probe) => {
                let has_left = sample.segments_sent != probe.segments_before;
                if has_left || sample.timeouts_pending > 0 {
                    self.state = State::Awaiting(probe);
                    self.conclude(now, probe, sample);
                }
            }
            State::Awaiting(probe) => self.conclude(now, probe, sample),
            State::Raised { .. } if sample.timeouts_pending > 0 => self.fall_back(now),
            State::Raised { size } => match self.choose(sample) {
                // The size is only reduced: losses occurred, or the window has shrunk.
                Some(better) if better < size => self.state = State::Raised { size: better },
                _ => {}
            },
            State::Pausing { until } if now >= until => self.state = State::Own,
            State::Pausing { .. } | State::Ended => {}
        }
    }

    fn choose(&self, sample: &LegSample) -> Option<u32> {
        let measured = Measured {
            own: self.own,
            downstream: self.downstream.or(self.delivered),
            upstream: self.upstream,
            window: ByteSize::from_bytes(sample.peer_window),
            sent: sample.segments_sent.saturating_sub(self.again_for_probes),
            sent_again: sample
                .segments_retransmitted
                .saturating_sub(self.again_for_probes),
            sent_size: sample.segment_size,
            round_trip: self.round_trip,
        };
        measured.choose(&self.sizes)
    }

    fn probe_when_drained(&mut self, size: u32, sample: &LegSample) {
        if outstanding(sample) > 0 {
            self.state = State::Draining { size };
            return;
        }
        self.state = State::Probing(Probe {
            size,
            acknowledged_before: sample.bytes_acknowledged.bytes(),
            segments_before: sample.segments_sent,
            sent_again_before: sample.segments_retransmitted,
            in_first_slow_start: sample.slow_start_threshold.is_none(),
        });
        self.event = Some(Event::Probed);
    }

    fn conclude(&mut self, now: Time, probe: Probe, sample: &LegSample) {
        match probe.outcome(self.own, sample) {
            Outcome::Open => {}
            Outcome::Unsent => self.state = State::Own,
            Outcome::Arrived => {
                self.verdict = Some(Verdict::Accepts);
                self.raise(probe.size);
            }
            Outcome::Lost => {
                self.slow_start_again =
                    probe.in_first_slow_start && sample.slow_start_threshold.is_some();
                self.again_for_probes =
                    (self.again_for_probes).saturating_add(probe.sent_again(sample));
                self.lose_probe(now);
            }
        }
    }

    fn raise(&mut self, size: u32) {
        self.state = State::Raised { size };
        self.event = Some(Event::Raised);
    }

    fn lose_probe(&mut self, now: Time) {
        self.event = Some(Event::ProbeLost);
        self.lost_probes += 1;
        if self.lost_probes >= PROBES {
            self.verdict = Some(Verdict::Refuses);
            self.state = State::Ended;
        } else {
            self.verdict = Some(Verdict::Doubted);
            self.pause(self.lost_probes, now);
        }
    }

    fn fall_back(&mut self, now: Time) {
        self.event = Some(Event::FellBack);
        self.fallbacks += 1;
        // The former verdict on the client may no longer hold.
        self.known = false;
        self.verdict = None;
        if self.fallbacks >= FALLBACKS {
            self.state = State::Ended;
        } else {
            self.pause(self.fallbacks, now);
        }
    }

    fn pause(&mut self, count: u8, now: Time) {
        let pause = PAUSE.max(self.round_trip * PAUSE_ROUND_TRIPS);
        let pause = pause * (1 << (count - 1).min(8));
        self.state = State::Pausing { until: now + pause };
    }

    /// Sets the in-flight cap: that of the probe, or that of a slow start counted in bytes.
    fn bound(&mut self, sample: &LegSample) {
        match self.state {
            State::Draining { .. } => {
                self.cap = Some(0);
                return;
            }
            State::Probing(Probe { size, .. }) | State::Awaiting(Probe { size, .. }) => {
                self.cap = Some(u64::from(size));
                return;
            }
            _ => {}
        }
        let first = self.initial.is_none();
        let window = u64::from(sample.congestion_window.max(1));
        let initial = *self.initial.get_or_insert(window * u64::from(self.own));
        if first && self.state == State::Ended || !first && self.cap.is_none() {
            return;
        }
        let counted = initial + sample.bytes_acknowledged.bytes();
        let kernel = window * u64::from(self.size());
        // After a loss, the kernel's window follows the data in flight.
        let is_over = counted >= kernel || sample.slow_start_threshold.is_some();
        let may_end = matches!(self.state, State::Raised { .. } | State::Ended);
        self.cap = (!(is_over && may_end)).then_some(counted);
    }
}

/// Bytes written and not acknowledged, rounded up to segments.
fn outstanding(sample: &LegSample) -> u64 {
    u64::from(sample.unacknowledged) * u64::from(sample.segment_size) + sample.not_sent.bytes()
}
