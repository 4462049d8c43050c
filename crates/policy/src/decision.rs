//! While data flows.

use midspan_units::{BitRate, ByteSize};

use crate::{Leg, PacingBy};

/// What is to change on a live session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    /// The leg towards the client.
    pub client: LegDecision,
    /// The leg towards the server.
    pub server: LegDecision,
}

impl Decision {
    /// The decision for one leg.
    #[must_use]
    pub const fn leg(&self, leg: Leg) -> &LegDecision {
        match leg {
            Leg::Client => &self.client,
            Leg::Server => &self.server,
        }
    }
}

/// What is to change on one leg. `None` leaves it as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegDecision {
    /// Upper bound of the sending rate (Shikama §3: pacing).
    pub pacing_rate: Option<BitRate>,
    /// Who keeps to it.
    pub pacing_by: PacingBy,
    /// Congestion control from now on, by its kernel name. Only from one that the kernel does
    /// not pace to one that it does: a Linux socket that was paced stays so.
    pub congestion_control: Option<&'static str>,
    /// Send buffer (Maki §III: large enough to ride out the inbound leg's retransmissions).
    pub send_buffer: Option<ByteSize>,
    /// Most bytes in the send buffer that were never sent.
    pub not_sent_limit: Option<ByteSize>,
    /// Segment size in bytes of data, at most the ceiling set at the start (Hasegawa §3).
    pub segment_size: Option<ByteSize>,
    /// Most bytes that may be sent and not acknowledged.
    pub in_flight_cap: Option<ByteSize>,
    /// The slow-start threshold is to be infinite again, as at the start: what was lost was no sign
    /// of congestion. The congestion window stays as it is.
    pub slow_start_again: bool,
}
