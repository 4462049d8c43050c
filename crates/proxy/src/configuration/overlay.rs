//! `[overlay]`: this node and its routes.

use std::net::IpAddr;
use std::path::PathBuf;

use midspan_document::{Located, Source, Spanned};
use midspan_explicit::HostName;
use midspan_policy::overlay::{
    ChoiceSettings, MOST_HOPS, NodeKind, NodeName, OperatorRoute, Overlay, Route, RouteBy,
    RouteDestination, Uplink,
};
use midspan_units::{ByteSize, Probability};
use serde::Deserialize;

use super::members::{self, LIST_LIMIT, name};
use super::overlay_keys;
use super::transparent::prefix;

/// `[overlay]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverlayTable {
    name: Spanned<String>,
    members: Spanned<String>,
    #[serde(default)]
    private_key: Option<Spanned<String>>,
    #[serde(default)]
    choose: bool,
    #[serde(default)]
    measure: Option<bool>,
    #[serde(default)]
    warm_connections: Option<bool>,
    #[serde(default)]
    first_data: Option<bool>,
    #[serde(default)]
    transfer: Option<Spanned<ByteSize>>,
    #[serde(default)]
    explore: Option<Spanned<Probability>>,
    #[serde(default)]
    control_group: Option<Spanned<Probability>>,
    #[serde(default)]
    uplinks: Vec<UplinkKey>,
    #[serde(default)]
    route: Vec<RouteTable>,
}

/// An entry of `uplinks`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UplinkKey {
    name: Spanned<String>,
    from: Spanned<IpAddr>,
}

/// `[[overlay.route]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteTable {
    destinations: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    through: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    exits: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    or_here: Option<Spanned<bool>>,
}

/// Most routes. The list is part of each listener's settings.
const MOST_ROUTES: usize = 64;
/// Most uplinks of this node.
const MOST_UPLINKS: usize = 8;
/// Most bytes of the whole overlay in a message between Midspan's processes, which has at most 64 KiB.
const SIZE_LIMIT: usize = 40 << 10;

impl OverlayTable {
    /// The file of members; `None` if this text is not from a file.
    pub(super) fn members_file(&self, source: &Source) -> Option<PathBuf> {
        source.path_of(self.members.get_ref())
    }

    /// The overlay. The list of members is another file, so this text has to be from a file.
    pub(super) fn checked(self, source: &Source) -> Result<Overlay, Located> {
        let own = name(source, &self.name)?;
        let place = self.members.span();
        let members = source
            .load_other(self.members.get_ref(), midspan_document::SIZE_LIMIT)
            .map_err(|error| Located::new(source, place.clone(), error))?;
        let nodes = members::read(&members)?;
        let overlay = Overlay {
            choice: ChoiceSettings {
                for_all: self.choose,
                transfer: self.transfer(source)?,
                explore: share(source, self.explore.as_ref(), |it| it.explore)?,
                control: share(source, self.control_group.as_ref(), |it| it.control)?,
                ..ChoiceSettings::default()
            },
            warm: self.warm_connections.unwrap_or(true),
            first_data: self.first_data.unwrap_or(true),
            uplinks: uplinks(source, &self.uplinks)?,
            ..Overlay::new(own, nodes)
        };
        if overlay.own_node().is_none() {
            let message = format!("{} has no node \"{}\"", members.name(), overlay.own);
            let names = overlay.nodes.iter().map(|node| node.name.as_str());
            return Err(Located::new(source, self.name.span(), message)
                .with_nearest(self.name.get_ref(), names));
        }
        let secret = overlay_keys::secret(source, self.private_key.as_ref(), &self.name, &overlay)?;
        let overlay = Overlay { secret, ..overlay };
        overlay_keys::check_senders(source, place.clone(), &overlay)?;
        if let Some(route) = self.route.get(MOST_ROUTES) {
            let message = format!("more than {MOST_ROUTES} routes");
            return Err(Located::new(source, route.destinations.span(), message));
        }
        let routes = self.route.into_iter();
        let routes = routes.map(|route| route.checked(source, &overlay));
        let mut overlay = Overlay {
            routes: routes.collect::<Result<_, _>>()?,
            ..overlay
        };
        overlay.choice.exchange = self.measure.unwrap_or(overlay.has_choice());
        if let Some(first) = self.uplinks.first().filter(|_| !overlay.has_choice()) {
            let message = "uplinks are chosen with routes: this node has no choice of routes";
            return Err(Located::new(source, first.name.span(), message)
                .with_help("set choose = true, or write a route with `exits`"));
        }
        let size = serde_json::to_vec(&overlay).map_or(usize::MAX, |bytes| bytes.len());
        if size > SIZE_LIMIT {
            let message = "the members and routes are too many for one message between processes";
            return Err(Located::new(source, place, message)
                .with_help("combine prefixes of `serves` and `destinations`"));
        }
        Ok(overlay)
    }
}

