//! Raising initial windows at the handshake, where a transparent listener sends ahead on long legs.

use midspan_gateway::initial_window::{InitialWindows, RaisedWindows};
use tracing::{info, warn};

use super::interception;
use crate::configuration::Configuration;

/// What is in force.
#[derive(Debug, Default)]
pub(super) struct Raising {
    raised: Option<RaisedWindows>,
    /// Whether the machine refused it at the start.
    was_refused: bool,
}

impl Raising {
    /// Puts in force what a configuration at start needs, as far as the machine permits it.
    pub fn begin(configuration: &Configuration, windows: Option<&InitialWindows>) -> Self {
        let wanted = windows.and_then(|windows| interception::raise(configuration, windows));
        let Some(raise) = wanted else {
            return Self::default();
        };
        match RaisedWindows::install(raise) {
            Ok(raised) => Self {
                raised: Some(raised),
                was_refused: false,
            },
            Err(error) => {
                info!(
                    "a long leg to an unknown client starts with the window that was chosen at its SYN: BPF cannot be \
                     used (needs Linux 5.15, CAP_BPF, CAP_NET_ADMIN and cgroup2): {error}"
                );
                Self {
                    raised: None,
                    was_refused: true,
                }
            }
        }
    }

    /// The configuration in force is replaced. This process no longer has the capability to load another program, so what the
    /// new configuration does not need as it is ends.
    pub fn change(&mut self, configuration: &Configuration, windows: Option<&InitialWindows>) {
        let wanted = windows.and_then(|windows| interception::raise(configuration, windows));
        if self.raised.as_ref().map(RaisedWindows::raise) == wanted.as_ref() {
            return;
        }
        self.raised = None;
        if wanted.is_some() && !self.was_refused {
            warn!(
                "a long leg to an unknown client starts with the window that was chosen at its SYN: the windows have \
                 changed. Restart Midspan to raise windows at the handshake"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(listener: &str) -> Configuration {
        let text = format!(
            "[[listener]]\nname = \"l\"\nmode = \"transparent\"\ninterfaces = [\"eth1\"]\n{listener}"
        );
        Configuration::read(&midspan_document::Source::new("test", text)).unwrap()
    }

    #[test]
    fn only_windows_of_listeners_that_bound_them_are_raised() {
        let of = |listener: &str| {
            let windows = interception::raised_windows(&configuration(listener));
            windows.into_iter().collect::<Vec<_>>()
        };
        let auto = "policy = \"auto\"\n";
        assert_eq!(of(auto), [80, 640]);
        assert_eq!(of(""), [0_u32; 0]);
        let off = "client_leg = { sending_ahead = \"off\" }\n";
        assert_eq!(of(&format!("{auto}{off}")), [0_u32; 0]);
        let second =
            "[[listener]]\nname = \"m\"\nmode = \"transparent\"\ninterfaces = [\"eth2\"]\n";
        assert_eq!(of(&format!("{auto}{second}{auto}{off}")), [0_u32; 0]);
        let less = "learned_window_limit = 80\n";
        assert_eq!(of(&format!("{auto}{less}")), [80]);
        let both = format!("{auto}{second}{auto}{less}");
        assert_eq!(of(&both), [640]);
        let fixed = "client_leg = { initial_window = 80 }\n";
        assert_eq!(of(&format!("{auto}{second}{fixed}")), [640]);
    }
}
