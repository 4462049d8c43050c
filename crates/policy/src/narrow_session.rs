//! A session with oversized segments and sending ahead on its client leg, as a [`Policy`]: for
//! callers that have one leg and only carry out decisions.

use std::sync::Arc;

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::learned_start::LearnedStart;
use crate::oversized_segments::{Measured, OversizedSegments, OversizedStart, Wish};
use crate::sending_ahead::{SendAhead, SendingAhead};
use crate::{
    AccessLink, Admission, Buffer, Decision, Knowledge, LegDecision, Policy, Request,
    SessionSample, Start,
};

/// Time until the first reading of the leg, before data flows.
const FIRST_LOOK: TimeSpan = TimeSpan::from_milliseconds(1);

/// The properties of a client, from the TCP handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The client's own segment size, in bytes of data.
    pub segment_size: u32,
    /// The window that the client advertised, in bytes.
    pub window: u64,
    /// The agreed window scale, in bits.
    pub window_scale: u8,
}

/// Oversized segments and sending ahead towards one client, wrapped around the policy that decides
/// everything else.
pub struct NarrowSession {
    inner: Box<dyn Policy + Send>,
    client: Client,
    access: AccessLink,
    way: OversizedStart,
    /// Sizes that may be used, ascending.
    sizes: Arc<[u32]>,
    oversized: Option<OversizedSegments>,
    ahead: Option<SendingAhead>,
    added_scale: u8,
    /// The in-flight cap of oversized segments, which only reports its changes.
    cap: Option<ByteSize>,
    announced: Option<ByteSize>,
    interval: TimeSpan,
    /// When the inner policy last got a sample.
    shown: Option<Time>,
}

impl NarrowSession {
    /// A session of a client behind `access` that begins with oversized segments in this `way`.
    #[must_use]
    pub fn new(
        inner: Box<dyn Policy + Send>,
        client: Client,
        access: AccessLink,
        way: OversizedStart,
    ) -> Self {
        let wish = access.oversized_segments;
        let mut sizes = wish.sizes(access.downstream, access.upstream);
        sizes.retain(|size| *size > client.segment_size);
        let sizes: Arc<[u32]> = sizes.into();
        let added_scale = access
            .send_ahead
            .added_scale(client.window, client.window_scale);
        let oversized = (way == OversizedStart::Probe && wish != Wish::Off).then(|| {
            OversizedSegments::new(
                sizes.clone(),
                client.segment_size,
                access.downstream,
                access.upstream,
                None,
            )
        });
        let ahead = match access.send_ahead {
            SendAhead::Ahead(window) => Some(SendingAhead::new(window, added_scale)),
            SendAhead::Off | SendAhead::Wso(_) => None,
        };
        Self {
            inner,
            client,
            access,
            way,
            sizes,
            oversized,
            ahead,
            added_scale,
            cap: None,
            announced: None,
            interval: FIRST_LOOK,
            shown: None,
        }
    }

    /// The largest segment that this session may reach. The paper's ways measure nothing
    /// beforehand, so they use the size for a path without loss.
    fn ceiling(&self) -> Option<u32> {
        if self.way == OversizedStart::Probe {
            return self.sizes.last().copied();
        }
        let unmeasured = Measured {
            own: self.client.segment_size,
            downstream: self.access.downstream,
            upstream: self.access.upstream,
            window: ByteSize::from_bytes(u64::MAX),
            sent: 0,
            sent_again: 0,
            sent_size: self.client.segment_size,
            round_trip: TimeSpan::ZERO,
        };
        unmeasured.choose(&self.sizes)
    }

    /// For a leg that may reach oversized segments: the lower one of a rate and the rate of the
    /// access link. A burst of oversized segments overflows the link's queue in fragments, and one
    /// lost fragment costs a whole segment. The paper's ways do not pace.
    fn paced(&self, rate: Option<BitRate>) -> Option<BitRate> {
        let is_probed = self.way == OversizedStart::Probe && self.ceiling().is_some();
        let profile = self.access.downstream.filter(|_| is_probed);
        rate.into_iter().chain(profile).min()
    }

    /// Whether the inner policy is due for a sample. It expects samples at its own interval, and
    /// this leg is read more often.
    fn is_due(&self, now: Time) -> bool {
        match (self.inner.sampling_interval(), self.shown) {
            (Some(interval), Some(shown)) => now.since(shown) >= interval,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    fn narrow(&mut self, now: Time, sample: &SessionSample, decision: &mut LegDecision) {
        let mut next: Option<Time> = None;
        if let Some(oversized) = &mut self.oversized {
            let changes = oversized.handle_sample(now, &sample.client);
            decision.slow_start_again |= changes.slow_start_again;
            decision.segment_size = changes.segment_size.or(decision.segment_size);
            self.cap = changes.in_flight_cap.or(self.cap);
            while oversized.poll_event().is_some() {}
            next = oversized.poll_timeout(now);
        }
        let mut cap = self.cap;
        if let Some(ahead) = &mut self.ahead {
            ahead.handle_sample(now, &sample.client);
            cap = Some(cap.map_or(ahead.cap(), |cap| cap.min(ahead.cap())));
            let at = ahead.poll_timeout(now);
            next = Some(next.map_or(at, |next| next.min(at)));
        }
        if cap != self.announced {
            self.announced = cap;
            decision.in_flight_cap = cap;
        }
        if let Some(next) = next {
            self.interval = next.since(now);
        }
    }
}

impl Policy for NarrowSession {
    fn admit(&mut self, now: Time, request: &Request) -> Admission {
        self.inner.admit(now, request)
    }

    fn start(
        &mut self,
        now: Time,
        request: &Request,
        window: Option<LearnedStart>,
        known: &mut Knowledge,
    ) -> Start {
        let mut start = self.inner.start(now, request, window, known);
        let leg = &mut start.client;
        if let Some(ceiling) = self.ceiling() {
            leg.segment_ceiling = Some(ByteSize::from_bytes(u64::from(ceiling)));
            leg.oversized_start = self.way;
            leg.pacing_rate = self.paced(leg.pacing_rate);
        }
        if self.added_scale > 0 {
            leg.window_scale = Some(self.client.window_scale + self.added_scale);
        }
        if let SendAhead::Wso(size) = self.access.send_ahead {
            leg.send_buffer = Buffer::Fixed(size);
        }
        start
    }

    fn sample(&mut self, now: Time, sample: &SessionSample, known: &mut Knowledge) -> Decision {
        let mut decision = match self.is_due(now) {
            true => {
                self.shown = Some(now);
                self.inner.sample(now, sample, known)
            }
            false => Decision::default(),
        };
        self.narrow(now, sample, &mut decision.client);
        decision.client.pacing_rate = decision
            .client
            .pacing_rate
            .and_then(|rate| self.paced(Some(rate)));
        decision
    }

    fn end(&mut self, now: Time, sample: &SessionSample, known: &mut Knowledge) {
        self.inner.end(now, sample, known);
    }

    fn sampling_interval(&self) -> Option<TimeSpan> {
        let inner = self.inner.sampling_interval();
        let own = (self.oversized.is_some() || self.ahead.is_some()).then_some(self.interval);
        inner.into_iter().chain(own).min()
    }
}
