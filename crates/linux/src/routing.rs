//! The routes and routing rules of a network namespace (rtnetlink(7)): reading lists of them, and the
//! requests that change them.
//!
//! Reading needs no capability, changing `CAP_NET_ADMIN`.

use futures_util::StreamExt;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Parseable};
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Handle, IpVersion};
use rustix::io::Errno;

use crate::netlink::{Netlink, NetlinkError};
use crate::route_socket::List;

/// Which routes are read.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    /// All of them.
    All,
    /// Those of one table.
    Table(u32),
    /// Those of one routing protocol (`proto` of `ip-route(8)`), in whatever table.
    Protocol(u8),
}

/// Routes of both families, and no others: the kernel leaves out what is not asked for.
///
/// # Errors
/// The kernel does not list them.
pub fn routes(netlink: &Netlink, which: Which) -> Result<Vec<RouteMessage>, NetlinkError> {
    Ok(some_routes(netlink, which, usize::MAX)?.0)
}

/// The same with a limit for each family; also returns whether there were more.
///
/// # Errors
/// As [`routes`].
pub fn some_routes(
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
                Which::All | Which::Protocol(_) => None,
            },
            kind: 0,
            protocol: match which {
                Which::Protocol(protocol) => protocol,
                Which::All | Which::Table(_) => 0,
            },
        };
        let (found, is_cut) = netlink
            .lists()
            .collect(list, limit, |content| {
                // A route that cannot be parsed can be neither copied nor removed.
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
///
/// # Errors
/// As [`routes`].
pub fn rules(netlink: &Netlink, family: AddressFamily) -> Result<Vec<RuleMessage>, NetlinkError> {
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
pub fn usable_families() -> impl Iterator<Item = AddressFamily> + use<> {
    families().filter(|family| *family != AddressFamily::Inet6 || !crate::ipv6::is_switched_off())
}

/// The families that this kernel has.
pub fn families() -> impl Iterator<Item = AddressFamily> + use<> {
    let six = std::path::Path::new("/proc/self/net/if_inet6").exists();
    [AddressFamily::Inet]
        .into_iter()
        .chain(six.then_some(AddressFamily::Inet6))
}

/// What a removal did: `false` where the rule or route was gone already.
///
/// # Errors
/// Other errors are passed on.
pub fn unless_gone(result: Result<(), NetlinkError>) -> Result<bool, NetlinkError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.is(Errno::SRCH) || error.is(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the kernel's `rule` has all attributes of `wanted`; the kernel shows more.
#[must_use]
pub fn is_same_rule(rule: &RuleMessage, wanted: &RuleMessage) -> bool {
    wanted
        .attributes
        .iter()
        .all(|attribute| rule.attributes.contains(attribute))
}

/// The table that a route is in.
#[must_use]
pub fn table_of(route: &RouteMessage) -> u32 {
    let attribute = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    attribute.unwrap_or(u32::from(route.header.table))
}

/// Puts a route into a table.
pub fn set_table(route: &mut RouteMessage, table: u32) {
    route
        .attributes
        .retain(|attribute| !matches!(attribute, RouteAttribute::Table(_)));
    route.header.table = RouteHeader::RT_TABLE_UNSPEC;
    route.attributes.push(RouteAttribute::Table(table));
}

/// The name of a family, for messages.
#[must_use]
pub fn family_name(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::Inet6 => "IPv6",
        _ => "IPv4",
    }
}

/// The table to which a rule leads.
#[must_use]
pub fn rule_table(rule: &RuleMessage) -> u32 {
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

impl Netlink {
    /// Sends a request that adds or removes a rule or a route, with these flags (`NLM_F_…`), and
    /// waits for the answer. `action` is for the error's text.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn change(
        &self,
        action: impl FnOnce() -> String,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(), NetlinkError> {
        self.request(action, async |handle| send(handle, message, flags).await)
    }
}

async fn send(
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
