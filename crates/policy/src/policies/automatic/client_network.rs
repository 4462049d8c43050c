//! What sessions with other clients of the same network have left, and what a session leaves for them.

use std::net::IpAddr;

use midspan_units::Time;

use crate::automatic_ahead::LONG_HANDSHAKE;
use crate::learned_start::EVIDENCE;
use crate::{KnowledgeParts, PartKey, SessionSample};

/// A leg that lost fewer than 1 in this many segments is no evidence that its network is lossy.
const LOST: u64 = 1000;

/// Whether a new leg to this client is presumably long.
pub(super) fn is_long(now: Time, client: IpAddr, known: &mut dyn KnowledgeParts) -> bool {
    let measured = known.part(PartKey::paths(client)).paths.round_trip(client);
    match measured {
        Some(round_trip) => round_trip >= LONG_HANDSHAKE,
        None => {
            let network = known.part(PartKey::shared(client));
            network.long_legs.is_long(now, client)
        }
    }
}

/// Whether a new leg to this client, of which nothing is known, is presumably lossy.
pub(super) fn is_in_lossy_network(
    now: Time,
    client: IpAddr,
    known: &mut dyn KnowledgeParts,
) -> bool {
    let is_known = (known.part(PartKey::paths(client)).paths)
        .rate(now, client)
        .is_some();
    !is_known && (known.part(PartKey::shared(client)).long_legs).is_lossy(now, client)
}

/// Whether a new session with this client would be alone on its link.
pub(super) fn is_alone(now: Time, client: IpAddr, known: &mut dyn KnowledgeParts) -> bool {
    let network = known.part(PartKey::shared(client));
    network.loads.is_alone(now, client, None)
}

/// The session leaves what sending ahead has found out, whether its leg was long, and whether it was lossy
/// (`found_lossy`).
pub(super) fn note_end_of_ahead(
    now: Time,
    sample: &SessionSample,
    found_lossy: bool,
    known: &mut dyn KnowledgeParts,
) {
    let Some(request) = sample.request else {
        return;
    };
    let client = request.client.ip();
    (known.part(PartKey::paths(client)).ahead).note(now, client, &sample.ahead);
    let mut network = known.part(PartKey::shared(client));
    network.loads.forget(client, sample.session);
    if let Some(round_trip) = sample.client.minimum_round_trip_time {
        let leg = &sample.client;
        let is_lossy = (leg.bytes_acknowledged.bytes() >= EVIDENCE).then(|| {
            // A leg that began with BBR may be lossy no more.
            let (lost, sent) = (leg.segments_retransmitted, leg.segments_sent);
            found_lossy && u64::from(lost) * LOST >= u64::from(sent)
        });
        (network.long_legs).note(now, client, round_trip, is_lossy);
    }
}
