//! Starts on known paths: what earlier connections to a peer showed.
//!
//! A connection begins with ten segments (RFC 6928) and takes round trips to measure what its path
//! carries, although the connection before it has measured that already. This module stores the path's
//! capacity (delivery rate times minimum round trip) for each peer, a client or a server (an IPv4 address, an
//! IPv6 /64), as far as RFC 9040 lets connections share such measurements. The largest rate counts. It is halved
//! after each ten minutes, until a session measures as much, and forgotten after an hour without a session. A
//! start gets a part of the capacity, which is halved after sessions that lost segments. Connections that start at the same time
//! share the capacity with each other and with the data already in flight, so that many at once do not flood
//! the path.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::cold_start::{ColdStarts, KnownColdStart};
use crate::half_life::{HALF_LIFE, HalfLife};
use crate::hosts::Hosts;
use crate::part_limit::part_limit;
use crate::prefix::host_prefix;
use crate::reading_holds::reading_holds;
use crate::taken_flight::TakenFlight;
use crate::{FirstFlight, LegSample, SessionId};

pub use crate::initial_window::{
    DEFAULT_WINDOW_LIMIT, LEAST_WINDOW, MOST_WINDOW, SERVER_WINDOWS, may_be_raised, raised_window,
    windows,
};

/// Bytes of data in a segment, assumed before a leg has one: that of Ethernet with TCP timestamps.
pub const SEGMENT: u32 = 1448;
/// Largest number of remembered peers, if the memory is not divided.
const PEERS: usize = 65_536;
/// A connection that delivered fewer bytes has not found out what its path carries.
pub(crate) const EVIDENCE: u64 = 100_000;
/// Divisors: the part of the path's capacity that one start may take, and the part of the remaining
/// capacity that a start next to others may take. With the second, even the last of a web page's
/// six connections gets some.
const SHARE: u64 = 2;
const SHARE_BESIDE: u64 = 3;
/// The first flight leaves within 1/`SPREAD` of a round trip, as Linux paces a slow start, even if
/// the learned rate is lower than that.
const SPREAD: u64 = 2;
/// How often the share is halved at most.
const HALVINGS: u8 = 5;
/// Largest number of starts of one peer that count as in flight at the same time.
const STARTS: usize = 256;
/// Largest number of sessions of one peer whose data in flight is counted.
const RUNNING: usize = 256;

/// How a connection is to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedStart {
    /// Initial window in segments.
    pub window: u32,
    /// If this window is that of a [bounded start](crate::bounded_start): the segments that the relay
    /// lets be in flight until ACKs have shown what the path carries.
    pub bound: Option<u32>,
    /// Rate of the first flight, where the path is known: the path's rate, divided by the number of
    /// connections that start at the same time.
    pub rate: Option<BitRate>,
    /// Earlier connections found the path lossy.
    pub is_lossy: bool,
}

impl LearnedStart {
    /// Segments of the first flight.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.bound.unwrap_or(self.window)
    }

    /// The same start, on a connection that has a larger initial window than was chosen at its SYN: the handshake has shown
    /// that the leg is long. It becomes a [bounded start](crate::bounded_start).
    #[must_use]
    pub fn raised(self, window: u32) -> Self {
        if window <= self.window {
            return self;
        }
        Self {
            window,
            bound: Some(self.segments()),
            ..self
        }
    }

    /// How the first flight is spread, if it is larger than usual.
    #[must_use]
    pub fn first_flight(&self) -> Option<FirstFlight> {
        (self.segments() > LEAST_WINDOW).then_some(FirstFlight {
            segments: self.segments(),
            rate: self.rate,
        })
    }
}

/// The learned properties of the path to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPath {
    /// The peer: a client, or a server.
    pub peer: IpNet,
    /// Time since the newest session that contributed.
    pub age: TimeSpan,
    /// The rate that the path carries; `None` if it was measured too long ago to be of use.
    pub rate: Option<BitRate>,
    /// The smallest round-trip time.
    pub round_trip: TimeSpan,
    /// Losses are random there: they do not come from a queue.
    pub is_lossy: bool,
    /// The largest flight that arrived without a loss or a queue, if sessions did not fill the path.
    pub flight: ByteSize,
    /// The largest initial window that a single new connection may get, in segments.
    pub window: u32,
    /// How often this window was halved, because starts lost segments.
    pub halvings: u8,
}

