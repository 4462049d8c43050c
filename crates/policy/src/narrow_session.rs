//! A session whose policy also decides on a narrow or long client leg, as one [`Policy`]: for callers
//! that have one policy for each session and read both legs at once.

use std::net::IpAddr;

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::automatic_ahead::{AcceptedLeg, AutomaticAhead, LONG_HANDSHAKE};
use crate::congestion::Reason;
use crate::initial_window::{may_be_raised, raised_window};
use crate::learned_start::LearnedStart;
use crate::leave_alone::Passage;
use crate::memory_share::{Bounding, DirectionMemory, MemoryShare};
use crate::narrow_leg::{NarrowClient, NarrowLeg};
use crate::{
    Admission, Buffer, Decision, KnowledgeParts, Leg, LegDecision, Policy, Request, SessionId,
    SessionSample, Start,
};

/// Time until the first reading of the leg, before data flows.
const FIRST_LOOK: TimeSpan = TimeSpan::from_milliseconds(1);

/// The [`NarrowLeg`] of one client, wrapped around the policy that chose it and decides everything
/// else.
pub struct NarrowSession {
    inner: Box<dyn Policy + Send>,
    leg: NarrowLeg,
    client: NarrowClient,
    /// The round trip of the leg's handshake, if it is known.
    round_trip: Option<TimeSpan>,
    announced: Option<ByteSize>,
    interval: TimeSpan,
    /// When the inner policy last got a sample.
    shown: Option<Time>,
}

impl NarrowSession {
    /// A session of this client, about which `inner` decides. Data may be sent ahead of its window
    /// without a profile if the `round_trip` of the handshake is given.
    #[must_use]
    pub fn new(
        mut inner: Box<dyn Policy + Send>,
        client: NarrowClient,
        round_trip: Option<TimeSpan>,
    ) -> Self {
        Self {
            leg: inner.narrow(&client),
            inner,
            client,
            round_trip,
            announced: None,
            interval: FIRST_LOOK,
            shown: None,
        }
    }

    /// The lower one of a rate and that of the narrow leg.
    fn paced(&self, rate: Option<BitRate>) -> Option<BitRate> {
        let narrow = self.leg.start().pacing_rate;
        rate.into_iter().chain(narrow).min()
    }

