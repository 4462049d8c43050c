//! What a run that was killed left behind, whatever its tables, marks and routes were called.
//!
//! Our nftables tables are known by their comment ([`own_tables`](super::own_tables)), our rules and
//! routes by a protocol number.

use rtnetlink::packet_route::RouteNetlinkMessage;

use super::early_demux::EarlyDemux;
use super::own_tables::{Parameter, tables};
use super::{CLAIM, InterceptionError, accounting, queue_target, rules, timeouts};
use crate::claim;
use crate::initial_window::CLAIM as WINDOWS_CLAIM;
use crate::initial_window::routing::{
    families, family_name, is_our_rule, remove_all_routes, rules as routing_rules, send,
    unless_gone,
};
use crate::netlink::Netlink;
use crate::nftables;

/// What the names of the tables of one Midspan end with, behind the one that it is told.
const SUFFIXES: [&str; 5] = ["", "_queue", "_probe", accounting::SUFFIX, timeouts::SUFFIX];

/// Removes all rules, routes and tables of Midspans that no longer run, and sets
/// parameters of the kernel back to what they were; returns how many of them there were. While
/// another Midspan runs in this network namespace, routes and rules are left alone, since they do
/// not say whose they are.
///
/// # Errors
/// What is there cannot be removed.
pub fn remove_all() -> Result<usize, InterceptionError> {
    let is_taken = |beginning| {
        let taken = claim::taken(beginning).map_err(InterceptionError::Claim)?;
        Ok::<_, InterceptionError>(!taken.is_empty())
    };
    let mut removed = 0;
    if !is_taken(CLAIM)? && !is_taken(WINDOWS_CLAIM)? {
        let netlink = Netlink::open()?;
        // Rules first, so that nothing leads to a half-empty table.
        for family in families() {
            for rule in routing_rules(&netlink, family)? {
                if !is_our_rule(&rule) {
                    continue;
                }
                let result = netlink.request(
                    || format!("remove an old {} rule", family_name(family)),
                    async |handle| send(handle, RouteNetlinkMessage::DelRule(rule), 0).await,
                );
                removed += usize::from(unless_gone(result)?);
            }
        }
        removed += remove_all_routes(&netlink)?;
    }
    // Without the program there are no tables of ours, or no way to them.
    let Ok(text) = nftables::all() else {
        return Ok(removed);
    };
    let intercepting = claim::taken(CLAIM).map_err(InterceptionError::Claim)?;
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

fn set_back(parameter: Parameter) {
    match parameter {
        Parameter::EarlyDemuxWasOn => EarlyDemux::switch_on(),
        Parameter::AccountingWasOff => accounting::switch_off(),
    }
}
