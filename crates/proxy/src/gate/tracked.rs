//! Whether connection tracking has room for one more session.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use midspan_linux::connection_tracking::{ConnectionTracking, Occupancy};
use tracing::{info, warn};

use super::statistics::Counters;

/// Between two looks, 8,000 new connections a second bring 800 entries.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Least time between two log lines about a full table.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The occupancy of the table at the last reading.
#[derive(Debug)]
pub struct TrackedEntries {
    occupancy: Option<Occupancy>,
    next_look: Instant,
    /// Connections have passed untouched since the table had room.
    is_passing: bool,
    next_log: Instant,
    /// Whether the kernel does not report the occupancy, which has been logged.
    is_unknown: bool,
}

impl TrackedEntries {
    /// Before the first reading.
    pub const fn new(now: Instant) -> Self {
        Self {
            occupancy: None,
            next_look: now,
            is_passing: false,
            next_log: now,
            is_unknown: false,
        }
    }

    /// Reads again if the last reading is old.
    pub fn look(&mut self, now: Instant, tracking: &ConnectionTracking, counters: &Counters) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_INTERVAL;
        match tracking.occupancy() {
            Ok(occupancy) => self.set(occupancy, counters),
            Err(error) => {
                self.occupancy = None;
                if !std::mem::replace(&mut self.is_unknown, true) {
                    warn!(
                        "the entries of connection tracking cannot be counted, so connections are \
                         intercepted even if its table is nearly full: {error}"
                    );
                }
            }
        }
    }

    fn set(&mut self, occupancy: Occupancy, counters: &Counters) {
        self.occupancy = Some(occupancy);
        let Occupancy { entries, limit } = occupancy;
        (counters.tracked_entries).store(entries, Ordering::Relaxed);
        (counters.tracked_limit).store(limit.unwrap_or(0), Ordering::Relaxed);
        if self.is_passing && !occupancy.is_nearly_full() {
            self.is_passing = false;
            info!(
                entries,
                "connection tracking has room again: connections are intercepted"
            );
        }
    }

    /// Whether a new connection is to pass untouched.
    pub fn is_full(&mut self, now: Instant) -> bool {
        let Some(occupancy) = self.occupancy.filter(Occupancy::is_nearly_full) else {
            return false;
        };
        if !self.is_passing && now >= self.next_log {
            self.next_log = now + LOG_INTERVAL;
            warn!(
                entries = occupancy.entries,
                limit = occupancy.limit,
                "connections pass untouched: the table of connection tracking is nearly full (7/8), \
                 and a full one drops what is new: raise net.netfilter.nf_conntrack_max"
            );
        }
        self.is_passing = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_seven_eighths_connections_pass_and_below_they_are_taken() {
        let start = Instant::now();
        let counters = Counters::default();
        let mut tracked = TrackedEntries::new(start);
        assert!(!tracked.is_full(start));
        let mut set = |entries, limit| {
            tracked.set(Occupancy { entries, limit }, &counters);
            tracked.is_full(start)
        };
        assert!(!set(874, Some(1000)));
        assert!(set(875, Some(1000)));
        assert!(set(2000, Some(1000)));
        assert!(!set(0, Some(1000)));
        assert!(!set(u64::MAX, None));
        assert!(!set(0, Some(1)));
        assert!(set(1, Some(1)));
        let read = counters.read();
        assert_eq!((read.tracked_entries, read.tracked_limit), (1, 1));
    }
}
