//! Makes scenarios from a path file.

mod acknowledge;
mod chosen;
mod hops;
mod linux;

use midspan_path::{
    Flow as PathFlow, Node, NodeIndex, NodeKind, Order, OverlayRoute, Path, Traffic as PathTraffic,
    Workload,
};
use midspan_policy::SessionSettings;
use midspan_policy::oversized_segments::{SegmentSizes, size::PLANNED_MTU};
use midspan_units::{ByteSize, TimeSpan};

use super::{
    Client, Dialogue, Flow, FlowId, LinkId, NodeId, Pattern, Scenario, ScenarioError, Source,
    Split, Traffic,
};
use crate::random::Distribution;
pub use hops::HopStart;
use linux::{host_receiver, host_sender, leave_out_sack, split};

/// A flow of fixed size is given up after this time.
const LONGEST: TimeSpan = TimeSpan::from_seconds(24 * 3600);

/// An HTTP request without cookies, as curl sends it.
const REQUEST: ByteSize = ByteSize::from_bytes(100);

/// A scenario that was made from a path file.
#[derive(Debug, Clone)]
pub struct PathScenario {
    /// The scenario.
    pub scenario: Scenario,
    /// The parts of the scenario for each flow of the path.
    pub flows: Vec<PathFlowParts>,
}

/// The parts of a scenario that belong to one flow of a path file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathFlowParts {
    /// The index of the flow among the path's flows.
    pub flow: usize,
    /// The flows that carry its data: one, or one for each connection of a web page.
    pub data: Vec<FlowId>,
    /// The flows that carry its requests, if it has any.
    pub requests: Vec<FlowId>,
    /// The overlay route of these parts, if overlay nodes choose among several: then the flow has parts for
    /// each route, and those of one are used ([`FlowResults::unused`](crate::FlowResults::unused)).
    pub route: Option<OverlayRoute>,
}

impl Scenario {
    /// The scenarios of a path file, with its proxies or without: one for each flow if flows run in
    /// turn, one for all if they run together.
    ///
    /// TCP is set as Linux sets it, as far as the simulator models that: segments that fill packets
    /// of 1,500 bytes with timestamps, an initial window of ten, CUBIC, Reno or BBR with SACK (NewReno
    /// instead of Reno if a host has no SACK), time-outs of at least 200 ms, a delayed ACK after 40 ms,
    /// autotuned windows. A client sends a request of 100 bytes for each download, request or object. A proxy's
    /// `pacing_rate` paces at the input of TCP. Its `keepalive` and `user_timeout` have no effect.
    ///
    /// # Errors
    /// A congestion control is unknown, or a flow runs a command.
    pub fn from_path(path: &Path, proxies: bool) -> Result<Vec<PathScenario>, ScenarioError> {
        let carriers = match proxies {
            true => Carriers::Proxies,
            false => Carriers::None,
        };
        Self::carried(path, carriers)
    }

    /// The scenarios of a path file, as [`Scenario::from_path`] makes them, with every flow on one overlay
    /// route: it is split at its ingress and at the nodes of the route, which may be off the path of
    /// its packets. Between two nodes, packets cross the fewest links.
    ///
    /// The ingress accepts a connection at once. A hop's request passes node by node, and its answer comes
    /// back after the exit is connected to the server. `start` is how the hops' connections begin. The
    /// bytes of request and answer are left out.
    ///
    /// # Errors
    /// Those of [`Scenario::from_path`]; or the path does not have this route for one of its flows.
    pub fn over_route(
        path: &Path,
        route: &OverlayRoute,
        start: HopStart,
    ) -> Result<Vec<PathScenario>, ScenarioError> {
        Self::carried(path, Carriers::Overlay(route, start))
    }

    /// As [`Scenario::over_route`], but the ingress chooses the route of each flow when it begins, by the
    /// policy of the real proxy ([`ChosenRoutes`](midspan_policy::overlay::ChosenRoutes)). The nodes have
    /// exchanged their measurements before; they know only the round trips between them, unless the
    /// scenario begins with the knowledge of another one ([`Scenario::begin_with`]).
    ///
    /// Exchanges between nodes take no capacity, see no queue, and are lost only while nothing passes a link.
    /// A hop over such a link fails after the time limit of the real proxy, and the next route is taken.
    ///
    /// # Errors
    /// Those of [`Scenario::from_path`]; or a flow has no ingress, or too many routes.
    pub fn over_chosen_routes(
        path: &Path,
        start: HopStart,
    ) -> Result<Vec<PathScenario>, ScenarioError> {
        groups(path)
            .iter()
            .map(|group| chosen::build(path, group, start))
            .collect()
    }

    fn carried(path: &Path, carriers: Carriers<'_>) -> Result<Vec<PathScenario>, ScenarioError> {
        groups(path)
            .iter()
            .map(|group| Builder::new(path, carriers).build(group))
            .collect()
    }
}

/// The flows that are in one scenario, by their indices in the path.
fn groups(path: &Path) -> Vec<Vec<usize>> {
    let flows: Vec<usize> = (0..path.flows.len()).collect();
    let size = match path.order {
        Order::InTurn => 1,
        Order::Together => flows.len().max(1),
    };
    flows.chunks(size).map(<[usize]>::to_vec).collect()
}

