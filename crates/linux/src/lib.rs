//! All access to the kernel.
//!
//! The only crate with `unsafe` code. One module per kernel facility; the docs of each function
//! name the man page or RFC that it follows, and the capability that it needs.
pub mod allocator;
pub mod bpf;
pub mod capability;
pub mod connection_tracking;
pub mod descriptor_passing;
pub mod ethtool;
pub mod execution;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod interface_request;
pub mod ipv6;
pub mod namespace;
pub mod netlink;
pub mod nf_tables;
mod nfnetlink;
pub mod nftables;
pub mod own_addresses;
pub mod owner;
pub mod packet_filter;
pub mod packet_queue;
pub mod packet_socket;
pub mod process;
pub mod process_use;
pub mod processors;
pub mod raw_packet;
mod route_socket;
pub mod route_watch;
pub mod routing;
pub mod sandbox;
pub mod scheduling;
pub mod signals;
mod socket_lists;
pub mod tcp;
pub mod tun;
#[cfg(feature = "unopened")]
pub mod unopened;
pub mod user_map;
pub mod waiting_sockets;
