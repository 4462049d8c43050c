//! How long connection tracking keeps the entries of Midspan's sessions.
//!
//! A session has two entries, in zones of Midspan. By default the kernel keeps each for two minutes after the
//! session's end. Then a few hundred new connections a second fill its table, and a full table drops new
//! connections. The objects `ct timeout` of nftables set other times for these zones.
//!
//! The objects are in a table of their own, separate from the rules. The rules are replaced whenever a
//! listener, a bypass or the host's firewall changes. When a time-out object is removed, the kernel gives its
//! entries the host's times again.
//!
//! | state | time | reason |
//! | --- | --- | --- |
//! | `syn_sent` | at most 20 s | longer than the longest pause between two SYNs within 30 s |
//! | `syn_recv` | at most 20 s | a listener gives up a half-open connection after 7 s |
//! | `established` | at least 5 days | the entry must not end before the session's sockets (see below) |
//! | `fin_wait`, `close_wait`, `last_ack` | the host's | one direction may still be in use |
//! | `time_wait` | at most 5 s | both FINs are acknowledged; a repeated FIN starts the time again |
//! | `close` | at most 5 s | no packet is expected after a RST |
//! | `retrans`, `unack` | the host's | data is not acknowledged |
//!
//! If the entry of an established session is removed before its socket, a firewall that accepts only
//! established connections stops the session. No shorter time is necessary: a socket that ends sends a FIN or
//! a RST.

use std::fmt::Write;
use std::fs;

use super::own_tables;
use super::plan::InterceptionNumbers;
use super::rules::removal;
use midspan_linux::nftables::{self, NftablesError};

/// The ending of the table's name.
pub(crate) const SUFFIX: &str = "_timeouts";
/// Priority at the hook `output`: after the host's chains, so that packets that they drop do not
/// get here, and so that the host's own time-outs do not replace these. It is before the kernel
/// confirms an entry.
const PRIORITY: i32 = 300;
const FAMILIES: [(&str, &str); 2] = [("ipv4", "ip"), ("ipv6", "ip6")];

/// Seconds for which the entry of a session that ended normally is kept, if the kernel supports
/// time-out objects. The kernel removes the entry when it next visits it.
pub const ENDED_SECONDS: u64 = 5;
const RESET_SECONDS: u64 = 5;
const OPENING_SECONDS: u64 = 20;
const ESTABLISHED_SECONDS: u64 = 5 * 86_400;

/// A state of connection tracking: its name in nftables, the kernel's parameter, the kernel's own
/// default in seconds, and how Midspan's time follows from the host's.
type State = (&'static str, &'static str, u64, fn(u64) -> u64);

const STATES: [State; 10] = [
    ("syn_sent", "syn_sent", 120, |host| {
        host.min(OPENING_SECONDS)
    }),
    ("syn_recv", "syn_recv", 60, |host| host.min(OPENING_SECONDS)),
    ("established", "established", 432_000, |host| {
        host.max(ESTABLISHED_SECONDS)
    }),
    ("fin_wait", "fin_wait", 120, same),
    ("close_wait", "close_wait", 60, same),
    ("last_ack", "last_ack", 30, same),
    ("time_wait", "time_wait", 120, |host| {
        host.min(ENDED_SECONDS)
    }),
    ("close", "close", 10, |host| host.min(RESET_SECONDS)),
    ("retrans", "max_retrans", 300, same),
    ("unack", "unacknowledged", 300, same),
];

const fn same(host: u64) -> u64 {
    host
}

/// The table with the time-outs of connection tracking.
pub(super) enum Timeouts {
    /// For a trial, and if the kernel does not support time-outs.
    Unwanted,
    /// The table as the kernel listed it after it was put.
    Wanted { shown: Option<String> },
}

impl Timeouts {
    /// Whether the table does not need to be put. It is put again only if it has changed, because
    /// all sessions lose their time-outs when it is replaced.
    pub(super) fn are_as_put(&self, numbers: &InterceptionNumbers) -> Result<bool, NftablesError> {
        match self {
            Self::Unwanted => Ok(true),
            Self::Wanted { shown: None } => Ok(false),
            Self::Wanted { shown } => Ok(nftables::table("inet", &table(numbers))? == *shown),
        }
    }
}

