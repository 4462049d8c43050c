//! Intercepting TCP connections that this machine forwards: rules, routes and marks.
//!
//! The path of a packet, hook by hook:
//!
//! - A client's SYN: at `forward`, after the host's filter, rules choose it by interface, addresses and
//!   ports, mark it and put it into the queue, where the relay decides.
//! - The same SYN, released by the relay: the relay sends it again with its listener's mark. At `output`, a
//!   routing rule leads this mark to `lo`; at `prerouting` of `lo`, `tproxy` gives the SYN to the listener.
//! - Later packets of the client: at `prerouting`, a rule finds their socket, sets the zone of connection
//!   tracking, and marks the packets, so that they are routed to this machine.
//! - Packets of the server: at `prerouting`, a rule finds their socket and marks them. They get no zone,
//!   because they arrive with the addresses that the host's NAT has set.
//! - Packets of both legs: at `output`, the socket's mark selects the zone of connection tracking.
//! - If the host's firewall need not be asked each time, the SYNs of further connections take the
//!   express lane (`express_lane`) instead: from `prerouting` to the listener.
//! - A SYN that the relay refuses: at `forward`, a rule answers it with an RST.
//! - A SYN that the relay lets pass, or that arrives while no relay runs: `forward`, as if Midspan were
//!   absent.
//! - QUIC (UDP port 443), both directions: at `forward`, packets are counted and pass untouched. If the
//!   listener rejects QUIC, some of the first packets of clients go into the queue, and are refused; the rest is
//!   dropped.
//! - A client's ACK to a server whose SYN-ACK has not passed this machine: at `forward`, if the relay
//!   watches the connection, the ACK goes into the queue, so that the relay detects the asymmetric route.
//!
//! Therefore the host's filter first sees a connection as forwarded, and can refuse it. Then the filter sees
//! a connection through `lo`, which hosts accept, and which is established from its second packet on.
//! Connections to addresses of this machine are never intercepted, because their packets are not forwarded.
//!
//! Midspan does not change the host's own tables. It needs `CAP_NET_ADMIN` in the network namespace, and the
//! program `nft`.

pub(crate) mod accounting;
mod adopted;
mod as_put;
mod bypass;
mod chain;
mod description;
pub(crate) mod early_demux;
pub(crate) mod express_lane;
pub mod features;
mod former_sessions;
mod leaving_alone;
mod left_alone;
mod local_delivery;
mod machine;
mod mark_matches;
pub(crate) mod own_tables;
mod plan;
mod port_reuse;
pub mod probe;
pub(crate) mod queue_target;
mod quic;
mod removal;
pub(crate) mod rules;
#[cfg(test)]
mod rules_tests;
pub mod survey;
pub mod timeouts;
pub(crate) mod untouched;
mod verdicts;

pub use accounting::Accounting;
pub use adopted::Adopted;
pub use description::describe;
pub use left_alone::{LEFT_ALONE_LIMIT, LeftAlone, Pair};
pub use plan::{
    FormerListeners, FormerSessions, InterceptionNumbers, Marks, Plan, Rung, Selection, TooFewMarks,
};
pub use untouched::Quic;
pub use verdicts::express_lane_obstacles;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;

use rtnetlink::packet_route::AddressFamily;
use thiserror::Error;

use crate::claim::{Claim, Kind};
use as_put::AsPut;
use bypass::Bypass;
use early_demux::EarlyDemux;
use express_lane::ExpressLane;
use ipnet::IpNet;
use machine::{Machine, QueueMethod};
use midspan_linux::netlink::{Netlink, NetlinkError};
use midspan_linux::nftables::RulesetWatch;
use midspan_linux::nftables::{self, NftablesError};
use midspan_linux::route_watch::RouteWatch;
use midspan_linux::routing::usable_families;
use port_reuse::ReuseSockets;
use probe::Probe;
use removal::remove_leftovers;
use rustix::io::Errno;
use survey::ForeignRule;
use timeouts::Timeouts;