impl Scenario {
    /// The network of a path file without its flows: nodes, links, cables and traffic. Nodes and
    /// links have the same indices as in the path. Links cut packets for oversized segments if
    /// `proxies` are used and one of them sends such segments.
    #[must_use]
    pub fn network(path: &Path, proxies: bool) -> Self {
        let mut scenario = Self::new(path.seed, TimeSpan::ZERO);
        for node in &path.nodes {
            scenario.add_node(&node.name);
        }
        // A segment is oversized if it exceeds Ethernet's MTU.
        let cut = (proxies && sends_oversized_segments(path)).then_some(PLANNED_MTU);
        for link in &path.links {
            let [first, second] = link.between.map(|node| NodeId(node.0));
            let [up, down] = [&link.up, &link.down].map(|direction| {
                let mut direction = direction.clone();
                direction.mtu = direction.mtu.or(cut);
                direction
            });
            scenario.add_link(&link.name, first, second, &up, &down);
        }
        for cable in &path.cables {
            let links: Vec<LinkId> = cable.links.iter().map(|link| LinkId(link.0)).collect();
            scenario.add_cable(&cable.name, &links, cable.configuration);
        }
        for traffic in &path.traffic {
            scenario.add_traffic(of_traffic(traffic));
        }
        scenario
    }
}

impl Flow {
    /// The data of a flow of a path file in one direction, with its proxies or without: Linux's
    /// TCP with the buffers of the path's hosts and proxies ([`Scenario::from_path`]). A transfer
    /// of fixed size is sent from the flow's start on, without a request; other workloads have no
    /// end.
    ///
    /// # Errors
    /// A congestion control is unknown, or the flow runs a command.
    pub fn of_path(path: &Path, flow: &PathFlow, proxies: bool) -> Result<Self, ScenarioError> {
        let source = match flow.workload {
            Workload::Download { size } | Workload::Upload { size } => Source::Fixed(size),
            Workload::Command { .. } => return Err(command(flow)),
            _ => Source::Bulk,
        };
        let upload = flow.workload.is_upload();
        let stops = match proxies {
            true => path.proxies_of(flow),
            false => Vec::new(),
        };
        one_direction(path, stops, flow, &flow.name, upload, source)
    }
}

/// What carries the flows of a path.
#[derive(Debug, Clone, Copy)]
enum Carriers<'a> {
    /// Routers.
    None,
    /// The proxies on the path of each flow.
    Proxies,
    /// The overlay nodes of a route.
    Overlay(&'a OverlayRoute, HopStart),
}

impl Carriers<'_> {
    /// Where a flow is split, from the client's side on.
    fn stops(self, path: &Path, flow: &PathFlow) -> Result<Vec<NodeIndex>, ScenarioError> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Proxies => Ok(path.proxies_of(flow)),
            Self::Overlay(route, _) => Ok(path.overlay_stops(flow, route)?),
        }
    }
}

/// The refusal of a flow that runs a command.
fn command(flow: &PathFlow) -> ScenarioError {
    ScenarioError::Command {
        flow: flow.name.clone(),
    }
}

struct Builder<'a> {
    path: &'a Path,
    carriers: Carriers<'a>,
    scenario: Scenario,
}

impl<'a> Builder<'a> {
    fn new(path: &'a Path, carriers: Carriers<'a>) -> Self {
        Self {
            path,
            carriers,
            scenario: Scenario::network(path, !matches!(carriers, Carriers::None)),
        }
    }

    fn build(mut self, group: &[usize]) -> Result<PathScenario, ScenarioError> {
        let mut flows = Vec::new();
        for index in group {
            let parts = self.add(*index)?;
            self.set_policies(&parts);
            flows.push(parts);
        }
        Ok(PathScenario {
            scenario: self.scenario,
            flows,
        })
    }

    /// Sets the policies of the proxies on a flow's path whose settings leave anything to a policy.
    fn set_policies(&mut self, parts: &PathFlowParts) {
        let path = self.path;
        for flow in parts.data.iter().chain(&parts.requests) {
            let splits = self.scenario.flows[flow.0].splits.len();
            for split in 0..splits {
                let node = self.scenario.flows[flow.0].splits[split].node;
                let node = path.node(NodeIndex(node.0));
                if let NodeKind::Proxy(settings) = &node.kind {
                    let settings = SessionSettings {
                        policy: settings.policy,
                        client: settings.client_leg.clone(),
                        server: settings.server_leg.clone(),
                        connect_timeout: None,
                    };
                    if settings.is_decided_on() {
                        self.scenario.set_policy(*flow, split, &settings);
                    }
                    self.set_access(*flow, split, node);
                }
            }
        }
    }

    /// Sets what a proxy does about the access link of its clients.
    fn set_access(&mut self, flow: FlowId, split: usize, node: &Node) {
        if let NodeKind::Proxy(settings) = &node.kind
            && let Some(access) = settings.access
        {
            let start = settings.oversized_start;
            self.scenario.set_access(flow, split, access, start);
        }
    }

