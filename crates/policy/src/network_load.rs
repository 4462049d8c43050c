//! What the sessions of each network of clients have in flight over long legs.
//!
//! At first, a new session is limited by the client's window and by its own congestion window. A session that
//! is alone on its link may go beyond both, as far as measurements allow. But the sessions of
//! one network (an IPv4 /24, an IPv6 /48) presumably share a link: the connections of a web page, or
//! the clients of one satellite beam. A session that goes ahead there takes capacity from the others, whose
//! windows grow only once in a round trip. So a session goes ahead only while all others
//! of its network together have at most ten segments in flight.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_units::Time;

use crate::SessionId;
use crate::initial_window::LEAST_WINDOW;
use crate::learned_start::SEGMENT;
use crate::part_limit::part_limit;
use crate::prefix::site_prefix;

/// Largest number of networks, if the memory is not divided.
const NETWORKS: usize = 16_384;
/// Largest number of sessions of one network whose data is counted. This many in flight are more than
/// enough to keep another one from going ahead.
const SESSIONS: usize = 64;
/// Bytes that the other sessions of a network together may have in flight next to a session that goes
/// ahead: as much as any connection may send at once (RFC 6928), such as keepalives and short answers.
const LITTLE: u64 = LEAST_WINDOW as u64 * SEGMENT as u64;

/// The bytes that sessions have in flight, grouped by the network of the client.
///
/// Call [`note`](Self::note) whenever the state of a session is read, and [`forget`](Self::forget) when the
/// session ends.
#[derive(Debug, Clone)]
pub struct NetworkLoads {
    /// For each session, its bytes in flight and the time until which this reading counts.
    networks: BTreeMap<IpNet, BTreeMap<SessionId, (Time, u64)>>,
    /// Largest number of networks.
    limit: usize,
}

impl Default for NetworkLoads {
    fn default() -> Self {
        Self::part_of(1)
    }
}

impl NetworkLoads {
    /// One of `parts` parts of a divided memory.
    #[must_use]
    pub(crate) const fn part_of(parts: usize) -> Self {
        Self {
            networks: BTreeMap::new(),
            limit: part_limit(NETWORKS, parts),
        }
    }

    /// A session with this client has `bytes` in flight. The reading counts until `end`.
    pub fn note(
        &mut self,
        now: Time,
        client: IpAddr,
        session: SessionId,
        (bytes, end): (u64, Time),
    ) {
        if bytes == 0 {
            self.forget(client, session);
            return;
        }
        let network = site_prefix(client);
        if self.networks.len() >= self.limit && !self.networks.contains_key(&network) {
            return;
        }
        let sessions = self.networks.entry(network).or_default();
        if sessions.len() >= SESSIONS {
            sessions.retain(|_, (end, _)| *end > now);
        }
        if sessions.len() < SESSIONS || sessions.contains_key(&session) {
            sessions.insert(session, (end, bytes));
        }
    }

    /// Whether a session with this client, or a new one, is alone: the others of the network have hardly
    /// anything in flight. Of a network that has no place here, nothing is known: its sessions do not
    /// count as alone.
    #[must_use]
    pub fn is_alone(&self, now: Time, client: IpAddr, session: Option<SessionId>) -> bool {
        let Some(sessions) = self.networks.get(&site_prefix(client)) else {
            return self.networks.len() < self.limit;
        };
        let others = sessions.iter().filter(|(id, _)| Some(**id) != session);
        let present = others.filter(|(_, (end, _))| *end > now);
        let bytes = present.map(|(_, (_, bytes))| *bytes);
        bytes.fold(0, u64::saturating_add) <= LITTLE
    }

