//! How long connection tracking keeps the entries of our sessions.
//!
//! A session has two entries, in zones of our own. By default the kernel keeps each for two minutes
//! after the session's end, so that a few hundred new connections a second fill its table, and a
//! full table drops what is new. The objects `ct timeout` of nftables give our zones other times.
//!
//! They lie in a table of their own, beside the rules. When such an object goes, the kernel gives
//! the entries that had it the host's times back, and the rules are put anew whenever a listener, a
//! bypass or the host's firewall changes.
//!
//! | state | time | reason |
//! | --- | --- | --- |
//! | `syn_sent` | at most 20 s | longer than the longest pause between two SYNs within 30 s |
//! | `syn_recv` | at most 20 s | a listener gives up a half-open connection after 7 s |
//! | `established` | at least 5 days | our sockets are the connection: an entry that goes before its socket cuts the session off where the host's firewall accepts established connections only. A socket that ends says so by a FIN or a RST |
//! | `fin_wait`, `close_wait`, `last_ack` | the host's | one direction may still be in use |
//! | `time_wait` | at most 5 s | both FINs are acknowledged; a FIN that is repeated begins it anew |
//! | `close` | at most 5 s | after a RST nothing is expected |
//! | `retrans`, `unack` | the host's | nobody acknowledges |

use std::fmt::Write;
use std::fs;

use super::own_tables;
use super::plan::Place;
use super::rules::removal;
use midspan_linux::nftables::{self, NftablesError};

/// What the name of the table ends with.
pub(crate) const SUFFIX: &str = "_timeouts";
/// At the hook `output`: behind the host's chains, so that what it drops is not looked at, and its
/// own time-outs do not replace these; ahead of where an entry is confirmed.
const PRIORITY: i32 = 300;
const FAMILIES: [(&str, &str); 2] = [("ipv4", "ip"), ("ipv6", "ip6")];

/// Seconds for which the entry of a session that has ended in good order is kept, where the kernel
/// has objects for it; it goes when the kernel next comes across it.
pub const ENDED_SECONDS: u64 = 5;
const RESET_SECONDS: u64 = 5;
const OPENING_SECONDS: u64 = 20;
const ESTABLISHED_SECONDS: u64 = 5 * 86_400;

/// A state of connection tracking: as nftables calls it, the kernel's parameter, the kernel's own
/// default in seconds, and what becomes of the host's time.
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

/// Name of the table.
pub(crate) fn table(place: &Place) -> String {
    format!("{}{SUFFIX}", place.table)
}

/// The text for `nft -f`: replaces the table as a whole.
pub(crate) fn ruleset(place: &Place) -> String {
    text(place, host_seconds)
}

/// Whether the kernel and `nft` have such objects; nothing is changed.
///
/// # Errors
/// `nft` cannot be run.
pub fn are_possible(place: &Place) -> Result<bool, NftablesError> {
    // Under another name: a table that is in use is not touched.
    let place = Place {
        table: format!("{}_probe", place.table),
        ..place.clone()
    };
    nftables::is_possible(&ruleset(&place))
}

/// The time of a state in the network namespace of the calling thread.
fn host_seconds(parameter: &str) -> Option<u64> {
    let path = format!("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_{parameter}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn text(place: &Place, host: impl Fn(&str) -> Option<u64>) -> String {
    let table = table(place);
    // All of them: what is left out gets a time that `nft` has built in, not the host's.
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
        place.zone,
        place.server_zone(),
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

    fn place() -> Place {
        Place {
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
        let usual = text(&place(), |_| None);
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
        let short = text(&place(), |_| Some(2));
        assert!(
            short.contains("syn_sent : 2, syn_recv : 2, established : 432000, fin_wait : 2,"),
            "{short}"
        );
        assert!(short.contains("time_wait : 2, close : 2,"), "{short}");
        let long = text(&place(), |_| Some(864_000));
        assert!(
            long.contains("syn_sent : 20, syn_recv : 20, established : 864000, fin_wait : 864000,"),
            "{long}"
        );
    }
}
