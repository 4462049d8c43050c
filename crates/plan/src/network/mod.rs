//! Which nodes of a network to make overlay nodes, and by which of them the sessions of each pair of hosts go: the
//! placement of Maki §IV and of Bhole's Fig. 9, for networks with several routes.
//!
//! | file | content |
//! | --- | --- |
//! | `routes.rs` | the routes that a pair could take |
//! | `shown.rs` | the plan as text, table and records |
//!
//! [`node_choice`] finds the nodes with which all pairs together are fastest.

mod routes;
mod shown;

use midspan_model::node_choice::{self, Priced};
use midspan_path::{NodeIndex, Path, ProxySettings};
use midspan_units::ByteSize;

use crate::PlanError;
use crate::answer::Answer;
use crate::data_path::DataPath;
use routes::MOST_NODES;

/// The plan of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPlan {
    /// The path's name.
    pub name: String,
    /// The size of the transfer that is to be fast.
    pub size: ByteSize,
    /// The nodes to make overlay nodes, in the order of the path.
    pub nodes: Vec<String>,
    /// The pairs of hosts between which data flows.
    pub pairs: Vec<PairPlan>,
    /// Number of sets of nodes that were compared.
    pub examined: usize,
    /// Whether all sets of nodes were compared.
    pub is_exact: bool,
    /// Most nodes of the routes that were compared, if longer routes were left out.
    pub longest: Option<usize>,
}

/// The plan for the data of one pair of hosts in one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct PairPlan {
    /// The pair, as "server to client".
    pub name: String,
    /// The overlay nodes that its sessions pass, from the ingress to the exit; none if they go directly.
    pub route: Vec<String>,
    /// Without any proxy.
    pub direct: Answer,
    /// By the route.
    pub best: Answer,
}

/// A pair of hosts between which data flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    client: NodeIndex,
    server: NodeIndex,
    upload: bool,
}

/// Seconds that stand for a transfer that never ends.
const NEVER: f64 = 1e9;

impl PairPlan {
    /// How many times as fast a transfer of `size` is as without proxies; `None` if no data arrives.
    #[must_use]
    pub fn gain(&self, size: ByteSize) -> Option<f64> {
        let time = |answer: &Answer| answer.completion_time(size);
        Some(time(&self.direct)? / time(&self.best)?)
    }
}

impl NetworkPlan {
    /// The geometric mean of the gains of all pairs.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        let gains: Vec<f64> = (self.pairs.iter())
            .map(|pair| pair.gain(self.size))
            .collect::<Option<_>>()?;
        #[allow(clippy::cast_precision_loss)] // A number of pairs.
        let count = gains.len() as f64;
        let sum: f64 = gains.iter().map(|gain| libm::log(*gain)).sum();
        (count > 0.0).then(|| libm::exp(sum / count))
    }
}

/// Chooses at most `most` overlay nodes, so that the product of the completion times of all pairs is the smallest for
/// transfers of `size`, and each pair takes its best route over them. All nodes that are no hosts may become overlay
/// nodes, each as ingress, transit node and exit; proxies that are not chosen do not split.
///
/// # Errors
/// The path has fewer than two hosts.
pub fn plan_network(path: &Path, most: usize, size: ByteSize) -> Result<NetworkPlan, PlanError> {
    let linux = ProxySettings::default();
    let places = routes::places(path);
    let pairs = Pair::of_path(path)?;
    let mut longest = MOST_NODES;
    let mut priced = Vec::with_capacity(pairs.len());
    for pair in &pairs {
        let routes = routes::routes(path, pair, &places);
        longest = longest.min(routes.longest);
        let mut costs = Vec::with_capacity(routes.all.len());
        for route in routes.all {
            let nodes = route.iter().map(|node| node.0).collect();
            // A node behind the server's own router, for example, leads to the same node twice.
            let answer = match answer(path, pair, &route, &linux) {
                Ok(answer) => answer,
                Err(PlanError::NoWay { .. }) if !route.is_empty() => continue,
                Err(error) => return Err(error),
            };
            let time = answer.completion_time(size).unwrap_or(NEVER);
            costs.push(Priced {
                nodes,
                cost: libm::log(time),
            });
        }
        priced.push(costs);
    }
    let choice = node_choice::choose(&priced, most);
    let names = |nodes: &[usize]| -> Vec<String> {
        let names = nodes.iter().map(|node| path.node(NodeIndex(*node)));
        names.map(|node| node.name.clone()).collect()
    };
    let of_pair = |(index, pair): (usize, &Pair)| {
        let route = &priced[index][choice.routes[index]].nodes;
        let stops: Vec<NodeIndex> = route.iter().copied().map(NodeIndex).collect();
        let direct = DataPath::through(path, [pair.client, pair.server], pair.upload, &[])?;
        Ok(PairPlan {
            name: direct.name(),
            route: names(route),
            direct: Answer::new(&direct, &[])?,
            best: answer(path, pair, &stops, &linux)?,
        })
    };
    Ok(NetworkPlan {
        name: path.name.clone(),
        size,
        nodes: names(&choice.nodes),
        pairs: pairs
            .iter()
            .enumerate()
            .map(of_pair)
            .collect::<Result<_, PlanError>>()?,
        examined: choice.examined,
        is_exact: choice.is_exact,
        longest: (longest < MOST_NODES).then_some(longest),
    })
}

fn answer(
    path: &Path,
    pair: &Pair,
    route: &[NodeIndex],
    linux: &ProxySettings,
) -> Result<Answer, PlanError> {
    let stops: Vec<(NodeIndex, &ProxySettings)> = route
        .iter()
        .map(|node| (*node, routes::settings_at(path, *node, linux)))
        .collect();
    let ends = [pair.client, pair.server];
    let data_path = DataPath::through(path, ends, pair.upload, &stops)?;
    Answer::new(&data_path, &data_path.proxies)
}

impl Pair {
    /// The pairs of the flows, each once. If the path has no flows: the download from its last host to its first.
    fn of_path(path: &Path) -> Result<Vec<Self>, PlanError> {
        let pairs = DataPath::ends_of_path(path)?.into_iter();
        Ok(pairs
            .map(|(client, server, upload)| Self {
                client,
                server,
                upload,
            })
            .collect())
    }
}
