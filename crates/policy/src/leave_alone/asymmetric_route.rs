//! Servers whose answers do not come back through the proxy.
//!
//! On an asymmetric route, the proxy sees the packets of clients but none of the servers' answers. A
//! connection that the proxy intercepts there can never be completed, although it would work
//! without the proxy. So:
//!
//! - If a client repeats its SYN [`RETRANSMISSIONS`] times while the proxy's own SYN to the server
//!   has no answer, that connection passes untouched, and is *watched*. If the server is simply
//!   dead, nothing is learned from this.
//! - If a watched client acknowledges an answer that did not pass the proxy, the route is
//!   asymmetric: that is the *proof*. From then on, the client's connections to the server's network (an IPv4
//!   /24, an IPv6 /48) pass untouched, for [`AsymmetricRoutes::keep`].
//! - When that time is over, the next connection passes untouched once more, and is watched. If the
//!   route is still asymmetric, the proof is renewed and no client has to wait. If not, the
//!   connection after it is intercepted.
//! - If the client was answered before the server was contacted (handshake `early`), that
//!   connection cannot prove anything. If it ends without an answer from the server, the next one
//!   passes untouched and is watched.
//!
//! A proof holds only for the client that has given it: a client that forges a proof switches the
//! proxy off for itself. (A host that can forge another host's address can switch the proxy off for that
//! host.) The memory is bounded, for each client and in all; when it is full, the oldest entry is forgotten.
//!
//! RFC 9293, 3.5 (a client acknowledges only an answer to its SYN); RFC 6298, 2.1 (the first
//! retransmission after 1 s).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use midspan_units::{Time, TimeSpan};

use super::Route;
use crate::Request;
use crate::hosts::Hosts;
use crate::part_limit::part_limit;

/// After this many repetitions of its SYN, a client's connection passes. The first repetition,
/// after 1 s, may be due to a lost packet or a round-trip time above 1 s; the second comes after 2
/// or 3 s.
const RETRANSMISSIONS: u32 = 2;
/// Largest number of remembered routes, in all if the memory is not divided, and for one client.
const LIMIT: usize = 4096;
const LIMIT_PER_CLIENT: usize = 256;

/// The treatment of a connection because of its route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// The connection may be intercepted.
    Intercept,
    /// The connection passes untouched, and the caller watches whether the client acknowledges an
    /// answer that did not pass the proxy; if so, the caller calls [`AsymmetricRoutes::prove`].
    PassWatched,
    /// The connection passes untouched.
    Pass,
}

/// Routes, by client and server, on which the answers do not come back through the proxy.
///
/// The default never learns anything.
#[derive(Debug, Clone)]
pub struct AsymmetricRoutes {
    keep: TimeSpan,
    routes: BTreeMap<Route, Known>,
    /// By age, the oldest first.
    ages: BTreeSet<(u64, Route)>,
    next_age: u64,
    /// Largest number of remembered routes.
    limit: usize,
}

impl Default for AsymmetricRoutes {
    fn default() -> Self {
        Self::new(TimeSpan::ZERO)
    }
}

/// A route on which the answers of servers do not come back through the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAsymmetry {
    /// The route.
    pub route: Route,
    /// For how long connections pass untouched because of a proof; `None`: the next connection passes
    /// and is watched.
    pub proven_for: Option<TimeSpan>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    age: u64,
    /// A proof holds until this time; `None`: the route is only suspected.
    proven_until: Option<Time>,
}

impl AsymmetricRoutes {
    /// No route is known yet. A proof holds for `keep`; if that is zero, nothing is ever learned,
    /// and every connection is intercepted.
    #[must_use]
    pub const fn new(keep: TimeSpan) -> Self {
        Self {
            keep,
            routes: BTreeMap::new(),
            ages: BTreeSet::new(),
            next_age: 0,
            limit: LIMIT,
        }
    }

    /// One of `parts` parts of a divided memory, which never learns anything until
    /// [`change_keep`](Self::change_keep). It has room for two clients at their limit.
    #[must_use]
    pub(crate) const fn part_of(parts: usize) -> Self {
        let mut part = Self::new(TimeSpan::ZERO);
        part.limit = part_limit(LIMIT, parts);
        if part.limit < 2 * LIMIT_PER_CLIENT {
            part.limit = 2 * LIMIT_PER_CLIENT;
        }
        part
    }

