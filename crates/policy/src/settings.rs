//! The settings that an operator can fix for a leg.

use midspan_units::{BitRate, ByteSize, TimeSpan};
use serde::de::{self, Deserialize, Deserializer};
use serde::{Deserialize as DeriveDeserialize, Serialize, Serializer};

/// The size of a socket buffer: tuned by the kernel, fixed, or computed from measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Buffer {
    /// The kernel's autotuning ("auto").
    #[default]
    Auto,
    /// Send buffers only: as large as needed to ride out the inbound leg's retransmissions, by
    /// measurement ("adaptive").
    Adaptive,
    /// A fixed size in bytes of data; the kernel adds its own overhead.
    Fixed(ByteSize),
}

impl<'de> Deserialize<'de> for Buffer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            "adaptive" => Ok(Self::Adaptive),
            _ => text
                .parse()
                .map(Self::Fixed)
                .map_err(|error| de::Error::custom(format!("{error}, \"auto\" or \"adaptive\""))),
        }
    }
}

impl Serialize for Buffer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Adaptive => serializer.serialize_str("adaptive"),
            Self::Fixed(size) => size.serialize(serializer),
        }
    }
}

/// Where the pacing rate of a leg comes from (Shikama §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, DeriveDeserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pacing {
    /// `pacing_rate`; without one, nothing is paced.
    #[default]
    Fixed,
    /// The measured rate at which the inbound leg brings the data; at most `pacing_rate`.
    Inbound,
    /// As `Inbound`, and no more than the outbound leg delivers while that leg is the bottleneck.
    Auto,
}

/// Whether the kernel or the proxy enforces the pacing rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, DeriveDeserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PacingBy {
    /// The kernel paces, segment by segment (`SO_MAX_PACING_RATE`).
    #[default]
    Kernel,
    /// The proxy paces at the input of TCP, coupled with flow control (Shikama §3.2).
    Input,
}

/// Whether data is sent ahead of the window that a client advertises (Hasegawa §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, DeriveDeserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AheadBy {
    /// Never, except by a profile of the client's access link.
    Off,
    /// On long legs, as far as measurements allow.
    Auto,
}

/// The receive window that is open towards a server from the first ACK on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveWindow {
    /// The kernel's: 64 KB ("off").
    Off,
    /// As large as earlier transfers from the server's network have shown to gain ("auto").
    Auto,
    /// This many bytes of data.
    Fixed(ByteSize),
}

impl<'de> Deserialize<'de> for ReceiveWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            _ => text
                .parse()
                .map(Self::Fixed)
                .map_err(|error| de::Error::custom(format!("{error}, \"auto\" or \"off\""))),
        }
    }
}

impl Serialize for ReceiveWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(size) => size.serialize(serializer),
        }
    }
}

/// The configured settings of one leg. A setting that is left out has the kernel's default.
#[derive(Debug, Clone, PartialEq, Eq, Default, DeriveDeserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LegSettings {
    /// Congestion control for the data that the proxy sends on this leg, such as "bbr" or "cubic".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Initial congestion window in segments, 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Send buffer.
    pub send_buffer: Buffer,
    /// Receive buffer.
    pub receive_buffer: Buffer,
    /// Limit of unsent data in the send buffer (`TCP_NOTSENT_LOWAT`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notsent_lowat: Option<ByteSize>,
    /// Upper bound of the sending rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_rate: Option<BitRate>,
    /// Where the pacing rate comes from.
    pub pacing: Pacing,
    /// Whether the kernel or the proxy enforces the pacing rate.
    pub pacing_by: PacingBy,
    /// Whether data is sent ahead of a client's window; `None` leaves it to the listener's policy. No
    /// effect on legs towards servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sending_ahead: Option<AheadBy>,
    /// The receive window that is open from the first ACK on; `None` leaves it to the listener's policy. No
    /// effect on legs towards clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_window: Option<ReceiveWindow>,
    /// Idle time after which the peer is probed (`TCP_KEEPIDLE`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<TimeSpan>,
    /// Time that sent data may stay unacknowledged before the leg is given up
    /// (`TCP_USER_TIMEOUT`, RFC 5482).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_timeout: Option<TimeSpan>,
}

/// Least and largest receive window that an operator may write.
const RECEIVE_WINDOW_RANGE: [ByteSize; 2] = [
    ByteSize::from_bytes(64 << 10),
    ByteSize::from_bytes(64 << 20),
];

impl LegSettings {
    /// Checks the receive window.
    ///
    /// # Errors
    /// A size out of range, or next to a fixed receive buffer. The text is for the operator.
    pub fn check_receive_window(&self) -> Result<(), String> {
        match (self.receive_window, self.receive_buffer) {
            (Some(ReceiveWindow::Auto | ReceiveWindow::Fixed(_)), Buffer::Fixed(_)) => Err(
                "a fixed receive_buffer is open from the first ACK on: remove receive_window, or \
                 receive_buffer"
                    .to_owned(),
            ),
            (Some(ReceiveWindow::Fixed(size)), _) => {
                let [low, high] = RECEIVE_WINDOW_RANGE;
                match (low..=high).contains(&size) {
                    true => Ok(()),
                    false => Err(format!(
                        "receive_window lies between {low} and {high}, not {size}"
                    )),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(window: Option<ReceiveWindow>, buffer: Buffer) -> Result<(), String> {
        let settings = LegSettings {
            receive_window: window,
            receive_buffer: buffer,
            ..LegSettings::default()
        };
        settings.check_receive_window()
    }

    #[test]
    fn a_receive_window_is_within_bounds_and_not_beside_a_fixed_buffer() {
        let of = |bytes| Some(ReceiveWindow::Fixed(ByteSize::from_bytes(bytes)));
        let fixed = Buffer::Fixed(ByteSize::from_bytes(1 << 20));
        assert_eq!(check(of(64 << 10), Buffer::Auto), Ok(()));
        assert_eq!(check(of(64 << 20), Buffer::Auto), Ok(()));
        assert!(check(of((64 << 10) - 1), Buffer::Auto).is_err());
        assert!(check(of((64 << 20) + 1), Buffer::Auto).is_err());
        assert!(check(of(1 << 20), fixed).is_err());
        assert!(check(Some(ReceiveWindow::Auto), fixed).is_err());
        assert_eq!(check(Some(ReceiveWindow::Off), fixed), Ok(()));
        assert_eq!(check(None, fixed), Ok(()));
    }
}
