//! What a case is.

use std::time::Duration;

use midspan_conformance::Family;

use crate::gateway::{Firewall, Gateway};
use crate::needed::Needed;

/// How many sessions Midspan must have carried over each protocol when a case is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions {
    /// At least so many: else the programs went past Midspan, and nothing was tried.
    AtLeast(usize),
    /// None: Midspan must let these connections pass untouched.
    None,
    /// Not looked at.
    Any,
}

/// A server, a client, and what they need.
///
/// Scripts are run by bash, with the functions of `prelude.sh`. What the client's script prints is
/// compared, line by line; so is its exit status, which must be 0 with plain routing.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Lower case, in words, with names of programs as they are written.
    pub name: &'static str,
    /// Programs and files that must be there.
    pub needs: &'static [Needed],
    /// Run once, before the first run: makes what all runs use, in `$COMMON`.
    pub prepare: &'static str,
    /// Run on the gateway before Midspan starts.
    pub gateway: &'static str,
    /// Starts the server, says `ready`, and may go on. Empty where there is no server.
    pub server: &'static str,
    /// What the user does, and sees.
    pub client: &'static str,
    /// Over which protocols.
    pub families: &'static [Family],
    /// The explicit proxies that the client's script can use.
    pub explicit: &'static [Gateway],
    /// What stands on the gateway.
    pub firewall: Firewall,
    /// How many sessions there must have been.
    pub sessions: Sessions,
    /// How long the client may take.
    pub limit: Duration,
    /// Needs more users than root, which an ordinary user's namespace does not have.
    pub several_users: bool,
}

impl Case {
    /// A case like most: both protocols, the guide's firewall, one session or more, three minutes.
    #[must_use]
    pub const fn new(name: &'static str, needs: &'static [Needed]) -> Self {
        Self {
            name,
            needs,
            prepare: "",
            gateway: "",
            server: "",
            client: "",
            families: &[Family::V4, Family::V6],
            explicit: &[],
            firewall: Firewall::Guide,
            sessions: Sessions::AtLeast(1),
            limit: Duration::from_secs(180),
            several_users: false,
        }
    }

    pub(crate) const fn prepare(mut self, script: &'static str) -> Self {
        self.prepare = script;
        self
    }

    pub(crate) const fn gateway(mut self, script: &'static str) -> Self {
        self.gateway = script;
        self
    }

    pub(crate) const fn server(mut self, script: &'static str) -> Self {
        self.server = script;
        self
    }

    pub(crate) const fn client(mut self, script: &'static str) -> Self {
        self.client = script;
        self
    }

    pub(crate) const fn ipv4_only(mut self) -> Self {
        self.families = &[Family::V4];
        self
    }

    pub(crate) const fn explicit(mut self, gateways: &'static [Gateway]) -> Self {
        self.explicit = gateways;
        self
    }

    pub(crate) const fn routed(mut self) -> Self {
        self.firewall = Firewall::Routed;
        self
    }

    pub(crate) const fn sessions(mut self, sessions: Sessions) -> Self {
        self.sessions = sessions;
        self
    }

    pub(crate) const fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    pub(crate) const fn several_users(mut self) -> Self {
        self.several_users = true;
        self
    }

    /// Whether it runs with this on the gateway.
    #[must_use]
    pub fn runs_with(&self, gateway: Gateway) -> bool {
        !gateway.is_explicit() || self.explicit.contains(&gateway)
    }
}