/// Why connections cannot be intercepted.
#[derive(Debug, Error)]
pub enum InterceptionError {
    /// The mark field is too small.
    #[error(transparent)]
    TooFewMarks(#[from] TooFewMarks),
    /// Another process intercepts with the same tables.
    #[error(
        "another Midspan uses the nftables table \"{0}\": stop it, or give this one tables, marks \
         and a queue of its own ([interception], [marks])"
    )]
    InUse(String),
    /// The routing table has routes of another program.
    #[error(
        "routing table {0} has routes that are not Midspan's: choose another one with \
         interception.routing_table"
    )]
    RoutingTableInUse(u32),
    /// The process may not change rules.
    #[error(
        "transparent listeners need CAP_NET_ADMIN to change rules and routes: run as root, or \
         give the program the capability (setcap cap_net_admin,cap_net_raw+ep)"
    )]
    NotPermitted,
    /// Rules cannot be read or changed.
    #[error(transparent)]
    Nftables(#[from] NftablesError),
    /// The queue's rules cannot be changed.
    #[error(
        "the kernel offers no way to hold a SYN: neither the statement `queue` of nftables \
         (CONFIG_NFT_QUEUE) nor the target NFQUEUE ({0})"
    )]
    NoQueue(#[source] io::Error),
    /// Routes cannot be read or changed.
    #[error(transparent)]
    Netlink(NetlinkError),
    /// Changes cannot be watched.
    #[error("cannot watch rules and routes: {0}")]
    Watch(#[source] io::Error),
    /// Midspan cannot find out whether another process has the same tables.
    #[error("cannot make sure that no other Midspan uses the same tables: {0}")]
    Claim(#[source] io::Error),
    /// Midspan cannot try the host's firewall.
    #[error("cannot open a raw socket to try the host's firewall with (CAP_NET_RAW): {0}")]
    Probe(#[source] io::Error),
}

impl From<NetlinkError> for InterceptionError {
    fn from(error: NetlinkError) -> Self {
        if error.is(Errno::PERM) {
            Self::NotPermitted
        } else {
            Self::Netlink(error)
        }
    }
}

fn marks(plan: &Plan) -> Result<Marks, TooFewMarks> {
    let others = plan.client_leg_marks.len() + plan.server_leg_marks.len();
    let slots: Vec<usize> = plan.selections.iter().map(|s| s.slot).collect();
    Marks::with_slots(plan.numbers.marks, &slots, others)
}

fn legs(plan: &Plan) -> [BTreeSet<u32>; 2] {
    [&plan.client_leg_marks, &plan.server_leg_marks].map(BTreeSet::clone)
}

fn queue_method(plan: &Plan) -> Result<QueueMethod, NftablesError> {
    let probe = rules::queue_probe(&plan.numbers.table);
    Ok(match nftables::is_possible(&probe)? {
        true => QueueMethod::Statement,
        false => QueueMethod::Target,
    })
}

/// Rules and routes in force. Dropping this value removes them.
///
/// The caller waits until one of [`changes`](Self::changes) is readable, or for some seconds, and
/// then calls [`refresh`](Self::refresh).
pub struct Interception {
    /// The plan in force, with the leg marks of one that is expected.
    plan: Plan,
    /// The marks of client legs and server legs of the plan in force.
    legs_in_force: [BTreeSet<u32>; 2],
    marks: Marks,
    method: QueueMethod,
    early_demux: EarlyDemux,
    reuse_sockets: ReuseSockets,
    taking: bool,
    /// Whether dropping this value removes rules and routes.
    is_own: bool,
    /// The numbers of the rules and routes of the former program, which these replace.
    replaced: Option<InterceptionNumbers>,
    /// Whether IPv6 is switched on, so that IPv6 connections can be routed to this machine.
    has_ipv6: bool,
    netlink: Netlink,
    /// The tables as the kernel listed them.
    as_put: AsPut,
    timeouts: Timeouts,
    express_lane: ExpressLane,
    /// Whether packets that pass untouched are counted.
    counts: bool,
    rules: RulesetWatch,
    routes: RouteWatch,
    /// Other processes of this network namespace see by this claim that the tables are in use.
    _claim: Claim,
}

impl Interception {
    /// Puts rules and routes in force, in the network namespace of the calling thread. No
    /// connections are [intercepted](Self::set_taking) yet. Leftovers of an earlier run are
    /// replaced.
    ///
    /// # Errors
    /// See [`InterceptionError`]. After an error, nothing stays in force.
    pub fn install(plan: Plan) -> Result<Self, InterceptionError> {
        // The leftovers of a killed check, whose rules would otherwise stay in force.
        remove_leftovers(&plan.numbers.trial())?;
        Self::install_with(plan, None, true)
    }

    /// Like [`install`](Self::install), but only for a short [probe](Self::probe): no parameter of
    /// the kernel is changed, because a killed process could not restore it.
    ///
    /// # Errors
    /// Like those of [`install`](Self::install).
    pub fn install_to_probe(plan: Plan) -> Result<Self, InterceptionError> {
        Self::install_with(plan, None, false)
    }

    fn install_with(
        plan: Plan,
        former: Option<(Adopted, InterceptionNumbers)>,
        change_parameters: bool,
    ) -> Result<Self, InterceptionError> {
        let marks = marks(&plan)?;
        let claim = claim(&plan.numbers)?;
        let netlink = Netlink::open()?;
        if former.is_none() {
            local_delivery::remove(&netlink, &plan.numbers)?;
        }
        if local_delivery::is_table_taken(&netlink, &plan.numbers)? {
            return Err(InterceptionError::RoutingTableInUse(
                plan.numbers.routing_table,
            ));
        }
        let was = former.as_ref().map(|(was, _)| *was);
        let method = queue_method(&plan)?;
        let timeouts = match change_parameters && timeouts::are_possible(&plan.numbers)? {
            true => Timeouts::Wanted { shown: None },
            false => Timeouts::Unwanted,
        };
        let mut installed = Self {
            legs_in_force: legs(&plan),
            plan,
            marks,
            method,
            early_demux: match (was, change_parameters) {
                (Some(was), _) => EarlyDemux::of_former(was.early_demux_was_on),
                (None, true) => EarlyDemux::read(),
                (None, false) => EarlyDemux::leave(),
            },
            reuse_sockets: ReuseSockets::default(),
            taking: was.is_some_and(|was| was.taking),
            is_own: was.is_none(),
            replaced: former.map(|(_, numbers)| numbers),
            has_ipv6: has_ipv6(),
            netlink,
            as_put: AsPut::default(),
            timeouts,
            express_lane: ExpressLane::default(),
            counts: change_parameters,
            rules: RulesetWatch::open().map_err(InterceptionError::Watch)?,
            routes: RouteWatch::open_beside_main().map_err(InterceptionError::Watch)?,
            _claim: claim,
        };
        if change_parameters && was.is_none() {
            // Counters of an earlier run, which was killed.
            let old = untouched::table(&installed.plan.numbers);
            nftables::apply(&rules::removal(&old))?;
        }
        // Those of an earlier run lead to its sockets.
        express_lane::remove(&installed.plan.numbers).map_err(InterceptionError::NoQueue)?;
        // An error from here on drops `installed`, which removes its rules and routes.
        installed.ensure_delivery()?;
        // The rules come first, because they contain the parameter's former value.
        installed.put_rules()?;
        if change_parameters && installed.early_demux.switch_off() {
            installed.put_rules()?;
        }
        Ok(installed)
    }

    /// Checks whether the kernel would accept the rules of another plan with the same numbers.
    ///
    /// # Errors
    /// The mark field is too small, or the kernel refuses.
    pub fn check(&self, plan: &Plan) -> Result<(), InterceptionError> {
        let rules = rules::ruleset(plan, &marks(plan)?, self.machine(), true);
        nftables::check(&rules)?;
        Ok(())
    }

    /// Adds the leg marks of another plan that is about to be put in force, because sockets may
    /// already have these marks. Those of an earlier plan that was not put in force are removed.
    ///
    /// # Errors
    /// The rules could not be changed; the next [`refresh`](Self::refresh) tries again.
    pub fn expect_legs(&mut self, next: &Plan) -> Result<(), InterceptionError> {
        let known = [&self.plan.client_leg_marks, &self.plan.server_leg_marks];
        let new = [&next.client_leg_marks, &next.server_leg_marks];
        if new[0].is_subset(known[0]) && new[1].is_subset(known[1]) {
            return Ok(());
        }
        let with = |marks: &BTreeSet<u32>, new| marks.union(new).copied().collect();
        self.plan.client_leg_marks = with(&self.legs_in_force[0], new[0]);
        self.plan.server_leg_marks = with(&self.legs_in_force[1], new[1]);
        self.put_rules()
    }

    /// The plan in force.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Puts another plan with the same numbers in force, all rules at once. Existing connections
    /// continue if their marks and interfaces are in the new plan; so do the former sessions of the present plan.
    ///
    /// # Errors
    /// A change failed; the next [`refresh`](Self::refresh) tries again.
    pub fn change(&mut self, plan: Plan) -> Result<(), InterceptionError> {
        self.marks = marks(&plan)?;
        self.legs_in_force = legs(&plan);
        self.plan = Plan {
            former_sessions: std::mem::take(&mut self.plan.former_sessions),
            ..plan
        };
        // IPv6 may have been switched on or off since the last check.
        self.has_ipv6 = has_ipv6();
        self.ensure_delivery()?;
        self.put_rules()?;
        local_delivery::remove_other_marks(&self.netlink, &self.plan.numbers, &self.marks)?;
        Ok(())
    }

    /// New connections from and to these hosts pass untouched from now on. Existing connections
    /// continue.
    ///
    /// # Errors
    /// The rules could not be changed; the next [`refresh`](Self::refresh) tries again.
    pub fn set_bypasses(&mut self, bypasses: Vec<IpNet>) -> Result<(), InterceptionError> {
        // On a slow machine, a command may be repeated because its answer was late.
        if self.plan.bypasses == bypasses && self.as_put.is_put() {
            return Ok(());
        }
        self.plan.bypasses = bypasses;
        self.put_rules()
    }

    fn machine(&self) -> Machine {
        Machine {
            queue: self.method,
            reuse_ports: self.reuse_sockets.ports(),
            early_demux_was: self.early_demux.was_on(),
            takes_vrfs: machine::takes_vrfs(),
        }
    }

    /// The marks in use.
    #[must_use]
    pub const fn marks(&self) -> &Marks {
        &self.marks
    }

    /// A probe that tries whether the host's firewall lets intercepted connections work.
    ///
    /// # Errors
    /// The probe cannot be opened: it needs `CAP_NET_RAW`.
    pub fn probe(&self) -> Result<Probe, InterceptionError> {
        Probe::new(&self.plan.numbers, &self.plan.selections, &self.marks)
    }

    /// Whether new connections are intercepted.
    #[must_use]
    pub const fn is_taking(&self) -> bool {
        self.taking
    }

    /// Intercepts new connections, or lets them pass untouched. Existing connections continue in
    /// both cases.
    ///
    /// # Errors
    /// The rules could not be changed.
    pub fn set_taking(&mut self, taking: bool) -> Result<(), InterceptionError> {
        if taking != self.taking {
            self.taking = taking;
            self.put_rules()?;
        }
        Ok(())
    }

    /// File descriptors that are readable when rules (of any program) or routes have changed.
    #[must_use]
    pub fn changes(&self) -> [BorrowedFd<'_>; 2] {
        [self.rules.descriptor(), self.routes.descriptor()]
    }

    /// After this, [`changes`](Self::changes) are not readable until something changes again.
    pub fn forget_changes(&self) {
        self.rules.forget();
        self.routes.forget();
    }

    /// Routing rules of other programs that compare bits of Midspan's marks.
    ///
    /// # Errors
    /// The kernel does not list rules.
    pub fn foreign_rules(&self) -> Result<Vec<ForeignRule>, InterceptionError> {
        let rules = survey::foreign_rules(&self.netlink)?;
        let is_near = |rule: &ForeignRule| {
            rule.mark
                .is_some_and(|(_, mask)| mask & self.marks.mask != 0)
        };
        Ok(rules.into_iter().filter(is_near).collect())
    }

    /// Restores the rules and routes that another program has removed or changed; returns whether
    /// there were any.
    ///
    /// # Errors
    /// A rule or route could not be restored.
    pub fn refresh(&mut self) -> Result<bool, InterceptionError> {
        self.forget_changes();
        let has_ipv6 = has_ipv6();
        let routes = self.ensure_delivery()?;
        // The route comes before the rules that need it. While IPv6 is switched off, there is no
        // IPv6 route.
        let family = has_ipv6 != self.has_ipv6 && self.plan.takes_ipv6();
        self.has_ipv6 = has_ipv6;
        let parameter = self.early_demux.switch_off();
        let rules = parameter || !self.is_as_put()?;
        if rules || family {
            self.put_rules()?;
        }
        // Last: even if the former table cannot be removed, these rules are restored.
        self.remove_replaced()?;
        Ok(rules || routes > 0 && !family)
    }

    /// Adds the missing rules and routes of the families that are delivered. A family that is switched off
    /// needs none; its packets arrive again only after it is switched on.
    fn ensure_delivery(&self) -> Result<usize, NetlinkError> {
        let takes = |family: &AddressFamily| match family {
            AddressFamily::Inet6 => self.plan.delivers_ipv6(),
            _ => true,
        };
        let families = usable_families().filter(takes);
        local_delivery::ensure(&self.netlink, &self.plan.numbers, &self.marks, families)
    }

    /// Whether the kernel still lists the tables as they were put. Called only if anything has
    /// changed, because the sets may have thousands of elements, and `nft` reads all of them.
    fn is_as_put(&mut self) -> Result<bool, InterceptionError> {
        let number = nftables::generation().ok();
        if self.as_put.is_known(number) {
            return Ok(true);
        }
        let tables = self.tables()?;
        Ok(self.as_put.handle_list(number, &tables))
    }

    /// Whether connection tracking removes Midspan's sessions soon after their end. If the kernel
    /// or `nft` does not support that, it keeps them as long as all other connections.
    #[must_use]
    pub const fn has_timeouts(&self) -> bool {
        matches!(self.timeouts, Timeouts::Wanted { .. })
    }

    fn put_rules(&mut self) -> Result<(), InterceptionError> {
        // If a step fails, the next refresh tries again.
        self.as_put.forget();
        self.reuse_sockets.open_missing();
        let mut plan = self.plan.clone();
        if !self.has_ipv6 {
            plan.leave_out_ipv6();
        }
        let mut rules = rules::ruleset(&plan, &self.marks, self.machine(), self.taking);
        if self.counts {
            rules.push_str(&untouched::ruleset(&plan.numbers, plan.interfaces()));
            rules.push_str(&self.express_lane.put(&plan, &self.marks, self.taking)?);
        }
        for _ in 0..PUT_TRIES {
            let mut shown = Vec::new();
            let mut rules = rules.clone();
            if !self.timeouts.are_as_put(&self.plan.numbers)? {
                rules.push_str(&timeouts::ruleset(&self.plan.numbers));
            }
            let generation = nftables::generation_after(|| {
                nftables::apply(&rules)?;
                let changes = match self.method {
                    QueueMethod::Target => {
                        queue_target::install(&self.plan.numbers, &self.marks)
                            .map_err(InterceptionError::NoQueue)?;
                        2
                    }
                    QueueMethod::Statement => 1,
                };
                shown = self.tables()?;
                Ok::<_, InterceptionError>(changes)
            })?;
            if let Timeouts::Wanted { shown: timeouts } = &mut self.timeouts {
                *timeouts = shown.last().cloned().flatten();
            }
            if self.as_put.handle_put(generation, shown) {
                break;
            }
        }
        Ok(())
    }

    fn tables(&self) -> Result<Vec<Option<String>>, InterceptionError> {
        let table = &self.plan.numbers.table;
        // Sets whose elements are added and removed by the kernel may have thousands of elements.
        // Therefore the table is listed without elements.
        let mut tables = vec![nftables::table_without_elements("inet", table)?];
        for set in Bypass::of(&self.plan.bypasses).names() {
            tables.push(nftables::set("inet", table, &set)?);
        }
        if self.method == QueueMethod::Target {
            let name = queue_target::table(&self.plan.numbers);
            for family in ["ip", "ip6"] {
                tables.push(nftables::table(family, &name)?);
            }
        }
        if self.counts {
            let name = untouched::table(&self.plan.numbers);
            tables.push(nftables::table("inet", &name)?);
        }
        tables.extend(self.express_lane.tables(&self.plan)?);
        // This table must be the last one; see `put_rules`.
        if self.has_timeouts() {
            let name = timeouts::table(&self.plan.numbers);
            tables.push(nftables::table("inet", &name)?);
        }
        Ok(tables)
    }
}

/// Whether IPv6 is switched on, so that the kernel accepts routes that lead its connections to this
/// machine.
fn has_ipv6() -> bool {
    !midspan_linux::ipv6::is_switched_off()
}

/// How often rules are put in one call if another program changes rules at the same moment. After
/// that, the next refresh tries again.
const PUT_TRIES: usize = 3;

/// Claims the numbers. A second run on the same table would remove what the first has set.
fn claim(numbers: &InterceptionNumbers) -> Result<Claim, InterceptionError> {
    crate::claim::claim(Kind::Interception, &numbers.table)
        .map_err(InterceptionError::Claim)?
        .ok_or_else(|| InterceptionError::InUse(numbers.table.clone()))
}
