//! The network of a path with its servers and proxies.

mod overlay;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use midspan_linux::netlink::RouteMetrics;
use midspan_path::{Flow, NodeIndex, Path, ProxySettings, Workload};
use midspan_policy::{Handshake, LegSettings};
use midspan_units::ByteSize;
use tempfile::TempDir;

use crate::error::at;
use crate::proxies::midspan::Carried;
use crate::proxies::thin::{self, ThinOptions};
use crate::proxies::{Forward, Running, haproxy, midspan, pepsal};
use crate::topology::{Topology, interface};
use crate::workload::web_server::{Files, WebServer};
use crate::workload::{iperf3, web_server};
use crate::{Case, CaseKind, LabError};

/// The size of the file for small downloads before a run in which overlay nodes choose routes.
pub(crate) const SMALL: ByteSize = ByteSize::from_bytes(1_000);

/// The network with its servers.
pub(crate) struct Network<'a> {
    pub path: &'a Path,
    pub topology: Topology,
    pub files: Files,
    // Dropped in this order: servers end before their files are removed.
    _servers: Vec<(WebServer, Option<iperf3::BulkServer>)>,
    pub folder: TempDir,
}

impl<'a> Network<'a> {
    /// The network of `path`, for those of `cases` that have this path.
    pub fn build(path: &'a Path, cases: &[Case]) -> Result<Self, LabError> {
        let folder = tempfile::Builder::new()
            .prefix("midspan-lab-")
            .tempdir()
            .map_err(at(&std::env::temp_dir()))?;
        let topology = Topology::build(path)?;
        let files = Files::write(folder.path().join("files"), &sizes(path, cases))?;
        let bulk = path.flows.iter().any(|flow| {
            matches!(
                flow.workload,
                Workload::BulkDownload { .. } | Workload::BulkUpload { .. }
            )
        });
        let hosts: BTreeSet<NodeIndex> = path.flows.iter().map(|flow| flow.to).collect();
        let mut servers = Vec::new();
        for host in hosts {
            let node = topology.node(host);
            let address = topology.address(host);
            let own = folder.path().join(format!("server-{}", host.0));
            let web = WebServer::start(node, address, &files, &own)?;
            let bulk = bulk
                .then(|| {
                    iperf3::BulkServer::start(node, SocketAddr::new(address, iperf3::PORT), &own)
                })
                .transpose()?;
            servers.push((web, bulk));
        }
        Ok(Self {
            path,
            topology,
            files,
            _servers: servers,
            folder,
        })
    }

    /// The folder of the servers at a flow's end.
    pub fn server_folder(&self, flow: &Flow) -> std::path::PathBuf {
        self.folder.path().join(format!("server-{}", flow.to.0))
    }

    /// The address to which a flow's client connects: the server's or, in a forward case, that of the first
    /// proxy that carries the flow.
    pub fn target(&self, case: &Case, flow: &Flow, service: Service) -> SocketAddr {
        let first = case.kind.carriers(self.path, flow).first().copied();
        match first {
            Some(proxy) if case.kind.is_forward() => {
                SocketAddr::new(self.topology.address(proxy), listen_port(flow.to, service))
            }
            _ => SocketAddr::new(self.topology.address(flow.to), service.port()),
        }
    }

    /// The forwards of one proxy: for each flow through this proxy, to the next proxy or to the
    /// server.
    fn forwards(&self, proxy: NodeIndex) -> Vec<Forward> {
        let mut forwards: Vec<Forward> = Vec::new();
        for flow in &self.path.flows {
            let proxies = self.path.proxies_of(flow);
            let Some(place) = proxies.iter().position(|node| *node == proxy) else {
                continue;
            };
            for service in [Service::Web, Service::Bulk] {
                let to = match proxies.get(place + 1) {
                    Some(next) => {
                        SocketAddr::new(self.topology.address(*next), listen_port(flow.to, service))
                    }
                    None => SocketAddr::new(self.topology.address(flow.to), service.port()),
                };
                let listen =
                    SocketAddr::new(self.topology.address(proxy), listen_port(flow.to, service));
                let forward = Forward { listen, to };
                if !forwards.contains(&forward) {
                    forwards.push(forward);
                }
            }
        }
        forwards
    }

    /// The interfaces of a proxy at which its clients' connections arrive.
    fn client_interfaces(&self, proxy: NodeIndex) -> Vec<String> {
        let path = self.path;
        let links: BTreeSet<_> = path
            .flows
            .iter()
            .filter(|flow| path.proxies_of(flow).contains(&proxy))
            .filter_map(|flow| Some(path.next_hop(proxy, flow.from)?.link))
            .collect();
        links.into_iter().map(interface).collect()
    }

