//! The decisions of a proxy about its sessions, without I/O, for the real proxy and for the simulator.
//!
//! The caller owns sockets, timers and the clock. It passes in the time and its measurements
//! ([`LegSample`]) and carries out the decision that is returned. The decisions, in the order of their
//! moments:
//!
//! | decision | moment | content |
//! | --- | --- | --- |
//! | [`RouteDecision`](overlay::RouteDecision) | when a client has requested a server | by which other proxies the session goes |
//! | [`ServerAddress`](servers::ServerAddress) | when a client of a listener with several servers has arrived | which of them its session gets |
//! | [`Passage`] | at a SYN and its repetitions | pass because of an asymmetric route, or not |
//! | [`Admission`] | before there is a socket | intercept, bypass or refuse; handshake |
//! | [`LearnedStart`] | at the SYN | initial window towards the client, from earlier sessions; perhaps [bounded](bounded_start) by the relay |
//! | [`AutomaticAhead`] | before the first byte towards a client behind a long leg, then while data flows | how far data is sent ahead of its window |
//! | [`NarrowLeg`] | before the first byte towards a client with a known access link, or behind a long leg; then while data flows | oversized segments, sending ahead, bounded start |
//! | [`Start`] | before the first byte on a leg | congestion control, pacing, segment ceiling, window scale, buffers; towards servers also the initial window and the receive window |
//! | [`Decision`] | while data flows | congestion control, rate, buffers, segment size up to the ceiling, in-flight cap |
//! | [`Bounding`] | while memory is short | buffers of one direction |
//! | [`AckVerdict`] | for each ACK that may be thinned | pass, pass after a held one, hold |
//!
//! Mechanisms that need state between two decisions are state machines here as well:
//! [`InputPacing`] (Shikama: pacing at the input of TCP), [`ack_thinning`] (Tam),
//! [`OversizedSegments`](oversized_segments::OversizedSegments) and
//! [`SendingAhead`](sending_ahead::SendingAhead) (Hasegawa), the last two together in
//! [`NarrowLeg`]. [`memory_share`] divides the memory
//! budget among all sessions of a proxy. [`client_share`] bounds the part of one client, [`client_rates`] bounds how
//! fast one client prefix opens connections and moves bytes, and
//! [`making_room`] chooses the connection that makes room for a new one.
//!
//! A policy is a type that implements [`Policy`] (for sessions) or [`AckPolicy`] (for ACK
//! thinning). The real proxy passes samples of kernel sockets to it, the simulator those of simulated sockets;
//! the code is the same.
//!
//! This crate is pure: no clock, no I/O, no random source.

pub mod accept_share;
mod access;
pub mod ack_thinning;
mod ack_train;
mod acknowledgement;
mod admission;
pub mod ahead_history;
pub mod arrivals;
pub mod automatic_ahead;
pub mod bounded_start;
pub mod buffers;
pub mod client_rates;
pub mod client_share;
pub mod cold_start;
pub mod congestion;
mod decision;
mod first_flight;
mod half_life;
pub mod hosts;
mod initial_window;
mod input_pacing;
mod knowledge;
mod knowledge_parts;
pub mod learned_start;
mod least_timeout;
pub mod leave_alone;
pub mod long_legs;
mod loss_test;
pub mod low_water_mark;
pub mod making_room;
pub mod memory_bounds;
pub mod memory_share;
pub mod narrow_leg;
pub mod narrow_session;
mod network;
pub mod network_load;
pub mod opening_bound;
pub mod overlay;
pub mod oversized_segments;
pub mod pacing;
mod part_limit;
pub mod policies;
mod postponed_change;
pub mod prefix;
mod probe_rtt;
mod reading_holds;
mod recent_maximum;
mod sample;
mod sampling_pace;
pub mod sending_ahead;
pub mod server_windows;
pub mod servers;
mod settings;
pub mod shared_path;
mod start;
pub mod suspects;
pub mod taken_flight;
pub mod two_sided;

pub use access::AccessLink;
pub use acknowledgement::{
    AckEstimate, AckPolicy, AckSample, AckVerdict, RoundTrip, RoundTripSource,
};
pub use admission::{Admission, Handshake, Request};
pub use decision::{Decision, LegDecision};
pub use first_flight::FirstFlight;
pub use input_pacing::InputPacing;
pub use knowledge::{Forgotten, Knowledge};
pub use knowledge_parts::{KnowledgeParts, Part, PartKey, forget_running};
pub use network::Network;
pub use policies::{Automatic, Configured, Offered, PolicyName, SessionSettings, make};
pub use sample::{LegSample, LimitedTimes, SessionId, SessionSample};
pub use sampling_pace::SamplingPace;
pub use settings::{AheadBy, Buffer, LegSettings, Pacing, PacingBy, ReceiveWindow};
pub use start::{LegStart, Start};

use std::net::IpAddr;

use automatic_ahead::{AcceptedLeg, AutomaticAhead};
use learned_start::LearnedStart;
use leave_alone::Passage;
use memory_share::{Bounding, DirectionMemory, MemoryShare};
use midspan_units::{Time, TimeSpan};
use narrow_leg::{NarrowClient, NarrowLeg};

/// One of the two legs that a session joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// Towards the host that opened the connection.
    Client,
    /// Towards the host that accepts the connection.
    Server,
}

