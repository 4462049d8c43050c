//! When to look at the routing tables again.

use std::time::{Duration, Instant};

use midspan_linux::initial_window::InitialWindows;
use tracing::{debug, warn};

/// Route changes come in groups: one look at the tables serves a whole one.
const ROUTE_DELAY: Duration = Duration::from_millis(100);

/// The tables are looked at even if nothing has been heard of them.
const ROUTE_INTERVAL: Duration = Duration::from_secs(10);

/// When to look at the routing tables again.
pub(super) struct RouteWatch {
    next: Instant,
    next_thorough: Instant,
    not_copied: usize,
}

impl RouteWatch {
    pub fn new() -> Self {
        let next = Instant::now() + ROUTE_INTERVAL;
        Self {
            next,
            next_thorough: next,
            not_copied: 0,
        }
    }

    /// When to call [`handle`](Self::handle) at the latest.
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// Looks after the tables; `changed` says that somebody has changed some.
    pub fn handle(&mut self, windows: &mut InitialWindows, changed: bool, now: Instant) {
        if changed {
            // Read away now, so that waiting does not return at once until the look is due.
            windows.forget_changes();
            self.next = self.next.min(now + ROUTE_DELAY);
        }
        if now < self.next {
            return;
        }
        let thorough = now >= self.next_thorough;
        if thorough {
            self.next_thorough = now + ROUTE_INTERVAL;
        }
        self.next = self.next_thorough;
        match windows.refresh(thorough) {
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
            Err(error) => warn!("routes for initial windows may be out of date: {error}"),
        }
    }
}
