//! Servers whose answers do not come back this way.
//!
//! On an asymmetric route the proxy sees what clients send and nothing of what servers answer. A
//! connection that it takes there can never be completed, while without it all is well. So:
//!
//! - A client that repeats its SYN [`RETRANSMISSIONS`] times, while the proxy's own call to the
//!   server has no answer, gets its way: that connection passes untouched, and is *watched*. A
//!   server that is simply dead stays dead, and nothing is learnt of it.
//! - When a watched client acknowledges an answer that has not come by, the answer has taken
//!   another way: that is the *proof*. From then on the client's connections to that prefix pass
//!   untouched, for [`AsymmetricRoutes::keep`].
//! - When that time is over, the next connection passes untouched once more, watched: if the route
//!   is still asymmetric, it is known for another while and nobody has to wait; if not, the
//!   connection after it is taken.
//! - Where the client has been answered before the server was called (handshake `early`), nothing
//!   can be proven by that connection. Its end without an answer makes the next one watched.
//!
//! What is learnt holds for the client that has proven it, and for no other: who forges a proof
//! switches the proxy off for himself. (Who can forge another's address can do so for the other.)
//! All is bounded, for each client and in all; where there is no room, the oldest is forgotten.
//!
//! RFC 9293, 3.5 (a client acknowledges only what has answered its SYN); RFC 6298, 2.1 (the first
//! retransmission after 1 s).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use midspan_units::{Time, TimeSpan};

use super::Route;
use crate::Request;

/// So often a client has repeated its SYN when it gets its way. The first repetition, after 1 s,
/// may be due to a lost packet or a round-trip time above it; the second comes after 2 or 3 s.
const RETRANSMISSIONS: u32 = 2;
/// Most that is remembered, in all and for one client.
const LIMIT: usize = 4096;
const LIMIT_PER_CLIENT: usize = 256;

/// What becomes of a connection as far as its route is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Nothing speaks against taking it.
    Take,
    /// It passes untouched, and the caller looks whether the client acknowledges an answer that
    /// has not come by; if so, [`AsymmetricRoutes::prove`] is to be called.
    PassWatched,
    /// It passes untouched.
    Pass,
}

/// Which clients reach which servers by routes that bring no answers back this way.
#[derive(Debug)]
pub struct AsymmetricRoutes {
    keep: TimeSpan,
    routes: BTreeMap<Route, Known>,
    /// By age, the oldest first.
    ages: BTreeSet<(u64, Route)>,
    next_age: u64,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    age: u64,
    /// Proven until then; only suspected where there is none.
    proven_until: Option<Time>,
}

impl AsymmetricRoutes {
    /// Nothing is known yet. What is proven holds for `keep`; with zero, nothing is ever learnt
    /// and every connection taken.
    #[must_use]
    pub const fn new(keep: TimeSpan) -> Self {
        Self {
            keep,
            routes: BTreeMap::new(),
            ages: BTreeSet::new(),
            next_age: 0,
        }
    }

    /// For how long a proof holds.
    #[must_use]
    pub const fn keep(&self) -> TimeSpan {
        self.keep
    }

    /// A client wants a new connection.
    pub fn arrive(&mut self, now: Time, request: &Request) -> Passage {
        let route = Route::of(request);
        match self.routes.get(&route) {
            None => Passage::Take,
            Some(known) if known.proven_until.is_some_and(|until| now < until) => Passage::Pass,
            Some(_) => {
                // One connection tells; without a proof, the next one is taken.
                self.forget(route);
                Passage::PassWatched
            }
        }
    }

    /// A client has sent its SYN once more, for the `count`th time, and the proxy's own call to
    /// the server has no answer.
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
            Passage::Take
        }
    }

    /// A client had been answered in the server's name, and the server never answered.
    pub fn suspect(&mut self, now: Time, request: &Request) {
        let known = self.routes.get(&Route::of(request));
        let is_proven = known
            .and_then(|known| known.proven_until)
            .is_some_and(|until| now < until);
        if !is_proven {
            self.learn(request, None);
        }
    }

    /// A client whose connection is watched has acknowledged an answer that has not come by.
    pub fn prove(&mut self, now: Time, request: &Request) {
        self.learn(request, Some(now + self.keep));
    }

    /// How many routes are remembered.
    #[must_use]
    pub fn count(&self) -> usize {
        self.routes.len()
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
        if self.routes.len() >= LIMIT
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
