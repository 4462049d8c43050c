//! Midspan itself, started as an operator starts it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_path::{NodeKind, Path as NetworkPath, ProxySettings};
use midspan_policy::{AccessLink, Handshake, LegSettings, PolicyName};
use midspan_testbed::program::{Launch, LaunchError, Program};
use serde::Serialize;

use super::Forward;
use crate::error::at;
use crate::{LabError, receive_buffer};

#[derive(Serialize)]
struct Configuration<'a> {
    control: Control,
    relay: Relay,
    #[serde(skip_serializing_if = "Option::is_none")]
    interception: Option<Interception>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    profile: BTreeMap<&'static str, Profile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlay: Option<OverlayTable>,
    listener: Vec<Listener<'a>>,
}

#[derive(Serialize)]
struct Profile {
    clients: &'static str,
    #[serde(flatten)]
    access: AccessLink,
}

#[derive(Serialize)]
struct OverlayTable {
    name: String,
    members: &'static str,
    measure: bool,
    control_group: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    route: Vec<RouteTable>,
}

#[derive(Serialize)]
struct RouteTable {
    destinations: [&'static str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    through: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exits: Option<Vec<String>>,
}

#[derive(Serialize)]
struct MembersFile {
    node: Vec<NodeTable>,
}

#[derive(Serialize)]
struct NodeTable {
    name: String,
    address: String,
    security: &'static str,
    transit: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    serves: Vec<String>,
}

#[derive(Serialize)]
struct Control {
    socket: &'static str,
}

#[derive(Serialize)]
struct Relay {
    drain_timeout: &'static str,
}

#[derive(Serialize)]
struct Interception {
    opening_limit: u32,
    opening_limit_per_client: u32,
}

#[derive(Serialize)]
struct Listener<'a> {
    name: String,
    #[serde(flatten)]
    connections: Connections,
    policy: PolicyName,
    client_leg: &'a LegSettings,
    server_leg: &'a LegSettings,
}

#[derive(Serialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
enum Connections {
    Forward {
        listen: String,
        to: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        overlay: bool,
    },
    Hop {
        listen: String,
    },
    Transparent {
        interfaces: Vec<String>,
        handshake: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        control_group: Option<&'static str>,
    },
}

/// Gives each proxy of a path the settings of a Midspan that was installed and not changed: the
/// policy `auto`, and no value set by hand.
pub fn as_installed(path: &mut NetworkPath) {
    let policy = PolicyName::Auto;
    let leg = policy.leg(LegSettings::default());
    for node in &mut path.nodes {
        if let NodeKind::Proxy(proxy) = &mut node.kind {
            **proxy = ProxySettings {
                policy,
                client_leg: leg.clone(),
                server_leg: leg.clone(),
                ..ProxySettings::default()
            };
        }
    }
}

/// The connections that Midspan accepts or intercepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// Connections to its own addresses.
    Forwards(Vec<Forward>),
    /// Connections that arrive at these interfaces and have another node as destination.
    Interfaces(Vec<String>, Handshake),
    /// Sessions of an overlay.
    Overlay(OverlayNode),
}

/// Midspan as an overlay node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayNode {
    /// Its name.
    pub name: String,
    /// All nodes of the overlay.
    pub members: Vec<Member>,
    /// Where it accepts hops.
    pub hops: SocketAddr,
    /// The sessions that enter the overlay here.
    pub forwards: Vec<Forward>,
    /// The names of the nodes after this one for these sessions; `None`: Midspan chooses a route to one of
    /// the other nodes that serve anything.
    pub route: Option<Vec<String>>,
}

/// An overlay node as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it accepts hops.
    pub address: SocketAddr,
    /// Whether it carries sessions on.
    pub transit: bool,
    /// The servers to which it connects for the others.
    pub serves: Vec<IpAddr>,
}

/// The file of members, in the folder of the configuration.
const MEMBERS: &str = "members.toml";

