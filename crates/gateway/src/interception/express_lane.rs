//! The express lane: connections that the host's firewall is not asked about again, as sets and rules.
//! Without I/O.
//!
//! Usually each SYN passes the host's chains at the hook `forward`, waits in the queue, and is sent again by
//! the relay. If a listener has a [cache of verdicts](super::plan::Selection::firewall_cache), the tables here
//! keep two facts about a client, a server and its port for that time:
//!
//! - `asked`: a SYN from this interface has passed the host's chains at `forward`;
//! - `taken`: the relay has taken a connection for this listener, and has chosen no initial window for it.
//!
//! If both are there, the kernel itself sends the next SYN to the listener: at `prerouting`, before connection
//! tracking, a rule sends a copy of the SYN to `lo`, with the mark and the hop limit that the relay would have
//! given it, and drops the SYN. From there on, the copy takes the way of a SYN that the relay has sent again.
//! Therefore the host's chains at `input` and `output` see the same as without an express lane.
//!
//! Connections in the express lane begin with the usual initial window. If the relay chooses a larger one,
//! it has to decide about each connection, because large flights of many connections together are too much.
//!
//! The time begins when the firewall is asked. A connection in the express lane does not prolong it.
//!
//! The statement `dup` belongs to the families `ip` and `ip6`, and not to `inet`. Therefore there is one table
//! for each family. There is a set `taken` for each listener, and not one map of all: `nft` 1.0.6 crashes if a
//! packet changes a map whose keys have two IPv6 addresses.

mod obstacles;
mod state;

pub use state::ExpressLane;

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::chain::Chain;
use super::mark_matches::marked;
use super::own_tables;
use super::plan::{InterceptionNumbers, Marks, Plan, Selection};
use super::queue_target;
use super::rules::{BEFORE_CONNTRACK, SYN};

/// The ending of the tables' names.
pub(crate) const SUFFIX: &str = "_express";
/// Most elements of a set. Without room, connections take the usual way.
const SIZE: usize = 65_536;
/// The hop limit of a SYN for the sockets without a rung. No rung has this one.
const NO_RUNG: u8 = 64;
/// `dup` decrements the hop limit of the copy at `prerouting`.
const DECREMENT: u8 = 1;
/// The set of connections that the host's firewall was asked about.
const ASKED: &str = "asked";
/// A copy has this priority, which no SYN that the relay has sent again has. The time must not begin again with
/// a copy.
const BECOMES_COPY: &str = "meta priority set 1:0";
const IS_COPY: &str = "meta priority 1:0";
/// SYNs that the relay lets pass untouched: of clients without a port for the server leg, of Multipath TCP,
/// and with the options of TCP-MD5 and TCP-AO.
const UNTOUCHED: [&str; 4] = [
    "tcp sport < 1024",
    "tcp option mptcp exists",
    "tcp option 19 exists",
    "tcp option 29 exists",
];

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    /// Its name in nftables, which is also the name of its header.
    pub name: &'static str,
    address: &'static str,
    hop_limit: &'static str,
    loopback: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family {
        name: "ip",
        address: "ipv4_addr",
        hop_limit: "ip ttl",
        loopback: "127.0.0.1",
    },
    Family {
        name: "ip6",
        address: "ipv6_addr",
        hop_limit: "ip6 hoplimit",
        loopback: "::1",
    },
];

/// Name of the tables.
pub(crate) fn table(numbers: &InterceptionNumbers) -> String {
    format!("{}{SUFFIX}", numbers.table)
}

/// Removes the tables of an earlier run, if there are any.
pub(super) fn remove(numbers: &InterceptionNumbers) -> io::Result<()> {
    // These, too, are one table for each family.
    queue_target::remove(&table(numbers))
}

/// The families with an express lane.
pub(super) fn families(plan: &Plan) -> impl Iterator<Item = Family> {
    let has = |family: &Family| (plan.selections.iter()).any(|of| takes(of, *family).is_some());
    FAMILIES.into_iter().filter(has)
}

/// The text for `nft -f`: replaces the tables of the families that have an express lane.
pub(super) fn ruleset(plan: &Plan, marks: &Marks) -> String {
    let mut text = String::new();
    for family in families(plan) {
        text.push_str(&removal(&plan.numbers, family));
        text.push_str(&table_of(plan, marks, family));
    }
    text
}

/// The text for `nft -f` that removes the table of a family, if there is one.
pub(super) fn removal(numbers: &InterceptionNumbers, family: Family) -> String {
    let (family, table) = (family.name, table(numbers));
    format!("table {family} {table}\ndelete table {family} {table}\n")
}

/// The text for `nft -f` after which the firewall is asked about the next connection of each client.
pub(super) fn flush(plan: &Plan) -> String {
    let table = table(&plan.numbers);
    let mut text = String::new();
    for family in families(plan) {
        let selections = plan.selections.iter().enumerate();
        let lanes = selections.filter(|(_, of)| takes(of, family).is_some());
        let sets = lanes.map(|(index, _)| taken(index));
        for set in sets.chain([ASKED.to_owned()]) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "flush set {} {table} {set}", family.name);
        }
    }
    text
}

