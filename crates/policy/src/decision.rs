//! Decisions that are taken while data flows.

use midspan_units::{BitRate, ByteSize, TimeSpan};

use crate::{Leg, PacingBy};

/// The changes of the settings of a live session.
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

/// The changes of the settings of one leg. `None`: no change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegDecision {
    /// Upper bound of the sending rate (Shikama §3: pacing).
    pub pacing_rate: Option<BitRate>,
    /// Whether the kernel or the proxy enforces the pacing rate.
    pub pacing_by: PacingBy,
    /// Congestion control from now on, by its kernel name. The only change is from one that the
    /// kernel does not pace to one that it paces: Linux never stops pacing a socket.
    pub congestion_control: Option<&'static str>,
    /// BBR begins again, so that it does not probe for the shortest round trip (`probe_rtt.rs`). It takes the
    /// shortest one that TCP has measured as new.
    pub bbr_again: bool,
    /// The least retransmission time-out (`least_timeout.rs`). Only where the machine [offers](crate::Offered) it.
    pub least_timeout: Option<TimeSpan>,
    /// Send buffer (Maki §III: large enough to ride out the inbound leg's retransmissions).
    pub send_buffer: Option<ByteSize>,
    /// Largest number of unsent bytes in the send buffer.
    pub not_sent_limit: Option<ByteSize>,
    /// Segment size in bytes of data, at most the ceiling set at the start (Hasegawa §3).
    pub segment_size: Option<ByteSize>,
    /// Largest number of bytes that may be sent and not acknowledged.
    pub in_flight_cap: Option<ByteSize>,
    /// The slow-start threshold is set to infinity again, as at the start, because the loss was no
    /// sign of congestion. The congestion window stays as it is.
    pub slow_start_again: bool,
    /// Whether data may be sent ahead of the client's window, and a bounded start may use the rate
    /// that it has measured: not while other sessions of the client's network carry data.
    pub ahead_allowed: Option<bool>,
}