/// Name of the table.
pub(crate) fn table(numbers: &InterceptionNumbers) -> String {
    format!("{}{SUFFIX}", numbers.table)
}

/// The text for `nft -f`: replaces the table as a whole.
pub(crate) fn ruleset(numbers: &InterceptionNumbers) -> String {
    text(numbers, host_seconds)
}

/// Whether the kernel and `nft` support such objects. Nothing is changed.
///
/// # Errors
/// `nft` cannot be run.
pub fn are_possible(numbers: &InterceptionNumbers) -> Result<bool, NftablesError> {
    // Under another name, so that a table in use is not touched.
    let numbers = InterceptionNumbers {
        table: format!("{}_probe", numbers.table),
        ..numbers.clone()
    };
    nftables::is_possible(&ruleset(&numbers))
}

/// The time of a state in the network namespace of the calling thread.
fn host_seconds(parameter: &str) -> Option<u64> {
    let path = format!("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_{parameter}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn text(numbers: &InterceptionNumbers, host: impl Fn(&str) -> Option<u64>) -> String {
    let table = table(numbers);
    // All states, because `nft` gives a missing state its built-in time, not the host's.
    let policy: Vec<String> = STATES
        .iter()
        .map(|(name, parameter, default, ours)| {
            let seconds = ours(host(parameter).unwrap_or(*default));
            format!("{name} : {seconds}")
        })
        .collect();
    let policy = policy.join(", ");
    let mut text = removal(&table);
    let comment = own_tables::comment(&[]);
    // Writing to a string does not fail.
    let _ = writeln!(text, "table inet {table} {{\n\tcomment \"{comment}\"");
    for (family, protocol) in FAMILIES {
        let _ = writeln!(
            text,
            "\tct timeout {family} {{\n\t\tprotocol tcp\n\t\tl3proto {protocol}\n\t\tpolicy = \
             {{ {policy} }}\n\t}}"
        );
    }
    let _ = writeln!(
        text,
        "\tchain output {{\n\t\ttype filter hook output priority {PRIORITY}; policy accept;\n\t\t\
         ct state new meta l4proto tcp ct original zone {{ {}, {} }} goto sessions\n\t}}\n\
         \tchain sessions {{",
        numbers.zone,
        numbers.server_zone(),
    );
    for (family, _) in FAMILIES {
        let _ = writeln!(
            text,
            "\t\tmeta nfproto {family} ct timeout set \"{family}\""
        );
    }
    text.push_str("\t}\n}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initial_window::MarkField;

    fn numbers() -> InterceptionNumbers {
        InterceptionNumbers {
            table: "midspan".to_owned(),
            marks: MarkField::new(0x0f00_0000).unwrap(),
            routing_table: 7690,
            rule_priority: 100,
            zone: 7700,
            queue: 7700,
            forward_priority: 100,
        }
    }

    #[test]
    fn what_has_ended_goes_soon_and_what_is_open_stays() {
        let usual = text(&numbers(), |_| None);
        assert_eq!(
            usual.matches(
                "policy = { syn_sent : 20, syn_recv : 20, established : 432000, fin_wait : 120, \
                 close_wait : 60, last_ack : 30, time_wait : 5, close : 5, retrans : 300, \
                 unack : 300 }"
            )
            .count(),
            2,
            "{usual}"
        );
        assert!(usual.contains("ct original zone { 7700, 7701 }"), "{usual}");
    }

    #[test]
    fn what_the_host_has_shortened_or_lengthened_stays_so() {
        let short = text(&numbers(), |_| Some(2));
        assert!(
            short.contains("syn_sent : 2, syn_recv : 2, established : 432000, fin_wait : 2,"),
            "{short}"
        );
        assert!(short.contains("time_wait : 2, close : 2,"), "{short}");
        let long = text(&numbers(), |_| Some(864_000));
        assert!(
            long.contains("syn_sent : 20, syn_recv : 20, established : 864000, fin_wait : 864000,"),
            "{long}"
        );
    }
}