/// Starts `midspan run` on `node`, from the executable of this process; returns when Midspan is
/// ready.
pub fn start(
    node: &NetworkNamespace,
    carried: &Carried,
    settings: &ProxySettings,
    folder: &Path,
) -> Result<Program, LabError> {
    let text = toml::to_string(&configuration(carried, &receive_buffer::of_proxy(settings)))
        .map_err(|error| failed(error.to_string()))?;
    if let Carried::Overlay(node) = carried {
        let members = toml::to_string(&members(node)).map_err(|error| failed(error.to_string()))?;
        let file = folder.join(MEMBERS);
        fs::write(&file, members).map_err(at(&file))?;
    }
    let this = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let launch = Launch::midspan(this)
        .configuration(&text)
        .folder(folder)
        .inside(node)
        .grace(Duration::from_secs(5));
    launch.ready().map_err(|error| match (error, carried) {
        (LaunchError::NotReady { log, .. }, Carried::Forwards(_) | Carried::Overlay(_)) => {
            failed(format!("it did not become ready: {log}"))
        }
        (LaunchError::NotReady { log, .. }, Carried::Interfaces(..)) => {
            LabError::NoInterception { reason: log }
        }
        (error, _) => error.into(),
    })
}

fn configuration<'a>(carried: &Carried, settings: &'a ProxySettings) -> Configuration<'a> {
    let (interception, connections) = match carried {
        Carried::Forwards(forwards) => {
            let connections = forwards.iter().map(|one| forward(one, false));
            (None, connections.collect())
        }
        Carried::Overlay(node) => {
            let hops = Connections::Hop {
                listen: node.hops.to_string(),
            };
            let entering = node.forwards.iter().map(|one| forward(one, true));
            (None, std::iter::once(hops).chain(entering).collect())
        }
        Carried::Interfaces(interfaces, handshake) => {
            let transparent = Connections::Transparent {
                interfaces: interfaces.clone(),
                handshake: match handshake {
                    Handshake::EndToEnd => "end-to-end",
                    Handshake::Early => "early",
                },
                // Otherwise connections that pass untouched would count as Midspan's.
                control_group: (settings.policy == PolicyName::Auto).then_some("0 %"),
            };
            // The lab's clients are harmless, and all their connections have to be intercepted.
            let interception = Interception {
                opening_limit: OPENING_LIMIT,
                opening_limit_per_client: OPENING_LIMIT,
            };
            (Some(interception), vec![transparent])
        }
    };
    Configuration {
        // The lab's Midspan uses nothing outside the lab's namespaces and folders.
        control: Control { socket: "none" },
        // When a run ends, its transfers are complete. Connections that are still open are of no
        // use, and must not keep rules in force for the next run.
        relay: Relay {
            drain_timeout: "0 s",
        },
        interception,
        profile: (settings.access.into_iter())
            .map(|access| {
                let clients = "all";
                ("clients", Profile { clients, access })
            })
            .collect(),
        overlay: match carried {
            Carried::Overlay(node) => Some(overlay(node)),
            Carried::Forwards(_) | Carried::Interfaces(..) => None,
        },
        listener: connections
            .into_iter()
            .enumerate()
            .map(|(index, connections)| Listener {
                name: format!("l{index}"),
                connections,
                policy: settings.policy,
                client_leg: &settings.client_leg,
                server_leg: &settings.server_leg,
            })
            .collect(),
    }
}

fn forward(forward: &Forward, overlay: bool) -> Connections {
    Connections::Forward {
        listen: forward.listen.to_string(),
        to: forward.to.to_string(),
        overlay,
    }
}

fn overlay(node: &OverlayNode) -> OverlayTable {
    let table = |through, exits| RouteTable {
        destinations: ["all"],
        through,
        exits,
    };
    let is_exit = |member: &&Member| !member.serves.is_empty() && member.name != node.name;
    let exits = node.members.iter().filter(is_exit);
    let exits: Vec<String> = exits.map(|exit| exit.name.clone()).collect();
    let route = match &node.route {
        Some(through) => Some(table(Some(through.clone()), None)),
        None => (!exits.is_empty()).then(|| table(None, Some(exits))),
    };
    OverlayTable {
        name: node.name.clone(),
        members: MEMBERS,
        measure: node.route.is_none(),
        // Otherwise sessions that leave here for a comparison would count as those of the overlay.
        control_group: "0 %",
        route: route.into_iter().collect(),
    }
}

