//! How a relay is set.

use midspan_policy::Handshake;
use midspan_units::{BitRate, TimeSpan};

/// How a relay is set. The default forwards at once and buffers without limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RelayConfiguration {
    /// Room for data.
    pub buffers: Buffers,
    /// Most bytes that are written to the outbound leg ahead of what it has sent
    /// (`TCP_NOTSENT_LOWAT`), at least a segment; `None` for no limit but the send buffer.
    pub notsent_lowat: Option<u64>,
    /// What each segment costs; `None` for nothing.
    pub service: Option<Service>,
    /// Pacing at the input of TCP (Shikama §3.2): forward data is cut into segments, which are
    /// issued at this rate, headers included; while any remain, nothing more is read from the
    /// inbound leg. `None` forwards at once.
    pub pacing: Option<BitRate>,
    /// Whether the SYN is answered at once, or when the outbound leg's has been (Maki §II).
    pub handshake: Handshake,
    /// Connections are refused by a reset instead of split.
    pub refuse: bool,
}

/// Where a session's data lies while the proxy has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    /// In the inbound leg's receive buffer until it is read, then in the outbound leg's send
    /// buffer until it is acknowledged.
    Separate {
        /// The send buffer, in bytes. (The receive buffer is the inbound receiver's.)
        send: u64,
    },
    /// In one buffer that the session was granted at set-up (Bhole: `C_max`), until the outbound
    /// leg has it acknowledged. It takes the place of the inbound receiver's buffer.
    Granted {
        /// Its size, in bytes.
        size: u64,
    },
}

impl Buffers {
    /// A send buffer of so many full segments.
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

/// What each segment costs at the proxy. A session has one server, first in, first out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// How long it takes.
    pub time: ServiceTime,
    /// Which comes first.
    pub local_ack: LocalAck,
}

/// How long the service of a segment takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceTime {
    /// Always so long.
    Constant(TimeSpan),
    /// Exponentially distributed, with this mean (Bhole: `T_s`).
    Exponential(TimeSpan),
}

/// When the proxy acknowledges a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LocalAck {
    /// When it arrives; then it is served and forwarded.
    BeforeService,
    /// When it has been served.
    AfterService,
}
