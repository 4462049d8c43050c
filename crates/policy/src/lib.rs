//! Sans-IO decisions: what the proxy and the simulator do with a flow.
//!
//! The caller owns sockets, timers and the clock. It passes in the time and its measurements
//! ([`LegSample`]) and carries out the decision that comes back. Four decisions exist, by their
//! moment:
//!
//! | decision | moment | content |
//! | --- | --- | --- |
//! | [`Admission`] | before there is a socket | intercept or bypass, handshake, initial-window class |
//! | [`Start`] | before the first byte on a leg | congestion control, segment ceiling, window scale, buffers |
//! | [`Decision`] | while data flows | rate, buffers, segment size up to the ceiling, in-flight cap |
//! | [`AckVerdict`] | for each ACK that may be thinned | pass, pass after a held one, hold |
//!
//! Mechanisms that need state between two decisions are state machines here as well:
//! [`InputPacing`] (Shikama: pacing at the input of TCP), [`ack_thinning`] (Tam),
//! [`OversizedSegments`](oversized_segments::OversizedSegments) and
//! [`SendingAhead`](sending_ahead::SendingAhead) (Hasegawa). [`memory_share`] divides the memory
//! budget among all sessions of a proxy. [`client_share`] bounds the part of one client, and
//! [`making_room`] chooses the connection that makes room for a new one.
//!
//! A policy is a type that implements [`Policy`] (for sessions) or [`AckPolicy`] (for ACK
//! thinning). The real proxy feeds it from kernel sockets, the simulator from simulated ones; the
//! code is the same.
//!
//! This crate is pure: no clock, no I/O, no random source.

mod access;
pub mod ack_thinning;
mod acknowledgement;
mod admission;
mod automatic;
pub mod buffers;
pub mod client_share;
pub mod cold_start;
mod configured;
pub mod congestion;
mod decision;
mod first_flight;
mod initial_window;
mod input_pacing;
pub mod learned_start;
pub mod leave_alone;
pub mod making_room;
pub mod memory_bounds;
pub mod memory_share;
pub mod narrow_session;
pub mod oversized_segments;
pub mod pacing;
mod peer;
mod recent_maximum;
mod sample;
pub mod sending_ahead;
mod settings;
pub mod shared_path;
mod start;
pub mod taken_flight;

pub use access::AccessLink;
pub use acknowledgement::{
    AckEstimate, AckPolicy, AckSample, AckVerdict, RoundTrip, RoundTripSource,
};
pub use admission::{Admission, Handshake, InitialWindowClass, Request};
pub use automatic::{Automatic, Offered, for_settings};
pub use configured::Configured;
pub use decision::{Decision, LegDecision};
pub use first_flight::FirstFlight;
pub use input_pacing::InputPacing;
pub use learned_start::Knowledge;
pub use sample::{LegSample, LimitedTimes, SessionId, SessionSample};
pub use settings::{Buffer, LegSettings, Pacing, PacingBy, PolicyName, SessionSettings};
pub use start::{LegStart, Start};

use midspan_units::{Time, TimeSpan};

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

/// Decides for the sessions of one proxy.
///
/// Order of calls for a session: [`admit`](Policy::admit) once; if it returns
/// [`Admission::Intercept`], [`start`](Policy::start) once; then [`sample`](Policy::sample) at each
/// [`sampling_interval`](Policy::sampling_interval) while data flows; and [`end`](Policy::end)
/// once.
pub trait Policy {
    /// Called before there is a socket: decides whether and how this connection is split.
    fn admit(&mut self, now: Time, request: &Request) -> Admission;

    /// Called when both legs exist and no byte has been sent: decides how the legs are set up.
    fn start(&mut self, now: Time, request: &Request) -> Start;

    /// Like [`start`](Policy::start), for a client leg whose start was already chosen at its SYN
    /// (`client`).
    fn start_as(
        &mut self,
        now: Time,
        request: &Request,
        _client: Option<learned_start::LearnedStart>,
    ) -> Start {
        self.start(now, request)
    }

    /// Takes a reading of both legs, and returns what changes.
    fn sample(&mut self, now: Time, sample: &SessionSample) -> Decision;

    /// The session is over; `sample` is its last reading.
    fn end(&mut self, _now: Time, _sample: &SessionSample) {}

    /// Why a leg of a session has its congestion control.
    fn reason(&self, _session: SessionId, _leg: Leg) -> congestion::Reason {
        congestion::Reason::Configured
    }

    /// How often a session that transfers data is sampled; `None`: never.
    fn sampling_interval(&self) -> Option<TimeSpan>;
}
