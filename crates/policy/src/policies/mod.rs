//! The policies, by name. A new one is a file here, with a line in [`PolicyName`], in its methods and
//! in [`make`].

mod automatic;
mod configured;

pub use automatic::Automatic;
pub use configured::Configured;

use midspan_units::{ByteSize, TimeSpan};
use serde::{Deserialize, Serialize};

use crate::probe_rtt::ProbeRtt;
use crate::{Handshake, LegSettings, Policy};

/// The policy that decides about sessions; the key `policy` of a listener, and of a proxy in a path file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// The configuration decides, and where it leaves a setting open, the kernel ([`Configured`]).
    #[default]
    Configured,
    /// The proxy chooses what the configuration leaves open, from its measurements ([`Automatic`]).
    Auto,
}

impl PolicyName {
    /// The settings of a leg under this policy, from those that the configuration has.
    #[must_use]
    pub fn leg(self, settings: LegSettings) -> LegSettings {
        match self {
            Self::Configured => settings,
            Self::Auto => settings.left_to_policy(),
        }
    }

    /// Whether sessions with a client may begin with a window that earlier ones have shown to fit,
    /// and whether routes that splitting does not help are left alone.
    #[must_use]
    pub const fn learns(self) -> bool {
        match self {
            Self::Configured => false,
            Self::Auto => true,
        }
    }
}

/// The features that the machine offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offered {
    /// BBR can be used as congestion control.
    pub bbr: bool,
    /// The largest receive window, in bytes of data, that can be open from the first ACK of a new
    /// connection. Before Linux 6.10, and where nothing is known of the machine, this is less than 64 KiB.
    pub receive_window: ByteSize,
    /// The least retransmission time-out of a connection can be set (Linux 6.15).
    pub least_timeout: bool,
}

/// The policy and the settings of both legs of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSettings {
    /// The policy that decides.
    #[serde(default)]
    pub policy: PolicyName,
    /// The leg towards the client, as [`PolicyName::leg`] returned it.
    pub client: LegSettings,
    /// The leg towards the server, as [`PolicyName::leg`] returned it.
    pub server: LegSettings,
    /// Give up connecting to the server after this time; `None` leaves it to the kernel.
    pub connect_timeout: Option<TimeSpan>,
}

impl SessionSettings {
    /// Whether a policy decides anything; if not, the settings hold as they are.
    #[must_use]
    pub fn is_decided_on(&self) -> bool {
        self.policy != PolicyName::Configured
            || self.is_automatic()
            || ProbeRtt::new([&self.client, &self.server]).concerns_any()
    }
}

/// The policy of this name: the only way in which the relay, the gate and the simulator make one.
/// Sessions that are split have this handshake.
#[must_use]
pub fn make(
    settings: &SessionSettings,
    handshake: Handshake,
    offered: Offered,
) -> Box<dyn Policy + Send> {
    let settings = settings.clone();
    match settings.policy {
        // Single settings can be left to the automatic policy under either name.
        PolicyName::Configured | PolicyName::Auto => match settings.is_automatic() {
            true => Box::new(Automatic::new(settings, offered).with_handshake(handshake)),
            false => Box::new(Configured::new(settings).with_handshake(handshake)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionId;
    use crate::congestion::BBR;

    #[test]
    fn the_name_and_single_settings_select_the_policy() {
        let interval = |settings: &SessionSettings| {
            make(settings, Handshake::Early, Offered::default()).sampling_interval(SessionId(1))
        };
        let mut settings = SessionSettings::default();
        assert_eq!(interval(&settings), None);
        settings.client.pacing = crate::Pacing::Inbound;
        assert!(interval(&settings).is_some());
        settings = SessionSettings::default();
        settings.server.congestion_control = Some(BBR.to_owned());
        assert!(!settings.is_decided_on());
        settings.server.pacing_rate = "2 Mbit/s".parse().ok();
        assert!(settings.is_decided_on() && interval(&settings).is_some());
        settings = SessionSettings {
            policy: PolicyName::Auto,
            client: PolicyName::Auto.leg(LegSettings::default()),
            ..SessionSettings::default()
        };
        assert!(interval(&settings).is_some());
    }
}