impl Leg {
    /// The leg on the other side of the proxy.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Decides for the sessions of one proxy: every decision of a proxy about a session is a method
/// here. [`make`] makes the policy of a name; the relay, the gate and the simulator call its methods.
///
/// Order of calls for a session: [`passage`](Policy::passage) where its SYN is seen;
/// [`admit`](Policy::admit) once; if it returns [`Admission::Intercept`],
/// [`window`](Policy::window) where there are windows to choose from, [`start`](Policy::start) once, or
/// its two parts [`server_start`](Policy::server_start) and [`client_start`](Policy::client_start);
/// [`ahead`](Policy::ahead) and [`narrow`](Policy::narrow) for the client's leg, where they apply;
/// then [`sample`](Policy::sample) at each [`sampling_interval`](Policy::sampling_interval) while
/// data flows; and [`end`](Policy::end) once, or [`lose`](Policy::lose) instead. One instance may decide
/// about the SYN of a session, and another instance about the rest.
///
/// `known` has the measurements that all sessions of the proxy have left for later ones. The caller
/// owns it, because several policies share it, and may have [divided](KnowledgeParts) it.
pub trait Policy {
    /// Called for a connection whose SYN is seen, before [`admit`](Policy::admit), and at each
    /// repetition of the SYN (`repetitions` of them so far) while the server has not answered:
    /// decides whether the connection passes untouched because of its route.
    fn passage(
        &mut self,
        now: Time,
        request: &Request,
        repetitions: u32,
        known: &mut dyn KnowledgeParts,
    ) -> Passage {
        let routes = &mut known.part(PartKey::routes(request)).routes;
        match repetitions {
            0 => routes.arrive(now, request),
            count => routes.repeat(now, request, count),
        }
    }

    /// Called before there is a socket: decides whether and how this connection is split.
    fn admit(&mut self, now: Time, request: &Request) -> Admission;

    /// Called at the SYN of a connection that is split: chooses the initial window towards the
    /// client, from these (in segments) and [`LEAST_WINDOW`](learned_start::LEAST_WINDOW). `None`
    /// if there is nothing to choose.
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
        let paths = &mut known.part(PartKey::paths(client)).paths;
        Some(paths.start(now, client, learned_start::SEGMENT, windows))
    }

    /// Decides how the legs are set up, before the first byte of either.
    /// `window` is what [`window`](Policy::window) chose.
    fn start(
        &mut self,
        now: Time,
        request: &Request,
        window: Option<LearnedStart>,
        known: &mut dyn KnowledgeParts,
    ) -> Start;

    /// As [`start`](Policy::start), for the leg towards the client, if the one towards the server has
    /// been opened before.
    fn client_start(
        &mut self,
        now: Time,
        request: &Request,
        window: Option<LearnedStart>,
        known: &mut dyn KnowledgeParts,
    ) -> LegStart {
        self.start(now, request, window, known).client
    }

    /// As [`start`](Policy::start), for the leg towards the server, before it connects.
    /// The leg may begin with one of these initial `windows` (in segments).
    fn server_start(
        &mut self,
        now: Time,
        request: &Request,
        _windows: &[u32],
        known: &mut dyn KnowledgeParts,
    ) -> LegStart {
        self.start(now, request, None, known).server
    }

    /// Called when the client's leg exists and nothing has been sent on it: decides whether data may
    /// be sent ahead of the client's window although no profile sets this. `None`: never.
    fn ahead(
        &mut self,
        _now: Time,
        _client: IpAddr,
        _leg: &AcceptedLeg,
        _known: &mut dyn KnowledgeParts,
    ) -> Option<AutomaticAhead> {
        None
    }

    /// Whether [`ahead`](Policy::ahead) may return anything, so that the leg has to be read for it.
    fn sends_ahead(&self) -> bool {
        false
    }

    /// Called when the client's leg exists, if the client's access link is known or if data may be
    /// sent [ahead](Policy::ahead): decides on oversized segments and sending ahead, from then on to
    /// the end of the leg.
    fn narrow(&mut self, client: &NarrowClient) -> NarrowLeg {
        NarrowLeg::new(client)
    }

    /// Takes a reading of both legs, and returns what changes.
    fn sample(
        &mut self,
        now: Time,
        sample: &SessionSample,
        known: &mut dyn KnowledgeParts,
    ) -> Decision;

    /// The session is over; `sample` is its last reading.
    fn end(&mut self, _now: Time, _sample: &SessionSample, _known: &mut dyn KnowledgeParts) {}

    /// The session has ended without a last reading, because the thread that had it has failed: the policy
    /// forgets the session, and leaves nothing for later ones. The caller
    /// [forgets](forget_running) what the session has left for running ones.
    fn lose(&mut self, _session: SessionId) {}

    /// Called when one direction of a session was measured while the memory budget of the proxy is
    /// used up in part: decides on its buffers.
    fn bound(&self, share: &MemoryShare, direction: &DirectionMemory) -> Bounding {
        share.bound(direction)
    }

    /// Why a leg of a session has its congestion control.
    fn reason(&self, _session: SessionId, _leg: Leg) -> congestion::Reason {
        congestion::Reason::Configured
    }

    /// The time until the next sample of this session while it transfers data; `None`: never. It is read before the first
    /// sample, and after each one. Of very many sessions, the caller samples each [less often](SamplingPace).
    fn sampling_interval(&self, session: SessionId) -> Option<TimeSpan>;
}