impl OverlayTable {
    fn transfer(&self, source: &Source) -> Result<ByteSize, Located> {
        let Some(size) = &self.transfer else {
            return Ok(ChoiceSettings::default().transfer);
        };
        let is_size = (1_000..=1_000_000_000).contains(&size.get_ref().bytes());
        is_size
            .then_some(*size.get_ref())
            .ok_or_else(|| Located::new(source, size.span(), "`transfer` is between 1 KB and 1 GB"))
    }
}

/// The uplinks of this node.
fn uplinks(source: &Source, keys: &[UplinkKey]) -> Result<Vec<Uplink>, Located> {
    let mut uplinks: Vec<Uplink> = Vec::with_capacity(keys.len().min(MOST_UPLINKS));
    for key in keys {
        let (name, from) = (name(source, &key.name)?, *key.from.get_ref());
        let wrong = |message: String| Err(Located::new(source, key.name.span(), message));
        if uplinks.len() >= MOST_UPLINKS {
            return wrong(format!("more than {MOST_UPLINKS} uplinks"));
        }
        if uplinks
            .iter()
            .any(|other| other.name == name || other.from == from)
        {
            return wrong(format!(
                "uplink \"{name}\" has the name or the address of another one"
            ));
        }
        if from.is_unspecified() || from.is_multicast() || from.is_loopback() {
            return wrong(format!("{from} is no address of this machine on a link"));
        }
        uplinks.push(Uplink { name, from });
    }
    Ok(uplinks)
}

/// A share of sessions; at most half of them.
fn share(
    source: &Source,
    value: Option<&Spanned<Probability>>,
    default: fn(&ChoiceSettings) -> Probability,
) -> Result<Probability, Located> {
    let Some(value) = value else {
        return Ok(default(&ChoiceSettings::default()));
    };
    match value.get_ref().as_f64() <= 0.5 {
        true => Ok(*value.get_ref()),
        false => Err(Located::new(
            source,
            value.span(),
            "this share is at most 50 %",
        )),
    }
}

impl RouteTable {
    fn checked(self, source: &Source, overlay: &Overlay) -> Result<OperatorRoute, Located> {
        let by = match (self.through, self.exits) {
            (Some(through), None) => {
                if let Some(or_here) = &self.or_here {
                    let message = "`or_here` belongs to `exits`";
                    return Err(Located::new(source, or_here.span(), message));
                }
                RouteBy::Nodes(through_nodes(source, through, overlay)?)
            }
            (None, Some(exits)) => RouteBy::Exits {
                exits: exit_nodes(source, exits, overlay)?,
                or_here: self.or_here.is_some_and(Spanned::into_inner),
            },
            (None, None) => {
                let message = "a route has `through`, the nodes, or `exits` to choose from";
                return Err(Located::new(source, self.destinations.span(), message));
            }
            (Some(_), Some(exits)) => {
                let message = "a route has `through` or `exits`, not both";
                return Err(Located::new(source, exits.span(), message));
            }
        };
        let destinations = self.destinations.span();
        let list = self.destinations.into_inner();
        if list.is_empty() || list.len() > LIST_LIMIT {
            let message = format!("a route has 1 to {LIST_LIMIT} destinations");
            return Err(Located::new(source, destinations, message));
        }
        let list = list.into_iter();
        Ok(OperatorRoute {
            destinations: list
                .map(|text| destination(source, &text))
                .collect::<Result<_, _>>()?,
            by,
        })
    }
}

