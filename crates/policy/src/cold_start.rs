//! Starts on unknown paths: more than ten segments, spread over time, and not for many connections at once.
//!
//! RFC 6928 chose ten segments in 2013. On a satellite link, each doubling from there takes more
//! than half a second. Most content networks begin with more, up to 50 and in some cases 100 (Rüth
//! and Hohlfeld, *Demystifying TCP Initial Window Configurations of Content Distribution Networks*,
//! TMA 2018). Here, a connection to an unknown peer begins with up to `COLD_WINDOW` segments, ten at once and the
//! others [spread](crate::FirstFlight). Three rules bound the harm that such flights could do to a peer:
//!
//! - All connections that start within `TOGETHER` of each other share `EXTRA` segments, beyond ten
//!   segments each.
//! - While a session with the peer has more than ten segments in flight, new ones begin with ten.
//! - After a short session that lost more than a tenth of its segments, the window is halved for an hour, down
//!   to ten.
//!
//! All this ends with a session that delivers enough to [learn](crate::learned_start) the capacity
//! of the path.

use std::collections::{BTreeMap, VecDeque};

use ipnet::IpNet;
use midspan_units::{Time, TimeSpan};

use crate::LegSample;
use crate::hosts::Hosts;
use crate::initial_window::{COLD_WINDOW, LEAST_WINDOW};
use crate::part_limit::part_limit;

/// Segments, beyond [`LEAST_WINDOW`] each, that all cold starts of a peer together may get within
/// [`TOGETHER`]. Each start may take half of the rest, so that all six connections of a web
/// page begin with more than ten.
const EXTRA: u32 = 160;
/// Longer than a round trip over a satellite.
const TOGETHER: TimeSpan = TimeSpan::from_seconds(1);
/// How long a reading of data in flight counts at least.
const BUSY: TimeSpan = TimeSpan::from_seconds(1);
/// After a session that lost more than 1/`LOST` of its segments, the next window is halved.
const LOST: u64 = 10;
/// The halving is forgotten after this time.
const REMEMBERED: TimeSpan = TimeSpan::from_seconds(3_600);
/// How often the window is halved at most.
const HALVINGS: u8 = 3;
/// Largest number of remembered peers, if the memory is not divided.
const PEERS: usize = 16_384;

#[derive(Debug, Clone, Default)]
struct Cold {
    /// When each window was given, and its segments beyond ten.
    starts: VecDeque<(Time, u32)>,
    /// Other sessions count as having data in flight until this time.
    busy_until: Time,
    halvings: u8,
    /// When the newest of these halvings happened.
    lost_at: Time,
}

/// A peer without a known path, whose short sessions lost segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownColdStart {
    /// The peer.
    pub peer: IpNet,
    /// Time since the last of these losses.
    pub age: TimeSpan,
    /// The largest initial window of its next connection, in segments.
    pub window: u32,
}

/// Starts towards unknown peers.
#[derive(Debug, Clone)]
pub(crate) struct ColdStarts {
    peers: BTreeMap<IpNet, Cold>,
    /// The peers in the order in which they came.
    order: VecDeque<IpNet>,
    /// Largest number of remembered peers.
    limit: usize,
}

impl ColdStarts {
    /// One of `parts` parts of a divided memory.
    pub(crate) const fn part_of(parts: usize) -> Self {
        Self {
            peers: BTreeMap::new(),
            order: VecDeque::new(),
            limit: part_limit(PEERS, parts),
        }
    }

