//! The measurements that the sessions of a proxy leave for later sessions.

use crate::learned_start::LearnedPaths;
use crate::leave_alone::{AsymmetricRoutes, Gains};
use crate::shared_path::SharedPaths;

/// The measurements that the sessions of a proxy leave for later sessions, whatever policies they
/// have. Its owner passes it to each [`Policy`](crate::Policy) that decides for them.
#[derive(Debug, Clone, Default)]
pub struct Knowledge {
    /// The learned properties of the paths to peers.
    pub paths: LearnedPaths,
    /// The measured gain of splitting, and the routes on which it gains nothing.
    pub gains: Gains,
    /// The rates of running sessions that share a bottleneck.
    pub shared: SharedPaths,
    /// The routes on which the answers of servers do not come back through the proxy.
    pub routes: AsymmetricRoutes,
}
