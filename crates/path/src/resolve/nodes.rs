//! Hosts, routers and proxies.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use midspan_document::{Located, Spanned};
use midspan_policy::overlay::NodeName;
use midspan_policy::{Buffer, LegSettings};
use midspan_units::ByteSize;

use super::Check;
use super::limits::NODE_LIMIT;
use crate::Given;
use crate::file::{File, HostTable, ProxyTable};
use crate::{
    ALL_ROUTES, HERE, HostSettings, Node, NodeIndex, NodeKind, OverlayRole, ProxySettings,
};

/// Initial windows in segments.
const INITIAL_WINDOW: RangeInclusive<u32> = 1..=1000;
/// Sizes of socket buffers, in bytes: the values that the kernel's settings allow.
const BUFFER: RangeInclusive<ByteSize> = ByteSize::from_bytes(4096)..=ByteSize::from_bytes(1 << 30);

/// A node and the place of its name.
pub struct Placed {
    pub node: Node,
    pub name: Spanned<String>,
}

/// The nodes in the order of the file, whatever their kind.
pub fn resolve(check: &Check<'_>, file: &File) -> Result<Vec<Placed>, Located> {
    let mut nodes: Vec<Placed> = Vec::new();
    for table in &file.host {
        let kind = NodeKind::Host(host(check, table)?);
        nodes.push(placed(check, &table.name, kind)?);
    }
    for table in &file.router {
        nodes.push(placed(check, &table.name, NodeKind::Router)?);
    }
    for table in &file.proxy {
        let kind = NodeKind::Proxy(Box::new(proxy(check, table)?));
        nodes.push(placed(check, &table.name, kind)?);
    }
    nodes.sort_by_key(|node| node.name.span().start);
    if let Some(first_too_many) = nodes.get(NODE_LIMIT) {
        let message = format!("too many nodes: a path has at most {NODE_LIMIT}");
        return Err(check.error(&first_too_many.name, message));
    }
    if nodes.is_empty() {
        let message = "a path needs hosts: write `[[host]]` with a `name` for each";
        return Err(Located::new(check.source, 0..0, message));
    }
    Ok(nodes)
}

/// The index of each name in the list of nodes.
pub struct NodeNames(BTreeMap<String, NodeIndex>);

impl NodeNames {
    /// Refuses a name that occurs twice.
    pub fn new(check: &Check<'_>, nodes: &[Placed]) -> Result<Self, Located> {
        let mut names = BTreeMap::new();
        for (index, placed) in nodes.iter().enumerate() {
            if names
                .insert(placed.node.name.clone(), NodeIndex(index))
                .is_some()
            {
                return Err(check.taken(&placed.name, "node"));
            }
        }
        Ok(Self(names))
    }

    /// The node with the given name.
    pub fn find(&self, check: &Check<'_>, given: &Spanned<String>) -> Result<NodeIndex, Located> {
        let name = given.get_ref();
        self.0.get(name).copied().ok_or_else(|| {
            check
                .error(given, format_args!("no node is called `{name}`"))
                .with_nearest(name, self.0.keys().map(String::as_str))
        })
    }
}

fn placed(check: &Check<'_>, name: &Spanned<String>, kind: NodeKind) -> Result<Placed, Located> {
    Ok(Placed {
        node: Node {
            name: check.name(name)?.to_owned(),
            kind,
        },
        name: name.clone(),
    })
}

fn host(check: &Check<'_>, table: &HostTable) -> Result<HostSettings, Located> {
    let buffer = |given: &Given<ByteSize>| {
        given
            .as_ref()
            .map(|given| check.within("a buffer", given, BUFFER))
            .transpose()
    };
    Ok(HostSettings {
        congestion_control: table
            .congestion_control
            .as_ref()
            .map(|given| check.congestion_control(given))
            .transpose()?,
        initial_window: table
            .initial_window
            .as_ref()
            .map(|given| check.within("an initial window", given, INITIAL_WINDOW))
            .transpose()?,
        receive_buffer: buffer(&table.receive_buffer)?,
        send_buffer: buffer(&table.send_buffer)?,
        without_sack: table.sack.as_ref().is_some_and(|given| !given.get_ref()),
        window: table
            .window
            .as_ref()
            .map(|given| *given.get_ref())
            .unwrap_or_default(),
        acknowledge: table
            .acknowledge
            .as_ref()
            .map(|given| *given.get_ref())
            .unwrap_or_default(),
    })
}