    /// A connection with this peer starts now. Returns the largest of these windows (in segments)
    /// that it may have, or [`LEAST_WINDOW`].
    pub(crate) fn start(&mut self, now: Time, peer: IpNet, windows: &[u32]) -> u32 {
        if windows.is_empty() {
            return LEAST_WINDOW;
        }
        if !self.peers.contains_key(&peer) {
            while self.order.len() >= self.limit {
                if let Some(oldest) = self.order.pop_front() {
                    self.peers.remove(&oldest);
                }
            }
            self.order.push_back(peer);
        }
        let cold = self.peers.entry(peer).or_default();
        cold.starts.retain(|(begun, _)| *begun + TOGETHER > now);
        if cold.busy_until > now {
            return LEAST_WINDOW;
        }
        if !cold.is_halved(now) {
            cold.halvings = 0;
        }
        let given: u32 = cold.starts.iter().map(|(_, extra)| *extra).sum();
        let left = EXTRA.saturating_sub(given);
        let room = (left / 2).max(left.min(LEAST_WINDOW)) + LEAST_WINDOW;
        let most = (COLD_WINDOW >> cold.halvings).min(room);
        let possible = windows.iter().copied().filter(|window| *window <= most);
        let window = possible.max().unwrap_or(LEAST_WINDOW).max(LEAST_WINDOW);
        if window > LEAST_WINDOW {
            cold.starts.push_back((now, window - LEAST_WINDOW));
        }
        window
    }

    /// A session with this peer has `segments` segments in flight; this counts for [`BUSY`], or for
    /// `holds` if that is longer.
    pub(crate) fn note_in_flight(
        &mut self,
        now: Time,
        peer: IpNet,
        segments: u64,
        holds: TimeSpan,
    ) {
        if segments > u64::from(LEAST_WINDOW)
            && let Some(cold) = self.peers.get_mut(&peer)
        {
            cold.busy_until = now + BUSY.max(holds);
        }
    }

    /// A session with this peer has ended, too short to learn the path's capacity.
    pub(crate) fn note(&mut self, now: Time, peer: IpNet, leg: &LegSample) {
        let Some(cold) = self.peers.get_mut(&peer) else {
            return;
        };
        let segments = leg.bytes_acknowledged.bytes() / u64::from(leg.segment_size.max(1));
        let lost = u64::from(leg.segments_retransmitted);
        // A single loss among a few segments is chance.
        if lost > 1 && lost * LOST > segments {
            cold.halvings = (cold.halvings + 1).min(HALVINGS);
            cold.lost_at = now;
        }
    }
}

impl Cold {
    /// The largest window of the next start, in segments.
    fn window(&self) -> u32 {
        (COLD_WINDOW >> self.halvings).max(LEAST_WINDOW)
    }

    /// Whether earlier starts lost segments, not too long ago.
    fn is_halved(&self, now: Time) -> bool {
        self.halvings > 0 && now < self.lost_at + REMEMBERED
    }
}

impl ColdStarts {
    /// At most `most` of these hosts that lost segments, after the host `after`.
    pub(crate) fn known(
        &self,
        now: Time,
        hosts: &Hosts,
        after: Option<IpNet>,
        most: usize,
    ) -> Vec<KnownColdStart> {
        let halved = hosts
            .entries(&self.peers, after)
            .filter(|(_, cold)| cold.is_halved(now));
        halved
            .take(most)
            .map(|(peer, cold)| KnownColdStart {
                peer: *peer,
                age: now.since(cold.lost_at),
                window: cold.window(),
            })
            .collect()
    }

