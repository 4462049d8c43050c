//! The input of a simulation: nodes, links, flows, and the checks on them.

mod error;
mod flow;
mod from_path;
mod overlay;
mod route;
mod source;

pub use error::ScenarioError;
pub use flow::{Client, Flow, Split};
pub use from_path::{HopStart, PathFlowParts, PathScenario};
pub use overlay::OverlayKnowledge;
pub use source::{Dialogue, Pattern, Source, Traffic};

use midspan_link::{Configuration, Direction, PolledConfiguration};
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::{AccessLink, SessionSettings};
use midspan_units::TimeSpan;

pub(crate) use overlay::{Alternative, ChoosingNode, ChosenSession, ChosenSessions};
pub(crate) use route::{Routes, base_round_trip, feeders, route_of, routes};

/// A node, by its index in the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A link, by its index in the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// A flow, by its index in the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub usize);

/// Nodes, links between them and flows over them.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use midspan_link::{Configuration, State};
/// use midspan_sim::{Flow, Scenario, Simulation};
/// use midspan_units::{Time, TimeSpan};
///
/// let mut scenario = Scenario::new(1, TimeSpan::from_seconds(10));
/// let server = scenario.add_node("server");
/// let client = scenario.add_node("client");
/// let wire = Configuration {
///     state: State {
///         rate: Some("8 Mbit/s".parse()?),
///         delay: "100 ms".parse()?,
///         loss: "0.1 %".parse()?,
///     },
///     ..Configuration::default()
/// };
/// scenario.add_link("wire", server, client, &wire, &wire);
/// scenario.add_flow(Flow::bulk("download", server, client));
/// let results = Simulation::new(&scenario)?.run();
/// assert!(results.flows[0].delivered > 1_000_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Seed of all random draws.
    pub seed: u64,
    /// How long to simulate.
    pub duration: TimeSpan,
    /// Stop after this many events: a guard against a scenario without end.
    pub event_limit: u64,
    /// Fragments of a packet that is not complete after this time are dropped (RFC 791 §3.2: 15 s;
    /// Linux: 30 s).
    pub reassembly_timeout: TimeSpan,
    pub(crate) nodes: Vec<String>,
    pub(crate) links: Vec<ScenarioLink>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) dialogues: Vec<Dialogue>,
    pub(crate) traffic: Vec<Traffic>,
    pub(crate) cables: Vec<Cable>,
    pub(crate) policies: Vec<(FlowId, usize, SessionSettings)>,
    pub(crate) access: Vec<(FlowId, usize, AccessLink, OversizedStart)>,
    pub(crate) overlay: Option<ChosenSessions>,
}

/// A cable network: an upstream channel that several links share.
#[derive(Debug, Clone)]
pub(crate) struct Cable {
    pub(crate) name: String,
    pub(crate) links: Vec<LinkId>,
    pub(crate) configuration: PolledConfiguration,
}

#[derive(Debug, Clone)]
pub(crate) struct ScenarioLink {
    pub(crate) name: String,
    pub(crate) between: [NodeId; 2],
    pub(crate) directions: [Configuration; 2],
}

impl Scenario {
    /// A scenario without nodes.
    #[must_use]
    pub const fn new(seed: u64, duration: TimeSpan) -> Self {
        Self {
            seed,
            duration,
            event_limit: u64::MAX,
            nodes: Vec::new(),
            links: Vec::new(),
            flows: Vec::new(),
            dialogues: Vec::new(),
            traffic: Vec::new(),
            cables: Vec::new(),
            policies: Vec::new(),
            access: Vec::new(),
            overlay: None,
            reassembly_timeout: TimeSpan::from_seconds(30),
        }
    }

    /// Adds a node. Every node forwards packets.
    pub fn add_node(&mut self, name: &str) -> NodeId {
        self.nodes.push(name.to_owned());
        NodeId(self.nodes.len() - 1)
    }

