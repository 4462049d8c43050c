//! Errors in a scenario, with their place.

use midspan_link::LinkError;
use midspan_path::OverlayRouteError;

/// Why a scenario cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// A link or flow names a node that was not added.
    #[error("{place}: there is no node {node}; the scenario has {count}")]
    UnknownNode {
        /// The link or flow.
        place: String,
        /// The number of the node.
        node: usize,
        /// How many nodes there are.
        count: usize,
    },
    /// Two links have the same name, so they would draw the same random numbers.
    #[error("two links are called \"{name}\": give each a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// No links lead from one node to the other.
    #[error("flow \"{flow}\": no links lead from \"{from}\" to \"{to}\"")]
    Disconnected {
        /// The flow.
        flow: String,
        /// Where a leg begins.
        from: String,
        /// Where it should end.
        to: String,
    },
    /// A policy is set for a proxy that the scenario does not have.
    #[error("flow {flow} has no proxy {split} for its policy (both counted from 0)")]
    NoProxy {
        /// The flow.
        flow: usize,
        /// The proxy.
        split: usize,
    },
    /// A leg passes more links than the simulator can count.
    #[error("flow \"{flow}\": a leg passes {links} links; at most 255 are possible")]
    TooLong {
        /// The flow.
        flow: String,
        /// The links of the leg.
        links: usize,
    },
    /// A setting of a sender, receiver or proxy is too small.
    #[error("flow \"{flow}\", leg {leg}: {setting} is {value}; it must be at least {least}")]
    TooSmall {
        /// The flow.
        flow: String,
        /// Which of its legs, counted from 1.
        leg: usize,
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// The least possible value.
        least: u64,
    },
    /// A setting of a link, of traffic or of a source is wrong.
    #[error("{place}: {setting} {problem}")]
    Setting {
        /// The link, traffic, flow or dialogue.
        place: String,
        /// The setting.
        setting: &'static str,
        /// The error, and what the setting must be.
        problem: String,
    },
    /// A link cannot be made; for example, its schedule is not in order.
    #[error("link \"{link}\": {error}")]
    Link {
        /// The link.
        link: String,
        /// The error in it.
        error: LinkError,
    },
    /// There are more links, flows and legs than the event queue can number.
    #[error("the scenario has {count} links, legs and flows; at most 2³² are possible")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// A flow of the path file runs a command.
    #[error("flow \"{flow}\" runs a command, and only the lab has programs: use `midspan lab`")]
    Command {
        /// The flow.
        flow: String,
    },
    /// The path file names a congestion control that the simulator does not have.
    #[error("\"{place}\": the simulator has no congestion control \"{name}\"; it has {known}")]
    CongestionControl {
        /// The host, or the proxy's leg.
        place: String,
        /// The name.
        name: String,
        /// The names of the ones it has.
        known: &'static str,
    },
    /// The path file does not have the overlay route.
    #[error(transparent)]
    Route(#[from] OverlayRouteError),
}
