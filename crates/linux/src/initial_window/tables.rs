//! The rules and tables in the kernel.

use futures_util::StreamExt;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Parseable,
};
use rtnetlink::packet_route::route::{RouteFlags, RouteHeader, RouteMessage, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Handle, IpVersion};

use super::copy::{configured, family_name, throw_route};
use super::ours::{PROTOCOL, is_ours, protocol, table_of};
use super::{InitialWindowError, Place};
use crate::netlink::{Netlink, NetlinkError};
use crate::route_socket::List;

/// The main table.
pub(super) const MAIN: Which = Which::Table(RouteHeader::RT_TABLE_MAIN as u32);

/// A configured route, not one the kernel learned for one destination.
pub(super) fn is_configured(route: &RouteMessage) -> bool {
    !route.header.flags.contains(RouteFlags::Cloned)
}

/// Whether the kernel's answer was this error number.
pub(crate) fn is_errno(error: &NetlinkError, errno: i32) -> bool {
    matches!(
        error,
        NetlinkError::Request { source: rtnetlink::Error::NetlinkError(message), .. }
            if message.raw_code() == -errno
    )
}

/// A netlink connection for the work on tables.
pub(super) struct Tables(Netlink);

impl Tables {
    pub fn open() -> Result<Self, NetlinkError> {
        Netlink::open().map(Self)
    }

    /// Routes of both families.
    pub fn routes(&self, which: Which) -> Result<Vec<RouteMessage>, NetlinkError> {
        routes(&self.0, which)
    }

    /// The same, so many of each family at most; whether there were more.
    pub fn some_routes(
        &self,
        which: Which,
        limit: usize,
    ) -> Result<(Vec<RouteMessage>, bool), NetlinkError> {
        some_routes(&self.0, which, limit)
    }

    pub fn add_route(&self, route: &RouteMessage) -> Result<(), NetlinkError> {
        // Append: two routes may differ in nothing but their next hop.
        let flags = NLM_F_CREATE | NLM_F_APPEND;
        let result = self.0.request(
            || "copy a route".to_owned(),
            async |handle| send(handle, RouteNetlinkMessage::NewRoute(route.clone()), flags).await,
        );
        match result {
            Err(error) if is_errno(&error, libc::EEXIST) => Ok(()),
            other => other,
        }
    }

    /// Removes a route; `false` where it was gone already.
    pub fn remove_route(&self, route: &RouteMessage) -> Result<bool, NetlinkError> {
        let result = self.0.request(
            || "remove the copy of a route".to_owned(),
            async |handle| send(handle, RouteNetlinkMessage::DelRoute(route.clone()), 0).await,
        );
        unless_gone(result)
    }

    /// Adds those rules of ours that are missing: from each mark to its table. Returns how many.
    pub fn ensure_rules(
        &self,
        place: Place,
        marks_and_tables: &[(u32, u32)],
    ) -> Result<usize, NetlinkError> {
        let mut added = 0;
        for family in usable_families() {
            let present = rules(&self.0, family)?;
            for (mark, table) in marks_and_tables {
                let rule = rule(family, place, *mark, *table);
                if present.iter().any(|other| is_same_rule(other, &rule)) {
                    continue;
                }
                self.0.request(
                    || format!("add the {} rule of an initial window", family_name(family)),
                    async |handle| {
                        let message = RouteNetlinkMessage::NewRule(rule);
                        send(handle, message, NLM_F_CREATE).await
                    },
                )?;
                added += 1;
            }
        }
        Ok(added)
    }

    /// Removes all rules and routes of ours that belong to `place`, as far as possible; returns
    /// how many.
    pub fn remove_ours(&self, place: Place) -> Result<usize, InitialWindowError> {
        let tables = place.table..=place.table.saturating_add(place.marks.count() - 1);
        let mut results = Vec::new();
        // Rules first, so that nothing leads to a half-empty table.
        for family in families() {
            let rules = rules(&self.0, family)?.into_iter();
            results.extend(
                rules
                    .filter(|rule| is_our_rule(rule) && tables.contains(&rule_table(rule)))
                    .map(|rule| self.remove_rule(rule)),
            );
        }
        let routes = self.routes(Which::Ours)?;
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

    fn remove_rule(&self, rule: RuleMessage) -> Result<bool, NetlinkError> {
        let family = family_name(rule.header.family);
        let result = self.0.request(
            || format!("remove the {family} rule of an initial window"),
            async |handle| send(handle, RouteNetlinkMessage::DelRule(rule), 0).await,
        );
        unless_gone(result)
    }
}

/// Removes all routes of ours, whatever their table; how many that were.
pub(crate) fn remove_all_routes(netlink: &Netlink) -> Result<usize, NetlinkError> {
    let mut removed = 0;
    for route in &routes(netlink, Which::Ours)? {
        let route = match route.header.kind {
            // As it was given.
            RouteType::Local => route.clone(),
            _ => removable(route),
        };
        let result = netlink.request(
            || "remove an old route".to_owned(),
            async |handle| send(handle, RouteNetlinkMessage::DelRoute(route), 0).await,
        );
        removed += usize::from(unless_gone(result)?);
    }
    Ok(removed)
}

/// Which routes are read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    /// All of them.
    All,
    /// Those of one table.
    Table(u32),
    /// Those of ours, in whatever table.
    Ours,
}

