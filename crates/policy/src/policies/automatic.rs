//! The policy that chooses pacing, buffers and congestion control from its measurements.

mod cadence;
mod client_network;
mod leg_state;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use super::{Configured, Offered, PolicyName, SessionSettings};
use crate::arrivals::Arrivals;
use crate::automatic_ahead::{AcceptedLeg, AutomaticAhead, LONG_HANDSHAKE};
use crate::congestion::{self, BBR};
use crate::initial_window::COLD_WINDOW;
use crate::learned_start::{EVIDENCE, LEAST_WINDOW, LearnedStart, SEGMENT};
use crate::reading_holds::reading_holds;
use crate::shared_path::SharedPaths;
use crate::{
    Admission, AheadBy, Buffer, Decision, Handshake, KnowledgeParts, Leg, LegDecision, LegSample,
    LegSettings, LegStart, Pacing, PacingBy, PartKey, Policy, ReceiveWindow, Request, SessionId,
    SessionSample, Start,
};
use cadence::Cadence;
use client_network::{is_alone, is_in_lossy_network, is_long, note_end_of_ahead};
use leg_state::LegState;

impl LegSettings {
    /// Whether the policy chooses any setting of this leg while data flows.
    #[must_use]
    pub fn is_automatic(&self) -> bool {
        self.pacing != Pacing::Fixed
            || self.send_buffer == Buffer::Adaptive
            || is_chosen(self)
            || (self.pacing_by == PacingBy::Input && self.pacing_rate.is_some())
    }

    /// The same settings, with everything that is not fixed left to the policy.
    #[must_use]
    pub fn left_to_policy(mut self) -> Self {
        self.congestion_control
            .get_or_insert_with(|| congestion::AUTOMATIC.to_owned());
        if self.pacing == Pacing::Fixed && self.pacing_rate.is_none() {
            self.pacing = Pacing::Auto;
        }
        if self.send_buffer == Buffer::Auto && self.notsent_lowat.is_none() {
            self.send_buffer = Buffer::Adaptive;
        }
        self
    }
}

impl SessionSettings {
    /// Whether the policy chooses any setting of either leg while data flows.
    #[must_use]
    pub fn is_automatic(&self) -> bool {
        self.client.is_automatic()
            || self.server.is_automatic()
            || self.sends_ahead()
            || self.opens_windows()
    }

    /// Whether the policy chooses the congestion control of a leg.
    #[must_use]
    pub fn chooses_congestion_control(&self) -> bool {
        [&self.client, &self.server].into_iter().any(is_chosen)
    }

    /// Whether receive windows towards servers are opened where that gains.
    #[must_use]
    pub fn opens_windows(&self) -> bool {
        match self.server.receive_window {
            Some(by) => by == ReceiveWindow::Auto,
            None => self.policy == PolicyName::Auto && self.server.receive_buffer == Buffer::Auto,
        }
    }

    /// Whether data may be sent ahead of the windows of clients, as far as measurements allow.
    #[must_use]
    pub fn sends_ahead(&self) -> bool {
        match self.client.sending_ahead {
            Some(by) => by == AheadBy::Auto,
            None => self.policy == PolicyName::Auto,
        }
    }
}

/// Starts legs as configured, and then chooses the settings that were left to it.
#[derive(Debug, Clone)]
pub struct Automatic {
    configured: Configured,
    settings: SessionSettings,
    offered: Offered,
    /// Whether the losses of a short leg may change its congestion control, so that sessions are read often at first.
    watches_losses: bool,
    sessions: BTreeMap<SessionId, SessionState>,
}

/// The state of one session.
#[derive(Debug, Clone, Copy)]
struct SessionState {
    client: LegState,
    server: LegState,
    /// The data that arrives from the server.
    arrivals: Arrivals,
    cadence: Cadence,
}

impl SessionState {
    /// The time until the next reading.
    fn interval(&self) -> TimeSpan {
        (self.cadence).interval(self.client.waits() || self.server.waits())
    }
}

impl Automatic {
    /// A policy for sessions with these settings.
    #[must_use]
    pub fn new(settings: SessionSettings, offered: Offered) -> Self {
        Self {
            configured: Configured::new(settings.clone()),
            watches_losses: offered.bbr && settings.chooses_congestion_control(),
            settings,
            offered,
            sessions: BTreeMap::new(),
        }
    }

    /// The same policy with this handshake; the default is [`Handshake::Early`].
    #[must_use]
    pub fn with_handshake(mut self, handshake: Handshake) -> Self {
        self.configured = self.configured.with_handshake(handshake);
        self
    }

