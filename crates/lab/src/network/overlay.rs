//! Midspan at the overlay nodes of a path.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use midspan_path::{NodeIndex, OverlayRole};

use super::{Network, Service, listen_port};
use crate::error::at;
use crate::proxies::midspan::{self, Carried, Member, OverlayNode};
use crate::proxies::{Forward, Running};
use crate::{Case, CaseKind, LabError};

/// Where overlay nodes accept hops.
const HOP_PORT: u16 = 7704;
/// A new node is not used because of its measurements for 30 s (docs/overlay.md); then sessions use it. The
/// links begin again after each of these times, so that no schedule advances far meanwhile.
const PROBATION: (u32, Duration) = (4, Duration::from_secs(9));

impl Network<'_> {
    /// Starts the overlay nodes, those at which flows enter last.
    pub(super) fn start_overlay(&self, case: &Case) -> Result<Vec<Running<'_>>, LabError> {
        let path = self.path;
        let mut nodes: Vec<(NodeIndex, Vec<Forward>)> = path
            .overlay_nodes()
            .map(|(node, _)| (node, self.entrances(node)))
            .collect();
        nodes.sort_by_key(|(_, entrances)| !entrances.is_empty());
        let mut running = Vec::new();
        for (node, forwards) in nodes {
            let folder = self.folder.path().join(format!("proxy-{}", node.0));
            fs::create_dir_all(&folder).map_err(at(&folder))?;
            let settings = path.proxies().find(|(index, _)| *index == node);
            let Some((_, settings)) = settings else {
                continue;
            };
            let carried = Carried::Overlay(OverlayNode {
                name: path.node(node).name.clone(),
                members: self.members(),
                hops: self.hop_address(node),
                route: self.route(case, node)?,
                forwards,
            });
            let at = self.topology.node(node);
            let proxy = midspan::start(at, &carried, settings, &folder)?;
            running.push(Running::Program(proxy));
        }
        Ok(running)
    }

    /// Waits until nodes that choose routes may use each other. Links begin again meanwhile.
    pub(crate) fn wait_for_overlay(&self, case: &Case, seed: u64) -> Result<(), LabError> {
        if case.kind == CaseKind::Overlay {
            for _ in 0..PROBATION.0 {
                self.topology.reset_links(self.path, seed)?;
                thread::sleep(PROBATION.1);
            }
        }
        Ok(())
    }

    /// The connections of the flows that enter at a node, each to its server.
    fn entrances(&self, node: NodeIndex) -> Vec<Forward> {
        let path = self.path;
        let flows = path.flows.iter();
        let mut forwards: Vec<Forward> = Vec::new();
        for flow in flows.filter(|flow| path.ingress(flow).is_ok_and(|ingress| ingress == node)) {
            for service in [Service::Web, Service::Bulk] {
                let forward = Forward {
                    listen: SocketAddr::new(
                        self.topology.address(node),
                        listen_port(flow.to, service),
                    ),
                    to: SocketAddr::new(self.topology.address(flow.to), service.port()),
                };
                if !forwards.contains(&forward) {
                    forwards.push(forward);
                }
            }
        }
        forwards
    }

    fn hop_address(&self, node: NodeIndex) -> SocketAddr {
        SocketAddr::new(self.topology.address(node), HOP_PORT)
    }

    fn members(&self) -> Vec<Member> {
        let path = self.path;
        let servers: BTreeSet<NodeIndex> = path.flows.iter().map(|flow| flow.to).collect();
        let servers: Vec<_> = servers
            .into_iter()
            .map(|server| self.topology.address(server))
            .collect();
        let nodes = path.overlay_nodes();
        nodes
            .map(|(node, OverlayRole { transit, exit })| Member {
                name: path.node(node).name.clone(),
                address: self.hop_address(node),
                transit,
                serves: match exit {
                    true => servers.clone(),
                    false => Vec::new(),
                },
            })
            .collect()
    }

    /// The names of the nodes after this one, if the sessions that enter here have one route.
    fn route(&self, case: &Case, node: NodeIndex) -> Result<Option<Vec<String>>, LabError> {
        let path = self.path;
        let CaseKind::OverlayStatic(route) = case.kind else {
            return Ok(None);
        };
        let mut flows = path.flows.iter();
        let entering = flows.find(|flow| path.ingress(flow).is_ok_and(|ingress| ingress == node));
        let Some(flow) = entering else {
            return Ok(Some(Vec::new()));
        };
        let stops = route.stops(path, flow)?.into_iter().skip(1);
        Ok(Some(
            stops.map(|stop| path.node(stop).name.clone()).collect(),
        ))
    }
}
