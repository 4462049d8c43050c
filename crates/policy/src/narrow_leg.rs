//! A leg towards a client behind a narrow upstream, or behind a long leg: oversized segments and
//! sending ahead together (Hasegawa), for any caller that has a socket, real or simulated.

use std::sync::Arc;

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};
use serde::{Deserialize, Serialize};

use crate::ahead_history::AheadRecord;
use crate::automatic_ahead::{AheadState, AutomaticAhead};
use crate::bounded_start::BoundedStart;
use crate::oversized_segments::{
    Event, Measured, OversizedSegments, OversizedStart, SegmentSizes, Verdict,
};
use crate::sending_ahead::{SendAhead, SendingAhead};
use crate::{AccessLink, LegSample};

/// A client with a known access link, or behind a long leg, before it is sent anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NarrowClient {
    /// Its access link.
    pub access: AccessLink,
    /// The client's own segment size, in bytes of data.
    pub segment_size: u32,
    /// The window that the client advertised, in bytes.
    pub window: u64,
    /// The agreed window scale, in bits.
    pub window_scale: u8,
    /// The sizes of segments that the caller can send to it, in bytes of data, ascending. Those up
    /// to the client's own size are ignored.
    pub sizes: Arc<[u32]>,
    /// How the leg gets to oversized segments.
    pub start: OversizedStart,
    /// The verdict of earlier sessions on the client.
    pub verdict: Option<Verdict>,
    /// The decision on sending ahead, where the access link's own does not replace it.
    pub ahead: Option<AutomaticAhead>,
    /// Segments of its first flight, if it has the initial window of a bounded start.
    pub bound: Option<u32>,
}

impl NarrowClient {
    /// Whether a segment above the client's own size may be sent.
    fn has_use_for_sizes(&self) -> bool {
        let is_larger = |size: &u32| *size > self.segment_size;
        self.access.oversized_segments != SegmentSizes::Off
            && self.verdict != Some(Verdict::Refuses)
            && self.sizes.iter().any(is_larger)
    }

    /// The largest segment that the leg may reach. The paper's ways measure nothing beforehand, so
    /// they use the size for a path without loss.
    fn ceiling(&self) -> Option<u32> {
        if !self.has_use_for_sizes() {
            return None;
        }
        if self.start == OversizedStart::Probe {
            return self.sizes.last().copied();
        }
        let unmeasured = Measured {
            own: self.segment_size,
            downstream: self.access.downstream,
            upstream: self.access.upstream,
            window: ByteSize::from_bytes(u64::MAX),
            sent: 0,
            sent_again: 0,
            sent_size: self.segment_size,
            round_trip: TimeSpan::ZERO,
        };
        unmeasured.choose(&self.sizes)
    }
}

/// How a leg towards a narrow client is set up before its first byte. `None`: nothing is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NarrowStart {
    /// The largest segment that it may ever send, in bytes of data.
    pub segment_ceiling: Option<u32>,
    /// Bits that are added to the scale with which the client's window is read.
    pub added_scale: u8,
    /// The window in bytes that holds until the client advertises the next one; `None`: the one that
    /// it has advertised.
    pub window: Option<u64>,
    /// Its send buffer.
    pub send_buffer: Option<ByteSize>,
    /// It is paced at no higher rate, whatever else is decided: a burst of oversized segments
    /// overflows the access link's queue in fragments, and one lost fragment costs a whole segment.
    /// The paper's ways do not pace.
    pub pacing_rate: Option<BitRate>,
}

/// The changes that follow from a reading of a narrow leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NarrowDecision {
    /// Segment size from now on, in bytes of data.
    pub segment_size: Option<u32>,
    /// The slow-start threshold is set to infinity again.
    pub slow_start_again: bool,
    /// The event, if one happened that is worth counting.
    pub event: Option<Event>,
    /// A verdict on the client that this leg has just reached.
    pub verdict: Option<Verdict>,
}

/// A leg without an access profile that another process continues: part of the format in which relays hand
/// sessions over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeptLeg {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    automatic: Option<AutomaticAhead>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bounded: Option<BoundedStart>,
}

impl KeptLeg {
    /// Whether a leg can be in this state.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let automatic = self.automatic.as_ref();
        automatic.is_none_or(AutomaticAhead::is_possible)
    }
}

