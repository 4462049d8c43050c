//! The type of a case.

use std::time::Duration;

use midspan_conformance::Family;

use crate::gateway::{Firewall, Gateway};
use crate::needed::Needed;

/// The number of sessions that Midspan must have carried over each protocol by the end of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions {
    /// At least this many. With fewer sessions, the programs' connections did not go through
    /// Midspan, and the case tested nothing.
    AtLeast(usize),
    /// None: Midspan must let these connections pass untouched.
    None,
    /// The number is not checked.
    Any,
}

/// A server, a client, and their requirements.
///
/// bash runs the scripts, with the functions of `prelude.sh`. The output of the client's script is
/// compared line by line, and so is its exit status, which must be 0 with plain routing.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The name, in lower case, as words; names of programs are written as usual.
    pub name: &'static str,
    /// Programs and files that must be installed.
    pub needs: &'static [Needed],
    /// A script that runs once, before the first run. It makes the files that all runs use, in
    /// `$COMMON`.
    pub prepare: &'static str,
    /// A script that runs on the gateway before Midspan starts.
    pub gateway: &'static str,
    /// A script that starts the server and then calls `ready`; it may continue to run. Empty if
    /// there is no server.
    pub server: &'static str,
    /// The client's script: the actions of a user; it prints their results.
    pub client: &'static str,
    /// The protocols over which the case runs.
    pub families: &'static [Family],
    /// The explicit proxies that the client's script can use.
    pub explicit: &'static [Gateway],
    /// The firewall of the gateway.
    pub firewall: Firewall,
    /// The required number of sessions.
    pub sessions: Sessions,
    /// Time limit of the client's script.
    pub limit: Duration,
    /// The case needs other users than root, which do not exist in an ordinary user's namespace.
    pub several_users: bool,
}

impl Case {
    /// A case with the usual properties: both protocols, the guide's firewall, at least one
    /// session, three minutes.
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

    /// Whether the case runs with this kind of gateway.
    #[must_use]
    pub fn runs_with(&self, gateway: Gateway) -> bool {
        !gateway.is_explicit() || self.explicit.contains(&gateway)
    }
}
