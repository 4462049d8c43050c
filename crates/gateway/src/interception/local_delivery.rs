//! Delivers marked packets to this machine, whatever their destination: rules, and a table with one
//! route for each family (`ip rule add fwmark …`, `ip route add local default dev lo table …`).

use rtnetlink::packet_core::NLM_F_CREATE;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::RuleMessage;
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use rustix::io::Errno;

use super::plan::{InterceptionNumbers, Marks};
use crate::mark_rules::MarkRules;
use crate::ours::{is_our_rule, is_ours, protocol};
use midspan_linux::netlink::{Netlink, NetlinkError, interface_index};
use midspan_linux::routing::{
    Which, families, family_name, is_same_rule, routes, rule_table, rules, unless_gone,
};

/// Adds the missing rules and routes of these families; returns their number.
pub fn ensure(
    netlink: &Netlink,
    numbers: &InterceptionNumbers,
    marks: &Marks,
    families: impl Iterator<Item = AddressFamily>,
) -> Result<usize, NetlinkError> {
    let mut added = 0;
    let present = routes(netlink, Which::Table(numbers.routing_table))?;
    for family in families {
        let is_there = present.iter().any(|route| {
            route.header.address_family == family
                && route.header.kind == RouteType::Local
                && is_ours(route)
        });
        if !is_there {
            add_route(netlink, family, numbers.routing_table)?;
            added += 1;
        }
        let marks = marks.listeners.iter();
        let marks_and_tables = marks.map(|mark| (*mark, numbers.routing_table));
        added += mark_rules(numbers).ensure(netlink, family, marks_and_tables)?;
    }
    Ok(added)
}

/// Removes Midspan's rules that lead to the table for other marks than these.
pub fn remove_other_marks(
    netlink: &Netlink,
    numbers: &InterceptionNumbers,
    marks: &Marks,
) -> Result<(), NetlinkError> {
    for family in families() {
        let wanted: Vec<RuleMessage> = marks
            .listeners
            .iter()
            .map(|mark| mark_rules(numbers).rule(family, *mark, numbers.routing_table))
            .collect();
        for present in rules(netlink, family)? {
            if is_our_rule(&present)
                && rule_table(&present) == numbers.routing_table
                && !wanted.iter().any(|wanted| is_same_rule(&present, wanted))
            {
                mark_rules(numbers).remove(netlink, present)?;
            }
        }
    }
    Ok(())
}

/// Removes all rules and routes of Midspan that lead to the table; returns their number.
pub fn remove(netlink: &Netlink, numbers: &InterceptionNumbers) -> Result<usize, NetlinkError> {
    let mut removed = 0;
    for family in families() {
        let ours = rules(netlink, family)?
            .into_iter()
            .filter(|rule| is_our_rule(rule) && rule_table(rule) == numbers.routing_table);
        for rule in ours {
            removed += usize::from(mark_rules(numbers).remove(netlink, rule)?);
        }
    }
    for route in routes(netlink, Which::Table(numbers.routing_table))? {
        if is_ours(&route) {
            let result = netlink.change(
                || "remove the route for intercepted packets".to_owned(),
                RouteNetlinkMessage::DelRoute(route),
                0,
            );
            removed += usize::from(unless_gone(result)?);
        }
    }
    Ok(removed)
}

/// Whether another program has routes in the table.
pub fn is_table_taken(
    netlink: &Netlink,
    numbers: &InterceptionNumbers,
) -> Result<bool, NetlinkError> {
    let routes = routes(netlink, Which::Table(numbers.routing_table))?;
    Ok(routes.iter().any(|route| !is_ours(route)))
}

fn add_route(netlink: &Netlink, family: AddressFamily, table: u32) -> Result<(), NetlinkError> {
    let mut route = RouteMessage::default();
    route.header.address_family = family;
    route.header.kind = RouteType::Local;
    route.header.scope = RouteScope::Host;
    route.header.protocol = protocol();
    route.header.table = RouteHeader::RT_TABLE_UNSPEC;
    route.attributes = vec![
        RouteAttribute::Table(table),
        RouteAttribute::Oif(interface_index("lo")?),
    ];
    let result = netlink.change(
        || {
            format!(
                "add the {} route for intercepted packets",
                family_name(family)
            )
        },
        RouteNetlinkMessage::NewRoute(route),
        NLM_F_CREATE,
    );
    match result {
        Err(error) if error.is(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Midspan's rules for intercepted packets.
const fn mark_rules(numbers: &InterceptionNumbers) -> MarkRules {
    MarkRules {
        purpose: "for intercepted packets",
        priority: numbers.rule_priority,
        mask: numbers.marks.mask(),
    }
}