/// The nodes of a fixed route.
fn through_nodes(
    source: &Source,
    through: Spanned<Vec<Spanned<String>>>,
    overlay: &Overlay,
) -> Result<Vec<NodeName>, Located> {
    let place = through.span();
    let count = through.get_ref().len();
    let mut nodes = Vec::new();
    for (index, text) in through.into_inner().into_iter().enumerate() {
        nodes.push(node_of_route(source, &text, overlay, index + 1 == count)?);
    }
    if !nodes.is_empty() && Route::new(nodes.clone()).is_none() {
        let message = format!("a route has at most {MOST_HOPS} nodes, each once");
        return Err(Located::new(source, place, message));
    }
    Ok(nodes)
}

/// The exits of a route that is chosen.
fn exit_nodes(
    source: &Source,
    exits: Spanned<Vec<Spanned<String>>>,
    overlay: &Overlay,
) -> Result<Vec<NodeName>, Located> {
    let place = exits.span();
    let mut nodes = Vec::new();
    for text in exits.into_inner() {
        let node = node_of_route(source, &text, overlay, true)?;
        if nodes.contains(&node) {
            let message = format!("exit \"{node}\" is there twice");
            return Err(Located::new(source, text.span(), message));
        }
        nodes.push(node);
    }
    match nodes.is_empty() {
        true => Err(Located::new(source, place, "`exits` lists nodes")),
        false => Ok(nodes),
    }
}

/// A node of a route, which is its exit if it is the last one.
fn node_of_route(
    source: &Source,
    text: &Spanned<String>,
    overlay: &Overlay,
    is_exit: bool,
) -> Result<NodeName, Located> {
    let found = name(source, text)?;
    let message = match overlay.node(&found) {
        _ if found == overlay.own => "a route begins after this node".to_owned(),
        None => format!("there is no node \"{found}\""),
        Some(node) if node.address.is_none() => {
            format!("node \"{found}\" has no address, so it accepts no hops")
        }
        Some(node) if !is_exit && !node.transit => {
            format!("node \"{found}\" is no transit node")
        }
        Some(node) if is_exit && node.kind == NodeKind::Midspan && node.serves.is_empty() => {
            format!("node \"{found}\" serves nothing, so it is no exit")
        }
        Some(_) => return Ok(found),
    };
    let error = Located::new(source, text.span(), message);
    Err(match overlay.node(&found) {
        None => {
            let names = overlay.nodes.iter().map(|node| node.name.as_str());
            error.with_nearest(found.as_str(), names)
        }
        Some(_) => error,
    })
}

fn destination(source: &Source, text: &Spanned<String>) -> Result<RouteDestination, Located> {
    let destination = match text.get_ref().as_str() {
        "all" => Some(RouteDestination::All),
        under if under.starts_with("*.") => {
            let name = HostName::new(&under[2..]).ok();
            name.map(|name| RouteDestination::Under(name.as_str().to_owned()))
        }
        text => match prefix(text) {
            Some(network) => Some(RouteDestination::Network(network.into())),
            None => {
                let name = HostName::new(text).ok();
                name.map(|name| RouteDestination::Name(name.as_str().to_owned()))
            }
        },
    };
    destination.ok_or_else(|| {
        let message = format!(
            "\"{}\" is no destination: write a prefix as in \"203.0.113.0/24\", a name as in \
             \"www.example.org\" or \"*.example.org\", or \"all\"",
            text.get_ref()
        );
        Located::new(source, text.span(), message)
    })
}
