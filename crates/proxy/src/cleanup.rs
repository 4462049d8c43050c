//! `midspan cleanup`: removes what a Midspan that was killed has left behind.
//!
//! The next start does the same. A service manager calls it after each end, so that a machine on
//! which Midspan is not started again is as it was before.

use midspan_gateway::leftovers;
use midspan_linux::capability::{self, Capability};
use serde::Serialize;

use crate::Error;

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Cleaned {
    /// Rules, routes and tables of `midspan run`.
    pub rules_and_routes: usize,
    /// Tables of `midspan thin`.
    pub thinning_tables: usize,
    /// Lock files of processes that no longer run.
    pub lock_files: usize,
}

/// Removes rules, routes and tables of processes that no longer run in this network namespace, sets
/// parameters of the kernel back that they had changed, and removes lock files that nobody holds.
/// What belongs to a Midspan that runs stays; while one runs, routes and routing rules are left
/// alone. Does nothing where nothing is left.
///
/// # Errors
/// `CAP_NET_ADMIN` is missing, or what is there cannot be removed.
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