fn proxy(check: &Check<'_>, table: &ProxyTable) -> Result<ProxySettings, Located> {
    if let Some(leg) = &table.server_leg
        && leg.get_ref().sending_ahead.is_some()
    {
        let place = check.source.key_span(leg.span(), "sending_ahead");
        let message = "`sending_ahead` is for client_leg only";
        return Err(Located::new(check.source, place, message));
    }
    if let Some(leg) = &table.client_leg
        && leg.get_ref().receive_window.is_some()
    {
        let place = check.source.key_span(leg.span(), "receive_window");
        let message = "`receive_window` is for server_leg only";
        return Err(Located::new(check.source, place, message));
    }
    Ok(ProxySettings {
        policy: table.policy,
        client_leg: table.policy.leg(leg(check, &table.client_leg)?),
        server_leg: table.policy.leg(leg(check, &table.server_leg)?),
        access: table.access.as_ref().map(|given| *given.get_ref()),
        oversized_start: table.oversized_start,
        overlay: overlay(check, table)?,
    })
}

/// The names of overlay nodes are part of requests between proxies.
fn overlay(check: &Check<'_>, table: &ProxyTable) -> Result<Option<OverlayRole>, Located> {
    let Some(role) = &table.overlay else {
        return Ok(None);
    };
    let name = table.name.get_ref();
    if let Err(error) = name.parse::<NodeName>() {
        let message = format!("`{name}` is no name of an overlay node: {error}");
        return Err(check.error(&table.name, message));
    }
    if [HERE, ALL_ROUTES].contains(&name.as_str()) {
        let message =
            format!("`{name}` is no name of an overlay node: it is a word of overlay routes");
        return Err(check.error(&table.name, message));
    }
    Ok(Some(*role.get_ref()))
}

/// The type of a leg's settings is shared with the proxy and keeps no places.
fn leg(check: &Check<'_>, given: &Given<LegSettings>) -> Result<LegSettings, Located> {
    let Some(given) = given else {
        return Ok(LegSettings::default());
    };
    let table = given.span();
    let settings = given.get_ref();
    if let Some(name) = &settings.congestion_control {
        in_table(check, &table, "congestion_control", |place| {
            check.congestion_control(&Spanned::new(place, name.clone()))
        })?;
    }
    if let Some(window) = settings.initial_window {
        in_table(check, &table, "initial_window", |place| {
            check.within(
                "an initial window",
                &Spanned::new(place, window),
                INITIAL_WINDOW,
            )
        })?;
    }
    let buffers = [
        ("send_buffer", settings.send_buffer),
        ("receive_buffer", settings.receive_buffer),
    ];
    for (key, buffer) in buffers {
        if let Buffer::Fixed(size) = buffer {
            in_table(check, &table, key, |place| {
                check.within("a buffer", &Spanned::new(place, size), BUFFER)
            })?;
        }
    }
    if let Err(message) = settings.check_receive_window() {
        let place = check.source.key_span(table, "receive_window");
        return Err(Located::new(check.source, place, message));
    }
    Ok(settings.clone())
}

/// Checks a value with the place of its table. The value's own place is looked up only for an
/// error, because that parses the whole text again.
fn in_table<T>(
    check: &Check<'_>,
    table: &Range<usize>,
    key: &str,
    rule: impl Fn(Range<usize>) -> Result<T, Located>,
) -> Result<T, Located> {
    rule(table.clone()).or_else(|_| rule(check.source.value_span(table.clone(), key)))
}
