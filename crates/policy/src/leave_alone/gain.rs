//! Routes on which splitting does not help, found by measurement.
//!
//! There are three signs, each for one [`Route`] (one client, one network of servers), so that no
//! client can switch the proxy off for another:
//!
//! - *Nothing to gain*: in each of [`STREAK`] sessions in a row that carried [`EVIDENCE`] or more,
//!   the server's leg had at most 1/[`NEGLIGIBLE`] of the client leg's round trip, the client's leg was shorter
//!   than [`LONG`], and no segment was lost on either leg. Without loss and without a long leg, splitting
//!   improves nothing; only on a long leg, a split session may still start faster.
//! - *Both legs are short*: in each of [`STREAK_SHORT`] sessions in a row that carried
//!   [`EVIDENCE_SHORT`] or more, both legs had a round trip of less than [`SHORT`], as in a LAN, and
//!   no segment was lost on either leg. On such a path the second TCP only costs processor time.
//! - *No gain seen*: among flows that carried [`EVIDENCE`] or more, the median goodput of the latest split
//!   flows is no better than that of the latest flows that were not split (the *control group*), with at
//!   least [`COMPARED`] flows of each kind.
//!
//! The same measurements, over all routes and by size, are shown to the operator. Memory is
//! bounded: the oldest routes are forgotten.

use std::collections::{BTreeMap, VecDeque};

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use super::Route;
use super::flows_by_size::{DIRECT, FlowsBySize, SIZES, SPLIT, SizeGain};
use super::recent_goodputs::RecentGoodputs;
use crate::congestion::LONG;
use crate::hosts::Hosts;
use crate::part_limit::part_limit;
use crate::{LegSample, Request};

/// A flow that carried fewer bytes is no evidence.
const EVIDENCE: u64 = 100_000;
/// This many sessions in a row without anything to gain are needed.
const STREAK: u8 = 8;
/// A session between short legs is evidence if it carried this many bytes. On a path that loses 1 %
/// of its segments, one of 1,000 sessions carries so much without a loss.
const EVIDENCE_SHORT: u64 = 1_000_000;
/// This many sessions in a row between short legs are needed.
const STREAK_SHORT: u8 = 2;
/// A leg with a shorter round trip is short.
const SHORT: TimeSpan = TimeSpan::from_milliseconds(2);
/// A leg is negligible if its round trip is at most 1/`NEGLIGIBLE` of the other leg's.
const NEGLIGIBLE: u64 = 20;
/// Least number of flows of each kind (split, direct) for a comparison.
const COMPARED: usize = 5;
/// Largest number of remembered flows of each kind on one route.
const RECENT: usize = 9;
/// Largest number of remembered routes, if the memory is not divided.
const ROUTES: usize = 4096;
/// Largest number of routes that were found but not fetched with [`Gains::take_found`], if the
/// memory is not divided.
const FOUND: usize = 256;

/// Measures what splitting gains, and finds routes where it gains nothing.
#[derive(Debug, Clone)]
pub struct Gains {
    routes: BTreeMap<Route, Evidence>,
    /// Routes in the order in which they were first noted.
    order: VecDeque<Route>,
    found: VecDeque<Route>,
    found_in_all: u64,
    /// Largest number of remembered routes.
    limit: usize,
    /// Largest number of routes that were found but not fetched.
    found_limit: usize,
    sizes: FlowsBySize,
}

impl Default for Gains {
    fn default() -> Self {
        Self::part_of(1)
    }
}

/// What splitting gains on a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownGain {
    /// The route.
    pub route: Route,
    /// Time since the newest flow that was measured.
    pub age: TimeSpan,
    /// Flows that were split, of those that are compared.
    pub split_flows: usize,
    /// Flows of the control group, of those that are compared.
    pub direct_flows: usize,
    /// The median goodput of the split ones.
    pub split: Option<BitRate>,
    /// The median goodput of those of the control group.
    pub direct: Option<BitRate>,
    /// Sessions in a row in which there was nothing to gain.
    pub streak: u8,
}

