//! What a run that was killed left behind, whatever its tables, marks and routes were called.
//!
//! Our nftables tables say in their comment whose they are, and what parameters of the kernel were
//! before; our rules and routes carry a protocol number.

use rtnetlink::packet_route::RouteNetlinkMessage;

use super::early_demux::EarlyDemux;
use super::{CLAIM, InterceptionError, accounting, queue_target, rules, timeouts};
use crate::claim;
use crate::initial_window::CLAIM as WINDOWS_CLAIM;
use crate::initial_window::routing::{
    families, family_name, is_our_rule, remove_all_routes, rules as routing_rules, send,
    unless_gone,
};
use crate::netlink::Netlink;
use crate::nftables;

/// How the comment of each of our tables begins.
pub const OURS: &str = "Midspan, removed when it ends";

/// What the names of the tables of one Midspan end with, behind the one that it is told.
const SUFFIXES: [&str; 5] = ["", "_queue", "_probe", accounting::SUFFIX, timeouts::SUFFIX];

/// A parameter of the kernel that was changed, and is set back by whoever removes the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    EarlyDemuxWasOn,
    AccountingWasOff,
}

impl Parameter {
    const ALL: [Self; 2] = [Self::EarlyDemuxWasOn, Self::AccountingWasOff];

    const fn note(self) -> &'static str {
        match self {
            Self::EarlyDemuxWasOn => "; net.ipv4.tcp_early_demux was 1",
            Self::AccountingWasOff => "; net.netfilter.nf_conntrack_acct was 0",
        }
    }

    fn set_back(self) {
        match self {
            Self::EarlyDemuxWasOn => EarlyDemux::switch_on(),
            Self::AccountingWasOff => accounting::switch_off(),
        }
    }
}

/// The comment of a table with our rules, for which these parameters were changed.
pub fn comment(changed: &[Parameter]) -> String {
    let notes = changed.iter().map(|parameter| parameter.note());
    std::iter::once(OURS).chain(notes).collect()
}

/// A table of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub family: String,
    pub name: String,
    changed: Vec<Parameter>,
}

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
            table.changed.into_iter().for_each(Parameter::set_back);
        }
    }
    Ok(removed)
}

/// The tables of ours in what `nft list ruleset` prints.
pub(super) fn tables(text: &str) -> Vec<Table> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(header) = line.strip_prefix("table ") else {
            continue;
        };
        let mut words = header.split_whitespace();
        let (Some(family), Some(name)) = (words.next(), words.next()) else {
            continue;
        };
        let comment = lines.next().map(str::trim).unwrap_or_default();
        let Some(rest) = comment.strip_prefix(&format!("comment \"{OURS}")) else {
            continue;
        };
        found.push(Table {
            family: family.to_owned(),
            name: name.to_owned(),
            changed: Parameter::ALL
                .into_iter()
                .filter(|parameter| rest.contains(parameter.note()))
                .collect(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_tables_are_known_by_their_comment() {
        let [early, counted] = Parameter::ALL;
        let (with, without) = (comment(&[early]), comment(&[]));
        let (counting, both) = (comment(&[counted]), comment(&Parameter::ALL));
        let text = format!(
            "table inet midspan {{\n\tcomment \"somebody else's\"\n}}\n\
             table inet odd {{\n\tcomment \"{with}\"\n\tchain a {{\n\t}}\n}}\n\
             table ip odd_queue {{\n\tcomment \"{without}\"\n}}\ntable ip6 filter {{\n}}\n\
             table inet odd_accounting {{\n\tcomment \"{counting}\"\n}}\n\
             table inet even {{\n\tcomment \"{both}\"\n}}\n"
        );
        let table = |family: &str, name: &str, changed: &[_]| Table {
            family: family.to_owned(),
            name: name.to_owned(),
            changed: changed.to_vec(),
        };
        assert_eq!(
            tables(&text),
            [
                table("inet", "odd", &[early]),
                table("ip", "odd_queue", &[]),
                table("inet", "odd_accounting", &[counted]),
                table("inet", "even", &Parameter::ALL),
            ]
        );
    }
}
