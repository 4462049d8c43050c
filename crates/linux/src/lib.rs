//! All that touches the kernel.
//!
//! The only crate with `unsafe` code. One module per kernel facility; each function says which
//! man page or RFC it follows and which capability it needs.
pub mod capability;
pub mod descriptor_passing;
pub mod ethtool;
pub mod initial_window;
pub mod namespace;
pub mod netlink;
pub mod packet_socket;
pub mod process;
pub mod scheduling;

pub mod tcp;
