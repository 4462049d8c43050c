//! The simulator as its callers use it.

mod acknowledgements;
mod admission_and_start;
mod automatic;
mod bbr;
mod common;
mod errors;
mod joined_receivers;
mod known;
mod learned_starts;
mod link_effects;
mod many_subscribers;
mod overlay;
mod oversized;
mod paths;
mod policies;
mod properties;
mod sending_ahead;
mod sending_ahead_shared;
mod sources;
mod towards_servers;
mod trace;
mod traces;
