//! Keeps the rules of transparent listeners in force, and takes no connections for a relay that
//! does not answer.

use std::time::{Duration, Instant};

use midspan_linux::interception::survey::ForeignRule;
use midspan_linux::interception::{Interception, InterceptionError, Pair, Plan};
use midspan_linux::netlink::Prefix;
use tracing::{info, warn};

use super::firewall::Firewall;
use crate::health::Passing;
use crate::liveness::{Absence, Watch};

/// Rule changes come in groups: one look serves a whole one.
const RULE_DELAY: Duration = Duration::from_millis(100);
/// The least time between two looks, each of which runs programs.
const RULE_PAUSE: Duration = Duration::from_millis(300);
/// The rules are looked at even if nothing has been heard of them.
const RULE_INTERVAL: Duration = Duration::from_secs(10);
/// Without a sign of life for this long, connections pass untouched. The relay gives several a
/// second.
const PASS_AFTER: Duration = Duration::from_millis(600);

/// How often the helper looks for signs of life at least.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// A helper that is busy with rules lets connections pass all the same.
fn watch(now: Instant) -> Watch {
    Watch::of_beating(now, LOOK_PAUSE, PASS_AFTER, Absence::Pauses)
}

/// Rules in force, and what is known of the relay.
pub(super) struct Guard {
    interception: Interception,
    firewall: Firewall,
    /// The next look at the rules.
    next_look: Instant,
    last_look: Instant,
    /// Signs of life of the relay's gate.
    lives: u64,
    watch: Watch,
    /// The gate gives signs of life.
    alive: bool,
    /// No new connections are wanted any more, and no signs of life expected.
    draining: bool,
    /// Routing rules of others that look at bits of our marks, which has been said.
    foreign: Vec<ForeignRule>,
}

impl Guard {
    pub fn new(interception: Interception, firewall: Firewall) -> Self {
        let now = Instant::now();
        Self {
            interception,
            firewall,
            next_look: now + RULE_INTERVAL,
            last_look: now,
            lives: 0,
            watch: watch(now),
            alive: true,
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
        self.watch = watch(Instant::now());
        self.take_or_pass();
    }

    /// Knows the legs of another plan too, before sockets have its marks.
    pub fn expect_legs(&mut self, plan: &Plan) -> Result<(), InterceptionError> {
        self.interception.expect_legs(plan)
    }

    /// Other rules from now on; what cannot be changed now is tried again.
    pub fn change(&mut self, mut plan: Plan) {
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
        self.watch = watch(Instant::now());
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

    /// When to call [`handle_rules`](Self::handle_rules) and [`handle_time`](Self::handle_time) at
    /// the latest.
    pub fn next(&self) -> Instant {
        if self.draining {
            return self.next_look;
        }
        let look = self.watch.next();
        let firewall = self.firewall.next().unwrap_or(look);
        self.next_look.min(look).min(firewall)
    }

    /// The relay's gate has given a sign of life.
    pub fn handle_life(&mut self) {
        self.lives = self.lives.wrapping_add(1);
        if !self.alive && !self.draining {
            self.alive = true;
            self.take_or_pass();
            info!("the relay answers again");
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

    /// No new connections are taken for a gate that is still.
    pub fn handle_time(&mut self, now: Instant) {
        self.watch.look(now, self.lives);
        if self.watch.is_stuck() && self.alive && !self.draining {
            self.alive = false;
            self.take_or_pass();
            warn!("the relay does not answer: new connections pass untouched");
        }
    }

    /// Why no new connections are taken, if that is so.
    pub fn passing(&self) -> Passing {
        let passing = Passing {
            firewall: !self.firewall.lets_pass(),
            relay: !self.alive,
            bypass: false,
            draining: self.draining,
            rules: false,
        };
        Passing {
            rules: !self.is_taking() && passing.names().is_empty(),
            ..passing
        }
    }

    /// What the host's firewall has against intercepted connections.
    pub const fn obstacles(&self) -> usize {
        self.firewall.obstacles()
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
