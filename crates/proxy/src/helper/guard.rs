//! Keeps the rules of transparent listeners in force, and takes no connections for a relay that
//! does not answer.

use std::time::{Duration, Instant};

use midspan_linux::interception::Interception;
use midspan_units::TimeSpan;
use tracing::{info, warn};

/// Rule changes come in groups: one look serves a whole one.
const RULE_DELAY: Duration = Duration::from_millis(100);
/// The least time between two looks, each of which runs programs.
const RULE_PAUSE: Duration = Duration::from_millis(300);
/// The rules are looked at even if nothing has been heard of them.
const RULE_INTERVAL: Duration = Duration::from_secs(10);
/// Without a sign of life for this long, connections pass untouched. The relay gives several a
/// second.
const PASS_AFTER: Duration = Duration::from_millis(600);

/// Rules in force, and what is known of the relay.
pub(super) struct Guard {
    interception: Interception,
    /// The next look at the rules.
    next_look: Instant,
    last_look: Instant,
    last_life: Instant,
    watchdog_timeout: Duration,
    /// No new connections are wanted any more, and no signs of life expected.
    draining: bool,
}

impl Guard {
    pub fn new(interception: Interception, watchdog_timeout: TimeSpan) -> Self {
        let now = Instant::now();
        Self {
            interception,
            next_look: now + RULE_INTERVAL,
            last_look: now,
            last_life: now,
            watchdog_timeout: watchdog_timeout.into(),
            draining: false,
        }
    }

    pub const fn interception(&self) -> &Interception {
        &self.interception
    }

    /// When to call [`handle_rules`](Self::handle_rules) and [`is_still`](Self::is_still) at the
    /// latest.
    pub fn next(&self) -> Instant {
        if self.draining {
            return self.next_look;
        }
        let limit = match self.interception.is_taking() {
            true => PASS_AFTER,
            false => self.watchdog_timeout,
        };
        self.next_look.min(self.last_life + limit)
    }

    /// The relay has given a sign of life.
    pub fn handle_life(&mut self, now: Instant) {
        self.last_life = now;
        if !self.interception.is_taking() && !self.draining {
            info!("the relay answers again: new connections are taken");
            self.set_taking(true);
        }
    }

    /// Looks after the rules; `changed` says that somebody has changed some.
    pub fn handle_rules(&mut self, changed: bool, now: Instant) {
        if changed {
            // Read away now, so that waiting does not return at once until the look is due.
            self.interception.forget_changes();
            let look = (now + RULE_DELAY).max(self.last_look + RULE_PAUSE);
            self.next_look = self.next_look.min(look);
        }
        if now < self.next_look {
            return;
        }
        self.last_look = now;
        self.next_look = now + RULE_INTERVAL;
        match self.interception.refresh() {
            Ok(false) => {}
            Ok(true) => warn!("rules or routes were gone or changed, and are put back"),
            Err(error) => {
                warn!("rules cannot be put back, connections may pass untouched: {error}");
                self.next_look = now + Duration::from_secs(1);
            }
        }
    }

    /// Whether the relay has been still for so long that it must be ended. Before that, new
    /// connections are no longer taken for it.
    pub fn is_still(&mut self, now: Instant) -> bool {
        if self.draining {
            return false;
        }
        let still = now.saturating_duration_since(self.last_life);
        if still >= PASS_AFTER && self.interception.is_taking() {
            warn!("the relay does not answer: new connections pass untouched");
            self.set_taking(false);
        }
        still >= self.watchdog_timeout
    }

    /// The relay is about to end.
    pub fn stop_taking(&mut self) {
        self.draining = true;
        self.set_taking(false);
    }

    fn set_taking(&mut self, taking: bool) {
        if let Err(error) = self.interception.set_taking(taking) {
            warn!("rules cannot be changed: {error}");
            self.next_look = Instant::now() + RULE_PAUSE;
        }
    }
}
