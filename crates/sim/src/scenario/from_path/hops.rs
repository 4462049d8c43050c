//! How the legs between overlay nodes begin.

use midspan_units::TimeSpan;

use crate::scenario::{Scenario, Split, base_round_trip};

/// How the connections between overlay nodes begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HopStart {
    /// Each is opened for its session: its handshake takes a round trip, and then its request and the
    /// answer another one. No packet of the handshake is lost. The ingress sends the client's first data with its
    /// request, so its data waits for one of these two round trips only: here, for the request and the answer.
    #[default]
    Cold,
    /// Each is open before its session: only the request and the answer take a round trip, for which the client's first
    /// data waits, too. cwnd and the receive window are those of a new connection.
    Warm,
}

/// Makes overlay hops of the legs between the splits of a flow, in whichever direction they are listed.
pub(super) fn set(scenario: &Scenario, splits: &mut [Split], start: HopStart) {
    for place in 1..splits.len() {
        let [from, to] = [place - 1, place].map(|place| splits[place].node);
        let round_trip = base_round_trip(scenario, from, to).unwrap_or_default();
        splits[place].relay.inbound_hop = true;
        splits[place - 1].outbound.hop_round_trip = Some(round_trip);
        let is_ingress = !splits[place - 1].relay.inbound_hop;
        splits[place - 1].relay.connect_time = match start {
            HopStart::Cold if !is_ingress => round_trip,
            HopStart::Cold | HopStart::Warm => TimeSpan::ZERO,
        };
    }
}