#[derive(Debug, Clone)]
struct Path {
    /// When the newest session was measured.
    noted: Time,
    /// The largest rate, and its age.
    rate: u64,
    rate_age: HalfLife,
    /// The smallest round trip of [`HALF_LIFE`], and when it was measured.
    round_trip: TimeSpan,
    round_trip_noted: Time,
    is_lossy: bool,
    halvings: u8,
    /// Bytes that were in flight without a loss or a queue, and their age.
    flight: u64,
    flight_age: HalfLife,
    /// Whether the newest session filled the path.
    is_filled: bool,
    /// Bytes of each start, and the time until which they count as in flight.
    starts: VecDeque<(Time, u64)>,
    /// Bytes that each session has in flight, and the time until which that reading counts.
    running: BTreeMap<SessionId, (Time, u64)>,
}

/// The learned properties of the paths to all peers.
#[derive(Debug, Clone)]
pub struct LearnedPaths {
    paths: BTreeMap<IpNet, Path>,
    /// Peers in the order in which they were first noted.
    order: VecDeque<IpNet>,
    /// Largest number of remembered peers.
    limit: usize,
    /// Starts towards unknown peers.
    cold: ColdStarts,
}

impl Default for LearnedPaths {
    fn default() -> Self {
        Self::part_of(1)
    }
}

impl LearnedPaths {
    /// One of `parts` parts of a divided memory.
    #[must_use]
    pub(crate) const fn part_of(parts: usize) -> Self {
        Self {
            paths: BTreeMap::new(),
            order: VecDeque::new(),
            limit: part_limit(PEERS, parts),
            cold: ColdStarts::part_of(parts),
        }
    }

    /// Takes what was measured on a connection with this peer, at its end or before.
    pub fn note(&mut self, now: Time, peer: IpAddr, leg: &LegSample, is_lossy: bool) {
        let peer = host_prefix(peer);
        if leg.bytes_acknowledged.bytes() < EVIDENCE {
            self.cold.note(now, peer, leg);
            return;
        }
        let (Some(rate), Some(round_trip)) = (leg.delivery_rate, leg.minimum_round_trip_time)
        else {
            return;
        };
        if !self.paths.contains_key(&peer) {
            while self.order.len() >= self.limit {
                if let Some(oldest) = self.order.pop_front() {
                    self.paths.remove(&oldest);
                }
            }
            self.order.push_back(peer);
        }
        let path = self.paths.entry(peer).or_insert_with(|| Path {
            noted: now,
            rate: 0,
            rate_age: HalfLife::begin(now),
            round_trip,
            round_trip_noted: now,
            is_lossy: false,
            halvings: 0,
            flight: 0,
            flight_age: HalfLife::begin(now),
            is_filled: true,
            starts: VecDeque::new(),
            running: BTreeMap::new(),
        });
        // Each of several concurrent connections delivers only a part: the largest recent rate
        // counts.
        path.rate_age
            .raise(now, &mut path.rate, rate.bits_per_second());
        // The path may have become longer.
        let is_old = now.since(path.round_trip_noted) >= HALF_LIFE;
        if is_old || round_trip <= path.round_trip {
            (path.round_trip, path.round_trip_noted) = (round_trip, now);
        }
        path.noted = now;
        path.is_lossy = is_lossy;
        let segments = leg.bytes_acknowledged.bytes() / u64::from(leg.segment_size.max(1));
        // Losses on a lossy path are no evidence of too large a start.
        let has_lost = !is_lossy && u64::from(leg.segments_retransmitted) * 50 > segments;
        path.halvings = match has_lost {
            true => (path.halvings + 1).min(HALVINGS),
            false => path.halvings.saturating_sub(1),
        };
    }

    /// Takes a path that another Midspan knew, or this one before it was started again; `known` is as it is now. A path
    /// that was measured here later stays.
    pub fn recall(&mut self, now: Time, known: &KnownPath) {
        let peer = host_prefix(known.peer.addr());
        let Some(rate) = known.rate else {
            return;
        };
        let old = self.paths.get(&peer);
        let is_newer = old.is_none_or(|old| known.age < now.since(old.noted));
        if !is_newer || old.is_none() && self.order.len() >= self.limit {
            return;
        }
        if old.is_none() {
            self.order.push_back(peer);
        }
        let flight = known.flight.bytes();
        // This clock may have begun after that session.
        let noted = now.nanoseconds().saturating_sub(known.age.nanoseconds());
        let old = self.paths.remove(&peer);
        let (starts, running) = old.map_or_else(Default::default, |old| (old.starts, old.running));
        self.paths.insert(
            peer,
            Path {
                noted: Time::from_nanoseconds(noted),
                rate: rate.bits_per_second(),
                rate_age: HalfLife::begin(now),
                round_trip: known.round_trip,
                round_trip_noted: now,
                is_lossy: known.is_lossy,
                halvings: known.halvings.min(HALVINGS),
                flight,
                flight_age: HalfLife::begin(now),
                is_filled: flight == 0,
                starts,
                running,
            },
        );
    }

