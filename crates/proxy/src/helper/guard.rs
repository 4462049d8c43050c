//! Keeps the rules of transparent listeners in force. Lets new connections pass untouched while the relay's
//! gate makes no progress, or while the proxy drains.
//!
//! A thread works on the rules ([`super::rules`]). A function that changes the rules waits until the thread
//! is free, and then for the change: each time 2 s at most for commands and reloads, 0.5 s for the helper's
//! own changes. Nothing waits for the periodic check.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_gateway::interception::{Interception, Pair, Plan};
use tracing::{info, warn};

use super::firewall::Firewall;
use super::inheritance::InheritedRules;
use super::lent::Lent;
use super::rules::{Change, Order, RULE_PAUSE, Rules};
use crate::Error;
use crate::health::Passing;
use midspan_service::liveness::{Absence, PASS_AFTER, Watch};

/// Rules change in groups: one check is enough for a group.
const RULE_DELAY: Duration = Duration::from_millis(100);
/// The relay is checked at least this often while connections are intercepted: longer than the time between two signs
/// of life, so that an idle helper wakes for them only.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(350);
/// The rules are checked at least this often, even without a notification.
const RULE_INTERVAL: Duration = Duration::from_secs(10);

/// How long a command waits for the thread to be free, and then for the change.
const COMMAND_WAIT: Duration = Duration::from_secs(2);
/// The same for the helper's own changes.
const OWN_WAIT: Duration = Duration::from_millis(500);

/// A watch with which connections pass untouched even while the helper is busy with rules.
fn watch(now: Instant) -> Watch {
    Watch::of_beating(now, LOOK_PAUSE, PASS_AFTER, Absence::Pauses)
}

/// The rules in force, and the state of the relay.
pub(super) struct Guard {
    rules: Lent<Rules>,
    /// The state of the rules when the thread last returned them.
    seen: Seen,
    /// Changes that wait until the thread is free.
    waiting: Vec<Change>,
    /// Whether the last order let new connections be intercepted.
    ordered: bool,
    /// The next check of the rules, or the next attempt of a change that failed.
    next_look: Instant,
    last_look: Instant,
    /// How many messages have reported that the relay's gate makes progress.
    lives: u64,
    watch: Watch,
    /// Whether the gate makes progress; if it does not, no new connections are intercepted.
    alive: bool,
    /// Whether the relay drains. Then no new connections are intercepted, and the gate need not
    /// make progress.
    draining: bool,
}

/// State of the rules that is available while the thread has them.
#[derive(Debug, Clone, Copy)]
struct Seen {
    is_taking: bool,
    has_timeouts: bool,
    obstacles: usize,
    /// When to check the firewall.
    next_try: Option<Instant>,
}

impl From<&Rules> for Seen {
    fn from(rules: &Rules) -> Self {
        Self {
            is_taking: rules.interception.is_taking(),
            has_timeouts: rules.interception.has_timeouts(),
            obstacles: rules.firewall.obstacles(),
            next_try: rules.firewall.next(),
        }
    }
}

