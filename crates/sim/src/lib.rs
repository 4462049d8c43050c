//! The packet-level simulator: TCP, split proxies and links in virtual time.
//!
//! A [`Scenario`] describes the nodes, the links, and the flows over them; a [`Simulation`] runs
//! it. Time is virtual, in whole nanoseconds; events have a total order; every link and every node
//! draws from a random stream of its own. So the same scenario with the same seed gives exactly the
//! same results on every machine.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`tcp`] | senders (Tahoe, Reno, NewReno, SACK, CUBIC, BBR) and receivers, as state machines |
//! | [`proxy`] | how a split proxy joins two legs: buffers, service time, pacing |
//! | [`scenario`](Scenario) | hosts, routers, links, flows, and the checks on them |
//! | [`Simulation`] | the events: which packet arrives where, when |
//! | [`Policies`] | the proxies' decisions, by the policies of the real proxy |
//! | [`Observer`] | sees every packet sent, delivered and dropped |
//! | [`trace`] | observers that write tables, distributions and packet captures |
//!
//! `docs/simulator.md` describes the model and its limits.
//!
//! This crate is pure: no clock, no I/O; random numbers come from the seed of the scenario.

mod engine;
mod network;
mod observer;
mod packet;
pub mod proxy;
mod random;
mod results;
mod scenario;
mod simulation;
pub mod tcp;
pub mod trace;

pub use midspan_link::{LossPattern, QueueDiscipline};
pub use observer::{NoObserver, Observer};
pub use packet::{
    Acknowledgement, Data, DataKind, Packet, PacketDirection, Segment, SelectiveBlock,
    SelectiveBlocks, Signals,
};
pub use random::Distribution;
pub use results::{
    FlowResults, GaveUp, LegResults, LinkResults, Results, StopReason, TrafficResults,
};
pub use scenario::{
    Client, Dialogue, Flow, FlowId, HopStart, LinkId, NodeId, OverlayKnowledge, PathFlowParts,
    PathScenario, Pattern, Scenario, ScenarioError, Source, Split, Traffic,
};
pub use simulation::{Policies, Simulation};
