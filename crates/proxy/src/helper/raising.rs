//! Raising initial windows at the handshake, where a transparent listener sends ahead on long legs.

use std::io;

use midspan_gateway::initial_window::{InitialWindows, Raise, RaisedWindows, RaisingPlace};
use midspan_linux::capability::{self, Capability};
use tracing::info;

use super::interception;
use crate::configuration::Configuration;

/// The capability that this needs. The helper keeps it in reserve, for reloads and for the next program of its process.
pub(super) const NEEDED: Capability = Capability::CAP_BPF;

/// What is in force.
#[derive(Debug)]
pub(super) struct Raising {
    place: io::Result<RaisingPlace>,
    raised: Option<RaisedWindows>,
    /// Whether the machine has refused it, which is logged once.
    was_refused: bool,
}

impl Raising {
    /// Puts what a configuration needs at the start in force, as far as the machine permits it.
    pub fn begin(configuration: &Configuration, windows: Option<&InitialWindows>) -> Self {
        let mut raising = Self {
            place: RaisingPlace::own(),
            raised: None,
            was_refused: false,
        };
        raising.change(configuration, windows);
        raising
    }

    /// The relay is about to get another configuration, in which it may leave windows without a bound that are raised now: none are
    /// until [`change`](Self::change) is called.
    pub fn pause(&mut self, next: &Configuration, windows: Option<&InitialWindows>) {
        if self.is_in_force(wanted(next, windows).as_ref()) {
            return;
        }
        self.raised = None;
    }

    /// The relay has this configuration now.
    pub fn change(&mut self, configuration: &Configuration, windows: Option<&InitialWindows>) {
        let wanted = wanted(configuration, windows);
        if self.is_in_force(wanted.as_ref()) {
            return;
        }
        self.raised = wanted.and_then(|raise| self.raise(raise));
    }

    fn is_in_force(&self, raise: Option<&Raise>) -> bool {
        self.raised.as_ref().map(RaisedWindows::raise) == raise
    }

    fn raise(&mut self, raise: Raise) -> Option<RaisedWindows> {
        let error = match &self.place {
            Ok(place) => match capability::with(NEEDED, || place.raise(raise)) {
                Ok(raised) => return Some(raised),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        if !std::mem::replace(&mut self.was_refused, true) {
            info!(
                "a long leg to an unknown client starts with the window that was chosen at its SYN: BPF cannot be \
                 used (needs Linux 5.15, CAP_BPF, CAP_NET_ADMIN and cgroup2): {error}"
            );
        }
        None
    }
}

fn wanted(configuration: &Configuration, windows: Option<&InitialWindows>) -> Option<Raise> {
    windows.and_then(|windows| interception::raise(configuration, windows))
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