    fn add(&mut self, index: usize) -> Result<PathFlowParts, ScenarioError> {
        let flow = &self.path.flows[index];
        let mut parts = PathFlowParts {
            flow: index,
            data: Vec::new(),
            requests: Vec::new(),
            route: None,
        };
        let end = match flow.workload {
            Workload::BulkDownload { duration } | Workload::BulkUpload { duration } => duration,
            _ => LONGEST,
        };
        self.scenario.duration = self.scenario.duration.max(flow.start + end);
        let (count, answer, parallel) = match flow.workload {
            Workload::Upload { size } => {
                let made = self.flow(flow, &flow.name, true, Source::Fixed(size))?;
                parts.data.push(self.scenario.add_flow(made));
                return Ok(parts);
            }
            Workload::BulkDownload { duration } | Workload::BulkUpload { duration } => {
                let upload = flow.workload.is_upload();
                let mut made = self.flow(flow, &flow.name, upload, Source::Bulk)?;
                made.stop = Some(duration);
                parts.data.push(self.scenario.add_flow(made));
                return Ok(parts);
            }
            Workload::Download { size } => (1, size, 1),
            Workload::RequestResponse { count, size } => (count, size, 1),
            Workload::Page {
                objects,
                size,
                parallel,
            } => (objects, size, parallel.min(objects)),
            Workload::Command { .. } => return Err(command(flow)),
        };
        let mut connections = Vec::new();
        for connection in 0..parallel {
            let name = match connection {
                0 => flow.name.clone(),
                _ => format!("{}/{connection}", flow.name),
            };
            let requests = format!("{name}/requests");
            let requests = self.flow(flow, &requests, true, Source::Dialogue)?;
            let mut answers = self.flow(flow, &name, false, Source::Dialogue)?;
            // It is the same connection, which is open already.
            answers.sender.handshake = false;
            for split in &mut answers.splits {
                split.outbound.handshake = false;
            }
            let pair = [
                self.scenario.add_flow(requests),
                self.scenario.add_flow(answers),
            ];
            parts.requests.push(pair[0]);
            parts.data.push(pair[1]);
            connections.push(pair);
        }
        self.scenario.add_dialogue(Dialogue {
            connections,
            count,
            request: REQUEST,
            answer,
        });
        Ok(parts)
    }

    /// One direction of a connection of a flow.
    fn flow(
        &self,
        flow: &PathFlow,
        name: &str,
        upload: bool,
        source: Source,
    ) -> Result<Flow, ScenarioError> {
        let stops = self.carriers.stops(self.path, flow)?;
        let mut made = one_direction(self.path, stops, flow, name, upload, source)?;
        if let Carriers::Overlay(_, start) = self.carriers {
            hops::set(&self.scenario, &mut made.splits, start);
        }
        Ok(made)
    }
}

/// One direction of a flow that is split at `stops`, which are listed from the client's side on.
fn one_direction(
    path: &Path,
    stops: Vec<NodeIndex>,
    flow: &PathFlow,
    name: &str,
    upload: bool,
    source: Source,
) -> Result<Flow, ScenarioError> {
    let (from, to) = if upload {
        (flow.from, flow.to)
    } else {
        (flow.to, flow.from)
    };
    let splits = stops.into_iter().map(|node| split(path, node, upload));
    let mut splits: Vec<Split> = splits.collect::<Result<_, _>>()?;
    if !upload {
        splits.reverse();
    }
    let mut sender = host_sender(path, from)?;
    let legs = splits.iter_mut().map(|split| &mut split.outbound);
    leave_out_sack(path, [from, to], std::iter::once(&mut sender).chain(legs));
    Ok(Flow {
        name: name.to_owned(),
        from: NodeId(from.0),
        to: NodeId(to.0),
        sender,
        receiver: host_receiver(path, to),
        splits,
        source,
        client: if upload {
            Client::Sender
        } else {
            Client::Receiver
        },
        regenerate_acks: None,
        start: flow.start,
        stop: None,
    })
}

fn sends_oversized_segments(path: &Path) -> bool {
    path.proxies().any(|(_, proxy)| {
        let access = proxy.access.unwrap_or_default();
        access.oversized_segments != SegmentSizes::Off
    })
}

fn of_traffic(traffic: &PathTraffic) -> Traffic {
    let pareto = |mean: TimeSpan, shape| Distribution::Pareto {
        mean: mean.as_seconds(),
        shape,
    };
    Traffic {
        name: traffic.name.clone(),
        from: NodeId(traffic.from.0),
        to: NodeId(traffic.to.0),
        packet_size: u32::try_from(traffic.packet_size.bytes()).unwrap_or(u32::MAX),
        rate: traffic.rate,
        sources: traffic.sources,
        pattern: traffic
            .on_off
            .map_or(Pattern::Constant, |turns| Pattern::OnOff {
                on: pareto(turns.on, turns.shape),
                off: pareto(turns.off, turns.shape),
            }),
        start: traffic.start,
        end: traffic.duration.map(|duration| traffic.start + duration),
    }
}