/// Decides on one leg towards a narrow client.
///
/// | kind | calls |
/// | --- | --- |
/// | before the first byte | [`start`](Self::start) |
/// | input | [`handle_sample`](Self::handle_sample) and [`handle_end`](Self::handle_end), which return what changes; [`set_ahead_allowed`](Self::set_ahead_allowed), [`handle_shortage`](Self::handle_shortage) |
/// | output | [`cap`](Self::cap), or [`cap_within_window`](Self::cap_within_window) and [`write_limit`](Self::write_limit); [`poll_timeout`](Self::poll_timeout): when to read the leg again, while data is in flight |
/// | getters | [`is_read`](Self::is_read), [`segment_size`](Self::segment_size), [`is_oversized`](Self::is_oversized), [`sending_ahead_losses`](Self::sending_ahead_losses), [`ahead_state`](Self::ahead_state), [`ahead_record`](Self::ahead_record) |
#[derive(Debug)]
pub struct NarrowLeg {
    start: NarrowStart,
    oversized: Option<OversizedSegments>,
    /// The cap of oversized segments, which only reports its changes.
    segments_cap: Option<ByteSize>,
    ahead: Option<SendingAhead>,
    /// The window that sending ahead assumes.
    wanted: ByteSize,
    /// Sending ahead without a profile.
    automatic: Option<AutomaticAhead>,
    bounded: Option<BoundedStart>,
}

impl NarrowLeg {
    /// For a client that has been sent nothing.
    #[must_use]
    pub fn new(client: &NarrowClient) -> Self {
        let access = &client.access;
        let (downstream, upstream) = (access.downstream, access.upstream);
        let is_probed = client.start == OversizedStart::Probe;
        let segment_ceiling = client.ceiling();
        let automatic = client.ahead.clone();
        let automatic = automatic.filter(|_| access.send_ahead == SendAhead::Off);
        let added_scale = match &automatic {
            Some(automatic) => automatic.added_scale(),
            None => (access.send_ahead).added_scale(client.window, client.window_scale),
        };
        let oversized = segment_ceiling.filter(|_| is_probed).map(|_| {
            let sizes = Arc::clone(&client.sizes);
            let own = client.segment_size;
            OversizedSegments::new(sizes, own, downstream, upstream, client.verdict)
        });
        let (send_buffer, wanted) = match access.send_ahead {
            SendAhead::Off => (None, None),
            SendAhead::Wso(size) => (Some(size), None),
            SendAhead::Ahead(window) => (None, Some(window).filter(|_| added_scale > 0)),
        };
        Self {
            start: NarrowStart {
                segment_ceiling,
                added_scale,
                window: (automatic.as_ref()).map(AutomaticAhead::scaled_window),
                send_buffer,
                pacing_rate: downstream.filter(|_| oversized.is_some()),
            },
            oversized,
            segments_cap: None,
            ahead: wanted.map(|window| SendingAhead::new(window, added_scale)),
            wanted: wanted.unwrap_or_default(),
            automatic,
            bounded: (client.bound)
                .map(|segments| BoundedStart::new(segments, client.segment_size)),
        }
    }

    /// What another process needs to continue the leg; `None` if measures of an access profile are in use.
    #[must_use]
    pub fn kept(&self) -> Option<KeptLeg> {
        let is_plain = self.oversized.is_none() && self.ahead.is_none();
        is_plain.then(|| KeptLeg {
            automatic: self.automatic.clone(),
            bounded: self.bounded.clone(),
        })
    }

    /// Continues the leg of another process.
    #[must_use]
    pub fn continued(kept: KeptLeg) -> Self {
        let KeptLeg { automatic, bounded } = kept;
        let added_scale = automatic.as_ref().map_or(0, AutomaticAhead::added_scale);
        Self {
            start: NarrowStart {
                added_scale,
                ..NarrowStart::default()
            },
            oversized: None,
            segments_cap: None,
            ahead: None,
            wanted: ByteSize::default(),
            automatic,
            bounded,
        }
    }

    /// How the leg is set up before its first byte.
    #[must_use]
    pub const fn start(&self) -> NarrowStart {
        self.start
    }