    /// Takes the flights of a connection that was just [noted](Self::note).
    pub(crate) fn note_flight(&mut self, now: Time, peer: IpAddr, taken: &TakenFlight) {
        let peer = host_prefix(peer);
        if let Some(path) = self.paths.get_mut(&peer) {
            path.is_filled = taken.is_filled();
            if path.is_filled {
                // Then its delivery rate shows what the path carries.
                path.flight = 0;
            } else {
                path.flight_age.raise(now, &mut path.flight, taken.bytes());
            }
        }
    }

    /// A session with this peer has `bytes` in flight, and is read at this interval (zero if it is
    /// unknown).
    pub fn note_in_flight(
        &mut self,
        now: Time,
        peer: IpAddr,
        session: SessionId,
        (bytes, interval): (u64, TimeSpan),
    ) {
        let holds = reading_holds(interval);
        let peer = host_prefix(peer);
        let Some(path) = self.paths.get_mut(&peer) else {
            let segments = bytes / u64::from(SEGMENT);
            self.cold.note_in_flight(now, peer, segments, holds);
            return;
        };
        if bytes == 0 {
            path.running.remove(&session);
            return;
        }
        if path.running.len() >= RUNNING {
            path.running.retain(|_, (end, _)| *end > now);
        }
        if path.running.len() < RUNNING || path.running.contains_key(&session) {
            let end = now + path.round_trip + holds;
            path.running.insert(session, (end, bytes));
        }
    }

    /// A session with this peer has ended.
    pub fn forget_in_flight(&mut self, peer: IpAddr, session: SessionId) {
        let peer = host_prefix(peer);
        if let Some(path) = self.paths.get_mut(&peer) {
            path.running.remove(&session);
        }
    }

    /// A connection with this peer starts now, with segments of `segment_size` bytes. It gets the
    /// largest of these `windows` (in segments) that its share has room for, or [`LEAST_WINDOW`] if
    /// it has room for none. If the peer is unknown, it gets the window of a [cold
    /// start](crate::cold_start).
    pub fn start(
        &mut self,
        now: Time,
        peer: IpAddr,
        segment_size: u32,
        windows: &[u32],
    ) -> LearnedStart {
        self.begin(now, peer, segment_size, (windows, false))
    }

    /// The same for a [bounded start](crate::bounded_start): it gets the largest of these windows, and
    /// its first flight gets exactly its share.
    pub(crate) fn start_bounded(
        &mut self,
        now: Time,
        peer: IpAddr,
        segment_size: u32,
        windows: &[u32],
    ) -> LearnedStart {
        self.begin(now, peer, segment_size, (windows, true))
    }

    fn begin(
        &mut self,
        now: Time,
        peer: IpAddr,
        segment_size: u32,
        (windows, is_bounded): (&[u32], bool),
    ) -> LearnedStart {
        let peer = host_prefix(peer);
        let largest = windows.iter().copied().max().unwrap_or(LEAST_WINDOW);
        let of_window = |segments: u32| match is_bounded && segments > LEAST_WINDOW {
            true => (
                largest.max(segments),
                Some(segments).filter(|it| *it < largest),
            ),
            false => (segments, None),
        };
        let known = self.paths.get_mut(&peer).and_then(|path| {
            let rate = BitRate::from_bits_per_second(path.rate_age.of(now, path.rate))?;
            Some((path, rate))
        });
        let Some((path, rate)) = known else {
            let (window, bound) = of_window(self.cold.start(now, peer, windows));
            return LearnedStart {
                window,
                bound,
                rate: None,
                is_lossy: false,
            };
        };
        path.starts.retain(|(end, _)| *end > now);
        path.running.retain(|_, (end, _)| *end > now);
        let starting = path.starts.iter().map(|(_, bytes)| *bytes);
        let running = path.running.values().map(|(_, bytes)| *bytes);
        // A session that began less than a round trip ago may count twice. A start that is too
        // small is better than one that is too large.
        let in_flight = starting.chain(running).fold(0, u64::saturating_add);
        let segment = u64::from(segment_size.max(1));
        let share = path.share(now, rate, in_flight, segment);
        let possible = windows.iter().copied().filter(|window| *window <= share);
        let chosen = possible.max().unwrap_or(LEAST_WINDOW);
        let chosen = if is_bounded {
            share.min(largest)
        } else {
            chosen
        };
        let mut segments = chosen.max(LEAST_WINDOW);
        // The capacity of a path that the newest session did not fill is unknown. A start there
        // gets at least the window of a cold start, unless earlier starts lost segments or sessions
        // are running.
        if !path.is_filled && path.halvings == 0 && path.running.is_empty() {
            segments = segments.max(self.cold.start(now, peer, windows));
        }
        let starts = path.starts.len() as u64 + 1;
        if path.starts.len() < STARTS {
            let end = now + path.round_trip;
            path.starts.push_back((end, u64::from(segments) * segment));
        }
        let flight = u64::from(segments) * segment;
        let spread = BitRate::from_transfer(flight * SPREAD, path.round_trip);
        let spread = spread.map_or(0, BitRate::bits_per_second);
        let (window, bound) = of_window(segments);
        LearnedStart {
            window,
            bound,
            rate: BitRate::from_bits_per_second((rate.bits_per_second() / starts).max(spread)),
            is_lossy: path.is_lossy,
        }
    }

