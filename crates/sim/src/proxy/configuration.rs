//! The configuration of a relay.

use midspan_policy::Handshake;
use midspan_units::{BitRate, TimeSpan};

/// The configuration of a relay. The default forwards at once and buffers without limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RelayConfiguration {
    /// The buffers for data that the relay has received and that the receiver has not acknowledged.
    pub buffers: Buffers,
    /// Largest number of unsent bytes in the outbound leg's send buffer (`TCP_NOTSENT_LOWAT`), at
    /// least a segment; `None`: only the send buffer is a limit.
    pub notsent_lowat: Option<u64>,
    /// The service time of each segment; `None`: no service.
    pub service: Option<Service>,
    /// Pacing at the input of TCP (Shikama §3.2): forward data is cut into segments, which are
    /// issued at this rate, headers included. While any remain, nothing more is read from the
    /// inbound leg. `None`: data is forwarded at once.
    pub pacing: Option<BitRate>,
    /// Whether the SYN is answered at once, or after the outbound leg's SYN was answered (Maki
    /// §II).
    pub handshake: Handshake,
    /// Whether connections are refused by a reset instead of split.
    pub refuse: bool,
    /// Whether the inbound leg is an overlay hop: its SYN stands for the hop's request, which is answered
    /// after the outbound leg's SYN was answered, whatever `handshake` is.
    pub inbound_hop: bool,
    /// How long the outbound leg's connection takes to be there before its SYN leaves; zero for a
    /// connection whose handshake the SYN is. It applies only to a leg with a handshake.
    pub connect_time: TimeSpan,
}

/// Where the data of a session is stored in the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    /// In the inbound leg's receive buffer until it is read, then in the outbound leg's send
    /// buffer until it is acknowledged.
    Separate {
        /// The send buffer, in bytes. (The receive buffer is the inbound receiver's.)
        send: u64,
    },
    /// In one buffer that the session was granted at set-up (Bhole: `C_max`), until it is
    /// acknowledged on the outbound leg. It replaces the inbound receiver's buffer.
    Granted {
        /// Its size, in bytes.
        size: u64,
    },
}

impl Buffers {
    /// A send buffer of `segments` full segments.
    #[must_use]
    pub fn segments(segments: u64, segment_size: u32) -> Self {
        Self::Separate {
            send: segments.saturating_mul(u64::from(segment_size)),
        }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::Separate { send: 1 << 40 }
    }
}

/// The service of segments at the proxy. A session has one server, first in, first out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// The service time.
    pub time: ServiceTime,
    /// Whether local ACK or service comes first.
    pub local_ack: LocalAck,
}

/// The time that the service of a segment takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceTime {
    /// Always this time.
    Constant(TimeSpan),
    /// Exponentially distributed, with this mean (Bhole: `T_s`).
    Exponential(TimeSpan),
}

/// When the proxy acknowledges a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LocalAck {
    /// When the segment arrives; then it is served and forwarded.
    BeforeService,
    /// When the segment has been served.
    AfterService,
}
