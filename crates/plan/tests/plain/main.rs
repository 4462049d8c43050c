//! The planner as its callers use it.

mod built_in;
mod measured;
mod network;
mod properties;
