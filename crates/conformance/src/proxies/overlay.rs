//! Midspan on the gateway and on three further nodes of an overlay: a session passes three hops.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use midspan_testbed::program::new_node_key;
use socket2::Socket;

use super::midspan::{SIGNALS, head, leg, start, transparent};
use super::{Conditions, Proxy, Running, Unconnected, first_line, folder};
use crate::Error;
use crate::network::{Family, NODES, Network, Target};

/// The name of the node on the gateway.
const INGRESS: &str = "ams";
/// The port of all nodes for hops.
const PORT: u16 = 7704;

/// What the legs between the nodes are, and what the server sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Plain legs; the server sees the exit's address.
    Plain,
    /// Legs with TLS.
    Tls,
    /// Plain legs; the server sees the client's address and port.
    ClientSource,
    /// Plain legs; the client is answered before its route is called, and its first data leaves with the call.
    Early,
}

impl Kind {
    /// All kinds, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Tls, Self::ClientSource, Self::Early];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "midspan-hops",
            Self::Tls => "midspan-hops-tls",
            Self::ClientSource => "midspan-hops-client-source",
            Self::Early => "midspan-hops-early",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Plain => "transparent listener, three hops",
            Self::Tls => "transparent listener, three hops with TLS",
            Self::ClientSource => "transparent listener, three hops, source = \"client\"",
            Self::Early => "transparent listener, early handshake, three hops",
        }
    }
}

/// Four builds of Midspan in a row.
pub struct OverlayProxies {
    program: PathBuf,
    kind: Kind,
}

impl OverlayProxies {
    /// Nodes with the executable `program`.
    pub fn new(program: &Path, kind: Kind) -> Self {
        Self {
            program: program.to_owned(),
            kind,
        }
    }

    /// The line of the list of members that protects the connections of a node.
    fn protection(&self, name: &str, folder: &Path) -> Result<String, Error> {
        match self.kind {
            Kind::Tls => Ok(new_node_key(&self.program, &folder.join(name))?),
            Kind::Plain | Kind::ClientSource | Kind::Early => {
                Ok("security = \"network\"".to_owned())
            }
        }
    }

    /// The list of members.
    fn members(&self, folder: &Path) -> Result<String, Error> {
        let mut text = format!(
            "[[node]]\nname = \"{INGRESS}\"\nfrom = [\"{}\"]\n{}\n",
            Network::ingress_address(),
            self.protection(INGRESS, folder)?
        );
        let servers = [Family::V4, Family::V6].map(Network::servers);
        for (name, index) in NODES.into_iter().zip(0..) {
            let (address, from) = Network::node_addresses(index);
            let duty = match usize::from(index) + 1 == NODES.len() {
                true => format!("serves = [\"{}\", \"{}\"]", servers[0], servers[1]),
                false => format!("from = [\"{from}\"]\ntransit = true"),
            };
            let _ = write!(
                text,
                "[[node]]\nname = \"{name}\"\naddress = \"{address}:{PORT}\"\n{duty}\n{}\n",
                self.protection(name, folder)?
            );
        }
        Ok(text)
    }

    /// The configuration of a node, except its listeners.
    fn node(&self, name: &str, folder: &Path, conditions: Conditions) -> String {
        let key = match self.kind {
            Kind::Tls => format!("private_key = \"{}\"\n", folder.join(name).display()),
            Kind::Plain | Kind::ClientSource | Kind::Early => String::new(),
        };
        format!(
            "{}[overlay]\nname = \"{name}\"\nmembers = \"{}\"\n{key}",
            head(conditions),
            members_file(folder).display()
        )
    }

    /// The listener of a node behind the gateway.
    fn hops(&self, name: &str, index: u8, conditions: Conditions) -> String {
        let (address, _) = Network::node_addresses(index);
        let source = match self.kind {
            Kind::ClientSource if Some(&name) == NODES.last() => {
                let clients = [Family::V4, Family::V6].map(Network::client_address);
                format!(
                    "source = \"client\"\nclients = [\"{}\", \"{}\"]\n",
                    clients[0], clients[1]
                )
            }
            _ => String::new(),
        };
        format!(
            "[[listener]]\nname = \"hops\"\nmode = \"hop\"\nlisten = \"{address}:{PORT}\"\n{source}{}",
            leg(conditions)
        )
    }
}

impl Proxy for OverlayProxies {
    fn name(&self) -> String {
        self.kind.name().to_owned()
    }

    fn describe(&self) -> Result<String, String> {
        let version = first_line(Command::new(&self.program).arg("--version"));
        let version = version.ok_or_else(|| format!("{} does not run", self.program.display()))?;
        Ok(format!("{version}, {}", self.kind.description()))
    }

    fn answers_early(&self) -> bool {
        self.kind == Kind::Early
    }

    fn is_midspan(&self) -> bool {
        true
    }

    fn is_overlay(&self) -> bool {
        true
    }

    fn connect(&self, socket: &Socket, family: Family, target: Target) -> Result<(), Unconnected> {
        Ok(socket.connect(&Network::server_address(family, target).into())?)
    }

    fn start(&self, network: &Network, conditions: Conditions) -> Result<Option<Running>, Error> {
        let folder = folder()?;
        let file = members_file(folder.path());
        std::fs::write(&file, self.members(folder.path())?).map_err(Error::file(&file))?;
        let servers = [Family::V4, Family::V6].map(Network::servers);
        let through = NODES.map(|name| format!("\"{name}\"")).join(", ");
        let handshake = match self.kind {
            Kind::Early => "early",
            Kind::Plain | Kind::Tls | Kind::ClientSource => "end-to-end",
        };
        let ingress = format!(
            "[[overlay.route]]\ndestinations = [\"{}\", \"{}\"]\nthrough = [{through}]\n{}",
            servers[0],
            servers[1],
            transparent(handshake, &format!("overlay = true\n{}", leg(conditions)))
        );
        let mut listeners = vec![(INGRESS, ingress)];
        for (name, index) in NODES.into_iter().zip(0..) {
            listeners.push((name, self.hops(name, index, conditions)));
        }
        let mut programs = Vec::new();
        for (host, (name, listeners)) in network.proxy_hosts().zip(listeners) {
            let text = self.node(name, folder.path(), conditions) + &listeners;
            let running = start(&self.program, name, host, conditions, &text)?;
            programs.extend(running.programs);
        }
        Ok(Some(Running {
            programs,
            signals: SIGNALS,
            _folder: Some(folder),
        }))
    }
}

fn members_file(folder: &Path) -> PathBuf {
    folder.join("members.toml")
}
