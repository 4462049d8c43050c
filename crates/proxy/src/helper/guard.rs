//! Keeps the rules of transparent listeners in force, and takes no connections for a relay that
//! does not answer.
//!
//! A thread works on the rules ([`super::rules`]). Whoever changes them waits for it a moment; the
//! periodic look is not waited for.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use midspan_gateway::interception::{Interception, Pair, Plan};
use midspan_linux::netlink::Prefix;
use tracing::{info, warn};

use super::firewall::Firewall;
use super::lent::Lent;
use super::rules::{Change, Order, RULE_PAUSE, Rules};
use crate::Error;
use crate::health::Passing;
use crate::liveness::{Absence, Watch};

/// Rule changes come in groups: one look serves a whole one.
const RULE_DELAY: Duration = Duration::from_millis(100);
/// The rules are looked at even if nothing has been heard of them.
const RULE_INTERVAL: Duration = Duration::from_secs(10);
/// Without a sign of life for this long, connections pass untouched. The relay gives several a
/// second.
const PASS_AFTER: Duration = Duration::from_millis(600);

/// How often the helper looks for signs of life at least.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// How long a command waits for the thread to be free, and then for the change.
const COMMAND_WAIT: Duration = Duration::from_secs(2);
/// The same of what the helper does by itself.
const OWN_WAIT: Duration = Duration::from_millis(500);

/// A helper that is busy with rules lets connections pass all the same.
fn watch(now: Instant) -> Watch {
    Watch::of_beating(now, LOOK_PAUSE, PASS_AFTER, Absence::Pauses)
}

/// Rules in force, and what is known of the relay.
pub(super) struct Guard {
    rules: Lent<Rules>,
    /// As the rules were when they were here last.
    seen: Seen,
    /// To be changed when the rules are here again.
    waiting: Vec<Change>,
    /// Whether the last order let new connections be taken.
    ordered: bool,
    /// The next look at the rules, or the next try of a change that failed.
    next_look: Instant,
    last_look: Instant,
    /// Signs of life of the relay's gate.
    lives: u64,
    watch: Watch,
    /// The gate gives signs of life.
    alive: bool,
    /// No new connections are wanted any more, and no signs of life expected.
    draining: bool,
}

