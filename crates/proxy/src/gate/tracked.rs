//! Whether connection tracking has room for one more session.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use midspan_linux::connection_tracking::{ConnectionTracking, Occupancy};
use midspan_log::LogRate;
use tracing::{info, warn};

use super::locking::lock;
use super::statistics::Counters;

/// Between two readings for new connections, 8,000 of them a second bring 800 entries.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How much longer this is while no connection is new and the table has room. Only metrics need these readings.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Least time between two log lines about a full table.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The occupancy of the table at the last reading, for all threads. One of them reads at a time.
#[derive(Debug)]
pub struct TrackedEntries {
    start: Instant,
    /// When to read again for a new connection, in nanoseconds since the start.
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

    /// Reads again for a new connection, if the last reading is old.
    pub fn look(&self, now: Instant, tracking: &ConnectionTracking) {
        if self.is_due(now, Duration::ZERO) {
            self.read(now, tracking);
        }
    }

    /// Reads again although no connection is new, if the last reading is old. Such readings are rare, because each of
    /// them takes processor time. They are frequent while connections pass because the table is nearly full, so that the
    /// gate notices soon when there is room.
    pub fn look_idly(&self, now: Instant, tracking: &ConnectionTracking) {
        if self.is_due(now, IDLE_INTERVAL) || self.was_full() {
            self.look(now, tracking);
        }
    }

    /// Whether the table had no room at the last reading.
    pub fn was_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Whether it is this much later than the time to read for a new connection, or nothing has been read.
    fn is_due(&self, now: Instant, later: Duration) -> bool {
        let next = self.next_look.load(Ordering::Relaxed);
        next == 0 || now.saturating_duration_since(self.start) >= Duration::from_nanos(next) + later
    }

    /// The next reading for a new connection is not due at once.
    fn note_reading(&self, now: Instant) {
        let next = now.saturating_duration_since(self.start) + LOOK_INTERVAL;
        let next = u64::try_from(next.as_nanos()).unwrap_or(u64::MAX);
        self.next_look.store(next, Ordering::Relaxed);
    }

    fn read(&self, now: Instant, tracking: &ConnectionTracking) {
        // Otherwise another thread reads.
        let Ok(mut reading) = self.reading.try_lock() else {
            return;
        };
        self.note_reading(now);
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
        if !self.was_full() {
            return false;
        }
        let mut reading = lock(&self.reading);
        // Another thread may have found room meanwhile.
        if !self.was_full() {
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

    #[test]
    fn a_new_connection_has_a_newer_reading_than_an_idle_gate() {
        let start = Instant::now();
        let tracked = TrackedEntries::new(start, Arc::default());
        assert!(tracked.is_due(start, IDLE_INTERVAL));
        tracked.note_reading(start);
        let due = |milliseconds| {
            let now = start + Duration::from_millis(milliseconds);
            [Duration::ZERO, IDLE_INTERVAL].map(|later| tracked.is_due(now, later))
        };
        assert_eq!(due(49), [false, false]);
        assert_eq!(due(50), [true, false]);
        assert_eq!(due(1049), [true, false]);
        assert_eq!(due(1050), [true, true]);
    }
}