    /// Adds a link between two nodes; `up` is from the first to the second. Its name selects its
    /// random numbers and must be unique.
    pub fn add_link(
        &mut self,
        name: &str,
        first: NodeId,
        second: NodeId,
        up: &Configuration,
        down: &Configuration,
    ) -> LinkId {
        self.links.push(ScenarioLink {
            name: name.to_owned(),
            between: [first, second],
            directions: [up.clone(), down.clone()],
        });
        LinkId(self.links.len() - 1)
    }

    /// Gives a link another name, and so other random numbers. Does nothing if the link does not
    /// exist.
    pub fn rename_link(&mut self, link: LinkId, name: &str) {
        if let Some(link) = self.links.get_mut(link.0) {
            name.clone_into(&mut link.name);
        }
    }

    /// Adds `nodes` nodes in a row, connected by identical links; each is called `name` and a
    /// number. Returns the nodes.
    pub fn add_chain(&mut self, name: &str, nodes: usize, link: &Configuration) -> Vec<NodeId> {
        let nodes: Vec<NodeId> = (0..nodes)
            .map(|index| self.add_node(&format!("{name} {index}")))
            .collect();
        for (index, pair) in nodes.windows(2).enumerate() {
            self.add_link(&format!("{name} {index}"), pair[0], pair[1], link, link);
        }
        nodes
    }

    /// Changes one direction of a link. Does nothing if the link does not exist.
    pub fn configure(
        &mut self,
        link: LinkId,
        direction: Direction,
        change: impl FnOnce(&mut Configuration),
    ) {
        if let Some(link) = self.links.get_mut(link.0) {
            change(&mut link.directions[usize::from(direction == Direction::Down)]);
        }
    }

    /// Combines the upstream directions of these links into one channel of a cable network (Tam
    /// §4): their first nodes have the modems, their second node is the router. Delay, loss, queue
    /// and overhead are those of each link's upstream configuration; the rate is that of the
    /// channel.
    pub fn add_cable(&mut self, name: &str, links: &[LinkId], configuration: PolledConfiguration) {
        self.cables.push(Cable {
            name: name.to_owned(),
            links: links.to_vec(),
            configuration,
        });
    }

    /// Sets the policy of a flow's proxy number `split`, counted from 0: it chooses everything that
    /// `settings` leave open, as the real proxy does ([`midspan_policy::make`]). Does nothing
    /// if the proxy does not exist.
    pub fn set_policy(&mut self, flow: FlowId, split: usize, settings: &SessionSettings) {
        self.policies.push((flow, split, settings.clone()));
    }

    /// Sets the access link of the client behind a flow's proxy number `split`, counted from 0. The
    /// proxy's policy decides on this leg, as in the real proxy
    /// ([`NarrowLeg`](midspan_policy::narrow_leg::NarrowLeg)). `start` sets how sessions begin with
    /// oversized segments. This call affects only the last proxy before a client that downloads. Packets
    /// are fragmented if a link has an [MTU](Configuration::mtu).
    pub fn set_access(
        &mut self,
        flow: FlowId,
        split: usize,
        access: AccessLink,
        start: OversizedStart,
    ) {
        self.access.push((flow, split, access, start));
    }

    /// Adds traffic without TCP.
    pub fn add_traffic(&mut self, traffic: Traffic) {
        self.traffic.push(traffic);
    }

    /// Adds requests and responses over flows that were added before.
    pub fn add_dialogue(&mut self, dialogue: Dialogue) {
        self.dialogues.push(dialogue);
    }

    /// The traffic without TCP.
    #[must_use]
    pub fn traffic(&self) -> &[Traffic] {
        &self.traffic
    }

    /// Adds a flow.
    pub fn add_flow(&mut self, flow: Flow) -> FlowId {
        self.flows.push(flow);
        FlowId(self.flows.len() - 1)
    }

    /// The name of a node.
    #[must_use]
    pub fn node_name(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(node.0).map(String::as_str)
    }

    /// The flows.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }
}
