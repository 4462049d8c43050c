//! Access profiles: the access links of some clients, and the settings of the legs towards these
//! clients.

use std::collections::BTreeSet;
use std::net::IpAddr;

use midspan_gateway::initial_window::{MarkedRoute, ThroughDevice};
use midspan_policy::AccessLink;
use midspan_policy::oversized_segments::SegmentSizes;
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
    /// Rate of the access link towards the client, if it is known; data is paced to it.
    pub downstream: Option<BitRate>,
    /// Rate of the access link from the client, if it is known.
    pub upstream: Option<BitRate>,
    /// Sizes of oversized segments.
    pub oversized_segments: SegmentSizes,
    /// How far to send ahead of the advertised window.
    pub send_ahead: SendAhead,
    /// Largest fragments in bytes; `None`: for IPv4 the outgoing device's MTU, for IPv6
    /// [`SIX_FRAGMENT`].
    pub fragment_size: Option<u32>,
    /// Whether to negotiate TCP timestamps; without them an ACK has 12 bytes fewer.
    pub timestamps: bool,
    /// How long data may wait to fill an oversized segment.
    pub hold_to_fill: TimeSpan,
}

impl AccessProfile {
    /// The permitted segment sizes, in bytes of data, ascending.
    #[must_use]
    pub fn sizes(&self) -> Vec<u32> {
        self.oversized_segments
            .sizes(self.downstream, self.upstream)
    }

    /// The access link, as policies have it.
    #[must_use]
    pub const fn link(&self) -> AccessLink {
        AccessLink {
            downstream: self.downstream,
            upstream: self.upstream,
            oversized_segments: self.oversized_segments,
            send_ahead: self.send_ahead,
            hold_to_fill: Some(self.hold_to_fill),
        }
    }

    /// Whether legs towards its clients are changed by `TCP_REPAIR` before their first byte.
    #[must_use]
    pub fn needs_repair(&self) -> bool {
        !self.sizes().is_empty() || matches!(self.send_ahead, SendAhead::Ahead(_))
    }

    /// The oversized segments that may be sent.
    pub fn oversized(&self) -> impl Iterator<Item = Oversized> + use<> {
        let fragment_size = self.fragment_size;
        self.sizes().into_iter().map(move |size| Oversized {
            size,
            fragment_size,
        })
    }

    /// Length of the profile's prefix that matches the client; `None` if the profile does not apply
    /// to this client.
    fn precision(&self, client: IpAddr) -> Option<u8> {
        if self.clients.is_empty() {
            return Some(0);
        }
        let matching = self.clients.iter().filter(|of| of.contains(client));
        matching.map(|of| of.length).max()
    }
}

/// Index of the profile with the longest matching prefix; the first of equal ones.
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

/// Whether to leave out timestamps for a client.
#[must_use]
pub fn leaves_timestamps_out(profiles: &[AccessProfile], client: IpAddr) -> bool {
    let profile = find(profiles, client).and_then(|place| profiles.get(place));
    profile.is_some_and(|profile| !profile.timestamps)
}

/// Bytes of the IPv4 and TCP headers, without options.
pub const HEADERS: u32 = 40;

/// MTUs of clients whose own segments are smaller than the route permits: PPPoE, tunnels, the
/// minimum of IPv6. After a socket's MSS was raised, only a route limits its segments. A client
/// gets the largest of these MTUs that its own segments fit.
const SMALL_MTUS: [u32; 3] = [1492, 1400, 1280];

/// The window of slow start after an idle time, in bytes (RFC 6928 for normal segments).
const INITIAL_WINDOW: u32 = 14_600;

/// Bytes of the IPv6 and TCP headers, without options.
pub const SIX_HEADERS: u32 = 60;

/// Largest fragments of IPv6 packets, unless the profile sets another size: every path supports
/// them (RFC 8200, section 5).
pub const SIX_FRAGMENT: u32 = 1280;

const TCP_HEADER: u32 = 20;
/// Bytes of a fragment's headers.
const FOUR_FRAGMENT_HEADERS: u32 = 20;
/// 8 bytes more than the headers have. If the host tracks connections, its kernel reassembles the
/// fragments and cuts them again, for an MTU in which it does not count their fragment header.
const SIX_FRAGMENT_HEADERS: u32 = 56;

/// An oversized segment: its size and its fragments, which together select a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oversized {
    /// Bytes of data, as the policy computes it for IPv4 fragments of 1500 bytes.
    pub size: u32,
    /// Largest fragments in bytes; `None`: the kernel's for IPv4, and [`SIX_FRAGMENT`].
    pub fragment_size: Option<u32>,
}

impl Oversized {
    /// Bytes of data of the real segment: it fills as many whole fragments as possible, because the
    /// last fragment costs as much as the others.
    #[must_use]
    pub fn data(self, is_four: bool) -> u32 {
        let fitted = |fragment: u32, headers: u32| {
            let each = (fragment.saturating_sub(headers) / 8 * 8).max(8);
            let count = ((self.size + TCP_HEADER) / each).max(2);
            count * each - TCP_HEADER
        };
        match (is_four, self.fragment_size) {
            (true, None) => self.size,
            (true, Some(fragment)) => fitted(fragment, FOUR_FRAGMENT_HEADERS),
            (false, fragment) => fitted(fragment.unwrap_or(SIX_FRAGMENT), SIX_FRAGMENT_HEADERS),
        }
    }

