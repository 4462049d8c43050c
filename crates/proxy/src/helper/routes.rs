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
    not_copied: usize,
    /// The end of the last reading, and its duration.
    last: (Instant, Duration),
    /// Whether there was a change, for which the next reading is due.
    waiting: bool,
    /// Whether there are no initial windows at present, which has been logged.
    suspended: bool,
}

impl RouteWatch {
    pub fn new() -> Self {
        let now = Instant::now();
        let next = now + ROUTE_INTERVAL;
        Self {
            next,
            next_thorough: next,
            not_copied: 0,
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
                if refreshed.not_copied > self.not_copied {
                    warn!(
                        "{} routes cannot be copied; their destinations go without an initial \
                         window",
                        refreshed.not_copied
                    );
                }
                self.not_copied = refreshed.not_copied;
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
