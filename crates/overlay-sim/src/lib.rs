//! The choice of overlay routes among hundreds of nodes, session by session in virtual time.
//!
//! The packet-level simulator (`midspan sim`) shows ten nodes. Here, a session is one event at its beginning and one at
//! its end, so an hour of an overlay of 300 nodes takes about a minute. The routes are chosen by the code of the
//! proxy: each ingress has its own [`ChosenRoutes`](midspan_policy::overlay::ChosenRoutes) and
//! [`KnownOverlay`](midspan_policy::overlay::KnownOverlay), which get only what a real node would measure.
//!
//! | concept | content |
//! | --- | --- |
//! | [`Network`] | nodes, and round trip, loss and rate of each leg over time |
//! | [`generate`] | a synthetic network |
//! | [`readers`] | networks from measured matrices |
//! | [`Simulation`] | the sessions of some time; its [`Results`] |
//! | [`answer`] | the questions of the measurements page, each with its bound and the measured value |
//!
//! The crate is pure: no clock, no I/O. The same seed gives the same results on every machine.

mod fixed_routes;
mod generator;
mod leg_times;
mod load;
mod measures;
mod member;
mod network;
mod perfect_knowledge;
mod questions;
mod random;
pub mod readers;
mod session;
mod settings;
mod simulation;
mod traffic;
mod truth;
mod two_equal;

pub use generator::{Synthetic, generate, weather};
pub use measures::{AfterFailure, Changes, FixedGain, Gain, Results};
pub use network::{Episode, EpisodeKind, Leg, Network, NetworkError, Role};
pub use questions::{Answer, Part, Questions, answer};
pub use settings::{Failure, Settings};
pub use simulation::Simulation;
