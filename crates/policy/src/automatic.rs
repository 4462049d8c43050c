//! The policy that sets pacing, buffers and congestion control itself, by what it measures.

use std::collections::BTreeMap;

use midspan_units::{ByteSize, Time, TimeSpan};

use crate::buffers::SendBuffer;
use crate::congestion::{self, BBR, CongestionControl};
use crate::pacing::PacingRate;
use crate::{
    Admission, Buffer, Configured, Decision, Handshake, Leg, LegDecision, LegSample, LegSettings,
    Pacing, PacingBy, Policy, Request, SessionId, SessionSample, SessionSettings, Start,
};

/// How often a session with data under way is sampled.
const SAMPLING_INTERVAL: TimeSpan = TimeSpan::from_milliseconds(100);

impl LegSettings {
    /// Whether something of this leg is left to be found out while data flows.
    #[must_use]
    pub fn is_automatic(&self) -> bool {
        self.pacing != Pacing::Fixed
            || self.send_buffer == Buffer::Adaptive
            || self.congestion_control.as_deref() == Some(congestion::AUTOMATIC)
            || (self.pacing_by == PacingBy::Input && self.pacing_rate.is_some())
    }
}

impl SessionSettings {
    /// Whether something of either leg is left to be found out while data flows.
    #[must_use]
    pub fn is_automatic(&self) -> bool {
        self.client.is_automatic() || self.server.is_automatic()
    }
}

/// What the machine offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offered {
    /// BBR.
    pub bbr: bool,
}

/// Starts legs as configured, and then sets what was left to it.
#[derive(Debug, Clone)]
pub struct Automatic {
    configured: Configured,
    settings: SessionSettings,
    offered: Offered,
    sessions: BTreeMap<SessionId, [LegState; 2]>,
}

/// What is known of what is sent on one leg; `None` where that is configured.
#[derive(Debug, Clone, Copy)]
struct LegState {
    pacing: Option<PacingRate>,
    buffer: Option<SendBuffer>,
    congestion: Option<CongestionControl>,
    is_new: bool,
}

impl Automatic {
    /// A policy for sessions with these settings.
    #[must_use]
    pub fn new(settings: SessionSettings, offered: Offered) -> Self {
        Self {
            configured: Configured::new(settings.clone()),
            settings,
            offered,
            sessions: BTreeMap::new(),
        }
    }

    /// The same, with this handshake; without it, [`Handshake::Early`].
    #[must_use]
    pub fn with_handshake(mut self, handshake: Handshake) -> Self {
        self.configured = self.configured.with_handshake(handshake);
        self
    }

    /// Sessions that are being watched.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
}

/// The policy for these settings: [`Automatic`] where they leave something to it.
#[must_use]
pub fn for_settings(settings: &SessionSettings, offered: Offered) -> Box<dyn Policy + Send> {
    match settings.is_automatic() {
        true => Box::new(Automatic::new(settings.clone(), offered)),
        false => Box::new(Configured::new(settings.clone())),
    }
}

impl Policy for Automatic {
    fn admit(&mut self, now: Time, request: &Request) -> Admission {
        self.configured.admit(now, request)
    }

    fn start(&mut self, now: Time, request: &Request) -> Start {
        self.configured.start(now, request)
    }

    fn sample(&mut self, now: Time, sample: &SessionSample) -> Decision {
        let (settings, offered) = (&self.settings, self.offered);
        let legs = self.sessions.entry(sample.session).or_insert_with(|| {
            [&settings.client, &settings.server].map(|leg| LegState::new(leg, offered))
        });
        let [client, server] = legs;
        Decision {
            client: client.handle_sample(
                now,
                &settings.client,
                (&sample.server, &sample.client),
                sample.held_towards_client,
            ),
            server: server.handle_sample(
                now,
                &settings.server,
                (&sample.client, &sample.server),
                sample.held_towards_server,
            ),
        }
    }

    fn end(&mut self, _now: Time, sample: &SessionSample) {
        self.sessions.remove(&sample.session);
    }

    fn reason(&self, session: SessionId, leg: Leg) -> congestion::Reason {
        let state = self.sessions.get(&session).map(|legs| match leg {
            Leg::Client => &legs[0],
            Leg::Server => &legs[1],
        });
        let control = state.and_then(|state| state.congestion);
        control.map_or_else(Default::default, |control| control.choice().reason)
    }

    fn sampling_interval(&self) -> Option<TimeSpan> {
        Some(SAMPLING_INTERVAL)
    }
}

impl LegState {
    fn new(settings: &LegSettings, offered: Offered) -> Self {
        let is_paced = settings.pacing != Pacing::Fixed;
        let is_adaptive = settings.send_buffer == Buffer::Adaptive;
        let is_chosen = settings.congestion_control.as_deref() == Some(congestion::AUTOMATIC);
        Self {
            pacing: is_paced.then(|| PacingRate::new(settings.pacing, settings.pacing_rate)),
            buffer: is_adaptive.then(SendBuffer::default),
            congestion: is_chosen.then(|| CongestionControl::new(offered.bbr, false)),
            is_new: true,
        }
    }

    fn handle_sample(
        &mut self,
        now: Time,
        settings: &LegSettings,
        (inbound, outbound): (&LegSample, &LegSample),
        held: ByteSize,
    ) -> LegDecision {
        let is_new = std::mem::replace(&mut self.is_new, false);
        let mut decision = LegDecision {
            pacing_by: settings.pacing_by,
            // Pacing at the input begins with the first sample: there is no option for it.
            pacing_rate: settings
                .pacing_rate
                .filter(|_| is_new && settings.pacing_by == PacingBy::Input),
            ..LegDecision::default()
        };
        if let Some(pacing) = &mut self.pacing
            && let Some(rate) = pacing.handle_sample(now, inbound, outbound, held)
        {
            decision.pacing_rate = Some(rate);
        }
        if let Some(buffer) = &mut self.buffer {
            let sizes = buffer.handle_sample(now, inbound, outbound);
            decision.not_sent_limit = sizes.not_sent_limit;
            decision.send_buffer = sizes.send_buffer;
        }
        if let Some(control) = &mut self.congestion {
            let changed = control.handle_sample(outbound);
            decision.congestion_control = match changed {
                Some(choice) => Some(choice.name),
                None if is_new && control.choice().name == BBR => Some(BBR),
                None => None,
            };
        }
        decision
    }
}
