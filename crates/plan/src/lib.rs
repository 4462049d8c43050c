//! The planner: what a proxy gains on a path, where to put it, and how to configure it.
//!
//! | question | where |
//! | --- | --- |
//! | what throughput does data have in one direction, with proxies and without | [`Answer`] |
//! | which settings each proxy should have | [`advise`] |
//! | both for all flows of a path | [`Plan`] |
//! | where to put proxies | [`place()`], [`along`] |
//! | which nodes of a network to make overlay nodes, and which route each pair of hosts takes | [`plan_network`] |
//! | how large their send buffers must be | [`buffers()`] |
//! | the configuration of a proxy | [`Plan::configuration`] |
//! | the answers for a real path that was measured | [`measured`] |
//!
//! The numbers come from the analysis ([`midspan_model`]). This crate applies it to a path file or to
//! measurements, and turns the results into [records](midspan_records), sentences and tables. It has no clock
//! and does no I/O.

mod answer;
mod buffers;
mod configuration;
mod data_path;
mod error;
pub mod measured;
mod network;
mod place;
mod plan;
mod presentation;
mod proxy_advice;
mod records;
mod text;

pub use answer::{Answer, SIZES, limit_name};
pub use buffers::{BufferCurve, buffers};
pub use data_path::{DataPath, ProxyOnPath, RECEIVE_WINDOW, SEND_BUFFER};
pub use error::PlanError;
pub use network::{NetworkPlan, PairPlan, plan_network};
pub use place::{Along, along, at, place};
pub use plan::{DataPathPlan, Plan};
pub use proxy_advice::{Acks, KNEE, Pacing, ProxyAdvice, advise};
