//! Decisions that are taken before the first byte on a leg.

use midspan_units::{BitRate, ByteSize, TimeSpan};

use crate::congestion::{AUTOMATIC, CUBIC};
use crate::oversized_segments::OversizedStart;
use crate::{Buffer, FirstFlight, LegSettings, PacingBy, ReceiveWindow};

/// How both legs of a session are set up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// The leg towards the client.
    pub client: LegStart,
    /// The leg towards the server.
    pub server: LegStart,
}

/// How one leg is set up before its first byte. `None` leaves the kernel's default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LegStart {
    /// Congestion control by its kernel name.
    pub congestion_control: Option<String>,
    /// Send buffer.
    pub send_buffer: Buffer,
    /// Receive buffer.
    pub receive_buffer: Buffer,
    /// Receive window, in bytes of data, that is open from the first ACK on. The kernel continues to tune
    /// the buffer.
    pub receive_window: Option<ByteSize>,
    /// Initial window in segments, where the policy chooses one of several.
    pub initial_window: Option<u32>,
    /// Limit of unsent data in the send buffer.
    pub notsent_lowat: Option<ByteSize>,
    /// Upper bound of the sending rate.
    pub pacing_rate: Option<BitRate>,
    /// Whether the kernel or the proxy enforces the pacing rate.
    pub pacing_by: PacingBy,
    /// How the first flight is spread, if it is larger than usual.
    pub first_flight: Option<FirstFlight>,
    /// The first data already waits when the leg connects. Then the last ACK of the handshake is sent with this
    /// data (RFC 9293, 3.5), which saves a packet. The relay decides this itself.
    pub ack_with_data: bool,
    /// Idle time after which the peer is probed.
    pub keepalive: Option<TimeSpan>,
    /// Time that sent data may stay unacknowledged.
    pub user_timeout: Option<TimeSpan>,
    /// Largest segment this leg may ever send, in bytes of data (Hasegawa §3: oversized
    /// segments); fixed from here on.
    pub segment_ceiling: Option<ByteSize>,
    /// How the leg gets to segments above the peer's own size; the real proxy only probes.
    pub oversized_start: OversizedStart,
    /// Window scale in bits with which the peer's window is read (Hasegawa §3: sending ahead);
    /// fixed from here on.
    pub window_scale: Option<u8>,
}

impl From<&LegSettings> for LegStart {
    fn from(settings: &LegSettings) -> Self {
        Self {
            congestion_control: match settings.congestion_control.as_deref() {
                // Linux can change an unpaced congestion control to a paced one, but not back.
                Some(AUTOMATIC) => Some(CUBIC.to_owned()),
                _ => settings.congestion_control.clone(),
            },
            send_buffer: match settings.send_buffer {
                Buffer::Adaptive => Buffer::Auto,
                buffer => buffer,
            },
            receive_buffer: settings.receive_buffer,
            receive_window: match settings.receive_window {
                Some(ReceiveWindow::Fixed(size)) => Some(size),
                Some(ReceiveWindow::Auto | ReceiveWindow::Off) | None => None,
            },
            initial_window: None,
            notsent_lowat: settings.notsent_lowat,
            pacing_rate: settings.pacing_rate,
            pacing_by: settings.pacing_by,
            first_flight: None,
            ack_with_data: false,
            keepalive: settings.keepalive,
            user_timeout: settings.user_timeout,
            segment_ceiling: None,
            oversized_start: OversizedStart::Probe,
            window_scale: None,
        }
    }
}
