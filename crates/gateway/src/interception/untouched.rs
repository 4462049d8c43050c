//! Counts the packets of QUIC (UDP port 443) that pass, because Midspan cannot split them.
//!
//! The counters are in a table of their own, separate from the rules: the rules are replaced
//! whenever a listener, a bypass or the host's firewall changes, and the counters with them. This
//! table is never removed while Midspan runs; only its rules are replaced.
//!
//! The chain is at the hook `forward`, so that packets which the host forwards elsewhere are not
//! counted: those that a flow table forwards (`flow add`, with or without offload to hardware), and
//! those of bridges.

use std::fmt::Write;
use std::io;

use serde::{Deserialize, Serialize};

use super::own_tables;
use super::plan::InterceptionNumbers;
use midspan_linux::nftables::{Counter, named_counters};

/// The ending of the table's name.
pub(crate) const SUFFIX: &str = "_untouched";
const TO_SERVERS: &str = "quic_to_servers";
const TO_CLIENTS: &str = "quic_to_clients";

/// Packets of QUIC (UDP port 443) between clients and servers that passed untouched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quic {
    /// Packets from clients.
    pub packets_to_servers: u64,
    /// Their bytes, from the IP header on.
    pub bytes_to_servers: u64,
    /// Packets from servers.
    pub packets_to_clients: u64,
    /// Their bytes, from the IP header on.
    pub bytes_to_clients: u64,
}

impl Quic {
    /// Reads the counters of the tables with these numbers, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Nothing is counted there, or those of netlink sockets.
    pub fn read(numbers: &InterceptionNumbers) -> io::Result<Self> {
        let [up, down] = named_counters(&table(numbers), [TO_SERVERS, TO_CLIENTS])?;
        let Counter { packets, bytes } = up;
        Ok(Self {
            packets_to_servers: packets,
            bytes_to_servers: bytes,
            packets_to_clients: down.packets,
            bytes_to_clients: down.bytes,
        })
    }
}

/// Name of the table.
pub(crate) fn table(numbers: &InterceptionNumbers) -> String {
    format!("{}{SUFFIX}", numbers.table)
}

/// The text for `nft -f`: adds the table, and replaces its rules. Counters that exist keep their
/// values.
pub(crate) fn ruleset<'a>(
    numbers: &InterceptionNumbers,
    interfaces: impl Iterator<Item = &'a str>,
) -> String {
    let table = table(numbers);
    let comment = own_tables::comment(&[]);
    // After the chain that rejects.
    let priority = numbers.forward_priority.saturating_add(3);
    let mut text = format!(
        "table inet {table} {{\n\tcomment \"{comment}\"\n\
         \tcounter {TO_SERVERS} {{\n\t}}\n\tcounter {TO_CLIENTS} {{\n\t}}\n\
         \tchain forward {{\n\t\ttype filter hook forward priority {priority}; policy accept;\n\
         \t}}\n}}\nflush chain inet {table} forward\n"
    );
    for name in interfaces {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "add rule inet {table} forward iifname \"{name}\" udp dport 443 \
             counter name \"{TO_SERVERS}\"\n\
             add rule inet {table} forward oifname \"{name}\" udp sport 443 \
             counter name \"{TO_CLIENTS}\""
        );
    }
    text
}