    /// A session with this client has ended, or has nothing in flight.
    pub fn forget(&mut self, client: IpAddr, session: SessionId) {
        let network = site_prefix(client);
        if let Some(sessions) = self.networks.get_mut(&network) {
            sessions.remove(&session);
            if sessions.is_empty() {
                self.networks.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::TimeSpan;
    use proptest::prelude::*;

    fn client(network: u32, last: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + (network << 8) + last).to_be_bytes())
    }

    fn seconds(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    /// A session has this many segments in flight, until a second has passed.
    fn note(loads: &mut NetworkLoads, now: u64, network: u32, session: u64, segments: u64) {
        let bytes = segments * u64::from(SEGMENT);
        let place = client(network, u32::try_from(session % 200).unwrap());
        loads.note(
            seconds(now),
            place,
            SessionId(session),
            (bytes, seconds(now + 1)),
        );
    }

    #[test]
    fn a_session_is_alone_until_others_of_its_network_carry_data() {
        let mut loads = NetworkLoads::default();
        let one = Some(SessionId(1));
        let is_alone =
            |loads: &NetworkLoads, session| loads.is_alone(seconds(0), client(0, 1), session);
        assert!(is_alone(&loads, None));
        // Its own data does not count, but a new session would not be alone.
        note(&mut loads, 0, 0, 1, 1_000);
        assert!(is_alone(&loads, one) && !is_alone(&loads, None));
        // A little data of others does no harm, and data of another network is no data of others.
        note(&mut loads, 0, 0, 2, 5);
        note(&mut loads, 0, 0, 3, 5);
        note(&mut loads, 0, 9, 4, 1_000);
        assert!(is_alone(&loads, one));
        note(&mut loads, 0, 0, 3, 6);
        assert!(!is_alone(&loads, one));
        note(&mut loads, 0, 0, 3, 0);
        assert!(is_alone(&loads, one));
    }

    #[test]
    fn a_reading_counts_for_its_time_and_until_the_end_of_the_session() {
        let mut loads = NetworkLoads::default();
        note(&mut loads, 0, 0, 1, 100);
        let is_alone = |loads: &NetworkLoads, now| loads.is_alone(seconds(now), client(0, 7), None);
        assert!(!is_alone(&loads, 0) && is_alone(&loads, 1));
        loads.forget(client(0, 1), SessionId(1));
        assert!(is_alone(&loads, 0));
        assert!(loads.networks.is_empty());
        // Of another network, and twice.
        loads.forget(client(3, 1), SessionId(1));
    }

    #[test]
    fn a_full_memory_lets_none_go_ahead() {
        let mut loads = NetworkLoads::part_of(64);
        for network in 0..400 {
            note(&mut loads, 0, network, u64::from(network), 100);
        }
        assert_eq!(loads.networks.len(), part_limit(NETWORKS, 64));
        assert!(!loads.is_alone(seconds(0), client(399, 1), Some(SessionId(399))));
        let mut loads = NetworkLoads::default();
        for session in 0..100 {
            note(&mut loads, 0, 0, session, 1);
        }
        assert_eq!(loads.networks[&site_prefix(client(0, 0))].len(), SESSIONS);
        assert!(!loads.is_alone(seconds(0), client(0, 1), Some(SessionId(99))));
        // Later, the places of the old readings are free again.
        note(&mut loads, 2, 0, 99, 1_000);
        assert!(loads.is_alone(seconds(2), client(0, 1), Some(SessionId(99))));
        assert!(!loads.is_alone(seconds(2), client(0, 1), Some(SessionId(1))));
    }

    proptest! {
        /// Of all sessions that count, at most one is alone with much data in flight.
        #[test]
        fn two_sessions_with_much_data_are_never_both_alone(
            steps in proptest::collection::vec((0_u64..3, 0_u64..100, 0_u64..400), 0..200),
        ) {
            let mut loads = NetworkLoads::default();
            let mut now = 0;
            for (later, session, segments) in steps {
                now += later;
                note(&mut loads, now, 0, session, segments);
                let sessions = loads.networks.get(&site_prefix(client(0, 0)));
                let much = sessions.into_iter().flatten();
                let much = much.filter(|(_, (end, bytes))| *end > seconds(now) && *bytes > LITTLE);
                let alone = much.filter(|(id, _)| {
                    loads.is_alone(seconds(now), client(0, 0), Some(**id))
                });
                prop_assert!(alone.count() <= 1);
            }
        }
    }
}