    /// The highest rate at which this session may send to its client, if its path is shared.
    fn shared_rate(
        &self,
        now: Time,
        sample: &SessionSample,
        known: &mut dyn KnowledgeParts,
    ) -> Option<BitRate> {
        if self.settings.client.pacing != Pacing::Auto {
            return None;
        }
        let client = sample.request?.client.ip();
        let leg = &sample.client;
        if !SharedPaths::concern(leg) {
            return None;
        }
        let waits = leg.not_sent.bytes() > 0 || sample.held_towards_client.bytes() > 0;
        let shared = &mut known.part(PartKey::shared(client)).shared;
        shared.handle_sample(now, client, sample.session, leg, (waits, sample.interval))
    }

    /// Takes a reading between the usual ones, by which only the congestion control of a short leg may change. `None` if
    /// this reading is a usual one.
    fn sample_losses(
        &mut self,
        now: Time,
        sample: &SessionSample,
        known: &mut dyn KnowledgeParts,
    ) -> Option<Decision> {
        let session = self.session(now, sample, known);
        let SessionState { client, server, .. } = session;
        let is_watched = client.watches(&sample.client) || server.watches(&sample.server);
        if session.cadence.handle_reading(now, is_watched) {
            return None;
        }
        let SessionState { client, server, .. } = session;
        Some(Decision {
            client: client.handle_losses(now, &sample.client),
            server: server.handle_losses(now, &sample.server),
        })
    }

    /// The state of a session, which begins if this is its first sample.
    fn session(
        &mut self,
        now: Time,
        sample: &SessionSample,
        known: &mut dyn KnowledgeParts,
    ) -> &mut SessionState {
        let settings = &self.settings;
        match self.sessions.entry(sample.session) {
            Entry::Occupied(session) => session.into_mut(),
            Entry::Vacant(new) => {
                let client = sample.request.map(|it| it.client.ip());
                let is_lossy = |address, known: &mut dyn KnowledgeParts| {
                    let paths = &known.part(PartKey::paths(address)).paths;
                    paths.is_lossy(now, address)
                };
                let is_lossy_client = client.is_some_and(|client| {
                    is_lossy(client, known) || is_in_lossy_network(now, client, known)
                });
                let server = sample.request.map(|it| it.server.ip());
                let is_lossy_server = server.is_some_and(|server| is_lossy(server, known));
                let leg = |settings, is_lossy| LegState::new(settings, self.offered, is_lossy);
                new.insert(SessionState {
                    client: leg(&settings.client, is_lossy_client),
                    server: leg(&settings.server, is_lossy_server),
                    arrivals: Arrivals::default(),
                    cadence: Cadence::new(now, self.watches_losses),
                })
            }
        }
    }

    /// Whether this session may go ahead of its client's window now; `None` if its leg is not long.
    fn ahead_allowed(
        &self,
        now: Time,
        sample: &SessionSample,
        known: &mut dyn KnowledgeParts,
    ) -> Option<bool> {
        let client = sample.request?.client.ip();
        let leg = &sample.client;
        // A leg without an ACK may be long.
        let round_trip = leg.minimum_round_trip_time.unwrap_or(LONG_HANDSHAKE);
        if !self.sends_ahead() || round_trip < LONG_HANDSHAKE {
            return None;
        }
        let end = now + round_trip + reading_holds(sample.interval);
        let loads = &mut known.part(PartKey::shared(client)).loads;
        loads.note(now, client, sample.session, (bytes_in_flight(leg), end));
        Some(loads.is_alone(now, client, Some(sample.session)))
    }

    /// Applies to one leg what earlier sessions with its peer have left.
    fn apply_learned(&self, leg: &mut LegStart, settings: &LegSettings, learned: &LearnedStart) {
        if is_chosen(settings) && learned.is_lossy && self.offered.bbr {
            leg.congestion_control = Some(BBR.to_owned());
        }
        if is_spread_at_start(settings) {
            leg.first_flight = learned.first_flight();
        }
    }

    /// The receive window that is to be open towards this server from the first ACK on.
    fn receive_window(
        &self,
        now: Time,
        server: IpAddr,
        known: &mut dyn KnowledgeParts,
    ) -> Option<ByteSize> {
        if !self.settings.opens_windows() {
            return None;
        }
        let windows = &known.part(PartKey::server_windows(server)).server_windows;
        let window = windows.window(now, server)?;
        let possible = self.offered.receive_window;
        // Half of the window is what the path carries: less than that gains too little.
        (possible.bytes() >= window.bytes() / 2).then_some(window.min(possible))
    }

