//! The rules in force and the state of the host's firewall. A thread works on them, because each
//! change and each check runs programs, which may take long or hang.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_gateway::interception::survey::ForeignRule;
use midspan_gateway::interception::{Interception, InterceptionError, Pair, Plan};
use midspan_linux::nftables;
use tracing::{info, warn};

use super::firewall::Firewall;

/// The least time between two checks, each of which runs programs.
pub(super) const RULE_PAUSE: Duration = Duration::from_millis(300);
/// After a check that failed, the least time to the next one.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// The values on which the thread works.
pub(super) struct Rules {
    pub interception: Interception,
    pub firewall: Firewall,
    /// Routing rules of other programs that test bits of Midspan's marks, and that are already in
    /// the log.
    foreign: Vec<ForeignRule>,
    /// Why `firewall_cache` is not used, as it is already in the log.
    obstacles: Vec<String>,
    /// The number of the ruleset to which the cached verdicts of the firewall belong.
    verdicts_of: Option<u32>,
    /// The last plan whose rules the kernel has accepted, without ports.
    accepted: Option<Plan>,
    /// The result of the last order.
    pub report: Report,
}

/// A change of the rules.
pub(super) enum Change {
    /// Legs of this plan may use their marks too; fails if the kernel does not accept the plan's
    /// rules.
    Expect(Box<Plan>),
    /// Sets the rules of this plan.
    Plan(Box<Plan>),
    /// New connections from and to these hosts pass untouched.
    Bypasses(Vec<IpNet>),
    /// New connections between these pairs also pass untouched, for this time.
    LeaveAlone(Vec<Pair>, Duration),
    /// New connections between these pairs are intercepted again.
    EndLeavingAlone(Vec<Pair>),
}

impl Change {
    /// Whether an earlier change has no effect any more. A command that is repeated, because its answer was late, makes
    /// the same change again.
    pub fn replaces(&self, earlier: &Self) -> bool {
        matches!(
            (self, earlier),
            (Self::Bypasses(_), Self::Bypasses(_)) | (Self::Plan(_), Self::Plan(_))
        )
    }
}

/// The work of the thread.
pub(super) struct Order {
    pub changes: Vec<Change>,
    /// Whether to check that the rules are still in force, and the firewall.
    pub look: bool,
    /// Whether new connections may be intercepted, if the firewall permits it.
    pub may_take: bool,
    pub is_draining: bool,
}

/// The result of an order.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The first change that failed.
    pub error: Option<InterceptionError>,
    /// Time until another attempt, if one is necessary.
    pub retry_after: Option<Duration>,
}

impl Rules {
    pub fn new(interception: Interception, firewall: Firewall) -> Self {
        let mut rules = Self {
            interception,
            firewall,
            foreign: Vec::new(),
            obstacles: Vec::new(),
            verdicts_of: None,
            accepted: None,
            report: Report::default(),
        };
        rules.log_obstacles();
        rules
    }

    /// Carries out an order: first the changes, then the check; then new connections are
    /// intercepted or not.
    pub fn carry_out(&mut self, order: Order) {
        self.report = Report::default();
        for change in order.changes {
            if let Err(error) = self.change(change) {
                self.report.retry_after = Some(RULE_PAUSE);
                self.report.error.get_or_insert(error);
            }
        }
        if order.look {
            self.look(order.is_draining);
        }
        let taking = order.may_take && self.firewall.lets_pass();
        if let Err(error) = self.interception.set_taking(taking) {
            warn!("rules cannot be changed: {error}");
            self.report.retry_after.get_or_insert(RULE_PAUSE);
        }
        self.log_obstacles();
    }

    /// Logs why the host's firewall is asked about each connection although a listener has a `firewall_cache`,
    /// when that changes.
    fn log_obstacles(&mut self) {
        let obstacles = self.interception.express_lane_obstacles();
        if obstacles == self.obstacles {
            return;
        }
        match obstacles.is_empty() {
            true => info!("firewall_cache is in use"),
            false => warn!(
                "firewall_cache is not used, the firewall is asked about each connection: {}",
                obstacles.join("; ")
            ),
        }
        self.obstacles = obstacles.to_vec();
    }

