//! What nodes measure: exchanges of rows, the senders of legs at the end of a session, and their own load.

use midspan_policy::overlay::{Left, LegReading, RouteLeg};
use midspan_policy::prefix::site_prefix;
use midspan_units::{BitRate, Time};

use super::{Event, Simulation, WINDOW};
use crate::member::address;
use crate::session::{Running, Session};
use crate::truth::span;

/// Bytes in a segment, and segments of the first window.
const SEGMENT: f64 = 1448.0;
const FIRST_WINDOW: f64 = 10.0;

impl Simulation {
    /// A node requests the row of another one. Without an answer, it tries again at the same interval.
    pub(super) fn exchange(&mut self, now: Time, at: f64, place: u32) {
        if at >= self.end() {
            return;
        }
        let exchange = usize::try_from(place).ok();
        let exchange = exchange.and_then(|place| self.exchanges.get(place).copied());
        let Some((from, to)) = exchange else {
            return;
        };
        let Ok([member, other]) = self.members.get_disjoint_mut([from, to]) else {
            return;
        };
        if let Some(leg) = self.truth.leg(at, from, to) {
            let round_trip = span(leg.round_trip);
            let row = other.row(now);
            member.known.note_row(now, &other.name, round_trip, row);
        }
        let interval = member.known.interval(now, &other.name).as_seconds();
        self.add(at + interval, Event::Exchange(place));
    }

    /// Each second: the loads of the transit nodes.
    pub(super) fn tick(&mut self, now: Time, at: f64) {
        let mut carried = Vec::with_capacity(self.transit.len());
        for node in &self.transit {
            if let Some(share) = self.shares.get_mut(*node) {
                share.advance(at);
                carried.push(share.carried());
            }
        }
        let before = self.window.back().map(|(_, carried)| carried.clone());
        for (place, node) in self.transit.iter().enumerate() {
            let then = before.as_ref().and_then(|before| before.get(place));
            let used = carried.get(place).copied().unwrap_or(0.0) - then.copied().unwrap_or(0.0);
            // Between 0 and 1000.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let load = (used.clamp(0.0, 1.0) * self.settings.processing * 1_000.0) as u16;
            if let Some(member) = self.members.get_mut(*node) {
                member.known.note_own_load(now, (0, load), false);
            }
        }
        self.window.push_back((at, carried));
        while self
            .window
            .front()
            .is_some_and(|(then, _)| at - then > WINDOW)
        {
            self.window.pop_front();
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Whole seconds.
        let is_window = (libm::round(at) as u64).is_multiple_of(WINDOW as u64);
        if is_window
            && at > super::BEFORE
            && let (Some((then, first)), Some((_, last))) =
                (self.window.front(), self.window.back())
        {
            let used = last.iter().zip(first);
            let used = used.map(|(last, first)| (last - first) / (at - then).max(1e-9));
            self.results.used.push(used.collect());
        }
        if at < self.end() {
            self.add(at + 1.0, Event::Tick);
        }
    }

    /// Ends a session if it has carried all its data; otherwise, looks again later.
    pub(super) fn end_if_complete(&mut self, now: Time, at: f64, place: u32) {
        let Some(session) = self.sessions.get_mut(place) else {
            return;
        };
        let Some(running) = &session.running else {
            return;
        };
        let mut done = at - running.since;
        for (node, clock) in running.transit().iter().zip(&running.clocks) {
            if let Some(share) = self.shares.get_mut(*node) {
                share.advance(at);
                done = done.min(share.clock() - clock);
            }
        }
        let is_reset = running.stops.iter().any(|node| self.truth.is_down(*node));
        let rest = running.needs - done;
        if rest > 1e-3 && !is_reset {
            // The nodes may be overloaded no longer from now on, so it may end this early.
            self.add(at + rest, Event::End(place));
            return;
        }
        let Some(mut session) = self.sessions.remove(place) else {
            return;
        };
        if let Some(running) = session.running.take() {
            self.leave(&session, &running);
            match is_reset {
                true => self.results.reset += 1,
                false => self.measure(now, at, &session, &running),
            }
        }
    }

    /// The session uses its nodes and legs no longer.
    fn leave(&mut self, session: &Session, running: &Running) {
        let demand = session.size.bytes() as f64 * 8.0 / running.needs.max(1e-3);
        for node in running.transit() {
            if let Some(share) = self.shares.get_mut(*node) {
                share.add(-demand);
            }
        }
        for hop in running.stops.windows(2) {
            if let [near, far] = hop {
                self.truth.count(*far, *near, -1);
            }
        }
    }

    /// The senders of the legs have counted segments and losses, and the ingress has measured the goodput of the session.
    fn measure(&mut self, now: Time, at: f64, session: &Session, running: &Running) {
        let size = session.size.bytes() as f64;
        let rates: Vec<f64> = running
            .legs
            .iter()
            .map(|leg| delivered(leg, size))
            .collect();
        let slowest = rates.iter().copied().fold(f64::MAX, f64::min);
        let hops = running.stops.windows(2).rev();
        for ((hop, leg), rate) in hops.zip(&running.legs).zip(rates) {
            let [near, far] = hop else {
                continue;
            };
            let segments = size / SEGMENT;
            let lost = self.losses.poisson(segments * leg.loss);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most 40 MB.
            let sent = libm::ceil(segments) as u64 + lost;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let bits = BitRate::from_bits_per_second(slowest as u64);
            let reading = LegReading {
                round_trip: Some(leg.round_trip),
                least_round_trip: Some(leg.round_trip),
                sent,
                lost,
                rate: bits,
                // The other senders wait for the slowest one.
                is_application_limited: rate > slowest * 1.01,
                congestion: leg.congestion,
            };
            let Some(name) = self.members.get(*near).map(|member| member.name.clone()) else {
                continue;
            };
            if let Some(member) = self.members.get_mut(*far) {
                member.known.note_reading(now, &name, &reading);
            }
        }
        let Some(pair) = self.traffic.pairs().get(session.pair) else {
            return;
        };
        if let Some(member) = self.members.get_mut(pair.ingress) {
            let carried = (session.size, span(at - session.began));
            let site = site_prefix(address(pair.exit, 10));
            member.known.note_ended(now, site, Left::Overlay, carried);
        }
    }
}

/// The newest delivery rate at the end of a transfer in bit/s: one window of slow start in each round trip, at most the
/// leg's rate. After n segments, the window has n/2 segments more than the first one.
fn delivered(leg: &RouteLeg, size: f64) -> f64 {
    let window = FIRST_WINDOW + size / SEGMENT / 2.0;
    let of_window = window * SEGMENT * 8.0 / leg.round_trip.as_seconds().max(1e-4);
    of_window.min(leg.rate.bits_per_second() as f64)
}
