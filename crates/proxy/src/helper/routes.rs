//! When to look at the routing tables again.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use midspan_gateway::initial_window::InitialWindows;
use tracing::{debug, info, warn};

/// Route changes come in groups: one look at the tables serves a whole one.
const ROUTE_DELAY: Duration = Duration::from_millis(100);

/// Until the next look after one that failed.
const ROUTE_RETRY: Duration = Duration::from_secs(1);

/// What is said where there are no copies of routes.
pub(super) const NO_WINDOWS: &str = "connections go without the initial windows of the \
    configuration for now: the main routing table has more routes than are copied (10,000 in all), \
    or the copies could not be kept up to date";

/// The tables are looked at even if nothing has been heard of them.
const ROUTE_INTERVAL: Duration = Duration::from_secs(10);

/// Looks take at most one part in so many of the time: the longer one takes, the later is the next.
const SHARE: u32 = 20;

/// When to look at the routing tables again.
pub(super) struct RouteWatch {
    next: Instant,
    next_thorough: Instant,
    not_copied: usize,
    /// When the last look was over, and how long it took.
    last: (Instant, Duration),
    /// Something has changed, and the next look is due for that.
    waiting: bool,
    /// There are no initial windows for the time being, which has been said.
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

    /// What to wait for: nothing while the next look is due for a change anyway, since changes may
    /// come by the thousand.
    pub fn changes<'a>(&self, windows: &'a InitialWindows) -> Option<BorrowedFd<'a>> {
        (!self.waiting).then(|| windows.changes())
    }

    /// When to call [`handle`](Self::handle) at the latest.
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// Looks after the tables; `changed` says that somebody has changed some.
    pub fn handle(&mut self, windows: &mut InitialWindows, changed: bool, now: Instant) {
        self.say_suspended(windows);
        if changed && self.suspended {
            // There is nothing to keep up to date; whether there are few routes again is seen later.
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
        self.say_suspended(windows);
    }

    fn say_suspended(&mut self, windows: &InitialWindows) {
        let before = std::mem::replace(&mut self.suspended, windows.is_suspended());
        match (before, self.suspended) {
            (false, true) => warn!("{NO_WINDOWS}"),
            (true, false) => info!("connections have initial windows again"),
            _ => {}
        }
    }
}
