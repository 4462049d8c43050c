//! The list of members of an overlay: the file that `[overlay]` names.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use midspan_document::{Located, Source, Spanned};
use midspan_policy::overlay::{Node, NodeKind, NodeName};
use serde::Deserialize;

use super::explicit::Networks;
use super::overlay_keys;
use super::transparent::Ports;
use super::values::Address;

/// Most nodes. The list is part of each listener's settings.
pub(crate) const MOST_NODES: usize = 64;
/// Most elements of one list of a node or a route.
pub(super) const LIST_LIMIT: usize = 64;

/// The file of members.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MembersFile {
    node: Spanned<Vec<NodeTable>>,
}

/// `[[node]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeTable {
    name: Spanned<String>,
    #[serde(default)]
    security: Security,
    #[serde(default)]
    key: Option<Spanned<String>>,
    #[serde(default)]
    address: Option<Spanned<Address>>,
    #[serde(default)]
    from: Option<Spanned<Networks>>,
    #[serde(default)]
    kind: NodeKind,
    #[serde(default)]
    transit: Option<Spanned<bool>>,
    #[serde(default)]
    serves: Option<Spanned<Networks>>,
    #[serde(default)]
    ports: Option<Spanned<Vec<Ports>>>,
    #[serde(default)]
    allow_public: bool,
}

/// How the connections to a node are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Security {
    /// By TLS: each of two nodes has the key that the file of members has.
    #[default]
    Tls,
    /// By the network under them: the node is recognized by its address, and nothing is encrypted.
    Network,
}

/// Whether a text is a list of members.
///
/// # Errors
/// The first fault.
pub(crate) fn check(source: &Source) -> Result<(), Located> {
    read(source).map(|_| ())
}

/// Whether a text has the keys of one `[[node]]` without its name, and nothing else.
///
/// # Errors
/// The first fault.
pub(crate) fn check_entry(name: &NodeName, entry: &str) -> Result<(), Located> {
    // The name comes last, so that an error has the line of the entry.
    let text = format!("{entry}\nname = \"{name}\"");
    let source = Source::new(format!("entry {name}"), text);
    let table: NodeTable = midspan_document::read(&source)?;
    table.checked(&source).map(|_| ())
}

/// The nodes of a list.
pub(super) fn read(source: &Source) -> Result<Vec<Node>, Located> {
    let file: MembersFile = midspan_document::read(source)?;
    let place = file.node.span();
    let tables = file.node.into_inner();
    if tables.is_empty() || tables.len() > MOST_NODES {
        let message = format!("an overlay has 1 to {MOST_NODES} nodes");
        return Err(Located::new(source, place, message));
    }
    let mut nodes: Vec<Node> = Vec::with_capacity(tables.len());
    for table in tables {
        let place = table.name.span();
        let node = table.checked(source)?;
        if nodes.iter().any(|other| other.name == node.name) {
            let message = format!("there are two nodes \"{}\"", node.name);
            return Err(Located::new(source, place, message));
        }
        nodes.push(node);
    }
    Ok(nodes)
}

impl NodeTable {
    fn checked(self, source: &Source) -> Result<Node, Located> {
        let node = name(source, &self.name)?;
        let is_plain = self.security == Security::Network;
        let key = overlay_keys::of_node(source, (&node, &self.name), self.key.as_ref(), is_plain)?;
        if let (NodeKind::Connect, Some(_)) = (self.kind, key) {
            let message = "a node of kind \"connect\" has no key: write security = \"network\"";
            return Err(Located::new(source, self.name.span(), message));
        }
        let address = self.address.as_ref().map(|it| (it.get_ref().0, it.span()));
        if let Some((address, place)) = &address {
            let may_be_public = self.allow_public || key.is_some();
            check_address(source, *address, place.clone(), may_be_public)?;
        }
        let list = |key: &str, list: Option<Spanned<Networks>>| match list {
            Some(list) if list.get_ref().0.len() > LIST_LIMIT => {
                let message = format!("{key} has more than {LIST_LIMIT} entries");
                Err(Located::new(source, list.span(), message))
            }
            Some(list) => Ok((Some(list.span()), list.into_inner().0)),
            None => Ok((None, Vec::new())),
        };
        let (from_place, from) = list("from", self.from)?;
        if let Some(place) = from_place.clone().filter(|_| from.is_empty()) {
            let message = "`from` lists addresses: anybody could send hops otherwise";
            return Err(Located::new(source, place, message));
        }
        let (serves_place, serves) = list("serves", self.serves)?;
        // "all" is no list here, so that a rule for IPv4 is not one for IPv6 by mistake.
        if let Some(place) = serves_place.filter(|_| serves.is_empty()) {
            let message = "`serves` lists prefixes";
            return Err(Located::new(source, place, message)
                .with_help("for all servers: serves = [\"0.0.0.0/0\", \"::/0\"]"));
        }
        if let (NodeKind::Connect, Some(transit)) = (self.kind, &self.transit)
            && *transit.get_ref()
        {
            let message = "a node of kind \"connect\" is no transit node";
            return Err(Located::new(source, transit.span(), message));
        }
        if address.is_none() && (self.kind == NodeKind::Connect || from_place.is_none()) {
            let message = format!("node \"{node}\" has no address");
            return Err(Located::new(source, self.name.span(), message).with_help(
                "write address = \"10.0.0.1:7704\"; a node that only sends hops needs `from`",
            ));
        }
        let ports = self.ports.map(Spanned::into_inner).unwrap_or_default();
        Ok(Node {
            name: node,
            address: address.map(|(address, _)| address),
            from,
            kind: self.kind,
            transit: self.transit.is_some_and(Spanned::into_inner),
            serves,
            key,
            ports: (ports.into_iter().take(LIST_LIMIT))
                .map(|ports| (*ports.0.start(), *ports.0.end()))
                .collect(),
        })
    }
}

fn check_address(
    source: &Source,
    address: SocketAddr,
    place: Range<usize>,
    allow_public: bool,
) -> Result<(), Located> {
    let ip = address.ip();
    if address.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
        let message = format!("{address} is not the address of one node");
        return Err(Located::new(source, place, message));
    }
    if is_public(ip) && !allow_public {
        let message = format!(
            "{ip} is a public address: with security = \"network\", everybody on the path could read \
             and change the sessions, and send hops in this node's name"
        );
        return Err(Located::new(source, place, message).with_help(
            "give the node a key; use the address of a private link or a VPN; or set allow_public = true",
        ));
    }
    Ok(())
}

/// Whether an address is reachable from the Internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(four) => {
            // 100.64.0.0/10: shared by carriers (RFC 6598).
            let is_shared = four.octets()[0] == 100 && four.octets()[1] & 0xc0 == 64;
            !(four.is_private() || four.is_loopback() || four.is_link_local() || is_shared)
        }
        IpAddr::V6(six) => {
            !(six.is_loopback() || six.is_unique_local() || six.is_unicast_link_local())
        }
    }
}

/// The name of a node or an uplink.
pub(super) fn name(source: &Source, text: &Spanned<String>) -> Result<NodeName, Located> {
    let name = text.get_ref().parse();
    name.map_err(|error| Located::new(source, text.span(), error))
}
