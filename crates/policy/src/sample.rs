//! The measurements on a live leg.

use midspan_units::{BitRate, ByteSize, TimeSpan};

use crate::ahead_history::AheadRecord;
use crate::{Leg, Request};

/// One reading of a leg: what `TCP_INFO` gives, and what a simulated socket offers as well.
///
/// Counters run from the start of the connection. `None`: the kernel has no value yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegSample {
    /// Smoothed round-trip time.
    pub round_trip_time: Option<TimeSpan>,
    /// Smallest round-trip time seen.
    pub minimum_round_trip_time: Option<TimeSpan>,
    /// Delivery rate of the newest window.
    pub delivery_rate: Option<BitRate>,
    /// The sender had too little data for a higher delivery rate.
    pub is_application_limited: bool,
    /// Rate at which the kernel paces.
    pub pacing_rate: Option<BitRate>,
    /// Segment size towards the peer in bytes of data.
    pub segment_size: u32,
    /// Congestion window in segments.
    pub congestion_window: u32,
    /// Slow-start threshold in segments; `None` while in the first slow start.
    pub slow_start_threshold: Option<u32>,
    /// The peer's advertised window in bytes.
    pub peer_window: u64,
    /// Our own advertised window in bytes.
    pub advertised_window: u64,
    /// Segments sent and not acknowledged.
    pub unacknowledged: u32,
    /// Of these, the segments that have arrived behind a gap: the peer has acknowledged them selectively (SACK).
    pub selectively_acknowledged: u32,
    /// The sender is lowering its window, or has lost everything by a time-out (Linux: the states CWR, Recovery
    /// and Loss).
    pub is_recovering: bool,
    /// Bytes in the send buffer that were never sent.
    pub not_sent: ByteSize,
    /// Bytes acknowledged by the peer.
    pub bytes_acknowledged: ByteSize,
    /// Bytes received from the peer.
    pub bytes_received: ByteSize,
    /// Bytes sent again.
    pub bytes_retransmitted: ByteSize,
    /// Segments sent again.
    pub segments_retransmitted: u32,
    /// Retransmission time-outs, a 16-bit counter; 0 where the kernel does not count them (before
    /// Linux 6.7).
    pub timeouts: u16,
    /// Segments with data sent, those sent again included.
    pub segments_sent: u32,
    /// Segments received, ACKs without data included.
    pub segments_received: u32,
    /// Segments received that contain data.
    pub data_segments_received: u32,
    /// Consecutive retransmission time-outs since the last answer from the peer.
    pub timeouts_pending: u32,
    /// For how long each limit has held sending back so far.
    pub limited: LimitedTimes,
}

/// For how long the leg was busy sending, and for how long each limit held it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitedTimes {
    /// There was data to send.
    pub busy: TimeSpan,
    /// The peer's window held sending back.
    pub receive_window: TimeSpan,
    /// Too small a send buffer held sending back.
    pub send_buffer: TimeSpan,
}

/// Identifies a session for as long as its policy exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub u64);

/// One reading of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionSample {
    /// Which session.
    pub session: SessionId,
    /// The connection's client and server addresses, where they are known.
    pub request: Option<Request>,
    /// The leg towards the client.
    pub client: LegSample,
    /// The leg towards the server.
    pub server: LegSample,
    /// The interval at which running sessions are read at present; zero if it is unknown.
    pub interval: TimeSpan,
    /// Time from the client's first segment to an orderly end; `None` for a session that still runs
    /// or that ended otherwise.
    pub lasted: Option<TimeSpan>,
    /// What sending ahead of the client's window has found out, in the last reading of a session
    /// that was prepared for it.
    pub ahead: AheadRecord,
    /// Bytes that the proxy holds, read from the server and not yet written to the client.
    pub held_towards_client: ByteSize,
    /// Bytes that the proxy holds, read from the client and not yet written to the server.
    pub held_towards_server: ByteSize,
}

impl SessionSample {
    /// The reading of one leg.
    #[must_use]
    pub const fn leg(&self, leg: Leg) -> &LegSample {
        match leg {
            Leg::Client => &self.client,
            Leg::Server => &self.server,
        }
    }
}
