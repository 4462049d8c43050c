//! The planner: what a proxy gains on a path, where to put it, how to set it.
//!
//! | question | where |
//! | --- | --- |
//! | what does a way of data get, with proxies and without | [`Answer`] |
//! | what to set in each proxy | [`advise`] |
//! | all of it for a path | [`Plan`] |
//! | where to put proxies | [`place()`], [`along`] |
//! | how large their send buffers must be | [`buffers()`] |
//! | the configuration of a proxy | [`Plan::configuration`] |
//!
//! The numbers are the analysis' ([`midspan_model`]); this crate asks it the right questions of a
//! path file, and puts the answers into [records](midspan_records) and sentences. It has no clock
//! and does no I/O.

mod answer;
mod buffers;
mod configuration;
mod error;
pub mod measured;
mod place;
mod plan;
mod proxy_advice;
mod records;
mod text;
mod way;

pub use answer::{Answer, SIZES, limit_name};
pub use buffers::{BufferCurve, buffers};
pub use error::PlanError;
pub use place::{Along, along, at, place};
pub use plan::{Plan, WayPlan};
pub use proxy_advice::{Acks, KNEE, Pacing, ProxyAdvice, advise};
pub use way::{ProxyOnWay, RECEIVE_WINDOW, SEND_BUFFER, Way};