    /// Forgets at most `most` of these hosts; returns how many.
    pub(crate) fn forget(&mut self, hosts: &Hosts, most: usize) -> usize {
        hosts.forget(&mut self.peers, &mut self.order, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initial_window::windows;
    use midspan_units::ByteSize;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn peer(last: u8) -> IpNet {
        IpAddr::from([192, 0, 2, last]).into()
    }

    fn milliseconds(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    /// A session that delivered this many segments.
    fn short(segments: u64, retransmitted: u32) -> LegSample {
        LegSample {
            segment_size: 1000,
            bytes_acknowledged: ByteSize::from_bytes(segments * 1000),
            segments_retransmitted: retransmitted,
            ..LegSample::default()
        }
    }

    #[test]
    fn a_first_connection_begins_with_eighty_and_many_at_once_share() {
        let mut cold = ColdStarts::part_of(1);
        let offered = windows(320);
        let mut together = |now| -> Vec<u32> {
            (0..30)
                .map(|_| cold.start(milliseconds(now), peer(1), &offered))
                .collect()
        };
        let first = together(0);
        assert_eq!(first[4..8], [20, 20, 10, 10]);
        assert_eq!(first[..4], [80, 40, 40, 20]);
        assert_eq!(first.iter().sum::<u32>(), 30 * 10 + 160);
        assert!(together(999).iter().all(|window| *window == 10));
        assert_eq!(together(1_000)[..3], [80, 40, 40]);
        assert_eq!(cold.start(Time::ZERO, peer(2), &offered), 80);
        assert_eq!(cold.start(Time::ZERO, peer(2), &windows(20)), 20);
        assert_eq!(cold.start(Time::ZERO, peer(3), &[]), 10);
        assert_eq!(cold.start(Time::ZERO, peer(4), &[320]), 10);
    }

    #[test]
    fn beside_a_session_with_data_in_flight_it_is_ten() {
        let mut cold = ColdStarts::part_of(1);
        let offered = windows(320);
        assert_eq!(cold.start(Time::ZERO, peer(1), &offered), 80);
        cold.note_in_flight(milliseconds(1_500), peer(1), 10, TimeSpan::ZERO);
        assert_eq!(cold.start(milliseconds(1_500), peer(1), &offered), 80);
        cold.note_in_flight(milliseconds(3_000), peer(1), 11, TimeSpan::ZERO);
        assert_eq!(cold.start(milliseconds(3_999), peer(1), &offered), 10);
        assert_eq!(cold.start(milliseconds(4_000), peer(1), &offered), 80);
        cold.note_in_flight(Time::ZERO, peer(2), 1_000, TimeSpan::ZERO);
        assert_eq!(cold.order.len(), 1);
    }

    #[test]
    fn what_is_lost_halves_the_next_and_is_forgotten_in_time() {
        let mut cold = ColdStarts::part_of(1);
        let offered = windows(320);
        let mut after = |seconds: u64, leg: LegSample| {
            let now = milliseconds(seconds * 1_000);
            cold.note(now, peer(1), &leg);
            cold.start(now, peer(1), &offered)
        };
        // Losses are not recorded for a peer without a cold start.
        assert_eq!(after(0, short(40, 30)), 80);
        assert_eq!(after(10, short(40, 4)), 80);
        assert_eq!(after(20, short(5, 1)), 80);
        assert_eq!(after(30, short(40, 5)), 40);
        assert_eq!(after(40, short(40, 40)), 20);
        assert_eq!(after(50, short(0, u32::MAX)), 10);
        assert_eq!(after(60, short(60, 0)), 10);
        assert_eq!(after(3_650, short(60, 0)), 80);
    }

    #[test]
    fn the_number_of_peers_is_bounded() {
        let mut cold = ColdStarts::part_of(1);
        for number in 0..20_000_u32 {
            let address = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            cold.start(Time::ZERO, address.into(), &windows(320));
        }
        assert_eq!((cold.peers.len(), cold.order.len()), (PEERS, PEERS));
    }

    proptest! {
        #[test]
        fn what_is_given_within_a_second_is_bounded(
            steps in proptest::collection::vec(
                (0_u64..700, 0_u64..100, 0_u64..200, 0_u32..100), 1..100),
        ) {
            let mut cold = ColdStarts::part_of(1);
            let mut now = Time::ZERO;
            let mut given: Vec<(Time, u32)> = Vec::new();
            for (pause, in_flight, segments, lost) in steps {
                now += TimeSpan::from_milliseconds(pause);
                let window = cold.start(now, peer(1), &windows(320));
                prop_assert!((LEAST_WINDOW..=COLD_WINDOW).contains(&window));
                given.push((now, window - LEAST_WINDOW));
                let within = given.iter().filter(|(begun, _)| *begun + TOGETHER > now);
                prop_assert!(within.map(|(_, extra)| *extra).sum::<u32>() <= EXTRA);
                cold.note_in_flight(now, peer(1), in_flight, TimeSpan::ZERO);
                cold.note(now, peer(1), &short(segments, lost));
            }
        }
    }
}
