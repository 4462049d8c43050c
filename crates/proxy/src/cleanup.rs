//! `midspan cleanup`: removes the leftovers of a Midspan that was killed.
//!
//! The next start does the same. A service manager runs this command after each end, so that the
//! machine is clean even if Midspan is not started again.

use midspan_gateway::leftovers;
use midspan_linux::capability::{self, Capability};
use serde::Serialize;

use crate::Error;

/// Numbers of removed leftovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Cleaned {
    /// Rules, routes and tables of `midspan run`.
    pub rules_and_routes: usize,
    /// Tables of `midspan thin`.
    pub thinning_tables: usize,
    /// Lock files of processes that no longer exist.
    pub lock_files: usize,
}

/// Removes rules, routes and tables of processes that no longer exist in this network namespace,
/// restores kernel parameters that these processes had changed, and removes lock files without
/// owners. Does not change anything of a running Midspan; while one runs, routes and routing rules
/// stay. Does nothing if there are no leftovers.
///
/// # Errors
/// `CAP_NET_ADMIN` is missing, or leftovers cannot be removed.
pub fn cleanup() -> Result<Cleaned, Error> {
    if !capability::is_held(Capability::CAP_NET_ADMIN)? {
        return Err(Error::NoCleanup);
    }
    Ok(Cleaned {
        rules_and_routes: leftovers::rules_and_routes()?,
        thinning_tables: leftovers::thinning_tables()?,
        lock_files: leftovers::lock_files(),
    })
}
