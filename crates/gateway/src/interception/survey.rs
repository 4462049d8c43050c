//! Finds other users of the marks, routing tables, priorities, queue and names that interception
//! uses. Nothing is changed.

use std::collections::BTreeSet;
use std::fs;

use rtnetlink::packet_route::rule::RuleAttribute;

use super::{InterceptionError, InterceptionNumbers};
use crate::claim::{self, Kind};
use crate::ours::{is_our_rule, is_ours};
use midspan_linux::netlink::{Netlink, NetlinkError};
use midspan_linux::owner::{self, Owner};
use midspan_linux::routing::{Which, families, routes, rule_table, rules, table_of};

/// A routing rule of another program or of the operator (`ip rule`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignRule {
    /// The rule's priority.
    pub priority: u32,
    /// The mark with which the rule compares, and its mask; `None` if the rule does not compare the
    /// mark.
    pub mark: Option<(u32, u32)>,
    /// The table to which the rule leads.
    pub table: u32,
}

/// The rules and routes on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Rules of other programs, of both families.
    pub rules: Vec<ForeignRule>,
    /// Routing tables that have routes of other programs.
    pub routing_tables: BTreeSet<u32>,
    /// Whether there are rules or routes of a Midspan with these numbers, running or not.
    pub has_ours: bool,
}

impl Survey {
    /// Reads the rules and routes. Needs no capability.
    ///
    /// # Errors
    /// The kernel does not list rules or routes.
    pub fn take(numbers: &InterceptionNumbers) -> Result<Self, InterceptionError> {
        let netlink = Netlink::open()?;
        let mut survey = Self {
            rules: Vec::new(),
            routing_tables: BTreeSet::new(),
            has_ours: false,
        };
        survey.rules = foreign_rules(&netlink)?;
        for family in families() {
            survey.has_ours |= (rules(&netlink, family)?.iter())
                .any(|rule| is_our_rule(rule) && rule_table(rule) == numbers.routing_table);
        }
        for route in routes(&netlink, Which::All)? {
            let table = table_of(&route);
            match is_ours(&route) {
                true => survey.has_ours |= table == numbers.routing_table,
                false => {
                    survey.routing_tables.insert(table);
                }
            }
        }
        Ok(survey)
    }
}

/// Rules of other programs, of both families.
pub(super) fn foreign_rules(netlink: &Netlink) -> Result<Vec<ForeignRule>, NetlinkError> {
    let mut found = Vec::new();
    for family in families() {
        for rule in rules(netlink, family)? {
            if is_our_rule(&rule) {
                continue;
            }
            let number =
                |wanted: fn(&RuleAttribute) -> Option<u32>| rule.attributes.iter().find_map(wanted);
            let mark = number(|attribute| match attribute {
                RuleAttribute::FwMark(mark) => Some(*mark),
                _ => None,
            });
            let mask = number(|attribute| match attribute {
                RuleAttribute::FwMask(mask) => Some(*mask),
                _ => None,
            });
            let priority = number(|attribute| match attribute {
                RuleAttribute::Priority(priority) => Some(*priority),
                _ => None,
            });
            found.push(ForeignRule {
                priority: priority.unwrap_or(0),
                mark: mark.map(|mark| (mark, mask.unwrap_or(u32::MAX))),
                table: rule_table(&rule),
            });
        }
    }
    Ok(found)
}

/// The Midspan that intercepts with these numbers at present, if there is one; `Some(None)` if `/proc`
/// does not show its process.
///
/// # Errors
/// Midspan cannot find out which processes hold claims.
pub fn running(numbers: &InterceptionNumbers) -> Result<Option<Option<Owner>>, InterceptionError> {
    let taken = claim::taken(Kind::Interception).map_err(InterceptionError::Claim)?;
    let is_running = taken.contains(&numbers.table);
    Ok(is_running
        .then(|| claim::holder(Kind::Interception, &numbers.table).and_then(owner::of_process)))
}

/// The process that reads a packet queue (NFQUEUE); `None` if no process does, `Some(None)` if the
/// process cannot be found.
#[must_use]
pub fn queue_owner(queue: u16) -> Option<Option<Owner>> {
    let text = fs::read_to_string("/proc/self/net/netfilter/nfnetlink_queue").ok()?;
    // A netlink port's number is mostly that of its process, but need not be.
    holder(queue, &text).map(|process| process.and_then(owner::of_process))
}

/// The netlink port of a queue in `/proc/net/netfilter/nfnetlink_queue`.
pub(crate) fn holder(queue: u16, table: &str) -> Option<Option<u32>> {
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let number: u16 = fields.next()?.parse().ok()?;
        let process = fields.next()?.parse().ok();
        (number == queue).then_some(process)
    })
}