    fn change(&mut self, change: Change) -> Result<(), InterceptionError> {
        match change {
            Change::Expect(plan) => self.expect(&plan),
            Change::Plan(plan) => self.change_plan(*plan),
            Change::Bypasses(bypasses) => self.interception.set_bypasses(bypasses),
            Change::LeaveAlone(pairs, time) => self.interception.leave_alone(&pairs, time),
            Change::EndLeavingAlone(pairs) => self.interception.end_leaving_alone(&pairs),
        }
    }

    /// If `nft` takes longer than a command waits for it, the command fails and is repeated. The plan need not be checked
    /// again then; otherwise such a command would never succeed.
    fn expect(&mut self, plan: &Plan) -> Result<(), InterceptionError> {
        let general = plan.without_ports();
        if self.accepted.as_ref() != Some(&general) {
            self.interception.check(plan)?;
            self.accepted = Some(general);
        }
        self.interception.expect_legs(plan)
    }

    fn change_plan(&mut self, mut plan: Plan) -> Result<(), InterceptionError> {
        let old = self.interception.plan();
        // A reload keeps the routes that are left alone.
        plan.left_alone.clone_from(&old.left_alone);
        let is_other = old.selections != plan.selections;
        let result = self.interception.change(plan);
        if is_other {
            match self.interception.probe() {
                Ok(probe) => self.firewall = Firewall::open(probe),
                Err(error) => {
                    warn!("whether the firewall lets connections pass is not known: {error}")
                }
            }
        }
        result
    }

    fn look(&mut self, is_draining: bool) {
        let start = Instant::now();
        match self.interception.refresh() {
            Ok(false) => {}
            Ok(true) => warn!("rules or routes were gone or changed, and are put back"),
            Err(error) => {
                warn!("rules cannot be put back, connections may pass untouched: {error}");
                // If an attempt took long, the next one waits longer.
                self.report.retry_after = Some(FAILED_PAUSE.max(start.elapsed() * 2));
            }
        }
        let number = self.forget_verdicts();
        let changes = self.firewall.changes();
        if !is_draining {
            self.look_for_foreign_rules();
            self.firewall.look_again(start);
        }
        // Midspan's own trial of the firewall is no reason to ask the firewall again.
        let own = self.firewall.changes().wrapping_sub(changes);
        let expected = number.map(|number| number.wrapping_add(own));
        self.verdicts_of = expected.filter(|_| nftables::generation().ok() == expected);
    }

    /// If another program has changed rules, the cached verdicts of the firewall are forgotten. Returns the number of the
    /// ruleset to which the cached verdicts belong from now on.
    fn forget_verdicts(&mut self) -> Option<u32> {
        if !self.interception.keeps_verdicts() {
            return None;
        }
        let number = nftables::generation().ok();
        if number.is_some() && number == self.verdicts_of {
            return number;
        }
        match self.interception.forget_verdicts() {
            Ok(number) => number,
            Err(error) => {
                warn!("cached verdicts of the firewall cannot be forgotten yet: {error}");
                self.report.retry_after.get_or_insert(FAILED_PAUSE);
                None
            }
        }
    }

    /// Logs new routing rules of other programs that test bits of Midspan's marks.
    fn look_for_foreign_rules(&mut self) {
        let Ok(rules) = self.interception.foreign_rules() else {
            return;
        };
        let mask = self.interception.marks().mask;
        for rule in rules.iter().filter(|rule| !self.foreign.contains(rule)) {
            let (mark, of) = rule.mark.unwrap_or_default();
            warn!(
                "the routing rule {}: fwmark {mark:#x}/{of:#x} lookup {} tests bits of Midspan's \
                 marks, {mask:#010x}; `midspan check` prints what to do",
                rule.priority, rule.table
            );
        }
        self.foreign = rules;
    }
}
