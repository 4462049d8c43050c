//! When to read the routing tables again.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use midspan_gateway::initial_window::InitialWindows;
use tracing::{debug, info, warn};

/// Routes change in groups: one reading of the tables is enough for a group.
const ROUTE_DELAY: Duration = Duration::from_millis(100);

/// Time to the next reading after one that failed.
const ROUTE_RETRY: Duration = Duration::from_secs(1);

/// The text for a time without copies of routes.
pub(super) const NO_WINDOWS: &str = "connections go without the initial windows of the \
    configuration for now: the main routing table has more routes than are copied (10,000 in all), \
    or the copies could not be kept up to date";

/// The tables are read at least this often, even without a notification.
const ROUTE_INTERVAL: Duration = Duration::from_secs(10);

/// Readings take at most one part in this many of the time: the longer a reading takes, the later
/// is the next.
const SHARE: u32 = 20;

/// When to read the routing tables again.
pub(super) struct RouteWatch {
    next: Instant,
    next_thorough: Instant,
    not_copied: NotCopied,
    /// The end of the last reading, and its duration.
    last: (Instant, Duration),
    /// Whether there was a change, for which the next reading is due.
    waiting: bool,
    /// Whether there are no initial windows at present, which has been logged.
    suspended: bool,
}

/// How many routes cannot be copied. While an interface goes or IPv6 is switched off, a route may be
/// refused that is no longer there at the next reading; only what two readings find is logged.
#[derive(Debug, Default)]
struct NotCopied {
    /// At the last reading.
    last: usize,
    /// At the last two readings.
    persistent: usize,
}

/// What a reading has shown.
#[derive(Debug, PartialEq, Eq)]
enum Persistence {
    /// Two readings have found that this many routes cannot be copied, more than before.
    More(usize),
    /// More routes cannot be copied than before, for which another reading is needed.
    Unknown,
    /// Nothing to log.
    Nothing,
}

impl NotCopied {
    fn after_reading(&mut self, routes: usize) -> Persistence {
        let before = std::mem::replace(&mut self.last, routes);
        let persistent = before.min(routes);
        let more = persistent > self.persistent;
        self.persistent = persistent;
        match (more, routes > persistent) {
            (true, _) => Persistence::More(persistent),
            (false, true) => Persistence::Unknown,
            (false, false) => Persistence::Nothing,
        }
    }
}

impl RouteWatch {
    pub fn new() -> Self {
        let now = Instant::now();
        let next = now + ROUTE_INTERVAL;
        Self {
            next,
            next_thorough: next,
            not_copied: NotCopied::default(),
            last: (now, Duration::ZERO),
            waiting: false,
            suspended: false,
        }
    }

    /// The descriptor to wait for: none while a reading is due anyway, because there may be
    /// thousands of changes.
    pub fn changes<'a>(&self, windows: &'a InitialWindows) -> Option<BorrowedFd<'a>> {
        (!self.waiting).then(|| windows.changes())
    }

    /// When to call [`handle`](Self::handle) at the latest.
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// Reads the tables if this is due; `changed`: there was a notification.
    pub fn handle(&mut self, windows: &mut InitialWindows, changed: bool, now: Instant) {
        self.log_suspended(windows);
        if changed && self.suspended {
            // There are no copies to update; a later reading shows whether there are few routes
            // again.
            windows.forget_changes();
        } else if changed {
            let (end, took) = self.last;
            self.next = self.next.min((now + ROUTE_DELAY).max(end + took * SHARE));
            self.waiting = true;
        }
        if now < self.next {
            return;
        }
        self.waiting = false;
        let thorough = now >= self.next_thorough;
        if thorough {
            self.next_thorough = now + ROUTE_INTERVAL;
        }
        self.next = self.next_thorough;
        let begin = Instant::now();
        let result = windows.refresh(thorough);
        let end = Instant::now();
        self.last = (end, end.saturating_duration_since(begin));
        match result {
            Ok(refreshed) => {
                if refreshed.added + refreshed.removed > 0 {
                    debug!(
                        added = refreshed.added,
                        removed = refreshed.removed,
                        "routes for initial windows follow the main table"
                    );
                }
                match self.not_copied.after_reading(refreshed.not_copied) {
                    Persistence::Unknown => self.next = self.next.min(end + ROUTE_RETRY),
                    Persistence::More(routes) => warn!(
                        "{routes} routes cannot be copied; their destinations go without an initial \
                         window"
                    ),
                    Persistence::Nothing => {}
                }
            }
            Err(error) => {
                warn!("routes for initial windows may be out of date: {error}");
                self.next = end + ROUTE_RETRY;
            }
        }
        self.log_suspended(windows);
    }

    fn log_suspended(&mut self, windows: &InitialWindows) {
        let before = std::mem::replace(&mut self.suspended, windows.is_suspended());
        match (before, self.suspended) {
            (false, true) => warn!("{NO_WINDOWS}"),
            (true, false) => info!("connections have initial windows again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_two_readings_cannot_copy_are_logged_once() {
        let mut not_copied = NotCopied::default();
        let mut after = |routes| not_copied.after_reading(routes);
        assert_eq!(after(0), Persistence::Nothing);
        // IPv6 is being switched off: its routes are refused, and then gone.
        assert_eq!(after(10), Persistence::Unknown);
        assert_eq!(after(0), Persistence::Nothing);
        assert_eq!(after(2), Persistence::Unknown);
        assert_eq!(after(2), Persistence::More(2));
        assert_eq!(after(2), Persistence::Nothing);
        assert_eq!(after(5), Persistence::Unknown);
        assert_eq!(after(4), Persistence::More(4));
        assert_eq!(after(1), Persistence::Nothing);
    }
}