fn members(node: &OverlayNode) -> MembersFile {
    let members = node.members.iter().map(|member| NodeTable {
        name: member.name.clone(),
        address: member.address.to_string(),
        // The lab's links are private.
        security: "network",
        transit: member.transit,
        serves: member.serves.iter().map(IpAddr::to_string).collect(),
    });
    MembersFile {
        node: members.collect(),
    }
}

/// The largest value that the configuration permits.
const OPENING_LIMIT: u32 = 4096;

fn failed(reason: String) -> LabError {
    LabError::Program {
        program: "midspan run".into(),
        reason,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(policy: PolicyName) -> String {
        let leg = policy.leg(LegSettings::default());
        let settings = ProxySettings {
            policy,
            client_leg: leg.clone(),
            server_leg: leg,
            ..ProxySettings::default()
        };
        let carried = Carried::Interfaces(vec!["link0".to_owned()], Handshake::EndToEnd);
        toml::to_string(&configuration(&carried, &settings)).unwrap()
    }

    /// The configuration that a user writes first; what the lab adds concerns the lab alone.
    #[test]
    fn an_installed_midspan_has_a_policy_and_no_value_set_by_hand() {
        let mut path = NetworkPath::load("geo").unwrap();
        as_installed(&mut path);
        let (_, settings) = path.proxies().next().unwrap();
        let carried = Carried::Interfaces(vec!["link0".to_owned()], Handshake::EndToEnd);
        let text = toml::to_string(&configuration(&carried, settings)).unwrap();
        for line in ["policy = \"auto\"", "handshake = \"end-to-end\""] {
            assert!(text.contains(line), "{line}: {text}");
        }
        for key in ["initial_window", "bbr", "send_buffer = 2"] {
            assert!(!text.contains(key), "{key}: {text}");
        }
    }

    #[test]
    fn a_policy_of_the_path_is_that_of_the_listener_and_nothing_passes_untouched() {
        let auto = text(PolicyName::Auto);
        assert!(auto.contains("policy = \"auto\""), "{auto}");
        assert!(auto.contains("control_group = \"0 %\""), "{auto}");
        let configured = text(PolicyName::Configured);
        assert!(configured.contains("policy = \"configured\""));
        assert!(!configured.contains("control_group"), "{configured}");
    }

    fn node(route: Option<&[&str]>) -> OverlayNode {
        let member = |name: &str, address: &str, transit, serves: &[&str]| Member {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            transit,
            serves: serves
                .iter()
                .map(|server| server.parse().unwrap())
                .collect(),
        };
        OverlayNode {
            name: "ams".to_owned(),
            members: vec![
                member("ams", "10.77.0.2:7704", false, &[]),
                member("fra", "10.77.0.3:7704", true, &[]),
                member("sin", "[fd77::4]:7704", false, &["10.77.0.5"]),
            ],
            hops: "10.77.0.2:7704".parse().unwrap(),
            forwards: vec![Forward {
                listen: "10.77.0.2:8000".parse().unwrap(),
                to: "10.77.0.5:80".parse().unwrap(),
            }],
            route: route.map(|route| route.iter().map(|name| (*name).to_owned()).collect()),
        }
    }

    #[test]
    fn an_overlay_node_has_its_members_a_listener_for_hops_and_its_route() {
        let settings = ProxySettings::default();
        let text = |route: Option<&[&str]>| {
            let carried = Carried::Overlay(node(route));
            toml::to_string(&configuration(&carried, &settings)).unwrap()
        };
        let chosen = text(None);
        for line in [
            "[overlay]",
            "members = \"members.toml\"",
            "measure = true",
            "exits = [\"sin\"]",
            "mode = \"hop\"",
            "listen = \"10.77.0.2:7704\"",
            "overlay = true",
        ] {
            assert!(chosen.contains(line), "{line}: {chosen}");
        }
        assert!(!chosen.contains("through"), "{chosen}");
        let fixed = text(Some(&["fra", "sin"]));
        for line in ["measure = false", "through = [\"fra\", \"sin\"]"] {
            assert!(fixed.contains(line), "{line}: {fixed}");
        }
        let members = toml::to_string(&members(&node(None))).unwrap();
        for line in [
            "address = \"[fd77::4]:7704\"",
            "security = \"network\"",
            "transit = true",
            "serves = [\"10.77.0.5\"]",
        ] {
            assert!(members.contains(line), "{line}: {members}");
        }
    }
}