    /// Whether earlier connections found the path to this peer lossy.
    #[must_use]
    pub fn is_lossy(&self, now: Time, peer: IpAddr) -> bool {
        let peer = host_prefix(peer);
        let path = self.paths.get(&peer);
        path.is_some_and(|path| path.is_lossy && path.rate_age.of(now, path.rate) > 0)
    }

    /// At most `most` of the known paths to these hosts, in the order of the peers, after the peer
    /// `after`.
    #[must_use]
    pub fn known(
        &self,
        now: Time,
        hosts: &Hosts,
        after: Option<IpNet>,
        most: usize,
    ) -> Vec<KnownPath> {
        let entries = hosts.entries(&self.paths, after).take(most);
        entries
            .map(|(peer, path)| {
                let rate = BitRate::from_bits_per_second(path.rate_age.of(now, path.rate));
                let share = |rate| path.share(now, rate, 0, SEGMENT.into());
                KnownPath {
                    peer: *peer,
                    age: now.since(path.noted),
                    rate,
                    round_trip: path.round_trip,
                    is_lossy: path.is_lossy,
                    flight: ByteSize::from_bytes(path.flight_age.of(now, path.flight)),
                    window: rate.map_or(LEAST_WINDOW, share),
                    halvings: path.halvings,
                }
            })
            .collect()
    }

    /// At most `most` of these hosts that lost segments in cold starts, in the same order.
    #[must_use]
    pub fn known_cold_starts(
        &self,
        now: Time,
        hosts: &Hosts,
        after: Option<IpNet>,
        most: usize,
    ) -> Vec<KnownColdStart> {
        self.cold.known(now, hosts, after, most)
    }

    /// Forgets at most `most` known paths to these hosts, and as many cold starts; returns how many
    /// of each.
    pub(crate) fn forget(&mut self, hosts: &Hosts, most: usize) -> (usize, usize) {
        let paths = hosts.forget(&mut self.paths, &mut self.order, most);
        (paths, self.cold.forget(hosts, most))
    }

    /// The rate that earlier connections with this peer have reached, as far as starts with it lost
    /// nothing.
    pub(crate) fn rate(&self, now: Time, peer: IpAddr) -> Option<BitRate> {
        let path = self.paths.get(&host_prefix(peer))?;
        BitRate::from_bits_per_second(path.rate_age.of(now, path.rate) >> path.halvings)
    }

    /// The shortest round trip to this peer that earlier connections have measured.
    pub(crate) fn round_trip(&self, peer: IpAddr) -> Option<TimeSpan> {
        let path = self.paths.get(&host_prefix(peer))?;
        Some(path.round_trip)
    }

    /// Number of known peers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether no peer is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

impl Path {
    /// The share of a start, in segments of `segment` bytes, where the path carries this rate now.
    fn share(&self, now: Time, rate: BitRate, in_flight: u64, segment: u64) -> u32 {
        let carried = rate.bytes_in(self.round_trip) >> self.halvings;
        let divisor = if in_flight == 0 { SHARE } else { SHARE_BESIDE };
        let share = carried.saturating_sub(in_flight) / divisor;
        let taken = self.flight_age.of(now, self.flight) >> self.halvings;
        let share = share.max(taken.saturating_sub(in_flight));
        let share = u32::try_from(share / segment).unwrap_or(MOST_WINDOW);
        share.clamp(LEAST_WINDOW, MOST_WINDOW)
    }
}

#[cfg(test)]
mod tests;
