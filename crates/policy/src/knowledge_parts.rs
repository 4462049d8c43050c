//! Knowledge in parts, each with a lock of its own, so that threads rarely wait for each other.
//!
//! A [`Policy`](crate::Policy) names the part that it needs, uses it, and returns it before it needs
//! another one: [`KnowledgeParts::part`] borrows the parts mutably, so the compiler refuses two at a
//! time, and no two threads can wait for each other.
//!
//! The simulator has one [`Knowledge`], which is its only part.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use crate::leave_alone::Route;
use crate::prefix::{host_prefix, site_prefix};
use crate::{Knowledge, Request, SessionId};

/// The knowledge of one proxy, divided into parts.
pub trait KnowledgeParts {
    /// The part that has the entries of this key.
    fn part(&mut self, key: PartKey) -> Part<'_>;
}

/// One part of the knowledge, while it is used.
#[derive(Debug)]
pub enum Part<'a> {
    /// The knowledge is not divided.
    Whole(&'a mut Knowledge),
    /// Other threads wait for this part until it is dropped.
    Locked(MutexGuard<'a, Knowledge>),
}

impl Deref for Part<'_> {
    type Target = Knowledge;

    fn deref(&self) -> &Knowledge {
        match self {
            Self::Whole(knowledge) => knowledge,
            Self::Locked(knowledge) => knowledge,
        }
    }
}

impl DerefMut for Part<'_> {
    fn deref_mut(&mut self) -> &mut Knowledge {
        match self {
            Self::Whole(knowledge) => knowledge,
            Self::Locked(knowledge) => knowledge,
        }
    }
}

impl KnowledgeParts for Knowledge {
    fn part(&mut self, _: PartKey) -> Part<'_> {
        Part::Whole(self)
    }
}

/// Names the part in which entries are: each field of [`Knowledge`] has one constructor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartKey(u64);

impl PartKey {
    /// For [`Knowledge::paths`] and [`Knowledge::ahead`]: the path to this peer.
    #[must_use]
    pub fn paths(peer: IpAddr) -> Self {
        Self::of(&host_prefix(peer))
    }

    /// For [`Knowledge::shared`], [`Knowledge::long_legs`] and [`Knowledge::loads`]: the sessions of this
    /// client's network.
    #[must_use]
    pub fn shared(client: IpAddr) -> Self {
        Self::of(&site_prefix(client))
    }

    /// For [`Knowledge::server_windows`]: the servers of this server's network.
    #[must_use]
    pub fn server_windows(server: IpAddr) -> Self {
        Self::of(&site_prefix(server))
    }

    /// For [`Knowledge::gains`]: the route of this connection. A client with very many routes, such
    /// as a NAT, has them in all parts.
    #[must_use]
    pub fn gains(request: &Request) -> Self {
        Self::of(&Route::of(request))
    }

    /// For [`Knowledge::routes`]: all routes of this connection's client, because their number has a
    /// limit.
    #[must_use]
    pub fn routes(request: &Request) -> Self {
        Self::of(&host_prefix(request.client.ip()))
    }

    /// The number of the part among this many, from 0.
    #[must_use]
    pub fn number(self, parts: usize) -> usize {
        let parts = u64::try_from(parts.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.0 % parts).unwrap_or_default()
    }

    /// The hash has no secret. A client that chooses its addresses can fill one part, but not the
    /// others.
    fn of(entries: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        entries.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Forgets what a session with this client has left for others that run at the same time. For a session that
/// ends without a last reading, for which no policy is called at its [end](crate::Policy::end).
pub fn forget_running(known: &mut dyn KnowledgeParts, client: IpAddr, session: SessionId) {
    let mut network = known.part(PartKey::shared(client));
    network.shared.forget(client, session);
    network.loads.forget(client, session);
    drop(network);
    let paths = &mut known.part(PartKey::paths(client)).paths;
    paths.forget_in_flight(client, session);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn request(client: &str, server: &str) -> Request {
        Request {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
        }
    }

    #[test]
    fn one_host_is_in_one_part_however_its_address_is_written() {
        let paths = |address: &str| PartKey::paths(address.parse().unwrap());
        assert_eq!(paths("192.0.2.1"), paths("::ffff:192.0.2.1"));
        assert_eq!(paths("2001:db8::1"), paths("2001:db8::2"));
        let shared = |address: &str| PartKey::shared(address.parse().unwrap());
        assert_eq!(shared("192.0.2.1"), shared("192.0.2.254"));
        let one = request("192.0.2.1:1", "198.51.100.1:80");
        let other = request("192.0.2.1:2", "203.0.113.1:443");
        assert_eq!(PartKey::routes(&one), PartKey::routes(&other));
        assert_ne!(PartKey::gains(&one), PartKey::gains(&other));
    }

    #[test]
    fn hosts_fall_on_all_parts_about_evenly() {
        const PARTS: usize = 64;
        let mut counts = [0_u32; PARTS];
        for number in 0..6400_u32 {
            let host = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            counts[PartKey::paths(host).number(PARTS)] += 1;
        }
        let range = counts.iter().min().unwrap()..=counts.iter().max().unwrap();
        assert!(**range.start() >= 60 && **range.end() <= 150, "{range:?}");
        let all: BTreeSet<usize> = (0..=2).map(|parts| PartKey(7).number(parts)).collect();
        assert!(all.iter().all(|part| *part < 2));
    }
}
