//! The knowledge of this node about its overlay, shared by the threads of a relay.

pub mod counts;
pub mod warm;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use midspan_explicit::hop::{HopError, HopFailure};
use midspan_policy::overlay::{CallFailure, KnownOverlay, Left, NextHop, NodeName, Overlay, Route};
use midspan_policy::prefix::site_prefix;
use midspan_units::Time;

use counts::OverlayCounts;
use warm::WarmPool;

/// The overlay of a relay: its members, and what is known of them. Clones share both.
#[derive(Debug, Clone)]
pub struct SharedOverlay(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    members: Mutex<Option<Arc<Overlay>>>,
    known: Mutex<KnownOverlay>,
    warm: WarmPool,
    counts: Mutex<OverlayCounts>,
    is_ending: AtomicBool,
}

/// What the overlay has to do with a session.
#[derive(Debug, Clone, Default)]
pub struct OverlayPart {
    /// The nodes at the other ends of the client leg and of the server leg, if these are hops.
    pub nodes: [Option<NodeName>; 2],
    /// The nodes after this one; `None` if the session leaves the overlay here.
    pub route: Option<Route>,
    /// The network of servers, and where the session leaves the overlay, at the ingress.
    pub left: Option<(IpNet, Left)>,
}

impl OverlayPart {
    /// The part of a session to this server that enters here and goes by this route, or leaves here.
    #[must_use]
    pub fn of_ingress(server: IpAddr, route: Option<Route>) -> Self {
        let left = match route {
            Some(_) => Left::Overlay,
            None => Left::Here,
        };
        let next = route.as_ref().and_then(|route| route.nodes().first());
        Self {
            nodes: [None, next.cloned()],
            left: Some((site_prefix(server), left)),
            route,
        }
    }
}

impl Default for SharedOverlay {
    /// Without members; nothing is known. Which sessions explore differs from run to run.
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0);
        Self(Arc::new(Inner {
            members: Mutex::new(None),
            known: Mutex::new(KnownOverlay::new(seed)),
            warm: WarmPool::default(),
            counts: Mutex::default(),
            is_ending: AtomicBool::new(false),
        }))
    }
}

impl SharedOverlay {
    /// Sets the members; `None` if this relay is part of no overlay.
    pub fn set_members(&self, overlay: Option<Overlay>) {
        let members = &self.0.members;
        *members.lock().unwrap_or_else(PoisonError::into_inner) = overlay.map(Arc::new);
        self.0.warm.end_all();
    }

    /// Sets whether this node will end soon, and should get no new sessions.
    pub fn set_ending(&self, is_ending: bool) {
        self.0.is_ending.store(is_ending, Ordering::Relaxed);
    }

    /// Whether this node will end soon.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::Relaxed)
    }

    /// Warm connections to the other nodes.
    #[must_use]
    pub fn warm(&self) -> &WarmPool {
        &self.0.warm
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> Option<Arc<Overlay>> {
        let members = self.0.members.lock();
        members.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known. Other threads wait while the caller has it.
    pub fn known(&self) -> MutexGuard<'_, KnownOverlay> {
        // A panic elsewhere while the lock was held does no harm: the numbers stay usable.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts. Other threads wait while the caller has them.
    pub fn counts(&self) -> MutexGuard<'_, OverlayCounts> {
        let counts = self.0.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner)
    }

    /// A call by this route has failed, and the server is not the reason.
    pub fn note_failed(&self, now: Time, own: &NodeName, route: &Route, failure: &HopFailure) {
        self.counts().note_failed(route, failure);
        let failure = CallFailure {
            is_busy: failure.error == HopError::ConnectionLimitReached,
            node: failure.node.clone(),
        };
        self.known().note_failed(now, own, route, &failure);
    }
}

/// Logs that a route cannot be used. What a node reports comes from a member.
pub fn log_broken_route(next: &NextHop, failure: &HopFailure, listener: &str, not_logged: u64) {
    let reported_by = failure.node.as_ref().map_or("", |node| node.as_str());
    let (first, exit, error) = (&next.leg, next.exit(), failure.error.token());
    tracing::warn!(%first, %exit, reported_by, error, listener, not_logged, "route broken");
}