#[derive(Debug, Clone, Default)]
struct Evidence {
    /// Sessions in a row in which there was nothing to gain.
    streak: u8,
    /// Sessions in a row in which both legs were short.
    short_streak: u8,
    /// Goodputs of split flows, and of direct ones.
    recent: [RecentGoodputs; 2],
    /// When the newest flow was measured.
    noted: Time,
}

impl Gains {
    /// One of `parts` parts of a divided memory.
    #[must_use]
    pub(crate) const fn part_of(parts: usize) -> Self {
        Self {
            routes: BTreeMap::new(),
            order: VecDeque::new(),
            found: VecDeque::new(),
            found_in_all: 0,
            limit: part_limit(ROUTES, parts),
            found_limit: part_limit(FOUND, parts),
            sizes: FlowsBySize::new(),
        }
    }

    /// A session has ended in an orderly way, this long after the client's first segment.
    pub fn note_split(
        &mut self,
        now: Time,
        request: &Request,
        client: &LegSample,
        server: &LegSample,
        lasted: TimeSpan,
    ) {
        let bytes = client.bytes_acknowledged.max(client.bytes_received).bytes();
        let route = Route::of(request);
        let goodput = self.sizes.count(now, SPLIT, bytes, lasted);
        if bytes < EVIDENCE {
            return;
        }
        let evidence = self.evidence(now, route);
        evidence.streak = match has_nothing_to_gain(client, server) {
            true => evidence.streak.saturating_add(1),
            false => 0,
        };
        match has_short_legs(client, server) {
            true if bytes >= EVIDENCE_SHORT => {
                evidence.short_streak = evidence.short_streak.saturating_add(1);
            }
            true => {}
            false => evidence.short_streak = 0,
        }
        if let Some(goodput) = goodput {
            evidence.recent[SPLIT].note(goodput, RECENT);
        }
        self.judge(route);
    }

    /// A flow of the control group has ended in an orderly way: it carried this much data in one
    /// direction, and lasted this long since the client's first segment.
    pub fn note_direct(
        &mut self,
        now: Time,
        request: &Request,
        carried: ByteSize,
        lasted: TimeSpan,
    ) {
        let goodput = self.sizes.count(now, DIRECT, carried.bytes(), lasted);
        if let Some(goodput) = goodput.filter(|_| carried.bytes() >= EVIDENCE) {
            let route = Route::of(request);
            self.evidence(now, route).recent[DIRECT].note(goodput, RECENT);
            self.judge(route);
        }
    }

    /// Routes found since the last call, at most `most`.
    pub fn take_found(&mut self, most: usize) -> Vec<Route> {
        let count = self.found.len().min(most);
        self.found.drain(..count).collect()
    }

    /// At most `most` of the measured routes of these hosts, after the route `after`.
    #[must_use]
    pub fn known(
        &self,
        now: Time,
        hosts: &Hosts,
        after: Option<Route>,
        most: usize,
    ) -> Vec<KnownGain> {
        Route::entries(&self.routes, hosts, after)
            .take(most)
            .map(|(route, evidence)| {
                let [split, direct] = &evidence.recent;
                let median =
                    |of: &RecentGoodputs| of.median().and_then(BitRate::from_bits_per_second);
                KnownGain {
                    route: *route,
                    age: now.since(evidence.noted),
                    split_flows: split.len(),
                    direct_flows: direct.len(),
                    split: median(split),
                    direct: median(direct),
                    streak: evidence.streak,
                }
            })
            .collect()
    }

    /// Forgets at most `most` of the measured routes of these hosts, and that they were found;
    /// returns how many.
    pub(crate) fn forget(&mut self, hosts: &Hosts, most: usize) -> usize {
        let routes = self.routes.keys().filter(|route| route.has_any(hosts));
        let routes: Vec<Route> = routes.take(most).copied().collect();
        for route in &routes {
            self.routes.remove(route);
        }
        if !routes.is_empty() {
            self.order.retain(|route| !route.has_any(hosts));
        }
        self.found.retain(|route| !route.has_any(hosts));
        routes.len()
    }

