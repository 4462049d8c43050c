//! Keeps the rules of transparent listeners in force, and takes no connections for a relay that
//! does not answer.

use std::time::{Duration, Instant};

use midspan_linux::interception::survey::ForeignRule;
use midspan_linux::interception::{Interception, InterceptionError, Pair, Plan};
use midspan_linux::netlink::Prefix;
use midspan_units::TimeSpan;
use tracing::{info, warn};

use super::firewall::Firewall;

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
    firewall: Firewall,
    /// The next look at the rules.
    next_look: Instant,
    last_look: Instant,
    last_life: Instant,
    /// The relay gives signs of life.
    alive: bool,
    watchdog_timeout: Duration,
    /// No new connections are wanted any more, and no signs of life expected.
    draining: bool,
    /// Routing rules of others that look at bits of our marks, which has been said.
    foreign: Vec<ForeignRule>,
}

impl Guard {
    pub fn new(interception: Interception, firewall: Firewall, watchdog_timeout: TimeSpan) -> Self {
        let now = Instant::now();
        Self {
            interception,
            firewall,
            next_look: now + RULE_INTERVAL,
            last_look: now,
            last_life: now,
            alive: true,
            watchdog_timeout: watchdog_timeout.into(),
            draining: false,
            foreign: Vec::new(),
        }
    }

    pub const fn interception(&self) -> &Interception {
        &self.interception
    }

    /// Whether new connections are taken.
    pub const fn is_taking(&self) -> bool {
        self.interception.is_taking()
    }

    /// Takes connections from now on.
    pub fn take_from_now(&mut self) {
        self.last_life = Instant::now();
        self.take_or_pass();
    }

    /// Knows the legs of another plan too, before sockets have its marks.
    pub fn expect_legs(&mut self, plan: &Plan) -> Result<(), InterceptionError> {
        self.interception.expect_legs(plan)
    }

    /// Other rules from now on; what cannot be changed now is tried again.
    pub fn change(&mut self, mut plan: Plan, watchdog_timeout: TimeSpan) {
        self.watchdog_timeout = watchdog_timeout.into();
        let old = self.interception.plan();
        // A reload leaves alone what was left alone.
        plan.left_alone.clone_from(&old.left_alone);
        let is_other = old.selections != plan.selections;
        if let Err(error) = self.interception.change(plan) {
            warn!("rules cannot be changed: {error}");
            self.next_look = Instant::now() + RULE_PAUSE;
        }
        if is_other {
            match self.interception.probe() {
                Ok(probe) => self.firewall = Firewall::open(probe),
                Err(error) => {
                    warn!("whether the firewall lets connections pass is not known: {error}")
                }
            }
        }
        // The relay has answered a moment ago, before the rules were changed.
        self.last_life = Instant::now();
        self.take_or_pass();
    }

    /// New connections from and to these hosts pass untouched from now on.
    pub fn set_bypasses(&mut self, bypasses: Vec<Prefix>) -> Result<(), InterceptionError> {
        let result = self.interception.set_bypasses(bypasses);
        if result.is_err() {
            self.next_look = Instant::now() + RULE_PAUSE;
        }
        result
    }

    /// New connections between these, too, pass untouched for so long.
    pub fn leave_alone(&mut self, pairs: &[Pair], time: Duration) -> Result<(), InterceptionError> {
        let result = self.interception.leave_alone(pairs, time);
        if result.is_err() {
            self.next_look = Instant::now() + RULE_PAUSE;
        }
        result
    }

    /// When to call [`handle_rules`](Self::handle_rules) and [`is_still`](Self::is_still) at the
    /// latest.
    pub fn next(&self) -> Instant {
        if self.draining {
            return self.next_look;
        }
        let limit = match self.alive {
            true => PASS_AFTER,
            false => self.watchdog_timeout,
        };
        let still = self.last_life + limit;
        let firewall = self.firewall.next().unwrap_or(still);
        self.next_look.min(still).min(firewall)
    }

    /// The relay has given a sign of life.
    pub fn handle_life(&mut self, now: Instant) {
        self.last_life = now;
        if !self.alive && !self.draining {
            info!("the relay answers again");
            self.alive = true;
            self.take_or_pass();
        }
    }

    /// The next look at the rules is due.
    pub fn look_soon(&mut self) {
        self.next_look = Instant::now();
    }

    /// Looks after the rules; `changed` says that somebody has changed some.
    pub fn handle_rules(&mut self, changed: bool, now: Instant) {
        if changed {
            // Read away now, so that waiting does not return at once until the look is due.
            self.interception.forget_changes();
            let look = (now + RULE_DELAY).max(self.last_look + RULE_PAUSE);
            self.next_look = self.next_look.min(look);
        }
        let firewall = self.firewall.next().is_some_and(|next| now >= next);
        if now < self.next_look && !firewall {
            return;
        }
        self.last_look = now;
        self.next_look = now + RULE_INTERVAL;
        match self.interception.refresh() {
            Ok(false) => {}
            Ok(true) => warn!("rules or routes were gone or changed, and are put back"),
            Err(error) => {
                warn!("rules cannot be put back, connections may pass untouched: {error}");
                // What waits for something for long is not tried all the time.
                let end = Instant::now();
                let took = end.saturating_duration_since(now);
                self.next_look = end + Duration::from_secs(1).max(took * 2);
            }
        }
        if !self.draining {
            self.look_for_foreign_rules();
            self.firewall.look_again(now);
            self.take_or_pass();
        }
    }

    /// Says which routing rules of others have come that look at bits of our marks.
    fn look_for_foreign_rules(&mut self) {
        let Ok(rules) = self.interception.foreign_rules() else {
            return;
        };
        let mask = self.interception.marks().mask;
        for rule in rules.iter().filter(|rule| !self.foreign.contains(rule)) {
            let (mark, of) = rule.mark.unwrap_or_default();
            warn!(
                "the routing rule {}: fwmark {mark:#x}/{of:#x} lookup {} looks at bits of Midspan's \
                 marks, {mask:#010x}; `midspan check` says what to do",
                rule.priority, rule.table
            );
        }
        self.foreign = rules;
    }

    /// Whether the relay has been still for so long that it must be ended. Before that, new
    /// connections are no longer taken for it.
    pub fn is_still(&mut self, now: Instant) -> bool {
        if self.draining {
            return false;
        }
        let still = now.saturating_duration_since(self.last_life);
        if still >= PASS_AFTER && self.alive {
            warn!("the relay does not answer: new connections pass untouched");
            self.alive = false;
            self.take_or_pass();
        }
        still >= self.watchdog_timeout
    }

    /// The relay is about to end.
    pub fn stop_taking(&mut self) {
        self.draining = true;
        self.take_or_pass();
    }

    /// New connections are taken where nothing speaks against it.
    fn take_or_pass(&mut self) {
        let taking = !self.draining && self.alive && self.firewall.lets_pass();
        if let Err(error) = self.interception.set_taking(taking) {
            warn!("rules cannot be changed: {error}");
            self.next_look = Instant::now() + RULE_PAUSE;
        }
    }
}
