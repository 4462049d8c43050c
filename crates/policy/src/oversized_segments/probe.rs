//! When oversized segments are used: never at the price of a broken client.

use std::sync::Arc;

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use super::{Measured, Verdict};
use crate::{LegDecision, LegSample};

/// Segments of the normal size that the client must have acknowledged before a probe.
const FLOWING: u64 = 2;
/// Probes that may be lost before the client is left alone.
const PROBES: u8 = 2;
/// Returns to the normal size before a session stays there.
const FALLBACKS: u8 = 3;
/// Wait after the first lost probe or return; doubled each time.
const PAUSE: TimeSpan = TimeSpan::from_seconds(1);
/// Between two readings while a probe is under way or the window is held down.
const CLOSE_LOOK: (TimeSpan, TimeSpan) = (
    TimeSpan::from_milliseconds(2),
    TimeSpan::from_milliseconds(20),
);
/// Otherwise: a time-out takes 200 ms or more.
const LOOK: TimeSpan = TimeSpan::from_milliseconds(50);

/// Something worth counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An oversized segment is sent to see whether it arrives.
    Probed,
    /// It was acknowledged, or the client was known to take it: oversized segments from now on.
    Raised,
    /// It was lost.
    ProbeLost,
    /// Oversized segments went unanswered for a time-out.
    FellBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Segments of the client's own size, until data flows.
    Own,
    /// Nothing more is written until all that was is acknowledged, so that the probe is alone.
    Draining { size: u32 },
    /// One oversized segment is under way, or about to be.
    Probing {
        size: u32,
        /// Bytes that had been acknowledged, and segments that had been sent, before.
        acknowledged_before: u64,
        segments_before: u32,
    },
    /// Oversized segments.
    Raised { size: u32 },
    /// The client's own size for a while.
    Pausing { until: Time },
    /// The client's own size for good.
    Ended,
}

/// The segment size of one leg towards a client, while data flows.
///
/// It starts at the client's own segment size. Once data flows and all of it is acknowledged, one
/// oversized segment is sent and nothing after it ([`LegDecision::in_flight_cap`]); when it is acknowledged the size is raised,
/// when a time-out passes it is taken back. Until the kernel's congestion window is the smaller
/// limit, what is in flight is bounded in bytes, not in segments (RFC 3465), so that a larger
/// segment takes no larger share.
///
/// | kind | calls |
/// | --- | --- |
/// | input | [`handle_sample`](Self::handle_sample), which returns what is to change |
/// | output | [`poll_event`](Self::poll_event) until `None`; [`poll_timeout`](Self::poll_timeout): when to read the leg again, while data is under way |
/// | getters | [`holds_to_fill`](Self::holds_to_fill), [`verdict`](Self::verdict), [`size`](Self::size) |
#[derive(Debug, Clone)]
pub struct OversizedSegments {
    sizes: Arc<[u32]>,
    downstream: Option<BitRate>,
    upstream: Option<BitRate>,
    own: u32,
    state: State,
    /// Bytes that may be in flight before anything is acknowledged; `None` until the first sample.
    initial: Option<u64>,
    /// The in-flight cap now, 0 where nothing may be written; `None` where the kernel's congestion window is the smaller limit.
    cap: Option<u64>,
    lost_probes: u8,
    fallbacks: u8,
    round_trip: TimeSpan,
    delivered: Option<BitRate>,
    verdict: Option<Verdict>,
    known: bool,
    event: Option<Event>,
}

impl OversizedSegments {
    /// For a client whose own segment size is `own` bytes. `sizes` are those that may be used,
    /// ascending; rates are those of the access link as far as they are known. A client known to
    /// take oversized segments needs no probe; one known to refuse them gets none; of one in doubt
    /// a single lost probe more decides, so that short sessions come to a verdict together.
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
            known: known == Some(Verdict::Takes),
            event: None,
        }
    }

    /// The segment size at present, in bytes of data.
    #[must_use]
    pub const fn size(&self) -> u32 {
        match self.state {
            State::Probing { size, .. } | State::Raised { size } => size,
            State::Own | State::Draining { .. } | State::Pausing { .. } | State::Ended => self.own,
        }
    }

    /// Whether segments are larger than the client's own.
    #[must_use]
    pub const fn is_oversized(&self) -> bool {
        matches!(self.state, State::Probing { .. } | State::Raised { .. })
    }

    /// Whether data is to wait until it fills a segment (Hasegawa §3: Nagle).
    #[must_use]
    pub const fn holds_to_fill(&self) -> bool {
        self.is_oversized()
    }

    /// What this leg has shown of its client, if anything.
    #[must_use]
    pub const fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// What has happened since the last call.
    pub const fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// When to read the leg again, while data is under way; `None` when nothing will change.
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

    /// Takes in a reading of the leg; what is to change on it.
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
            ..LegDecision::default()
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
            State::Probing { .. } if sample.timeouts_pending > 0 => self.lose_probe(now),
            State::Probing {
                size,
                acknowledged_before,
                segments_before,
            } => {
                let arrived = acknowledged.saturating_sub(acknowledged_before);
                if arrived < u64::from(size) {
                    return;
                }
                let segments = sample.segments_sent.wrapping_sub(segments_before);
                // Those that have arrived: on the average larger than the client's own size only
                // where one of them was.
                let segments = u64::from(segments.saturating_sub(sample.unacknowledged));
                // Too little data came at a time to fill a segment: nothing is known.
                if segments == 0 || arrived <= segments * u64::from(self.own) {
                    self.state = State::Own;
                    return;
                }
                self.verdict = Some(Verdict::Takes);
                self.raise(size);
            }
            State::Raised { .. } if sample.timeouts_pending > 0 => self.fall_back(now),
            State::Raised { size } => match self.choose(sample) {
                // Only down: loss has shown, or the window has shrunk.
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
            sent: sample.segments_sent,
            sent_again: sample.segments_retransmitted,
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
        self.state = State::Probing {
            size,
            acknowledged_before: sample.bytes_acknowledged.bytes(),
            segments_before: sample.segments_sent,
        };
        self.event = Some(Event::Probed);
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
        // What was known may no longer hold.
        self.known = false;
        self.verdict = None;
        if self.fallbacks >= FALLBACKS {
            self.state = State::Ended;
        } else {
            self.pause(self.fallbacks, now);
        }
    }

    fn pause(&mut self, count: u8, now: Time) {
        let pause = PAUSE * (1 << (count - 1).min(8));
        self.state = State::Pausing { until: now + pause };
    }

    /// Sets the in-flight cap: that of the probe, or slow start counted in bytes.
    fn bound(&mut self, sample: &LegSample) {
        match self.state {
            State::Draining { .. } => {
                self.cap = Some(0);
                return;
            }
            State::Probing { size, .. } => {
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
        // After a loss the kernel's window follows what was in flight.
        let is_over = counted >= kernel || sample.slow_start_threshold.is_some();
        let may_end = matches!(self.state, State::Raised { .. } | State::Ended);
        self.cap = (!(is_over && may_end)).then_some(counted);
    }
}

/// Bytes written and not acknowledged, rounded up to segments.
fn outstanding(sample: &LegSample) -> u64 {
    u64::from(sample.unacknowledged) * u64::from(sample.segment_size) + sample.not_sent.bytes()
}