    /// How many routes have been found in all.
    #[must_use]
    pub const fn found(&self) -> u64 {
        self.found_in_all
    }

    /// The measurements by size: up to each of [`SIZES`], and above.
    #[must_use]
    pub fn sizes(&self) -> [SizeGain; SIZES.len() + 1] {
        self.sizes.gains()
    }

    /// Adds the flows by size to those of other parts.
    pub fn add_sizes_to(&self, all: &mut FlowsBySize) {
        all.add(&self.sizes);
    }

    fn evidence(&mut self, now: Time, route: Route) -> &mut Evidence {
        if !self.routes.contains_key(&route) {
            while self.order.len() >= self.limit {
                if let Some(oldest) = self.order.pop_front() {
                    self.routes.remove(&oldest);
                }
            }
            self.order.push_back(route);
        }
        let evidence = self.routes.entry(route).or_default();
        evidence.noted = now;
        evidence
    }

    /// Decides whether the route is found. The evidence of a found route is forgotten, so that new
    /// evidence is needed once the route is no longer left alone.
    fn judge(&mut self, route: Route) {
        let Some(evidence) = self.routes.get_mut(&route) else {
            return;
        };
        let [split, direct] = &evidence.recent;
        let is_compared = split.len() >= COMPARED && direct.len() >= COMPARED;
        let has_no_gain = is_compared && split.median() <= direct.median();
        let has_streak = evidence.streak >= STREAK || evidence.short_streak >= STREAK_SHORT;
        if !has_streak && !has_no_gain {
            return;
        }
        *evidence = Evidence {
            noted: evidence.noted,
            ..Evidence::default()
        };
        if !self.found.contains(&route) && self.found.len() < self.found_limit {
            self.found.push_back(route);
            self.found_in_all += 1;
        }
    }
}

fn has_nothing_to_gain(client: &LegSample, server: &LegSample) -> bool {
    let Some((near, far)) = round_trips_without_loss(client, server) else {
        return false;
    };
    far.nanoseconds().saturating_mul(NEGLIGIBLE) <= near.nanoseconds() && near < LONG
}

fn has_short_legs(client: &LegSample, server: &LegSample) -> bool {
    round_trips_without_loss(client, server).is_some_and(|(near, far)| near < SHORT && far < SHORT)
}

