//! After this gateway has taken over from another one: packets of connections that it does not know are answered by a
//! reset, for a limited time.
//!
//! The other gateway had the sessions that it split. Their packets now arrive here, in the middle of a connection
//! with sequence numbers that fit no other end. Without an answer, client and server would repeat them for a quarter of
//! an hour; with a reset, both begin again at once. Connections that passed the other gateway untouched would continue
//! without this module. So they are known only if their entries of connection tracking are here, which the
//! program conntrackd provides.
//!
//! The rules are in a table of their own, in which the kernel lets an element expire when the time is over. From then on
//! they match nothing. They need no running Midspan.

use std::fmt::Write;
use std::io;
use std::time::Duration;

use midspan_linux::nftables::{self, NftablesError, named_counters};

use crate::interception::{InterceptionNumbers, own_tables};

/// The ending of the table's name.
pub(crate) const SUFFIX: &str = "_takeover";
const COUNTER: &str = "resets";
/// Before `filter` (0), where hosts have their rules: these often drop packets of unknown connections.
const BEFORE_FILTER: i32 = -5;
/// The set whose element expires.
const ACTIVE: &str = "active";

/// Name of the table.
fn table(numbers: &InterceptionNumbers) -> String {
    format!("{}{SUFFIX}", numbers.table)
}

/// From now on, and for this time, packets from and to the clients of these interfaces that belong to no known
/// connection are answered by a reset. If this is so already, the time begins again, and the counter continues.
///
/// # Errors
/// `nft` cannot be run, or the kernel refuses the rules.
pub fn begin<'a>(
    numbers: &InterceptionNumbers,
    interfaces: impl Iterator<Item = &'a str>,
    time: Duration,
) -> Result<(), NftablesError> {
    nftables::apply(&ruleset(&table(numbers), interfaces, time))
}

/// Ends the resets before their time. Does nothing if there are none.
///
/// # Errors
/// `nft` cannot be run.
pub fn end(numbers: &InterceptionNumbers) -> Result<(), NftablesError> {
    let table = table(numbers);
    nftables::apply(&format!("table inet {table}\ndelete table inet {table}\n"))
}

/// Packets that have been answered by a reset.
///
/// # Errors
/// There was no takeover, or those of netlink sockets.
pub fn resets(numbers: &InterceptionNumbers) -> io::Result<u64> {
    let [resets] = named_counters(&table(numbers), [COUNTER])?;
    Ok(resets.packets)
}

/// The text for `nft -f`.
fn ruleset<'a>(table: &str, interfaces: impl Iterator<Item = &'a str>, time: Duration) -> String {
    let comment = own_tables::comment(&[]);
    let milliseconds = time.as_millis().max(1);
    let mut text = format!(
        "table inet {table} {{\n\tcomment \"{comment}\"\n\
         \tcounter {COUNTER} {{\n\t}}\n\
         \tset {ACTIVE} {{\n\t\ttype inet_proto; flags timeout\n\t}}\n\
         \tchain answer {{\n\t}}\n\
         \tchain forward {{\n\t\ttype filter hook forward priority {BEFORE_FILTER}; policy accept;\n\t}}\n}}\n\
         flush chain inet {table} forward\nflush chain inet {table} answer\n\
         add element inet {table} {ACTIVE} {{ tcp }}\n\
         delete element inet {table} {ACTIVE} {{ tcp }}\n\
         add element inet {table} {ACTIVE} {{ tcp timeout {milliseconds}ms }}\n\
         add rule inet {table} answer meta l4proto != @{ACTIVE} return\n\
         add rule inet {table} answer meta l4proto != tcp return\n\
         add rule inet {table} answer tcp flags & (syn | rst) != 0 return\n\
         add rule inet {table} answer counter name \"{COUNTER}\" reject with tcp reset\n"
    );
    for name in interfaces {
        for way in ["iifname", "oifname"] {
            // Writing to a string does not fail. The first packet of a connection that is picked up in its middle has
            // the state `new`, if the kernel picks it up at all (`nf_conntrack_tcp_loose`).
            let _ = writeln!(
                text,
                "add rule inet {table} forward {way} \"{name}\" meta l4proto tcp ct state {{ invalid, new }} \
                 jump answer"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interface_has_a_rule_for_each_direction() {
        let interfaces = ["eth1", "ppp*"].into_iter();
        let text = ruleset("midspan_takeover", interfaces, Duration::from_secs(600));
        for rule in [
            "iifname \"eth1\" meta l4proto tcp ct state { invalid, new } jump answer",
            "oifname \"eth1\" meta l4proto tcp ct state { invalid, new } jump answer",
            "iifname \"ppp*\" meta l4proto tcp",
            "tcp timeout 600000ms",
        ] {
            assert!(text.contains(rule), "{rule} is not in\n{text}");
        }
    }
}
