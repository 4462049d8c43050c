//! Access profiles: what is known of the access links of some clients, and what follows from it
//! for the legs towards them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use midspan_linux::initial_window::MarkedRoute;
use midspan_policy::oversized_segments::Wish;
use midspan_policy::sending_ahead::SendAhead;
use midspan_units::{BitRate, TimeSpan};
use serde::{Deserialize, Serialize};

use crate::access::Network;

/// Clients behind one kind of access link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessProfile {
    /// Its name.
    pub name: String,
    /// The clients; empty for all.
    pub clients: Vec<Network>,
    /// Rate of the access link towards the client, if it is known; what is sent is paced to it.
    pub downstream: Option<BitRate>,
    /// Rate of the access link from the client, if it is known.
    pub upstream: Option<BitRate>,
    /// Which segments are sent.
    pub oversized_segments: Wish,
    /// How far ahead of the advertised window.
    pub send_ahead: SendAhead,
    /// Whether TCP's timestamps are agreed on; without them an ACK has 12 bytes fewer.
    pub timestamps: bool,
    /// How long data may wait to fill an oversized segment.
    pub hold_to_fill: TimeSpan,
}

impl AccessProfile {
    /// The sizes of segments that may be used, in bytes of data, ascending.
    #[must_use]
    pub fn sizes(&self) -> Vec<u32> {
        self.oversized_segments
            .sizes(self.downstream, self.upstream)
    }

    /// How many bits of the client's address it names; `None` where it is not for this client.
    fn precision(&self, client: IpAddr) -> Option<u8> {
        if self.clients.is_empty() {
            return Some(0);
        }
        let matching = self.clients.iter().filter(|of| of.contains(client));
        matching.map(|of| of.length).max()
    }
}

/// The profile that names the client most precisely, by its place; the first of equal ones.
#[must_use]
pub fn find(profiles: &[AccessProfile], client: IpAddr) -> Option<usize> {
    let mut best: Option<(u8, usize)> = None;
    for (place, profile) in profiles.iter().enumerate() {
        if let Some(precision) = profile.precision(client)
            && best.is_none_or(|(most, _)| precision > most)
        {
            best = Some((precision, place));
        }
    }
    best.map(|(_, place)| place)
}

/// Whether no timestamps are to be agreed on with a client.
#[must_use]
pub fn leaves_timestamps_out(profiles: &[AccessProfile], client: IpAddr) -> bool {
    let profile = find(profiles, client).and_then(|place| profiles.get(place));
    profile.is_some_and(|profile| !profile.timestamps)
}

/// Bytes of the IPv4 and TCP headers, without options.
pub const HEADERS: u32 = 40;

/// MTUs of clients whose own segments are smaller than the route has room for: PPPoE, tunnels,
/// the least of IPv6. Once a socket has been told a larger MSS, only a route holds its segments
/// down; a client gets the largest of these that it has room for.
const SMALL_MTUS: [u32; 3] = [1492, 1400, 1280];

/// What slow start begins with after an idle time, in bytes (RFC 6928 for normal segments).
const INITIAL_WINDOW: u32 = 14_600;

/// The route for segments of `size` bytes of data.
#[must_use]
pub fn route(size: u32) -> MarkedRoute {
    MarkedRoute {
        initial_window: Some((INITIAL_WINDOW / size.max(1)).clamp(2, 10)),
        locked_mtu: Some(size + HEADERS),
    }
}

/// Which mark makes which segments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentMarks {
    /// Size in bytes of data and mark of oversized segments.
    pub oversized: Vec<(u32, u32)>,
    /// The same of segments that are smaller than usual, largest first.
    pub small: Vec<(u32, u32)>,
}

impl SegmentMarks {
    /// With the marks that `mark` gives to routes.
    pub fn new(profiles: &[AccessProfile], mark: impl Fn(MarkedRoute) -> Option<u32>) -> Self {
        let marked = |size: u32| Some((size, mark(route(size))?));
        Self {
            oversized: oversized_sizes(profiles)
                .into_iter()
                .filter_map(marked)
                .collect(),
            small: small_sizes(profiles)
                .into_iter()
                .filter_map(marked)
                .collect(),
        }
    }

    /// The mark of an oversized segment.
    #[must_use]
    pub fn oversized(&self, size: u32) -> Option<u32> {
        let found = self.oversized.iter().find(|(of, _)| *of == size);
        found.map(|(_, mark)| *mark)
    }

    /// Size and mark of the largest small segment of at most `size`.
    #[must_use]
    pub fn small(&self, size: u32) -> Option<(u32, u32)> {
        self.small.iter().find(|(of, _)| *of <= size).copied()
    }
}

fn oversized_sizes(profiles: &[AccessProfile]) -> BTreeSet<u32> {
    profiles.iter().flat_map(AccessProfile::sizes).collect()
}

fn small_sizes(profiles: &[AccessProfile]) -> Vec<u32> {
    match oversized_sizes(profiles).is_empty() {
        true => Vec::new(),
        false => SMALL_MTUS.map(|mtu| mtu - HEADERS).to_vec(),
    }
}

/// The routes that these profiles need.
#[must_use]
pub fn routes(profiles: &[AccessProfile]) -> Vec<MarkedRoute> {
    let sizes = oversized_sizes(profiles).into_iter();
    sizes.chain(small_sizes(profiles)).map(route).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str, prefix: &str, length: u8) -> AccessProfile {
        AccessProfile {
            name: name.to_owned(),
            clients: vec![Network {
                address: prefix.parse().unwrap(),
                length,
            }],
            downstream: None,
            upstream: None,
            oversized_segments: Wish::Fixed(4420),
            send_ahead: SendAhead::Off,
            timestamps: true,
            hold_to_fill: TimeSpan::ZERO,
        }
    }

    #[test]
    fn the_most_precise_profile_counts() {
        let all = AccessProfile {
            clients: Vec::new(),
            ..profile("all", "0.0.0.0", 0)
        };
        let profiles = [
            all,
            profile("a", "10.0.0.0", 8),
            profile("b", "10.1.0.0", 16),
        ];
        let found = |client: &str| find(&profiles, client.parse().unwrap());
        assert_eq!(found("10.1.2.3"), Some(2));
        assert_eq!(found("10.2.2.3"), Some(1));
        assert_eq!(found("192.0.2.1"), Some(0));
        assert_eq!(find(&profiles[1..], "192.0.2.1".parse().unwrap()), None);
    }

    #[test]
    fn a_client_gets_the_largest_small_segment_it_has_room_for() {
        let profiles = [profile("a", "10.0.0.0", 8)];
        let marks = SegmentMarks::new(&profiles, |route| route.locked_mtu);
        assert_eq!(marks.oversized(4420), Some(4460));
        assert_eq!(marks.oversized(1452), None);
        assert_eq!(marks.small(1452), Some((1452, 1492)));
        assert_eq!(marks.small(1451), Some((1360, 1400)));
        assert_eq!(marks.small(1000), None);
        assert_eq!(routes(&profiles).len(), 4);
        assert!(routes(&[]).is_empty());
    }

    #[test]
    fn windows_after_an_idle_time_are_counted_in_bytes() {
        let window = |size| route(size).initial_window;
        assert_eq!(window(1452), Some(10));
        assert_eq!(window(4420), Some(3));
        assert_eq!(window(13_300), Some(2));
    }
}
