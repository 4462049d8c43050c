//! What becomes of a session, seen from its two directions and what failed.
//!
//! Pure, as [`super::direction`]; the table of all cases stands in the documentation of
//! [`super`].

#[cfg(test)]
mod tests;

use midspan_policy::Leg;

use super::direction::Direction;

/// Which legs have failed: by a reset, a time-out or an unreachable peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failures {
    /// The leg towards the client.
    pub client: bool,
    /// The leg towards the server.
    pub server: bool,
}

/// What a session does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Go on moving data.
    Continue,
    /// All is forwarded both ways: close both legs in good order.
    Close,
    /// The other leg failed and all it delivered is written to this one: reset this one as soon
    /// as its peer has acknowledged that.
    Settle(Leg),
    /// Both legs failed: nothing can be delivered any more.
    Reset,
    /// The session's request has its answer, or the client can be told why it has none: close the
    /// server's leg; the client's goes back to the negotiation.
    HandOver,
}

impl Failures {
    /// Whether a leg has failed.
    pub const fn any(self) -> bool {
        self.client || self.server
    }

    /// Notes a failure; whether it is the first of this leg.
    pub const fn note(&mut self, leg: Leg) -> bool {
        let failed = match leg {
            Leg::Client => &mut self.client,
            Leg::Server => &mut self.server,
        };
        let is_first = !*failed;
        *failed = true;
        is_first
    }
}

/// The next step, given the direction from the client to the server, the one back, and what
/// failed.
pub const fn step(to_server: &Direction, to_client: &Direction, failures: Failures) -> Step {
    match (failures.client, failures.server) {
        (true, true) => Step::Reset,
        (true, false) if to_server.is_done() => Step::Settle(Leg::Server),
        (false, true) if to_client.is_done() => Step::Settle(Leg::Client),
        (false, false) if to_server.is_done() && to_client.is_done() => Step::Close,
        _ => Step::Continue,
    }
}