/// Routes of both families, and no others: the kernel leaves out what is not asked for.
pub(crate) fn routes(netlink: &Netlink, which: Which) -> Result<Vec<RouteMessage>, NetlinkError> {
    Ok(some_routes(netlink, which, usize::MAX)?.0)
}

/// The same, so many of each family at most; whether there were more.
fn some_routes(
    netlink: &Netlink,
    which: Which,
    limit: usize,
) -> Result<(Vec<RouteMessage>, bool), NetlinkError> {
    let (mut routes, mut were_more) = (Vec::new(), false);
    for family in families() {
        let list = List::Routes {
            family,
            table: match which {
                Which::Table(table) => Some(table),
                Which::All | Which::Ours => None,
            },
            kind: 0,
            protocol: match which {
                Which::Ours => PROTOCOL,
                Which::All | Which::Table(_) => 0,
            },
        };
        let (found, is_cut) = netlink
            .lists()
            .collect(list, limit, |content| {
                // What cannot be understood can be neither copied nor ours.
                let route = RouteMessage::parse(content);
                Ok(route
                    .ok()
                    .filter(|route| route.header.address_family == family))
            })
            .map_err(|source| NetlinkError::Read {
                what: format!("the {} routes", family_name(family)),
                source,
            })?;
        routes.extend(found);
        were_more |= is_cut;
    }
    Ok((routes, were_more))
}

/// All rules of a family.
pub(crate) fn rules(
    netlink: &Netlink,
    family: AddressFamily,
) -> Result<Vec<RuleMessage>, NetlinkError> {
    let version = match family {
        AddressFamily::Inet6 => IpVersion::V6,
        _ => IpVersion::V4,
    };
    netlink.request(
        || format!("read the {} routing rules", family_name(family)),
        async |handle| collect(handle.rule().get(version).execute()).await,
    )
}

/// The families whose routes can be changed now: IPv6 not while it is switched off.
pub(crate) fn usable_families() -> impl Iterator<Item = AddressFamily> + use<> {
    families().filter(|family| *family != AddressFamily::Inet6 || !crate::ipv6::is_switched_off())
}

/// The families that this kernel has.
pub(crate) fn families() -> impl Iterator<Item = AddressFamily> + use<> {
    let six = std::path::Path::new("/proc/self/net/if_inet6").exists();
    [AddressFamily::Inet]
        .into_iter()
        .chain(six.then_some(AddressFamily::Inet6))
}

/// A route as the kernel shows it, in the form in which it can be removed.
fn removable(route: &RouteMessage) -> RouteMessage {
    match route.header.kind {
        RouteType::Unicast => configured(route),
        _ => throw_route(route),
    }
}

pub(crate) fn unless_gone(result: Result<(), NetlinkError>) -> Result<bool, NetlinkError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if is_errno(&error, libc::ESRCH) || is_errno(&error, libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn rule(family: AddressFamily, place: Place, mark: u32, table: u32) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family;
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::Priority(place.priority),
        RuleAttribute::FwMark(mark),
        RuleAttribute::FwMask(place.marks.mask()),
        RuleAttribute::Table(table),
        RuleAttribute::Protocol(protocol()),
    ];
    rule
}

/// Whether the kernel's `rule` says all that `wanted` says; it shows more attributes.
pub(crate) fn is_same_rule(rule: &RuleMessage, wanted: &RuleMessage) -> bool {
    wanted
        .attributes
        .iter()
        .all(|attribute| rule.attributes.contains(attribute))
}

pub(crate) fn is_our_rule(rule: &RuleMessage) -> bool {
    rule.attributes
        .contains(&RuleAttribute::Protocol(protocol()))
}

pub(crate) fn rule_table(rule: &RuleMessage) -> u32 {
    let attribute = rule
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RuleAttribute::Table(table) => Some(*table),
            _ => None,
        });
    attribute.unwrap_or(u32::from(rule.header.table))
}

async fn collect<T>(
    answers: impl futures_util::Stream<Item = Result<T, rtnetlink::Error>>,
) -> Result<Vec<T>, rtnetlink::Error> {
    let mut answers = std::pin::pin!(answers);
    let mut collected = Vec::new();
    while let Some(answer) = answers.next().await {
        collected.push(answer?);
    }
    Ok(collected)
}

pub(crate) async fn send(
    handle: &Handle,
    message: RouteNetlinkMessage,
    flags: u16,
) -> Result<(), rtnetlink::Error> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut answers = handle.clone().request(request)?;
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(rtnetlink::Error::NetlinkError(error));
        }
    }
    Ok(())
}
