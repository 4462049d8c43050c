//! Captures, as tcpdump, Wireshark and others write them.

use std::io::Read;

use midspan_wire::capture::{self, CaptureError};

use super::trace::{Connections, Seen};
use super::{Measured, MeasuredError};

/// Reads a capture: the connections with data, those with the most data first.
///
/// # Errors
/// The input is no capture, is cut off within its first packet, or has no TCP connection with data.
pub fn read(input: impl Read) -> Result<Vec<Measured>, MeasuredError> {
    let mut connections = Connections::default();
    capture::read(input, |packet| {
        let seen = packet
            .tcp()
            .and_then(|(tcp, length)| Seen::from_packet(packet.time, &tcp, length));
        if let Some(seen) = seen {
            connections.add(&seen);
        }
    })?;
    let measured = connections.measured();
    if measured.is_empty() {
        return Err(MeasuredError::Empty {
            hint: "capture on an interface that the connection passes, with `tcpdump tcp`",
        });
    }
    Ok(measured)
}

impl From<CaptureError> for MeasuredError {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Io(error) => error.into(),
            CaptureError::Format(what) => Self::Format {
                program: "tcpdump (pcap or pcapng)",
                what,
            },
        }
    }
}