impl Guard {
    /// Guards these rules from now on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(interception: Interception, firewall: Firewall) -> Result<Self, Error> {
        let now = Instant::now();
        let rules = Rules::new(interception, firewall);
        let (seen, ordered) = (Seen::from(&rules), rules.interception.is_taking());
        let rules = Lent::new("rules", rules);
        Ok(Self {
            rules: rules.map_err(Error::system("start the thread that works on rules"))?,
            seen,
            waiting: Vec::new(),
            ordered,
            next_look: now + RULE_INTERVAL,
            last_look: now,
            lives: 0,
            watch: watch(now),
            alive: true,
            draining: false,
        })
    }

    /// Descriptors that become readable when rules or routes have changed; while the thread works,
    /// when it has ended.
    pub fn changes(&self) -> Vec<BorrowedFd<'_>> {
        match self.rules.here() {
            Some(rules) => rules.interception.changes().into(),
            None => vec![self.rules.ended()],
        }
    }

    /// Whether new connections are intercepted.
    pub const fn is_taking(&self) -> bool {
        self.seen.is_taking
    }

    /// Whether entries of connection tracking expire soon after their sessions.
    pub const fn has_timeouts(&self) -> bool {
        self.seen.has_timeouts
    }

    /// The plan in force.
    ///
    /// # Errors
    /// The thread works on the rules for too long.
    pub fn plan(&mut self) -> Result<Plan, Error> {
        self.of_plan(Plan::clone)
    }

    /// What the next program of this process needs to adopt the rules.
    ///
    /// # Errors
    /// The thread works on the rules for too long.
    pub fn adoptable(&mut self) -> Result<InheritedRules, Error> {
        let rules = match self.take_back(COMMAND_WAIT)? {
            true => self.rules.here(),
            false => None,
        };
        let rules = rules.ok_or(Error::RulesLate)?;
        let plan = rules.interception.plan();
        Ok(InheritedRules {
            adopted: rules.interception.adoptable(),
            client_leg_marks: plan.client_leg_marks.clone(),
            server_leg_marks: plan.server_leg_marks.clone(),
            former_sessions: plan.former_sessions.clone(),
        })
    }

    /// Whether the thread has ended its last work on the rules.
    ///
    /// # Errors
    /// The thread has panicked, and the rules are lost.
    pub fn is_free(&mut self) -> Result<bool, Error> {
        self.take_back(Duration::ZERO)
    }

    /// The pairs that are left alone, each with the rest of its time.
    ///
    /// # Errors
    /// The thread works on the rules for too long.
    pub fn left_alone(&mut self) -> Result<Vec<(Pair, Duration)>, Error> {
        self.of_plan(|plan| plan.left_alone.pairs(Instant::now()).collect())
    }

    /// A part of the plan in force.
    fn of_plan<T>(&mut self, part: impl FnOnce(&Plan) -> T) -> Result<T, Error> {
        match self.take_back(COMMAND_WAIT)? {
            true => self.rules.here(),
            false => None,
        }
        .map(|rules| part(rules.interception.plan()))
        .ok_or(Error::RulesLate)
    }

    /// Intercepts connections from now on.
    pub fn take_from_now(&mut self) {
        self.watch = watch(Instant::now());
        self.take_or_pass();
    }

    /// Permits the legs of another plan too, before sockets have its marks.
    ///
    /// # Errors
    /// The kernel does not accept the plan, or the result is not available in time.
    pub fn expect(&mut self, plan: Plan) -> Result<(), Error> {
        self.change_now(Change::Expect(plan.into()))
    }

    /// Changes the rules; a change that is not possible now is tried again.
    pub fn change(&mut self, plan: Plan) {
        if let Err(error) = self.change_now(Change::Plan(plan.into())) {
            warn!("rules are not changed yet: {error}");
        }
        // The relay answered a moment ago, before the rules were changed.
        self.watch = watch(Instant::now());
        self.take_or_pass();
    }

    /// Restores the rules of this plan.
    pub fn restore(&mut self, plan: Plan) {
        let here = self.rules.here();
        if here.is_none_or(|rules| *rules.interception.plan() != plan) {
            self.change(plan);
        }
    }

    /// From now on, new connections from and to these hosts pass untouched.
    ///
    /// # Errors
    /// The rules could not be changed; it is tried again.
    pub fn set_bypasses(&mut self, bypasses: Vec<IpNet>) -> Result<(), Error> {
        self.change_now(Change::Bypasses(bypasses))
    }

    /// New connections between these pairs also pass untouched, for this time.
    pub fn leave_alone(&mut self, pairs: Vec<Pair>, time: Duration) {
        self.waiting.push(Change::LeaveAlone(pairs, time));
    }

    /// New connections between these pairs are intercepted again.
    ///
    /// # Errors
    /// The rules could not be changed; it is tried again.
    pub fn end_leaving_alone(&mut self, pairs: Vec<Pair>) -> Result<(), Error> {
        self.change_now(Change::EndLeavingAlone(pairs))
    }

    /// When to call [`handle_rules`](Self::handle_rules) and [`handle_time`](Self::handle_time) at
    /// the latest.
    pub fn next(&self) -> Instant {
        let look = self.watch.next();
        let is_here = self.rules.here().is_some();
        let rules = is_here.then(|| self.next_work());
        match (self.draining, rules) {
            (true, None) => look,
            (true, Some(rules)) => rules,
            (false, rules) => rules.map_or(look, |rules| rules.min(look)),
        }
    }

    /// When the thread has to work next.
    fn next_work(&self) -> Instant {
        if !self.waiting.is_empty() || self.ordered != self.may_take() {
            return self.last_look;
        }
        match self.seen.next_try {
            Some(next) if !self.draining => next.min(self.next_look),
            _ => self.next_look,
        }
    }

    /// The relay's gate has sent a sign of life.
    pub fn handle_life(&mut self) {
        self.lives = self.lives.wrapping_add(1);
        if !self.alive && !self.draining {
            self.alive = true;
            self.take_or_pass();
            info!("the relay answers again");
        }
    }

    /// Makes the next check of the rules due.
    pub fn look_soon(&mut self) {
        self.next_look = Instant::now();
    }

    /// Checks the rules; `changed`: one of [`changes`](Self::changes) is readable.
    ///
    /// # Errors
    /// The thread has panicked, and the rules are lost.
    pub fn handle_rules(&mut self, changed: bool, now: Instant) -> Result<(), Error> {
        let changed = self.rules.here().filter(|_| changed);
        if let Some(rules) = changed {
            // Notifications are read now. Otherwise the helper's wait would return at once until
            // the check is due.
            rules.interception.forget_changes();
            let look = (now + RULE_DELAY).max(self.last_look + RULE_PAUSE);
            self.next_look = self.next_look.min(look);
        }
        if self.take_back(Duration::ZERO)? && now >= self.next_work() {
            let changes = std::mem::take(&mut self.waiting);
            let firewall = self.seen.next_try.is_some_and(|next| now >= next);
            self.begin(changes, now >= self.next_look || firewall);
        }
        Ok(())
    }

    /// Stops intercepting new connections if the gate sends no sign of life.
    pub fn handle_time(&mut self, now: Instant) {
        self.watch.look(now, self.lives);
        if self.watch.is_stuck() && self.alive && !self.draining {
            self.alive = false;
            self.take_or_pass();
            warn!("the relay does not answer: new connections pass untouched");
        }
    }

    /// Why no new connections are intercepted, if so.
    pub fn passing(&self) -> Passing {
        let passing = Passing {
            firewall: self.obstacles() > 0,
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

    /// Number of obstacles in the host's firewall.
    pub const fn obstacles(&self) -> usize {
        self.seen.obstacles
    }

    /// The relay is about to end: intercepts no more connections.
    pub fn stop_taking(&mut self) {
        self.draining = true;
        self.take_or_pass();
    }

    /// Whether new connections may be intercepted, if the firewall permits it.
    const fn may_take(&self) -> bool {
        !self.draining && self.alive
    }

    /// Intercepts new connections, or lets them pass, as the present state requires. If the thread
    /// works for too long, this is done when it has ended.
    fn take_or_pass(&mut self) {
        // If the thread has panicked, the next check reports it.
        if matches!(self.take_back(OWN_WAIT), Ok(true)) {
            let changes = std::mem::take(&mut self.waiting);
            self.begin(changes, false);
            let _ = self.take_back(OWN_WAIT);
        }
    }

    /// Makes a change, and waits a moment for the result.
    fn change_now(&mut self, change: Change) -> Result<(), Error> {
        let is_question = matches!(change, Change::Expect(_));
        if !self.take_back(COMMAND_WAIT)? {
            // If this is more than a question, the caller gets an answer meanwhile.
            if !is_question {
                self.waiting.retain(|earlier| !change.replaces(earlier));
                self.waiting.push(change);
            }
            return Err(Error::RulesLate);
        }
        let mut changes = std::mem::take(&mut self.waiting);
        changes.retain(|earlier| !change.replaces(earlier));
        changes.push(change);
        self.begin(changes, false);
        match self.rules.take_back(COMMAND_WAIT) {
            Err(_) => Err(Error::RulesLost),
            Ok(None) => Err(Error::RulesLate),
            Ok(Some(rules)) => {
                let error = rules.report.error.take();
                self.take_back(Duration::ZERO)?;
                error.map_or(Ok(()), |error| Err(error.into()))
            }
        }
    }

    /// Starts work on the thread, which must be free.
    fn begin(&mut self, changes: Vec<Change>, look: bool) {
        let order = Order {
            changes,
            look,
            may_take: self.may_take(),
            is_draining: self.draining,
        };
        self.ordered = order.may_take;
        if look {
            self.last_look = Instant::now();
            self.next_look = self.last_look + RULE_INTERVAL;
        }
        self.rules.begin(move |rules| rules.carry_out(order));
    }

    /// Handles the result of the thread when it has ended; returns whether the thread is free.
    fn take_back(&mut self, limit: Duration) -> Result<bool, Error> {
        let rules = self.rules.take_back(limit).map_err(|_| Error::RulesLost)?;
        let Some(rules) = rules else {
            return Ok(false);
        };
        self.seen = Seen::from(&*rules);
        if let Some(pause) = rules.report.retry_after.take() {
            self.next_look = Instant::now() + pause;
        }
        // No function has waited for this result.
        if let Some(error) = rules.report.error.take() {
            warn!("rules cannot be changed, they are tried again: {error}");
        }
        Ok(true)
    }
}
