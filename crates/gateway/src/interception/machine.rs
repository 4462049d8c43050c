//! The properties of the machine on which the ruleset depends.

use std::{fs, io};

use super::port_reuse::ReusePorts;

/// How the rules put SYNs into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueMethod {
    /// By the statement `queue` of nftables.
    Statement,
    /// By the target NFQUEUE of xtables in tables of Midspan, if the kernel lacks the statement.
    Target,
}

/// The properties of the machine on which the ruleset depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// How the rules put SYNs into the queue.
    pub queue: QueueMethod,
    /// The ports whose sockets make `tproxy` remove a socket in TIME-WAIT.
    pub reuse_ports: ReusePorts,
    /// Whether early demultiplexing was on before Midspan switched it off. The table contains this
    /// value for the next run.
    pub early_demux_was: bool,
    /// Whether connections of clients in a VRF can be intercepted, see [`takes_vrfs`].
    pub takes_vrfs: bool,
}

/// Whether the kernel finds Midspan's sockets for packets that arrive in a VRF. By default
/// (`net.ipv4.tcp_l3mdev_accept` is 0, which also applies to IPv6), it finds only sockets that are
/// bound to the VRF's device. Without a client leg that gets its packets, clients would not reach
/// their servers, so they pass untouched. A kernel without VRFs lacks the parameter, and needs
/// no rule for them.
pub fn takes_vrfs() -> bool {
    match fs::read_to_string("/proc/sys/net/ipv4/tcp_l3mdev_accept") {
        Ok(value) => value.trim() != "0",
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
