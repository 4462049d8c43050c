//! Whether connection tracking has room for one more session.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use midspan_linux::connection_tracking::{ConnectionTracking, Occupancy};
use midspan_log::LogRate;
use tracing::{info, warn};

use super::locking::lock;
use super::statistics::Counters;

/// Between two looks, 8,000 new connections a second bring 800 entries.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Least time between two log lines about a full table.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The occupancy of the table at the last reading, for all threads. One of them reads at a time.
#[derive(Debug)]
pub struct TrackedEntries {
    start: Instant,
    /// When to read again, in nanoseconds since the start.
    next_look: AtomicU64,
    /// Whether new connections are to pass untouched.
    is_full: AtomicBool,
    counters: Arc<Counters>,
    reading: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    occupancy: Option<Occupancy>,
    /// Connections have passed untouched since the table had room.
    is_passing: bool,
    full_log: LogRate,
    /// Whether the kernel does not report the occupancy, which has been logged.
    is_unknown: bool,
}

impl TrackedEntries {
    /// Before the first reading. The counters get the occupancy.
    pub fn new(now: Instant, counters: Arc<Counters>) -> Self {
        Self {
            start: now,
            next_look: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            counters,
            reading: Mutex::new(Reading {
                occupancy: None,
                is_passing: false,
                full_log: LogRate::new(1, LOG_INTERVAL),
                is_unknown: false,
            }),
        }
    }

    /// Reads again if the last reading is old.
    pub fn look(&self, now: Instant, tracking: &ConnectionTracking) {
        let nanoseconds = |moment: Instant| {
            let since = moment.saturating_duration_since(self.start).as_nanos();
            u64::try_from(since).unwrap_or(u64::MAX)
        };
        if nanoseconds(now) < self.next_look.load(Ordering::Relaxed) {
            return;
        }
        // Otherwise another thread reads.
        let Ok(mut reading) = self.reading.try_lock() else {
            return;
        };
        let next = nanoseconds(now + LOOK_INTERVAL);
        self.next_look.store(next, Ordering::Relaxed);
        match tracking.occupancy() {
            Ok(occupancy) => self.set(occupancy, &mut reading),
            Err(error) => {
                reading.occupancy = None;
                self.is_full.store(false, Ordering::Relaxed);
                if !std::mem::replace(&mut reading.is_unknown, true) {
                    warn!(
                        "the entries of connection tracking cannot be counted, so connections are \
                         intercepted even if its table is nearly full: {error}"
                    );
                }
            }
        }
    }

    fn set(&self, occupancy: Occupancy, reading: &mut Reading) {
        reading.occupancy = Some(occupancy);
        let Occupancy { entries, limit } = occupancy;
        (self.counters.tracked_entries).store(entries, Ordering::Relaxed);
        (self.counters.tracked_limit).store(limit.unwrap_or(0), Ordering::Relaxed);
        let is_full = occupancy.is_nearly_full();
        self.is_full.store(is_full, Ordering::Relaxed);
        if reading.is_passing && !is_full {
            reading.is_passing = false;
            info!(
                entries,
                "connection tracking has room again: connections are intercepted"
            );
        }
    }

    /// Whether a new connection is to pass untouched.
    pub fn is_full(&self, now: Instant) -> bool {
        if !self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        let mut reading = lock(&self.reading);
        // Another thread may have found room meanwhile.
        if !self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        if !reading.is_passing
            && let Some(occupancy) = reading.occupancy
            && reading.full_log.admit(now).is_some()
        {
            warn!(
                entries = occupancy.entries,
                limit = occupancy.limit,
                "connections pass untouched: the table of connection tracking is nearly full (7/8), \
                 and a full one drops what is new: raise net.netfilter.nf_conntrack_max"
            );
        }
        reading.is_passing = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_seven_eighths_connections_pass_and_below_they_are_taken() {
        let start = Instant::now();
        let counters = Arc::<Counters>::default();
        let tracked = TrackedEntries::new(start, Arc::clone(&counters));
        assert!(!tracked.is_full(start));
        let set = |entries, limit| {
            tracked.set(Occupancy { entries, limit }, &mut lock(&tracked.reading));
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
