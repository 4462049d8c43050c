//! The rules and tables in the kernel.

use rtnetlink::packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::route::{RouteFlags, RouteHeader, RouteMessage, RouteType};

use super::copy::{configured, throw_route};
use super::{InitialWindowError, WindowNumbers};
use crate::mark_rules::MarkRules;
use crate::ours::{OUR_ROUTES, is_our_rule, is_ours};
use midspan_linux::netlink::{Netlink, NetlinkError};
use midspan_linux::routing::{
    Which, families, routes, rule_table, rules, some_routes, table_of, unless_gone, usable_families,
};
use rustix::io::Errno;

/// The main table.
pub(super) const MAIN: Which = Which::Table(RouteHeader::RT_TABLE_MAIN as u32);

/// Whether the route is configured. The kernel itself adds other routes for single destinations.
pub(crate) fn is_configured(route: &RouteMessage) -> bool {
    !route.header.flags.contains(RouteFlags::Cloned)
}

/// A netlink connection for changes of the tables.
pub(super) struct Tables(Netlink);

impl Tables {
    pub fn open() -> Result<Self, NetlinkError> {
        Netlink::open().map(Self)
    }

    /// Routes of both families.
    pub fn routes(&self, which: Which) -> Result<Vec<RouteMessage>, NetlinkError> {
        routes(&self.0, which)
    }

    /// Like [`routes`](Self::routes), with at most this number of routes of each family. Also
    /// returns whether there were more.
    pub fn some_routes(
        &self,
        which: Which,
        limit: usize,
    ) -> Result<(Vec<RouteMessage>, bool), NetlinkError> {
        some_routes(&self.0, which, limit)
    }

    pub fn add_route(&self, route: &RouteMessage) -> Result<(), NetlinkError> {
        // Append, because two routes may differ only in their next hop.
        let flags = NLM_F_CREATE | NLM_F_APPEND;
        let result = self.0.change(
            || "copy a route".to_owned(),
            RouteNetlinkMessage::NewRoute(route.clone()),
            flags,
        );
        match result {
            Err(error) if error.is(Errno::EXIST) => Ok(()),
            other => other,
        }
    }

    /// Removes a route; returns `false` if it did not exist any more.
    pub fn remove_route(&self, route: &RouteMessage) -> Result<bool, NetlinkError> {
        let result = self.0.change(
            || "remove the copy of a route".to_owned(),
            RouteNetlinkMessage::DelRoute(route.clone()),
            0,
        );
        unless_gone(result)
    }

    /// Adds Midspan's missing rules, which lead from each mark to its table. Returns their number.
    pub fn ensure_rules(
        &self,
        numbers: WindowNumbers,
        marks_and_tables: &[(u32, u32)],
    ) -> Result<usize, NetlinkError> {
        let mut added = 0;
        for family in usable_families() {
            added +=
                mark_rules(numbers).ensure(&self.0, family, marks_and_tables.iter().copied())?;
        }
        Ok(added)
    }

    /// Removes all rules and routes of Midspan that belong to `numbers`, as far as possible; returns
    /// their number.
    pub fn remove_ours(&self, numbers: WindowNumbers) -> Result<usize, InitialWindowError> {
        let tables = numbers.table..=numbers.table.saturating_add(numbers.marks.count() - 1);
        let mut results = Vec::new();
        // Rules first, so that no rule leads to a half-empty table.
        for family in families() {
            let rules = rules(&self.0, family)?.into_iter();
            results.extend(
                rules
                    .filter(|rule| is_our_rule(rule) && tables.contains(&rule_table(rule)))
                    .map(|rule| mark_rules(numbers).remove(&self.0, rule)),
            );
        }
        let routes = self.routes(OUR_ROUTES)?;
        results.extend(
            routes
                .iter()
                .filter(|route| is_ours(route) && tables.contains(&table_of(route)))
                .map(|route| self.remove_route(&removable(route))),
        );
        let mut removed = 0;
        for result in results {
            removed += usize::from(result?);
        }
        Ok(removed)
    }
}

/// Removes all routes of Midspan, from all tables; returns their number.
pub(crate) fn remove_all_routes(netlink: &Netlink) -> Result<usize, NetlinkError> {
    let mut removed = 0;
    for route in &routes(netlink, OUR_ROUTES)? {
        let route = match route.header.kind {
            // In the form in which the route was added.
            RouteType::Local => route.clone(),
            _ => removable(route),
        };
        let result = netlink.change(
            || "remove an old route".to_owned(),
            RouteNetlinkMessage::DelRoute(route),
            0,
        );
        removed += usize::from(unless_gone(result)?);
    }
    Ok(removed)
}

/// Converts a route from the form in which the kernel lists it to the form in which it can be
/// removed.
fn removable(route: &RouteMessage) -> RouteMessage {
    match route.header.kind {
        RouteType::Unicast => configured(route),
        _ => throw_route(route),
    }
}

/// Midspan's rules for marked connections.
const fn mark_rules(numbers: WindowNumbers) -> MarkRules {
    MarkRules {
        purpose: "of an initial window",
        priority: numbers.priority,
        mask: numbers.marks.mask(),
    }
}
