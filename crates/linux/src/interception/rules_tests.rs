//! The text, line by line; whether kernels take it is tested in namespaces.

use std::collections::BTreeSet;

use super::plan::{Marks, Place, Plan, Selection};
use super::rules::{Machine, QueueWay, ruleset};
use crate::initial_window::MarkField;
use crate::netlink::Prefix;

fn plan() -> Plan {
    Plan {
        place: Place {
            table: "midspan".to_owned(),
            marks: MarkField::new(0x0f00_0000).unwrap(),
            routing_table: 7690,
            rule_priority: 100,
            zone: 7700,
            queue: 7700,
            forward_priority: 100,
        },
        selections: vec![
            Selection {
                interfaces: vec!["acc".to_owned(), "ppp*".to_owned()],
                ipv4_port: Some(1234),
                ipv6_port: Some(2345),
                ports: vec![8000..=8100, 80..=80, 8101..=8200],
                except_ports: vec![22..=22],
                except: vec![
                    Prefix {
                        address: "192.0.2.0".parse().unwrap(),
                        length: 24,
                    },
                    Prefix {
                        address: "2001:db8::1".parse().unwrap(),
                        length: 128,
                    },
                ],
            },
            Selection {
                interfaces: vec!["acc".to_owned()],
                ipv4_port: Some(3456),
                ..Selection::default()
            },
        ],
        client_leg_marks: BTreeSet::from([0x0100_0000]),
        server_leg_marks: BTreeSet::new(),
    }
}

fn text(way: QueueWay, taking: bool) -> String {
    let plan = plan();
    let marks = Marks::new(plan.place.marks, 2, 1).unwrap();
    let machine = Machine {
        queue: way,
        early_demux: false,
    };
    ruleset(&plan, &marks, machine, taking)
}

/// The lines of a chain, without indentation.
fn chain(text: &str, name: &str) -> Vec<String> {
    text.split_once(&format!("\tchain {name} {{\n"))
        .map(|(_, rest)| rest.split_once("\t}\n").unwrap().0)
        .unwrap_or_default()
        .lines()
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn the_table_is_replaced_as_a_whole() {
    let text = text(QueueWay::Statement, true);
    let start = "table inet midspan\ndelete table inet midspan\ntable inet midspan {\n";
    assert!(text.starts_with(start), "{text}");
    assert!(text.ends_with("\t}\n}\n"));
}

#[test]
fn a_listener_takes_what_it_is_told_and_leaves_the_rest() {
    assert_eq!(
        chain(&text(QueueWay::Statement, true), "take_0"),
        [
            "ct status confirmed return",
            "ct status dnat return",
            "ct state untracked return",
            "tcp sport < 1024 return",
            "ip daddr 192.0.2.0/24 return",
            "ip saddr 192.0.2.0/24 return",
            "ip6 daddr 2001:db8::1/128 return",
            "ip6 saddr 2001:db8::1/128 return",
            "tcp dport { 22 } return",
            "tcp dport != { 80, 8000-8200 } return",
            "meta mark set meta mark & 0xf0ffffff | 0x0c000000 accept",
        ]
    );
    assert_eq!(
        chain(&text(QueueWay::Statement, true), "take_1")[4..],
        [
            "meta nfproto ipv6 return",
            "meta mark set meta mark & 0xf0ffffff | 0x0b000000 accept",
        ]
    );
}

#[test]
fn only_first_segments_from_client_interfaces_are_taken() {
    let syn = "tcp flags & (fin|syn|rst|ack) == syn";
    assert_eq!(
        chain(&text(QueueWay::Statement, true), "take"),
        [
            "type filter hook forward priority 100; policy accept;".to_owned(),
            format!("iifname \"acc\" {syn} jump take_0"),
            format!("iifname \"ppp*\" {syn} jump take_0"),
            format!("iifname \"acc\" {syn} jump take_1"),
        ]
    );
}

#[test]
fn while_nothing_is_taken_the_legs_keep_their_rules() {
    let (on, off) = (
        text(QueueWay::Statement, true),
        text(QueueWay::Statement, false),
    );
    assert!(!off.contains("chain take"));
    for name in ["client_side", "server_side", "output", "untaken"] {
        assert_eq!(chain(&on, name), chain(&off, name));
        assert!(!chain(&on, name).is_empty(), "{name}");
    }
}

#[test]
fn the_queue_lets_pass_when_nobody_listens() {
    assert_eq!(
        chain(&text(QueueWay::Statement, true), "queue"),
        [
            "type filter hook forward priority 101; policy accept;",
            "meta mark & 0x0f000000 == { 0x0c000000, 0x0b000000 } queue flags bypass to 7700",
        ]
    );
    assert!(!text(QueueWay::Target, true).contains("queue flags"));
}

#[test]
fn zones_are_for_our_sockets_only() {
    assert_eq!(
        chain(&text(QueueWay::Statement, true), "output")[1..],
        [
            "meta mark & 0x0f000000 == { 0x0f000000, 0x01000000, 0x0c000000, 0x0b000000 } \
             ct zone set 7700",
            "meta mark & 0x0f000000 == 0x0e000000 ct original zone set 7701",
        ]
    );
}

#[test]
fn with_early_demux_an_old_socket_makes_room() {
    let plan = plan();
    let marks = Marks::new(plan.place.marks, 2, 1).unwrap();
    let text = |early_demux| {
        let machine = Machine {
            queue: QueueWay::Statement,
            early_demux,
        };
        chain(&ruleset(&plan, &marks, machine, true), "syn_for_socket")
    };
    assert_eq!(text(false).len(), 1);
    assert_eq!(
        text(true)[1..],
        [
            "socket wildcard 0 return",
            "socket wildcard 1 return",
            "meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:1234 drop",
            "meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:2345 drop",
        ]
    );
}