    /// Whether the leg is to be read while data flows.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        self.oversized.is_some()
            || self.ahead.is_some()
            || self.automatic.is_some()
            || self.bounded.is_some()
    }

    /// Whether data may be sent ahead without a profile, and a bounded start may use the rate that it
    /// has measured; from the next reading on.
    pub fn set_ahead_allowed(&mut self, is_allowed: bool) {
        if let Some(automatic) = &mut self.automatic {
            automatic.set_allowed(is_allowed);
        }
        if let Some(bounded) = &mut self.bounded {
            bounded.set_allowed(is_allowed);
        }
    }

    /// Takes a reading of the leg; returns the changes, apart from that of the
    /// [cap](Self::cap).
    pub fn handle_sample(&mut self, now: Time, sample: &LegSample) -> NarrowDecision {
        if let Some(ahead) = &mut self.ahead {
            ahead.handle_sample(now, sample);
        }
        if let Some(automatic) = &mut self.automatic {
            automatic.handle_sample(now, sample);
        }
        if let Some(bounded) = &mut self.bounded {
            bounded.handle_sample(now, sample);
        }
        let Some(oversized) = &mut self.oversized else {
            return NarrowDecision::default();
        };
        let before = oversized.verdict();
        let changes = oversized.handle_sample(now, sample);
        self.segments_cap = changes.in_flight_cap.or(self.segments_cap);
        NarrowDecision {
            segment_size: changes.segment_size.map(|_| oversized.size()),
            slow_start_again: changes.slow_start_again,
            ..Self::events(oversized, before)
        }
    }

    /// Takes the last reading of a leg that ends.
    pub fn handle_end(&mut self, now: Time, sample: &LegSample) -> NarrowDecision {
        if let Some(automatic) = &mut self.automatic {
            automatic.handle_sample(now, sample);
        }
        let Some(oversized) = &mut self.oversized else {
            return NarrowDecision::default();
        };
        let before = oversized.verdict();
        oversized.handle_end(now, sample);
        Self::events(oversized, before)
    }

    fn events(oversized: &mut OversizedSegments, before: Option<Verdict>) -> NarrowDecision {
        let verdict = oversized.verdict().filter(|found| before != Some(*found));
        NarrowDecision {
            event: oversized.poll_event(),
            verdict,
            ..NarrowDecision::default()
        }
    }

    /// Largest number of bytes that may be sent and not acknowledged, as far as anything was decided
    /// about it.
    #[must_use]
    pub fn cap(&self) -> Option<ByteSize> {
        let ahead = self.ahead.as_ref().map(SendingAhead::cap);
        let all = self.segments_cap.into_iter().chain(ahead);
        all.chain(self.automatic_cap()).min()
    }

    /// The lower one of the caps of sending ahead without a profile and of a bounded start; the largest
    /// number of bytes while there is none.
    fn automatic_cap(&self) -> Option<ByteSize> {
        let ahead = self.automatic.as_ref().map(AutomaticAhead::cap);
        let bounded = self.bounded.as_ref().map(BoundedStart::bound);
        let caps = ahead.into_iter().chain(bounded);
        caps.map(|cap| cap.unwrap_or(ByteSize::from_bytes(u64::MAX)))
            .min()
    }

    /// The same for a sender that keeps to the client's window as it reads it, so that it needs no
    /// cap while the whole window for sending ahead is allowed, and that observes the [write
    /// limit](Self::write_limit).
    #[must_use]
    pub fn cap_within_window(&self) -> Option<ByteSize> {
        let ahead = self.ahead.as_ref().map(SendingAhead::cap);
        let ahead = ahead.filter(|cap| *cap != self.wanted);
        let bounded = self.bounded.as_ref().and_then(BoundedStart::bound);
        let all = self.segments_cap.into_iter().chain(ahead);
        all.chain(bounded)
            .min()
            .filter(|cap| cap.bytes() != u64::MAX)
    }

    /// Largest number of bytes that may have been written to the leg since it began, acknowledged ones
    /// included: the limit of sending ahead without a profile. `None`: no limit.
    #[must_use]
    pub fn write_limit(&self) -> Option<u64> {
        self.automatic
            .as_ref()
            .and_then(AutomaticAhead::write_limit)
    }

    /// When to read the leg again, while data is in flight; `None` if nothing will change.
    #[must_use]
    pub fn poll_timeout(&self, now: Time) -> Option<Time> {
        let oversized = self.oversized.as_ref();
        let oversized = oversized.and_then(|state| state.poll_timeout(now));
        let ahead = self.ahead.as_ref().map(|state| state.poll_timeout(now));
        let automatic = self.automatic.as_ref();
        let automatic = automatic.map(|state| state.poll_timeout(now));
        let bounded = self.bounded.as_ref();
        let bounded = bounded.and_then(|state| state.poll_timeout(now));
        let all = oversized.into_iter().chain(ahead);
        all.chain(automatic).chain(bounded).min()
    }

    /// The present segment size in bytes of data; `None` where it is always the client's own.
    #[must_use]
    pub fn segment_size(&self) -> Option<u32> {
        self.oversized.as_ref().map(OversizedSegments::size)
    }

    /// Whether segments are larger than the client's own, and data waits until it fills one
    /// (Hasegawa §3: Nagle).
    #[must_use]
    pub fn is_oversized(&self) -> bool {
        let oversized = self.oversized.as_ref();
        oversized.is_some_and(OversizedSegments::holds_to_fill)
    }

    /// How often a loss has reduced the leg to the client's true window.
    #[must_use]
    pub fn sending_ahead_losses(&self) -> u32 {
        let by_profile = self.ahead.as_ref().map_or(0, SendingAhead::losses);
        by_profile + u32::from(self.ahead_record().has_failed)
    }

    /// The state of sending ahead without a profile; `None` where there is none.
    #[must_use]
    pub fn ahead_state(&self) -> Option<AheadState> {
        self.automatic.as_ref().map(AutomaticAhead::state)
    }

    /// What sending ahead without a profile has found out.
    #[must_use]
    pub fn ahead_record(&self) -> AheadRecord {
        let automatic = self.automatic.as_ref();
        automatic.map_or_else(AheadRecord::default, AutomaticAhead::record)
    }

    /// Memory is short: without a profile, nothing is sent ahead any more.
    pub const fn handle_shortage(&mut self) {
        if let Some(automatic) = &mut self.automatic {
            automatic.handle_shortage();
        }
    }
}