    /// Number of sessions that are being watched.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
}

/// Records what this session has in flight to its client, for sessions that start towards the same
/// client.
fn note_in_flight(now: Time, sample: &SessionSample, known: &mut dyn KnowledgeParts) {
    let Some(request) = sample.request else {
        return;
    };
    let bytes = bytes_in_flight(&sample.client);
    let peer = request.client.ip();
    let paths = &mut known.part(PartKey::paths(peer)).paths;
    paths.note_in_flight(now, peer, sample.session, (bytes, sample.interval));
}

fn bytes_in_flight(leg: &LegSample) -> u64 {
    u64::from(leg.unacknowledged) * u64::from(leg.segment_size)
}

impl Policy for Automatic {
    fn admit(&mut self, now: Time, request: &Request) -> Admission {
        self.configured.admit(now, request)
    }

    fn window(
        &mut self,
        now: Time,
        request: &Request,
        windows: &[u32],
        known: &mut dyn KnowledgeParts,
    ) -> Option<LearnedStart> {
        if windows.is_empty() {
            return None;
        }
        let client = request.client.ip();
        let is_alone = !self.sends_ahead() || is_alone(now, client, known);
        let is_bounded = self.sends_ahead() && is_alone && is_long(now, client, known);
        let paths = &mut known.part(PartKey::paths(client)).paths;
        // This window would be raised after the handshake.
        let others = |window: &u32| is_alone || *window != COLD_WINDOW;
        let windows: Vec<u32> = windows.iter().copied().filter(others).collect();
        Some(match is_bounded {
            true => paths.start_bounded(now, client, SEGMENT, &windows),
            false => paths.start(now, client, SEGMENT, &windows),
        })
    }

    fn start(
        &mut self,
        now: Time,
        request: &Request,
        window: Option<LearnedStart>,
        known: &mut dyn KnowledgeParts,
    ) -> Start {
        Start {
            client: self.client_start(now, request, window, known),
            server: self.server_start(now, request, &[], known),
        }
    }

    fn client_start(
        &mut self,
        now: Time,
        request: &Request,
        window: Option<LearnedStart>,
        known: &mut dyn KnowledgeParts,
    ) -> LegStart {
        let mut leg = LegStart::from(&self.settings.client);
        if self.settings.client.is_automatic() {
            let client = request.client.ip();
            let mut learned = window.unwrap_or_else(|| {
                let paths = &mut known.part(PartKey::paths(client)).paths;
                paths.start(now, client, SEGMENT, &[])
            });
            learned.is_lossy |= is_in_lossy_network(now, client, known);
            self.apply_learned(&mut leg, &self.settings.client, &learned);
        }
        leg
    }

    fn server_start(
        &mut self,
        now: Time,
        request: &Request,
        windows: &[u32],
        known: &mut dyn KnowledgeParts,
    ) -> LegStart {
        let mut leg = LegStart::from(&self.settings.server);
        let server = request.server.ip();
        if self.settings.server.is_automatic() {
            let paths = &mut known.part(PartKey::paths(server)).paths;
            // Towards an unknown server, a connection begins as any other.
            let windows = match paths.rate(now, server) {
                Some(_) => windows,
                None => &[],
            };
            let learned = paths.start(now, server, SEGMENT, windows);
            leg.initial_window = Some(learned.window).filter(|window| *window > LEAST_WINDOW);
            self.apply_learned(&mut leg, &self.settings.server, &learned);
        }
        let opened = self.receive_window(now, server, known);
        leg.receive_window = opened.or(leg.receive_window);
        leg
    }

    fn ahead(
        &mut self,
        now: Time,
        client: IpAddr,
        leg: &AcceptedLeg,
        known: &mut dyn KnowledgeParts,
    ) -> Option<AutomaticAhead> {
        if !self.sends_ahead() {
            return None;
        }
        let is_alone = is_alone(now, client, known);
        let known = known.part(PartKey::paths(client));
        let rate = known.paths.rate(now, client);
        AutomaticAhead::prepare(leg, rate, &known.ahead.of(now, client), is_alone)
    }

    fn sends_ahead(&self) -> bool {
        self.settings.sends_ahead()
    }