    /// From now on, a proof holds for `keep`. All routes are forgotten.
    pub fn change_keep(&mut self, keep: TimeSpan) {
        *self = Self {
            limit: self.limit,
            ..Self::new(keep)
        };
    }

    /// For how long a proof holds.
    #[must_use]
    pub const fn keep(&self) -> TimeSpan {
        self.keep
    }

    /// A client opens a new connection.
    pub fn arrive(&mut self, now: Time, request: &Request) -> Passage {
        let route = Route::of(request);
        match self.routes.get(&route) {
            None => Passage::Intercept,
            Some(known) if known.proven_until.is_some_and(|until| now < until) => Passage::Pass,
            Some(_) => {
                // One connection decides: without a proof, the next one is intercepted.
                self.forget(route);
                Passage::PassWatched
            }
        }
    }

    /// A client has sent its SYN again, for the `count`th time, and the proxy's own SYN to the
    /// server has no answer.
    pub fn repeat(&self, now: Time, request: &Request, count: u32) -> Passage {
        let known = self.routes.get(&Route::of(request));
        let is_proven = known
            .and_then(|known| known.proven_until)
            .is_some_and(|until| now < until);
        if is_proven {
            Passage::Pass
        } else if count >= RETRANSMISSIONS && self.is_on() {
            Passage::PassWatched
        } else {
            Passage::Intercept
        }
    }

    /// A client was answered in the server's name, and the server never answered.
    pub fn suspect(&mut self, now: Time, request: &Request) {
        let known = self.routes.get(&Route::of(request));
        let is_proven = known
            .and_then(|known| known.proven_until)
            .is_some_and(|until| now < until);
        if !is_proven {
            self.learn(request, None);
        }
    }

    /// A client of a watched connection has acknowledged an answer that did not pass the proxy.
    pub fn prove(&mut self, now: Time, request: &Request) {
        self.learn(request, Some(now + self.keep));
    }

    /// Number of remembered routes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.routes.len()
    }

    /// At most `most` of the routes of these hosts, after the route `after`.
    #[must_use]
    pub fn known(
        &self,
        now: Time,
        hosts: &Hosts,
        after: Option<Route>,
        most: usize,
    ) -> Vec<KnownAsymmetry> {
        Route::entries(&self.routes, hosts, after)
            .take(most)
            .map(|(route, known)| KnownAsymmetry {
                route: *route,
                proven_for: known
                    .proven_until
                    .filter(|until| now < *until)
                    .map(|until| until.since(now)),
            })
            .collect()
    }

    /// Forgets at most `most` of the routes of these hosts; returns how many.
    pub(crate) fn forget_some(&mut self, hosts: &Hosts, most: usize) -> usize {
        let routes = self.routes.keys().filter(|route| route.has_any(hosts));
        let routes: Vec<Route> = routes.take(most).copied().collect();
        routes.iter().for_each(|route| self.forget(*route));
        routes.len()
    }

    fn is_on(&self) -> bool {
        self.keep > TimeSpan::ZERO
    }

    fn learn(&mut self, request: &Request, proven_until: Option<Time>) {
        if !self.is_on() {
            return;
        }
        let route = Route::of(request);
        self.forget(route);
        if self.count_of(route.client) >= LIMIT_PER_CLIENT {
            let own = self.routes_of(route.client);
            if let Some((oldest, _)) = own.min_by_key(|(_, known)| known.age) {
                let oldest = *oldest;
                self.forget(oldest);
            }
        }
        if self.routes.len() >= self.limit
            && let Some((_, oldest)) = self.ages.first().copied()
        {
            self.forget(oldest);
        }
        let age = self.next_age;
        self.next_age += 1;
        self.routes.insert(route, Known { age, proven_until });
        self.ages.insert((age, route));
    }

    fn forget(&mut self, route: Route) {
        if let Some(known) = self.routes.remove(&route) {
            self.ages.remove(&(known.age, route));
        }
    }

    fn routes_of(&self, client: IpAddr) -> impl Iterator<Item = (&Route, &Known)> {
        let first = Route {
            client,
            server: Ipv4Addr::UNSPECIFIED.into(),
        };
        let last = Route {
            client,
            server: Ipv6Addr::from_bits(u128::MAX).into(),
        };
        self.routes.range(first..=last)
    }

    fn count_of(&self, client: IpAddr) -> usize {
        self.routes_of(client).count()
    }
}

#[cfg(test)]
mod tests;
