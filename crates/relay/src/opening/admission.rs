//! Which connections an acceptor admits, and which of them it relays plainly: by the policy, and by the
//! [suspects](midspan_policy::suspects).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_policy::suspects::Treatment;
use midspan_policy::{Admission, Request};
use midspan_units::{Dscp, Time, TimeSpan};

use super::Acceptor;
use crate::arrival::Arrival;

/// The policy's decision about a client that has named a server.
#[derive(Debug, Clone, Copy)]
pub struct Admitted {
    /// Longest time for connecting to the server.
    pub connect_timeout: Option<TimeSpan>,
    /// The session is relayed without any mechanism.
    pub is_plain: bool,
    /// Options of the client's leg that the kernel refused.
    pub option_errors: u64,
}

impl Acceptor {
    /// What happens to a client that connects to this listener and has not named a server yet, because
    /// a fault may have happened in a negotiation of this client. Nothing of a negotiation can be left out, so
    /// the client negotiates all the same until it is [`Refused`](Treatment::Refused).
    pub fn treatment(&self, client: SocketAddr, now: Time) -> Treatment {
        match self.listener.listen {
            Some(server) => self.suspects.treatment(now, &Request { client, server }),
            None => Treatment::Usual,
        }
    }

    /// Whether the session of a client with this server is relayed plainly, unless it is refused.
    pub fn is_plain(&self, now: Time, request: &Request) -> bool {
        self.suspects.includes(now, request)
    }

    /// Whether the policy admits a connection, whose settings are changed accordingly.
    pub(super) fn is_admitted(&mut self, now: Time, arrival: &mut Arrival) -> bool {
        match self.policy.admit(now, &arrival.request) {
            Admission::Refuse => return false,
            Admission::Bypass => arrival.is_bypassed = true,
            Admission::Intercept {
                connect_timeout, ..
            } => arrival.connect_timeout = connect_timeout,
        }
        true
    }

    /// Whether a client may connect to the server that it named; `None` if the policy refuses, or if the
    /// two are suspects that are refused.
    pub fn admit(&mut self, now: Time, client: &OwnedFd, request: &Request) -> Option<Admitted> {
        let treatment = self.suspects.treatment(now, request);
        if treatment == Treatment::Refused {
            return None;
        }
        let (connect_timeout, is_bypassed) = match self.policy.admit(now, request) {
            Admission::Refuse => return None,
            Admission::Bypass => (None, true),
            Admission::Intercept {
                connect_timeout, ..
            } => (connect_timeout, false),
        };
        let is_plain = is_bypassed || treatment == Treatment::Plain;
        let option_errors = match is_plain {
            true => 0,
            false => {
                let start = self.start_client(now, request, None);
                // Its class was set when it was accepted.
                self.set_up_client(client, start, Dscp::default())
            }
        };
        Some(Admitted {
            connect_timeout,
            is_plain,
            option_errors,
        })
    }
}
