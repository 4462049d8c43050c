//! Removes the leftovers of processes that were killed, whatever the names of their tables, marks and routes
//! were.
//!
//! Midspan's nftables tables have a comment (`own_tables`), its rules and routes a protocol number
//! ([`PROTOCOL`](crate::PROTOCOL)), and the tables of ACK thinning a common beginning of their names. Tables
//! that belong to a [claim] of a running process stay. Routes and routing rules do not contain
//! their owner, so all of them stay while any process has a claim of interception or of initial windows.

use rtnetlink::packet_route::RouteNetlinkMessage;

use midspan_linux::netlink::Netlink;
use midspan_linux::nftables;
use midspan_linux::routing::{families, family_name, rules as routing_rules, unless_gone};

use crate::acknowledgement_queue::{self, RulesError};
use crate::claim::{self, Kind};
use crate::initial_window::remove_all_routes;
use crate::interception::early_demux::EarlyDemux;
use crate::interception::own_tables::{Parameter, tables};
use crate::interception::{
    InterceptionError, accounting, express_lane, queue_target, rules, timeouts, untouched,
};
use crate::ours::is_our_rule;
use crate::takeover;

/// The endings of the names of one Midspan's tables, after the configured name.
const SUFFIXES: [&str; 8] = [
    "",
    "_queue",
    "_probe",
    accounting::SUFFIX,
    express_lane::SUFFIX,
    timeouts::SUFFIX,
    untouched::SUFFIX,
    takeover::SUFFIX,
];

/// Removes the routing rules, routes and tables of Midspans that no longer run, and restores parameters of
/// the kernel; returns the number of removed rules, routes and tables. While another Midspan runs in this
/// network namespace, routes and routing rules stay, and parameters stay while another Midspan intercepts
/// connections. Without the program `nft`, tables stay.
///
/// # Errors
/// The claims or routing rules cannot be read, or a leftover cannot be removed.
pub fn rules_and_routes() -> Result<usize, InterceptionError> {
    let taken = |kind| claim::taken(kind).map_err(InterceptionError::Claim);
    let intercepting = taken(Kind::Interception)?;
    let mut removed = 0;
    if intercepting.is_empty() && taken(Kind::InitialWindows)?.is_empty() {
        let netlink = Netlink::open()?;
        // Rules first, so that no rule leads to a half-empty table.
        for family in families() {
            for rule in routing_rules(&netlink, family)? {
                if !is_our_rule(&rule) {
                    continue;
                }
                let result = netlink.change(
                    || format!("remove an old {} rule", family_name(family)),
                    RouteNetlinkMessage::DelRule(rule),
                    0,
                );
                removed += usize::from(unless_gone(result)?);
            }
        }
        removed += remove_all_routes(&netlink)?;
    }
    // Without the program `nft`, there are no tables of Midspan, or they cannot be listed.
    let Ok(text) = nftables::all() else {
        return Ok(removed);
    };
    let intercepting = taken(Kind::Interception)?;
    for table in tables(&text) {
        let belongs_to = |owner: &String| {
            table
                .name
                .strip_prefix(owner.as_str())
                .is_some_and(|rest| SUFFIXES.contains(&rest))
        };
        if intercepting.iter().any(belongs_to) {
            continue;
        }
        if table.family == "inet" {
            nftables::apply(&rules::removal(&table.name))?;
        } else {
            queue_target::remove(&table.name).map_err(InterceptionError::NoQueue)?;
        }
        removed += 1;
        if intercepting.is_empty() {
            table.changed.into_iter().for_each(set_back);
        }
    }
    Ok(removed)
}

/// Removes the tables of ACK thinning of processes that no longer run; returns their number.
///
/// # Errors
/// A table cannot be removed.
pub fn thinning_tables() -> Result<usize, RulesError> {
    acknowledgement_queue::remove_leftovers("")
}

/// Removes lock files of processes that were killed, of all network namespaces; returns their
/// number.
#[must_use]
pub fn lock_files() -> usize {
    claim::remove_stale()
}

fn set_back(parameter: Parameter) {
    match parameter {
        Parameter::EarlyDemuxWasOn => EarlyDemux::switch_on(),
        Parameter::AccountingWasOff => accounting::switch_off(),
    }
}
