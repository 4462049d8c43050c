//! A start that knows the path: what earlier connections to a peer taught.
//!
//! A connection begins with ten segments (RFC 6928) and takes round trips to find out what its
//! path carries, though the one before it knew. Here what a path carries, delivery rate times
//! smallest round trip, is remembered for each client (an IPv4 address, an IPv6 /64), as far as RFC 9040
//! lets connections share what they know: it ages, is halved after starts that lost, and is
//! shared by all that start at the same time, so that many at once do not flood the path.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midspan_units::{BitRate, Time, TimeSpan};

use crate::LegSample;
use crate::congestion::LONG;

/// Most peers that are remembered.
const PEERS: usize = 65_536;
/// What was learned is halved in each such time.
const HALF_LIFE: TimeSpan = TimeSpan::from_seconds(600);
/// And forgotten after so many.
const LIVES: u64 = 6;
/// A connection that delivered less has not found out what its path carries.
const EVIDENCE: u64 = 100_000;
/// Part of what the path carries that one start may take, as a fraction.
const SHARE: (u64, u64) = (1, 2);
/// RFC 6928.
const LEAST_WINDOW: u32 = 10;
/// What a route is given at most.
const MOST_WINDOW: u32 = 1000;
/// Times that the share is halved at most.
const HALVINGS: u8 = 5;
/// Starts of one peer that count as in flight at the same time, at most.
const STARTS: usize = 256;

/// Those that share a path: an IPv4 address, or an IPv6 /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                Self(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
            address => Self(address),
        }
    }
}

/// How a connection is to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedStart {
    /// Initial window in segments.
    pub window: u32,
    /// Rate of the first flight, where the path is known: that of the path, divided by those that
    /// start at the same time.
    pub rate: Option<BitRate>,
    /// Earlier connections found the path long and lossy.
    pub is_lossy: bool,
}

/// What is known of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What it delivers.
    pub rate: BitRate,
    /// It is long, and loses segments though there is no queue.
    pub is_lossy: bool,
}

#[derive(Debug, Clone)]
struct Path {
    noted: Time,
    rate: u64,
    round_trip: TimeSpan,
    is_lossy: bool,
    halvings: u8,
    /// Bytes of starts, each in flight until its time.
    starts: VecDeque<(Time, u64)>,
}

/// What the sessions of a proxy know together: clones share it.
#[derive(Debug, Clone, Default)]
pub struct Knowledge(Arc<Mutex<LearnedPaths>>);

impl Knowledge {
    /// What is known of paths.
    pub fn paths(&self) -> MutexGuard<'_, LearnedPaths> {
        // A panic elsewhere leaves numbers behind that are as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of the paths to all peers.
#[derive(Debug, Clone, Default)]
pub struct LearnedPaths {
    paths: BTreeMap<Peer, Path>,
    /// Peers in the order in which they were noted first.
    order: VecDeque<Peer>,
}

impl LearnedPaths {
    /// A connection with this peer was measured, at its end or before.
    pub fn note(&mut self, now: Time, peer: Peer, leg: &LegSample, is_lossy: bool) {
        let (Some(rate), Some(round_trip)) = (leg.delivery_rate, leg.minimum_round_trip_time)
        else {
            return;
        };
        if leg.bytes_acknowledged.bytes() < EVIDENCE {
            return;
        }
        if !self.paths.contains_key(&peer) {
            while self.order.len() >= PEERS {
                if let Some(oldest) = self.order.pop_front() {
                    self.paths.remove(&oldest);
                }
            }
            self.order.push_back(peer);
        }
        let path = self.paths.entry(peer).or_insert_with(|| Path {
            noted: now,
            rate: 0,
            round_trip,
            is_lossy: false,
            halvings: 0,
            starts: VecDeque::new(),
        });
        // Of several at once each delivers a part; the largest lately says most.
        path.rate = path.aged_rate(now).max(rate.bits_per_second());
        path.round_trip = path.round_trip.min(round_trip);
        path.noted = now;
        path.is_lossy = is_lossy && round_trip >= LONG;
        let segments = leg.bytes_acknowledged.bytes() / u64::from(leg.segment_size.max(1));
        // Losses on a path that is known for them say nothing about the start.
        let has_lost = !is_lossy && u64::from(leg.segments_retransmitted) * 50 > segments;
        path.halvings = match has_lost {
            true => (path.halvings + 1).min(HALVINGS),
            false => path.halvings.saturating_sub(1),
        };
    }

