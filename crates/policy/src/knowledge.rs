//! The measurements that the sessions of a proxy leave for later sessions.

use crate::ahead_history::AheadHistories;
use crate::hosts::Hosts;
use crate::learned_start::LearnedPaths;
use crate::leave_alone::{AsymmetricRoutes, Gains};
use crate::long_legs::LongLegs;
use crate::network_load::NetworkLoads;
use crate::server_windows::ServerWindows;
use crate::shared_path::SharedPaths;

/// The measurements that the sessions of a proxy leave for later sessions, whatever policies they
/// have. Its owner passes it to each [`Policy`](crate::Policy) that decides for them.
#[derive(Debug, Clone, Default)]
pub struct Knowledge {
    /// The learned properties of the paths to peers.
    pub paths: LearnedPaths,
    /// The clients to which data was sent ahead of their window.
    pub ahead: AheadHistories,
    /// The networks of clients behind long legs.
    pub long_legs: LongLegs,
    /// The data that running sessions have in flight over long legs.
    pub loads: NetworkLoads,
    /// The networks of servers that fill the kernel's first receive windows.
    pub server_windows: ServerWindows,
    /// The measured gain of splitting, and the routes on which it gains nothing.
    pub gains: Gains,
    /// The rates of running sessions that share a bottleneck.
    pub shared: SharedPaths,
    /// The routes on which the answers of servers do not come back through the proxy.
    pub routes: AsymmetricRoutes,
}

/// Numbers of forgotten entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forgotten {
    /// Known paths.
    pub paths: usize,
    /// Peers with cold starts.
    pub cold_starts: usize,
    /// Asymmetric routes.
    pub asymmetric_routes: usize,
    /// Routes with measured gains.
    pub gains: usize,
    /// Clients to which data was sent ahead of their window, and networks of clients behind long legs.
    pub sending_ahead: usize,
    /// Networks of servers towards which receive windows are opened.
    pub server_windows: usize,
}

impl Forgotten {
    /// Whether entries may be left, after a call that forgets at most `most` of each kind.
    #[must_use]
    pub fn may_have_more(&self, most: usize) -> bool {
        let all = [
            self.paths,
            self.cold_starts,
            self.asymmetric_routes,
            self.gains,
            self.sending_ahead,
            self.server_windows,
        ];
        all.iter().any(|count| *count >= most)
    }
}

impl Knowledge {
    /// One of `parts` parts, which together remember about as much as one that is not divided.
    #[must_use]
    pub const fn part_of(parts: usize) -> Self {
        Self {
            paths: LearnedPaths::part_of(parts),
            ahead: AheadHistories::part_of(parts),
            long_legs: LongLegs::part_of(parts),
            loads: NetworkLoads::part_of(parts),
            server_windows: ServerWindows::part_of(parts),
            gains: Gains::part_of(parts),
            shared: SharedPaths::part_of(parts),
            routes: AsymmetricRoutes::part_of(parts),
        }
    }

    /// Forgets what sessions with these hosts have left for later ones: at most `most` entries of
    /// each kind. Running sessions keep what they have measured, and leave it at their end. The
    /// measured gain by size, over all hosts, stays.
    pub fn forget(&mut self, hosts: &Hosts, most: usize) -> Forgotten {
        let (paths, cold_starts) = self.paths.forget(hosts, most);
        Forgotten {
            paths,
            cold_starts,
            asymmetric_routes: self.routes.forget_some(hosts, most),
            gains: self.gains.forget(hosts, most),
            sending_ahead: self.ahead.forget(hosts, most) + self.long_legs.forget(hosts, most),
            server_windows: self.server_windows.forget(hosts, most),
        }
    }
}

#[cfg(test)]
mod tests;