    /// Whether the inner policy is due for a sample. It expects samples at its own interval, and
    /// this leg is read more often.
    fn is_due(&self, now: Time, session: SessionId) -> bool {
        match (self.inner.sampling_interval(session), self.shown) {
            (Some(interval), Some(shown)) => now.since(shown) >= interval,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Decides on the leg, by what earlier sessions of the client have left.
    fn begin(
        &mut self,
        now: Time,
        client: IpAddr,
        bound: Option<u32>,
        known: &mut dyn KnowledgeParts,
    ) {
        let accepted = self.round_trip.map(|round_trip| AcceptedLeg {
            round_trip,
            window: self.client.window,
            window_scale: self.client.window_scale,
            segment_size: self.client.segment_size,
        });
        let inner = &mut self.inner;
        let ahead = accepted.and_then(|leg| inner.ahead(now, client, &leg, known));
        self.leg = inner.narrow(&NarrowClient {
            ahead,
            bound,
            ..self.client.clone()
        });
    }

    fn narrow(&mut self, now: Time, sample: &SessionSample, decision: &mut LegDecision) {
        let changes = self.leg.handle_sample(now, &sample.client);
        decision.slow_start_again |= changes.slow_start_again;
        let size = changes.segment_size.map(u64::from);
        decision.segment_size = size.map(ByteSize::from_bytes).or(decision.segment_size);
        let cap = self.leg.cap();
        if cap != self.announced {
            self.announced = cap;
            decision.in_flight_cap = cap;
        }
        if let Some(next) = self.leg.poll_timeout(now) {
            self.interval = next.since(now);
        }
    }
}

impl Policy for NarrowSession {
    fn admit(&mut self, now: Time, request: &Request) -> Admission {
        self.inner.admit(now, request)
    }

    fn passage(
        &mut self,
        now: Time,
        request: &Request,
        repetitions: u32,
        known: &mut dyn KnowledgeParts,
    ) -> Passage {
        self.inner.passage(now, request, repetitions, known)
    }

    fn window(
        &mut self,
        now: Time,
        request: &Request,
        windows: &[u32],
        known: &mut dyn KnowledgeParts,
    ) -> Option<LearnedStart> {
        let start = self.inner.window(now, request, windows, known)?;
        // The handshake is over here. In the real proxy it is not: there, the kernel raises the window after it.
        let is_long = self.round_trip.is_some_and(|it| it >= LONG_HANDSHAKE);
        let most = windows.iter().copied().max().unwrap_or(start.window);
        let is_raised = is_long && self.inner.sends_ahead() && may_be_raised(start.window, most);
        Some(match is_raised {
            true => start.raised(raised_window(most)),
            false => start,
        })
    }

    fn start(
        &mut self,
        now: Time,
        request: &Request,
        window: Option<LearnedStart>,
        known: &mut dyn KnowledgeParts,
    ) -> Start {
        let mut start = self.inner.start(now, request, window, known);
        let bound = window.and_then(|start| start.bound);
        self.begin(now, request.client.ip(), bound, known);
        let leg = &mut start.client;
        let narrow = self.leg.start();
        if let Some(ceiling) = narrow.segment_ceiling {
            leg.segment_ceiling = Some(ByteSize::from_bytes(u64::from(ceiling)));
            leg.oversized_start = self.client.start;
            leg.pacing_rate = self.paced(leg.pacing_rate);
        }
        if narrow.added_scale > 0 {
            leg.window_scale = Some(self.client.window_scale + narrow.added_scale);
        }
        if let Some(size) = narrow.send_buffer {
            leg.send_buffer = Buffer::Fixed(size);
        }
        start
    }

    fn sample(
        &mut self,
        now: Time,
        sample: &SessionSample,
        known: &mut dyn KnowledgeParts,
    ) -> Decision {
        let mut decision = match self.is_due(now, sample.session) {
            true => {
                self.shown = Some(now);
                self.inner.sample(now, sample, known)
            }
            false => Decision::default(),
        };
        if let Some(is_allowed) = decision.client.ahead_allowed {
            self.leg.set_ahead_allowed(is_allowed);
        }
        self.narrow(now, sample, &mut decision.client);
        decision.client.pacing_rate = decision
            .client
            .pacing_rate
            .and_then(|rate| self.paced(Some(rate)));
        decision
    }

    fn end(&mut self, now: Time, sample: &SessionSample, known: &mut dyn KnowledgeParts) {
        let sample = SessionSample {
            ahead: self.leg.ahead_record(),
            ..*sample
        };
        self.inner.end(now, &sample, known);
    }

    fn lose(&mut self, session: SessionId) {
        self.inner.lose(session);
    }

    fn ahead(
        &mut self,
        now: Time,
        client: IpAddr,
        leg: &AcceptedLeg,
        known: &mut dyn KnowledgeParts,
    ) -> Option<AutomaticAhead> {
        self.inner.ahead(now, client, leg, known)
    }

    fn sends_ahead(&self) -> bool {
        self.inner.sends_ahead()
    }

    fn bound(&self, share: &MemoryShare, direction: &DirectionMemory) -> Bounding {
        self.inner.bound(share, direction)
    }

    fn reason(&self, session: SessionId, leg: Leg) -> Reason {
        self.inner.reason(session, leg)
    }

    fn sampling_interval(&self, session: SessionId) -> Option<TimeSpan> {
        let inner = self.inner.sampling_interval(session);
        let own = self.leg.is_read().then_some(self.interval);
        inner.into_iter().chain(own).min()
    }
}