    /// A connection with this peer starts now, in segments of this size.
    pub fn start(&mut self, now: Time, peer: Peer, segment_size: u32) -> LearnedStart {
        let unknown = LearnedStart {
            window: LEAST_WINDOW,
            rate: None,
            is_lossy: false,
        };
        let Some(path) = self.paths.get_mut(&peer) else {
            return unknown;
        };
        let Some(rate) = BitRate::from_bits_per_second(path.aged_rate(now)) else {
            return unknown;
        };
        path.starts.retain(|(end, _)| *end > now);
        let in_flight: u64 = path.starts.iter().map(|(_, bytes)| *bytes).sum();
        let (numerator, denominator) = SHARE;
        let carried = rate.bytes_in(path.round_trip) >> path.halvings;
        let share = carried.saturating_sub(in_flight) / denominator * numerator;
        let segment = u64::from(segment_size.max(1));
        let window = u32::try_from(share / segment).unwrap_or(MOST_WINDOW);
        let window = window.clamp(LEAST_WINDOW, MOST_WINDOW);
        let starts = path.starts.len() as u64 + 1;
        if path.starts.len() < STARTS {
            let end = now + path.round_trip;
            path.starts.push_back((end, u64::from(window) * segment));
        }
        LearnedStart {
            window,
            rate: BitRate::from_bits_per_second(rate.bits_per_second() / starts),
            is_lossy: path.is_lossy,
        }
    }

    /// What is known of the path to this peer.
    #[must_use]
    pub fn known(&self, now: Time, peer: Peer) -> Option<Known> {
        let path = self.paths.get(&peer)?;
        Some(Known {
            rate: BitRate::from_bits_per_second(path.aged_rate(now))?,
            is_lossy: path.is_lossy,
        })
    }