/// The smallest round trip of each leg, if no segment was lost.
fn round_trips_without_loss(
    client: &LegSample,
    server: &LegSample,
) -> Option<(TimeSpan, TimeSpan)> {
    let lost = client.segments_retransmitted + server.segments_retransmitted;
    let near = client.minimum_round_trip_time?;
    let far = server.minimum_round_trip_time?;
    (lost == 0).then_some((near, far))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(client: u8) -> Request {
        Request {
            client: format!("192.0.2.{client}:1000").parse().unwrap(),
            server: "198.51.100.7:80".parse().unwrap(),
        }
    }

    fn leg(microseconds: u64, lost: u32) -> LegSample {
        LegSample {
            minimum_round_trip_time: Some(TimeSpan::from_nanoseconds(microseconds * 1000)),
            bytes_acknowledged: ByteSize::from_bytes(1_000_000),
            segments_retransmitted: lost,
            ..LegSample::default()
        }
    }

    fn second() -> TimeSpan {
        TimeSpan::from_seconds(1)
    }

    fn found(client: &LegSample, server: &LegSample) -> Vec<usize> {
        let mut gains = Gains::default();
        (1..=20)
            .filter(|_| {
                gains.note_split(Time::ZERO, &request(1), client, server, second());
                !gains.take_found(9).is_empty()
            })
            .collect()
    }

    #[test]
    fn where_there_is_nothing_to_gain_the_route_is_left_alone() {
        assert_eq!(found(&leg(20_000, 0), &leg(1_000, 0)), [8, 16]);
        let none: [usize; 0] = [];
        // A part of the round trip, a long one, a loss on either leg.
        assert_eq!(found(&leg(20_000, 0), &leg(1_001, 0)), none);
        assert_eq!(found(&leg(40_000, 0), &leg(1_000, 0)), none);
        assert_eq!(found(&leg(20_000, 1), &leg(1_000, 0)), none);
        assert_eq!(found(&leg(20_000, 0), &leg(1_000, 1)), none);
    }

    #[test]
    fn a_path_of_two_short_legs_is_left_alone_from_the_third_large_session() {
        assert_eq!(
            found(&leg(1_999, 0), &leg(1_999, 0))[..4],
            [2, 4, 6, 8],
            "each time the evidence begins anew"
        );
        let none: [usize; 0] = [];
        assert_eq!(found(&leg(2_000, 0), &leg(1_000, 0)), none);
        assert_eq!(found(&leg(1_000, 0), &leg(2_000, 0)), none);
        assert_eq!(found(&leg(1_000, 1), &leg(1_000, 0)), none);
        // A short session is no evidence, for or against; a short session with a loss is.
        let mut gains = Gains::default();
        let mut note = |bytes: u64, lost: u32| {
            let client = LegSample {
                bytes_acknowledged: ByteSize::from_bytes(bytes),
                ..leg(1_000, lost)
            };
            gains.note_split(Time::ZERO, &request(1), &client, &leg(1_000, 0), second());
            gains.take_found(9).len()
        };
        assert_eq!(
            [note(1_000_000, 0), note(200_000, 1), note(1_000_000, 0)],
            [0; 3]
        );
        assert_eq!([note(999_999, 0), note(1_000_000, 0)], [0, 1]);
    }

    #[test]
    fn a_session_that_could_gain_ends_the_streak() {
        let mut gains = Gains::default();
        for turn in 0..100 {
            let lost = u32::from(turn % 8 == 7);
            gains.note_split(
                Time::ZERO,
                &request(1),
                &leg(20_000, lost),
                &leg(1_000, 0),
                second(),
            );
        }
        assert_eq!((gains.take_found(9), gains.found()), (Vec::new(), 0));
    }

    #[test]
    fn where_no_gain_is_seen_the_route_is_left_alone_for_that_client() {
        let mut gains = Gains::default();
        let megabyte = ByteSize::from_bytes(1_000_000);
        for _ in 0..5 {
            for client in [1, 2] {
                let lasted = TimeSpan::from_seconds(u64::from(client));
                gains.note_split(
                    Time::ZERO,
                    &request(client),
                    &leg(600_000, 0),
                    &leg(9_000, 0),
                    lasted,
                );
                let direct = TimeSpan::from_milliseconds(1500);
                gains.note_direct(Time::ZERO, &request(client), megabyte, direct);
            }
        }
        // Client 1 has 8 Mbit/s instead of 5.3, client 2 has 4.
        let route = Route::between(
            "192.0.2.2".parse().unwrap(),
            "198.51.100.0".parse().unwrap(),
        );
        assert_eq!(gains.take_found(9), [route]);
        let sizes = gains.sizes();
        assert_eq!((sizes[2].split_flows, sizes[2].direct_flows), (10, 10));
        assert_eq!(sizes[2].split, BitRate::from_bits_per_second(4_000_000));
        assert_eq!(sizes[2].direct, BitRate::from_bits_per_second(5_333_333));
        assert_eq!(sizes[3], SizeGain::default());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut gains = Gains::default();
        for number in 0..5_000_u32 {
            let request = Request {
                client: std::net::SocketAddr::new(number.to_be_bytes().into(), 1),
                server: "198.51.100.7:80".parse().unwrap(),
            };
            for _ in 0..8 {
                gains.note_split(
                    Time::ZERO,
                    &request,
                    &leg(20_000, 0),
                    &leg(1_000, 0),
                    second(),
                );
            }
        }
        assert_eq!((gains.routes.len(), gains.order.len()), (ROUTES, ROUTES));
        assert_eq!(gains.take_found(1000).len(), FOUND);
    }
}