    /// The segment's route.
    #[must_use]
    pub fn route(self) -> MarkedRoute {
        MarkedRoute {
            through_device: Some(ThroughDevice {
                ipv4: self.fragment_size.is_some(),
                ipv6_mtu: self.data(false) + SIX_HEADERS,
            }),
            ..route(self.data(true))
        }
    }
}

/// The route for segments of `size` bytes of data.
#[must_use]
pub fn route(size: u32) -> MarkedRoute {
    MarkedRoute {
        initial_window: Some((INITIAL_WINDOW / size.max(1)).clamp(2, 10)),
        locked_mtu: Some(size + HEADERS),
        through_device: None,
    }
}

/// The marks of segment sizes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentMarks {
    /// Oversized segments and their marks.
    pub oversized: Vec<(Oversized, u32)>,
    /// Sizes in bytes of data, and marks, of segments that are smaller than usual; the largest
    /// first.
    pub small: Vec<(u32, u32)>,
    /// Whether there is a fragmenter, for IPv6 and for fragments of another size than the kernel's.
    pub has_fragmenter: bool,
}

impl SegmentMarks {
    /// The marks that `mark` returns for each route.
    pub fn new(
        profiles: &[AccessProfile],
        has_fragmenter: bool,
        mark: impl Fn(MarkedRoute) -> Option<u32>,
    ) -> Self {
        let oversized = oversized(profiles).into_iter();
        let small = small_sizes(profiles).into_iter();
        Self {
            oversized: oversized
                .filter_map(|segment| Some((segment, mark(segment.route())?)))
                .collect(),
            small: small
                .filter_map(|size| Some((size, mark(route(size))?)))
                .collect(),
            has_fragmenter,
        }
    }

    /// The segments for clients of a profile: bytes of data and mark, ascending.
    #[must_use]
    pub fn oversized(&self, profile: &AccessProfile, is_four: bool) -> Vec<(u32, u32)> {
        let is_cut_by_ip = is_four && profile.fragment_size.is_none();
        if !is_cut_by_ip && !self.has_fragmenter {
            return Vec::new();
        }
        let wanted = profile.oversized();
        let found = wanted.filter_map(|wanted| {
            let (segment, mark) = self.oversized.iter().find(|(of, _)| *of == wanted)?;
            Some((segment.data(is_four), *mark))
        });
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        found.dedup_by_key(|(size, _)| *size);
        found
    }

    /// Size and mark of the largest small segment of at most `size`.
    #[must_use]
    pub fn small(&self, size: u32) -> Option<(u32, u32)> {
        self.small.iter().find(|(of, _)| *of <= size).copied()
    }
}

fn oversized(profiles: &[AccessProfile]) -> BTreeSet<Oversized> {
    profiles.iter().flat_map(AccessProfile::oversized).collect()
}

fn small_sizes(profiles: &[AccessProfile]) -> Vec<u32> {
    match wants_oversized(profiles) {
        false => Vec::new(),
        true => SMALL_MTUS.map(|mtu| mtu - HEADERS).to_vec(),
    }
}

/// Whether some clients may get oversized segments.
#[must_use]
pub fn wants_oversized(profiles: &[AccessProfile]) -> bool {
    profiles.iter().any(|of| of.oversized().next().is_some())
}

/// The routes that these profiles need.
#[must_use]
pub fn routes(profiles: &[AccessProfile]) -> Vec<MarkedRoute> {
    let large = oversized(profiles).into_iter().map(Oversized::route);
    let small = small_sizes(profiles).into_iter().map(route);
    large.chain(small).collect()
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
            oversized_segments: SegmentSizes::Fixed(4420),
            send_ahead: SendAhead::Off,
            fragment_size: None,
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
        let marks = SegmentMarks::new(&profiles, false, |route| route.locked_mtu);
        assert_eq!(marks.oversized(&profiles[0], true), [(4420, 4460)]);
        assert_eq!(marks.oversized(&profiles[0], false), []);
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

    #[test]
    fn segments_fill_the_fragments_of_their_family() {
        let smaller = AccessProfile {
            fragment_size: Some(1400),
            ..profile("a", "10.0.0.0", 8)
        };
        let profiles = [smaller, profile("b", "10.1.0.0", 16)];
        let marks = SegmentMarks::new(&profiles, true, |route| route.locked_mtu);
        // Three fragments of 1376 and of 1344 bytes, and for IPv6 of 1224.
        assert_eq!(marks.oversized(&profiles[0], true), [(4108, 4148)]);
        assert_eq!(marks.oversized(&profiles[0], false), [(4012, 4148)]);
        assert_eq!(marks.oversized(&profiles[1], true), [(4420, 4460)]);
        assert_eq!(marks.oversized(&profiles[1], false), [(3652, 4460)]);
        // Fragments that the kernel does not make itself need the fragmenter.
        let without = SegmentMarks::new(&profiles, false, |route| route.locked_mtu);
        assert_eq!(without.oversized(&profiles[0], true), []);
        assert_eq!(without.oversized(&profiles[1], true), [(4420, 4460)]);
    }
}
