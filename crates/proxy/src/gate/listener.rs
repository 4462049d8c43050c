//! A transparent listener, as the gate uses it.

use std::collections::BTreeSet;
use std::sync::Arc;

use midspan_policy::overlay::{Overlay, RoutePolicy};
use midspan_policy::{Offered, Policy};
use midspan_relay::Listener;

/// A transparent listener, with the policy that decides at the SYN which of its connections are
/// intercepted, and how their legs begin.
pub struct GateListener {
    pub(super) listener: Listener,
    /// The mark of SYNs for it.
    pub(super) mark: u32,
    pub(super) policy: Box<dyn Policy + Send>,
    /// Decides by which nodes of the overlay its connections go, if they may.
    pub(super) routes: Option<Routes>,
}

/// The routes of a listener's connections.
pub(super) struct Routes {
    /// The overlay.
    pub overlay: Arc<Overlay>,
    /// Chooses the route of each connection.
    pub policy: Box<dyn RoutePolicy + Send>,
    /// The listener, for warm connections.
    pub listener: Arc<Listener>,
}

impl GateListener {
    /// A listener with the policy of its settings, on a machine with these features.
    #[must_use]
    pub fn new(listener: Listener, offered: Offered) -> Self {
        let policy = midspan_policy::make(&listener.session, listener.handshake, offered);
        Self::with_policy(listener, policy)
    }

    /// A listener with this policy.
    #[must_use]
    pub fn with_policy(mut listener: Listener, policy: Box<dyn Policy + Send>) -> Self {
        // The gate needs profiles only to leave timestamps out.
        if listener.profiles.iter().all(|profile| profile.timestamps) {
            listener.profiles.clear();
        }
        Self {
            mark: listener.marks.syn.unwrap_or_default(),
            policy,
            routes: listener.overlay.take().map(|overlay| Routes {
                policy: overlay.route_policy(),
                overlay: Arc::from(overlay),
                listener: Arc::new(listener.clone()),
            }),
            listener,
        }
    }

    /// The transparent ones among the relay's listeners. Each is there several times, for its
    /// families and initial windows.
    #[must_use]
    pub fn all<'a>(
        listeners: impl IntoIterator<Item = &'a Listener>,
        offered: Offered,
    ) -> Vec<Self> {
        let mut names = BTreeSet::new();
        let transparent = listeners.into_iter().filter(|of| of.is_transparent());
        transparent
            .filter(|of| names.insert(of.name.as_str()))
            .map(|of| Self::new(of.clone(), offered))
            .collect()
    }
}