    /// Peers that are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

impl Path {
    /// 0 where it is too old to be of use.
    fn aged_rate(&self, now: Time) -> u64 {
        let lives = now.since(self.noted).nanoseconds() / HALF_LIFE.nanoseconds();
        if lives >= LIVES {
            0
        } else {
            self.rate >> lives
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::ByteSize;
    use proptest::prelude::*;

    fn peer(last: u8) -> Peer {
        IpAddr::from([192, 0, 2, last]).into()
    }

    /// 20 Mbit/s and 600 ms: 1.5 MB.
    fn satellite(retransmitted: u32) -> LegSample {
        LegSample {
            delivery_rate: Some("20 Mbit/s".parse().unwrap()),
            minimum_round_trip_time: Some(TimeSpan::from_milliseconds(600)),
            bytes_acknowledged: ByteSize::from_bytes(10_000_000),
            segment_size: 1000,
            segments_retransmitted: retransmitted,
            ..LegSample::default()
        }
    }

    fn seconds(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    #[test]
    fn half_of_what_the_path_carries_is_the_window_of_the_next_connection() {
        let mut paths = LearnedPaths::default();
        assert_eq!(paths.start(Time::ZERO, peer(1), 1000).window, 10);
        paths.note(Time::ZERO, peer(1), &satellite(0), true);
        let start = paths.start(Time::ZERO, peer(1), 1000);
        assert_eq!(start.window, 750);
        assert_eq!(start.rate, satellite(0).delivery_rate);
        assert!(start.is_lossy);
        assert_eq!(paths.start(Time::ZERO, peer(2), 1000).window, 10);
    }

    #[test]
    fn thirty_starts_at_once_stay_within_what_the_path_carries() {
        let mut paths = LearnedPaths::default();
        paths.note(Time::ZERO, peer(1), &satellite(0), false);
        let windows = |paths: &mut LearnedPaths, now| -> u32 {
            (0..30)
                .map(|_| paths.start(now, peer(1), 1000).window)
                .sum()
        };
        // And ten segments for each, which any connection may send.
        let all = windows(&mut paths, Time::ZERO);
        assert!((1_400..=1_500 + 300).contains(&all), "{all}");
        assert_eq!(paths.start(Time::ZERO, peer(1), 1000).window, 10);
        let rate = paths.start(Time::ZERO, peer(1), 1000).rate;
        assert_eq!(rate, BitRate::from_bits_per_second(20_000_000 / 32));
        // A round trip later they have been answered.
        assert_eq!(paths.start(seconds(1), peer(1), 1000).window, 750);
    }

    #[test]
    fn what_was_learned_ages_and_is_forgotten() {
        let mut paths = LearnedPaths::default();
        paths.note(Time::ZERO, peer(1), &satellite(0), false);
        assert_eq!(paths.start(seconds(601), peer(1), 1000).window, 375);
        let forgotten = paths.start(seconds(3_601), peer(1), 1000);
        assert_eq!((forgotten.window, forgotten.rate), (10, None));
    }

    #[test]
    fn a_connection_that_lost_halves_it_and_one_that_did_not_restores_it() {
        let mut paths = LearnedPaths::default();
        let mut window = |retransmitted, is_lossy, now| {
            paths.note(seconds(now), peer(1), &satellite(retransmitted), is_lossy);
            paths.start(seconds(now), peer(1), 1000).window
        };
        assert_eq!(window(500, false, 0), 375);
        assert_eq!(window(500, false, 2), 187);
        // Losses that are the path's own.
        assert_eq!(window(500, true, 4), 375);
        assert_eq!(window(0, false, 6), 750);
    }

    #[test]
    fn an_ipv6_network_is_one_peer_and_short_connections_teach_nothing() {
        let of = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), peer(1));
        let mut paths = LearnedPaths::default();
        let short = LegSample {
            bytes_acknowledged: ByteSize::from_bytes(99_999),
            ..satellite(0)
        };
        paths.note(Time::ZERO, peer(1), &short, false);
        assert!(paths.is_empty());
    }

    #[test]
    fn the_number_of_peers_is_bounded() {
        let mut paths = LearnedPaths::default();
        for number in 0..70_000_u32 {
            let address = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            paths.note(Time::ZERO, address.into(), &satellite(0), false);
        }
        assert_eq!((paths.len(), paths.order.len()), (PEERS, PEERS));
    }

    proptest! {
        #[test]
        fn windows_are_bounded_whatever_was_measured(
            notes in proptest::collection::vec(
                (0_u64..u64::MAX, 0_u64..u64::MAX, 0_u32..u32::MAX, 0_u32..u32::MAX,
                 0_u64..10_000, any::<bool>()), 1..50),
        ) {
            let mut paths = LearnedPaths::default();
            let mut now = Time::ZERO;
            for (rate, time, segment_size, retransmitted, pause, is_lossy) in notes {
                let leg = LegSample {
                    delivery_rate: BitRate::from_bits_per_second(rate),
                    minimum_round_trip_time: Some(TimeSpan::from_nanoseconds(time)),
                    segment_size,
                    segments_retransmitted: retransmitted,
                    ..satellite(0)
                };
                paths.note(now, peer(1), &leg, is_lossy);
                let start = paths.start(now, peer(1), segment_size);
                prop_assert!((LEAST_WINDOW..=MOST_WINDOW).contains(&start.window));
                now += TimeSpan::from_seconds(pause);
            }
        }
    }
}