    pub fn start_proxies(&self, case: &Case) -> Result<Vec<Running<'_>>, LabError> {
        if case.kind.is_overlay() {
            return self.start_overlay(case);
        }
        let mut running = Vec::new();
        for (index, settings) in self.path.proxies() {
            let forwards = self.forwards(index);
            if forwards.is_empty() {
                continue;
            }
            let node = self.topology.node(index);
            let folder = self.folder.path().join(format!("proxy-{}", index.0));
            fs::create_dir_all(&folder).map_err(at(&folder))?;
            let carried = match case.kind {
                CaseKind::Direct
                | CaseKind::DirectBbr
                | CaseKind::Thin
                | CaseKind::Overlay
                | CaseKind::OverlayStatic(_)
                | CaseKind::Oracle => continue,
                CaseKind::Haproxy => {
                    let haproxy = haproxy::start(node, &forwards, &folder)?;
                    running.push(Running::Program(haproxy));
                    continue;
                }
                CaseKind::Pepsal => {
                    let interfaces = self.client_interfaces(index);
                    running.push(Running::Pepsal(pepsal::start(node, &interfaces, &folder)?));
                    continue;
                }
                CaseKind::Midspan => {
                    Carried::Interfaces(self.client_interfaces(index), Handshake::EndToEnd)
                }
                CaseKind::MidspanEarly => {
                    Carried::Interfaces(self.client_interfaces(index), Handshake::Early)
                }
                CaseKind::MidspanForward => Carried::Forwards(forwards),
            };
            let proxy = midspan::start(node, &carried, settings, &folder)?;
            running.push(Running::Program(proxy));
        }
        let default = (case.kind == CaseKind::Thin).then(ThinOptions::default);
        if let Some(options) = case.thin.or(default) {
            for (index, interface) in self.client_uplinks() {
                let folder = self.folder.path().join(format!("client-{}", index.0));
                fs::create_dir_all(&folder).map_err(at(&folder))?;
                let host = self.topology.node(index);
                let thin = thin::start(host, &interface, options, &folder)?;
                running.push(Running::Program(thin));
            }
        }
        Ok(running)
    }

    /// The clients, each with the interface by which it reaches its servers.
    fn client_uplinks(&self) -> BTreeSet<(NodeIndex, String)> {
        let path = self.path;
        path.flows
            .iter()
            .filter_map(|flow| {
                let link = path.next_hop(flow.from, flow.to)?.link;
                Some((flow.from, interface(link)))
            })
            .collect()
    }

    /// HAProxy and `PEPsal` get from their node's routes the settings that Midspan gets from its configuration;
    /// otherwise the comparison would be unfair.
    pub fn set_proxy_routes(&self, case: &Case) -> Result<(), LabError> {
        let path = self.path;
        for (index, settings) in path.proxies() {
            self.topology.set_routes(path, index, |destination| {
                if matches!(case.kind, CaseKind::Haproxy | CaseKind::Pepsal) {
                    leg_metrics(self.leg_towards(index, destination, settings))
                } else {
                    RouteMetrics::default()
                }
            })?;
        }
        Ok(())
    }

    /// The settings of the leg on the side of `destination`: the client leg if a flow through this
    /// proxy arrives over the link that leads to `destination`.
    fn leg_towards<'s>(
        &self,
        proxy: NodeIndex,
        destination: NodeIndex,
        settings: &'s ProxySettings,
    ) -> &'s LegSettings {
        let path = self.path;
        let link = path.next_hop(proxy, destination).map(|hop| hop.link);
        let towards_client = path.flows.iter().any(|flow| {
            path.proxies_of(flow).contains(&proxy)
                && path.next_hop(proxy, flow.from).map(|hop| hop.link) == link
        });
        if towards_client {
            &settings.client_leg
        } else {
            &settings.server_leg
        }
    }
}

fn leg_metrics(settings: &LegSettings) -> RouteMetrics {
    RouteMetrics {
        initial_window: settings.initial_window,
        congestion_control: settings.congestion_control.clone(),
        locked_mtu: None,
    }
}

/// The services of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Web,
    Bulk,
}

impl Service {
    const fn port(self) -> u16 {
        match self {
            Self::Web => web_server::PORT,
            Self::Bulk => iperf3::PORT,
        }
    }
}

/// The port on which proxies listen for connections to a server: two ports for each node.
fn listen_port(server: NodeIndex, service: Service) -> u16 {
    const FIRST: u16 = 8000;
    let place = u16::try_from(server.0).unwrap_or(u16::MAX / 4);
    FIRST + 2 * place + u16::from(service == Service::Bulk)
}

/// The sizes of all files that those of `cases` with this path need.
fn sizes(path: &Path, cases: &[Case]) -> BTreeSet<u64> {
    let flows = path.flows.iter().map(|flow| &flow.workload);
    let here = || cases.iter().filter(|case| case.path == *path);
    let small = here().any(|case| case.kind == CaseKind::Overlay);
    flows
        .chain(here().filter_map(|case| case.discarded.as_ref()))
        .filter_map(Workload::file_size)
        .chain(small.then_some(SMALL))
        .map(ByteSize::bytes)
        .collect()
}