    fn sample(
        &mut self,
        now: Time,
        sample: &SessionSample,
        known: &mut dyn KnowledgeParts,
    ) -> Decision {
        if let Some(decision) = self.sample_losses(now, sample, known) {
            return decision;
        }
        let sample = &SessionSample {
            interval: sample.interval.max(cadence::USUAL),
            ..*sample
        };
        note_in_flight(now, sample, known);
        let fixed = self.configured.sample(now, sample, known);
        let ahead_allowed = self.ahead_allowed(now, sample, known);
        let shared = self.shared_rate(now, sample, known);
        let settings = &self.settings;
        let Some(session) = self.sessions.get_mut(&sample.session) else {
            return Decision::default();
        };
        if settings.opens_windows() {
            let waiting = sample.held_towards_client.bytes() + sample.client.not_sent.bytes();
            (session.arrivals).handle_sample(now, &sample.server, waiting);
        }
        let SessionState { client, server, .. } = session;
        client.shared = shared;
        client.has_shared |= SharedPaths::concern(&sample.client);
        Decision {
            client: LegDecision {
                ahead_allowed,
                bbr_again: fixed.client.bbr_again,
                ..client.handle_sample(
                    now,
                    &settings.client,
                    (&sample.server, &sample.client),
                    sample.held_towards_client,
                )
            },
            server: LegDecision {
                bbr_again: fixed.server.bbr_again,
                ..server.handle_sample(
                    now,
                    &settings.server,
                    (&sample.client, &sample.server),
                    sample.held_towards_server,
                )
            },
        }
    }

    fn end(&mut self, now: Time, sample: &SessionSample, known: &mut dyn KnowledgeParts) {
        self.configured.end(now, sample, known);
        if let (Some(request), Some(lasted)) = (sample.request, sample.lasted) {
            let gains = &mut known.part(PartKey::gains(&request)).gains;
            gains.note_split(now, &request, &sample.client, &sample.server, lasted);
        }
        if self.sends_ahead() {
            let session = self.sessions.get(&sample.session);
            let control = session.and_then(|session| session.client.congestion);
            let found_lossy = control.is_some_and(|control| control.is_lossy());
            note_end_of_ahead(now, sample, found_lossy, known);
        }
        let Some(session) = self.sessions.remove(&sample.session) else {
            return;
        };
        let Some(request) = sample.request else {
            return;
        };
        if let Some(arrived) = session.arrivals.result(&sample.server) {
            let server = request.server.ip();
            let windows = &mut known.part(PartKey::server_windows(server)).server_windows;
            windows.note(now, server, &arrived);
        }
        let SessionState { client, server, .. } = session;
        let client_address = request.client.ip();
        if client.has_shared {
            let shared = &mut known.part(PartKey::shared(client_address)).shared;
            shared.forget(client_address, sample.session);
        }
        (known.part(PartKey::paths(client_address)).paths)
            .forget_in_flight(client_address, sample.session);
        for (state, leg, address, measured) in [
            (client, &sample.client, request.client, sample.ahead.rate),
            (server, &sample.server, request.server, None),
        ] {
            let is_lossy = state.congestion.is_some_and(|control| control.is_lossy());
            let mut taken = state.taken;
            taken.handle_sample(leg);
            // The newest rate may be that of the last few segments only, and none of these rates
            // shows what the path carries while a window was the limit.
            let leg = LegSample {
                delivery_rate: taken.rate().max(measured),
                ..*leg
            };
            let peer = address.ip();
            let paths = &mut known.part(PartKey::paths(peer)).paths;
            paths.note(now, peer, &leg, is_lossy);
            if leg.bytes_acknowledged.bytes() >= EVIDENCE {
                paths.note_flight(now, peer, &taken);
            }
        }
    }

    fn lose(&mut self, session: SessionId) {
        self.configured.lose(session);
        self.sessions.remove(&session);
    }

    fn reason(&self, session: SessionId, leg: Leg) -> congestion::Reason {
        let state = self.sessions.get(&session).map(|session| match leg {
            Leg::Client => &session.client,
            Leg::Server => &session.server,
        });
        let control = state.and_then(|state| state.congestion);
        control.map_or_else(Default::default, |control| control.choice().reason)
    }

    fn sampling_interval(&self, session: SessionId) -> Option<TimeSpan> {
        let known = self.sessions.get(&session);
        let interval = known.map(|session| session.interval());
        Some(interval.unwrap_or_else(|| Cadence::first(self.watches_losses)))
    }
}

/// Whether the choice of congestion control is left to the policy.
fn is_chosen(settings: &LegSettings) -> bool {
    settings.congestion_control.as_deref() == Some(congestion::AUTOMATIC)
}

/// Whether a large first flight is spread: only where the leg is not paced anyway.
fn is_spread_at_start(settings: &LegSettings) -> bool {
    settings.pacing == Pacing::Auto
        && settings.pacing_by == PacingBy::Kernel
        && settings.pacing_rate.is_none()
}

#[cfg(test)]
mod tests;