fn table_of(plan: &Plan, marks: &Marks, family: Family) -> String {
    let Family { name, address, .. } = family;
    let mut text = format!("table {name} {} {{\n", table(&plan.numbers));
    // Writing to a string does not fail.
    let _ = writeln!(text, "\tcomment \"{}\"", own_tables::comment(&[]));
    let mut set = |name: &str, first: &str| {
        let _ = writeln!(
            text,
            "\tset {name} {{\n\t\ttype {first}{address} . {address} . inet_service\n\t\t\
             size {SIZE}; flags dynamic,timeout\n\t}}"
        );
    };
    set(ASKED, "iface_index . ");
    let mask = marks.mask;
    let mut sent_again = Chain::regular("sent_again");
    let mut prerouting = Chain::base("prerouting", "filter", "prerouting", BEFORE_CONNTRACK - 1)
        .rule(format!(
            "iifname \"lo\" {SYN} meta mark & {mask:#010x} != 0 goto sent_again"
        ));
    let forward_priority = plan.numbers.forward_priority;
    let mut forward = Chain::base("forward", "filter", "forward", forward_priority);
    let ends = format!("{name} saddr . {name} daddr . tcp dport");
    let mut lanes = Vec::new();
    let selections = plan.selections.iter().zip(&marks.listeners);
    for (index, (selection, mark)) in selections.enumerate() {
        let Some((time, listener)) = takes(selection, family) else {
            continue;
        };
        let (seconds, taken) = (time.as_secs(), taken(index));
        set(&taken, "");
        let has_no_rung = match selection.rungs.is_empty() {
            true => String::new(),
            false => format!(" {} {NO_RUNG}", family.hop_limit),
        };
        let is_marked = marked(mask, [mark]);
        sent_again = sent_again
            .rule(format!(
                "{IS_COPY} {is_marked} meta l4proto tcp tproxy to {listener} accept"
            ))
            // No relay listens any more: the client's next SYN takes the usual way.
            .rule(format!(
                "{IS_COPY} {is_marked} delete @{taken} {{ {ends} }} drop"
            ))
            .rule(format!(
                "{is_marked}{has_no_rung} add @{taken} {{ {ends} timeout {seconds}s }}"
            ));
        let lane = format!("express_{index}");
        for interface in &selection.interfaces {
            prerouting = prerouting.rule(format!("iifname \"{interface}\" {SYN} jump {lane}"));
            forward = forward.rule(format!(
                "iifname \"{interface}\" {SYN} add @{ASKED} {{ iif . {ends} timeout {seconds}s }}"
            ));
        }
        lanes.push(
            Chain::regular(&lane)
                .rules(UNTOUCHED.map(|condition| format!("{condition} return")))
                .rule(format!("iif . {ends} != @{ASKED} return"))
                .rule(format!("{ends} @{taken} {}", copy(family, (mask, *mark)))),
        );
    }
    for chain in lanes.into_iter().chain([sent_again, prerouting, forward]) {
        let _ = write!(text, "{chain}");
    }
    text.push_str("}\n");
    text
}

/// Sends a copy to the listening sockets with this mark, and drops the packet.
fn copy(family: Family, (mask, mark): (u32, u32)) -> String {
    let (loopback, others) = (family.loopback, !mask);
    let set_hop_limit = format!("{} set {}", family.hop_limit, NO_RUNG + DECREMENT);
    format!(
        "{set_hop_limit} meta mark set meta mark & {others:#010x} | {mark:#010x} {BECOMES_COPY} \
         dup to {loopback} device \"lo\" drop"
    )
}

/// The name of the set of connections of the selection with this index that the relay has taken.
fn taken(index: usize) -> String {
    format!("taken_{index}")
}

/// For how long a selection keeps verdicts about connections of a family, and where it listens.
fn takes(selection: &Selection, family: Family) -> Option<(Duration, SocketAddr)> {
    let (address, port): (IpAddr, _) = match family.name {
        "ip" => (Ipv4Addr::LOCALHOST.into(), selection.ipv4_port),
        _ => (Ipv6Addr::LOCALHOST.into(), selection.ipv6_port),
    };
    Some((selection.firewall_cache?, SocketAddr::new(address, port?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interception::{Rung, rules_tests};

    fn plan(selection: Selection) -> Plan {
        Plan {
            selections: vec![Selection::default(), selection],
            ..rules_tests::plan()
        }
    }

    fn selection() -> Selection {
        Selection {
            slot: 1,
            interfaces: vec!["eth1".to_owned()],
            ipv4_port: Some(1234),
            firewall_cache: Some(Duration::from_secs(10)),
            ..Selection::default()
        }
    }

    fn text(plan: &Plan) -> String {
        let marks = Marks::new(plan.numbers.marks, 2, 0).unwrap();
        ruleset(plan, &marks)
    }

    #[test]
    fn only_families_and_listeners_with_a_cache_have_rules() {
        let none = Selection {
            firewall_cache: None,
            ..selection()
        };
        assert_eq!(text(&plan(none)), "");
        let four = text(&plan(selection()));
        assert!(four.starts_with("table ip midspan_express\ndelete table ip midspan_express\n"));
        assert!(!four.contains("ip6"), "{four}");
        let added = "meta mark & 0x0f000000 == 0x0a000000 add @taken_1 \
                     { ip saddr . ip daddr . tcp dport timeout 10s }";
        assert!(four.contains(added), "{four}");
        assert!(!four.contains("taken_0"), "{four}");
        assert_eq!(flush(&plan(selection())).lines().count(), 2);
    }

    #[test]
    fn a_chosen_initial_window_is_decided_by_the_relay() {
        let with_rung = Selection {
            rungs: vec![Rung {
                hop_limit: 72,
                ..Rung::default()
            }],
            ..selection()
        };
        let text = text(&plan(with_rung));
        assert!(
            text.contains("== 0x0a000000 ip ttl 64 add @taken_1"),
            "{text}"
        );
        assert!(text.contains("ip ttl set 65 "), "{text}");
        assert!(!text.contains("72"), "{text}");
    }
}