/// What others ask of the rules, whoever has them.
#[derive(Debug, Clone, Copy)]
struct Seen {
    is_taking: bool,
    has_timeouts: bool,
    obstacles: usize,
    /// When the firewall is to be looked at.
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
    /// Watches over these rules from now on.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn new(interception: Interception, firewall: Firewall) -> Result<Self, Error> {
        let now = Instant::now();
        let rules = Rules::new(interception, firewall);
        let (seen, ordered) = (Seen::from(&rules), rules.interception.is_taking());
        let rules = Lent::new("rules", rules);
        Ok(Self {
            rules: rules.map_err(Error::system("start a thread that looks after rules"))?,
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

    /// Readable when rules or routes have changed, or where the thread works on them, when it has
    /// ended.
    pub fn changes(&self) -> Vec<BorrowedFd<'_>> {
        match self.rules.here() {
            Some(rules) => rules.interception.changes().into(),
            None => vec![self.rules.ended()],
        }
    }

    /// Whether new connections are taken.
    pub const fn is_taking(&self) -> bool {
        self.seen.is_taking
    }

    /// Whether connection tracking forgets sessions soon after their end.
    pub const fn has_timeouts(&self) -> bool {
        self.seen.has_timeouts
    }

    /// The plan in force.
    ///
    /// # Errors
    /// The rules are being worked on for long.
    pub fn plan(&mut self) -> Result<Plan, Error> {
        match self.take_back(COMMAND_WAIT)? {
            true => self.rules.here(),
            false => None,
        }
        .map(|rules| rules.interception.plan().clone())
        .ok_or(Error::RulesLate)
    }

    /// Takes connections from now on.
    pub fn take_from_now(&mut self) {
        self.watch = watch(Instant::now());
        self.take_or_pass();
    }

    /// Knows the legs of another plan too, before sockets have its marks.
    ///
    /// # Errors
    /// The kernel does not take the plan, or it is not known yet whether it does.
    pub fn expect(&mut self, plan: Plan) -> Result<(), Error> {
        self.change_now(Change::Expect(plan.into()))
    }

    /// Other rules from now on; what cannot be changed now is tried again.
    pub fn change(&mut self, plan: Plan) {
        if let Err(error) = self.change_now(Change::Plan(plan.into())) {
            warn!("rules are not changed yet: {error}");
        }
        // The relay has answered a moment ago, before the rules were changed.
        self.watch = watch(Instant::now());
        self.take_or_pass();
    }

    /// The rules are to be those of this plan again.
    pub fn restore(&mut self, plan: Plan) {
        let here = self.rules.here();
        if here.is_none_or(|rules| *rules.interception.plan() != plan) {
            self.change(plan);
        }
    }

    /// New connections from and to these hosts pass untouched from now on.
    ///
    /// # Errors
    /// The rules could not be changed; it is tried again.
    pub fn set_bypasses(&mut self, bypasses: Vec<Prefix>) -> Result<(), Error> {
        self.change_now(Change::Bypasses(bypasses))
    }

    /// New connections between these, too, pass untouched for so long.
    pub fn leave_alone(&mut self, pairs: Vec<Pair>, time: Duration) {
        self.waiting.push(Change::LeaveAlone(pairs, time));
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

    /// When the thread is to work next.
    fn next_work(&self) -> Instant {
        if !self.waiting.is_empty() || self.ordered != self.may_take() {
            return self.last_look;
        }
        match self.seen.next_try {
            Some(next) if !self.draining => next.min(self.next_look),
            _ => self.next_look,
        }
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

    /// Looks after the rules; `changed` says that one of [`changes`](Self::changes) is readable.
    ///
    /// # Errors
    /// The thread has panicked, and the rules are gone.
    pub fn handle_rules(&mut self, changed: bool, now: Instant) -> Result<(), Error> {
        let changed = self.rules.here().filter(|_| changed);
        if let Some(rules) = changed {
            // Read away now, so that waiting does not return at once until the look is due.
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

    /// What the host's firewall has against intercepted connections.
    pub const fn obstacles(&self) -> usize {
        self.seen.obstacles
    }

    /// The relay is about to end.
    pub fn stop_taking(&mut self) {
        self.draining = true;
        self.take_or_pass();
    }

    /// Whether nothing but perhaps the firewall speaks against taking new connections.
    const fn may_take(&self) -> bool {
        !self.draining && self.alive
    }

    /// New connections are taken where nothing speaks against it. Where the thread works for long,
    /// that is done when it has ended.
    fn take_or_pass(&mut self) {
        // What has become of a thread that panicked, the next look tells.
        if matches!(self.take_back(OWN_WAIT), Ok(true)) {
            let changes = std::mem::take(&mut self.waiting);
            self.begin(changes, false);
            let _ = self.take_back(OWN_WAIT);
        }
    }

    /// Makes a change, and waits for it a while.
    fn change_now(&mut self, change: Change) -> Result<(), Error> {
        let is_question = matches!(change, Change::Expect(_));
        if !self.take_back(COMMAND_WAIT)? {
            // Whoever asks for more than a question is answered meanwhile.
            if !is_question {
                self.waiting.push(change);
            }
            return Err(Error::RulesLate);
        }
        let mut changes = std::mem::take(&mut self.waiting);
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

    /// Has the thread work, which is free.
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

    /// Takes note of what the thread has done, once it has ended; whether it is free.
    fn take_back(&mut self, limit: Duration) -> Result<bool, Error> {
        let rules = self.rules.take_back(limit).map_err(|_| Error::RulesLost)?;
        let Some(rules) = rules else {
            return Ok(false);
        };
        self.seen = Seen::from(&*rules);
        if let Some(pause) = rules.report.retry_after.take() {
            self.next_look = Instant::now() + pause;
        }
        // Nobody has waited for it.
        if let Some(error) = rules.report.error.take() {
            warn!("rules cannot be changed, they are tried again: {error}");
        }
        Ok(true)
    }
}
