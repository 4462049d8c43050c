//! The next step of a session, decided from its two directions and the failures of its legs.
//!
//! Pure, like [`super::direction`]; the table of all cases is in the documentation of [`super`].

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

/// The next step of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Continue to move data.
    Continue,
    /// All data of both directions is forwarded: close both legs with a FIN.
    Close,
    /// The other leg failed, and all its data has been written to this leg: reset this leg as soon
    /// as its peer has acknowledged the data.
    Settle(Leg),
    /// Both legs failed: nothing can be delivered any more.
    Reset,
    /// The client has the answer to its request, or can be informed why there is none: close the
    /// server leg; the client's socket returns to the negotiation.
    HandOver,
}

impl Failures {
    /// Whether a leg has failed.
    pub const fn any(self) -> bool {
        self.client || self.server
    }

    /// Records a failure; returns whether it is the first of this leg.
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

/// The next step, given the direction to the server, the direction to the client, and the failures.
pub const fn step(to_server: &Direction, to_client: &Direction, failures: Failures) -> Step {
    match (failures.client, failures.server) {
        (true, true) => Step::Reset,
        (true, false) if to_server.is_done() => Step::Settle(Leg::Server),
        (false, true) if to_client.is_done() => Step::Settle(Leg::Client),
        (false, false) if to_server.is_done() && to_client.is_done() => Step::Close,
        _ => Step::Continue,
    }
}
