//! All that touches the kernel.
//!
//! The only crate with `unsafe` code. One module per kernel facility; each function says which
//! man page or RFC it follows and which capability it needs.
pub mod acknowledgement_queue;
pub mod acknowledgements_first;
pub mod capability;
pub mod claim;
pub mod connection_tracking;
pub mod descriptor_passing;
pub mod ethtool;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod initial_window;
pub mod interception;
mod interface_request;
pub mod ipv6;
pub mod namespace;
pub mod netlink;
mod nf_tables;
mod nfnetlink;
pub mod nftables;
pub mod own_addresses;
pub mod owner;
pub mod packet_filter;
pub mod packet_queue;
pub mod packet_socket;
pub mod process;
pub mod raw_packet;
mod route_socket;
pub mod ruleset;
pub mod sandbox;
pub mod scheduling;

pub mod tcp;
pub mod tun;
