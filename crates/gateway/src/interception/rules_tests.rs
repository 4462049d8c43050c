//! Tests of the text, line by line. Tests in namespaces check that kernels accept it.

use std::collections::BTreeSet;

use midspan_linux::nftables::{self, NftablesError};

use super::machine::{Machine, QueueMethod};
use super::plan::{FormerListeners, FormerSessions, InterceptionNumbers, Marks, Plan, Selection};
use super::port_reuse::ReusePorts;
use super::rules::ruleset;
use crate::initial_window::MarkField;

const REUSE_PORTS: ReusePorts = ReusePorts {
    ipv4: Some(3333),
    ipv6: Some(4444),
};

const MACHINE: Machine = Machine {
    queue: QueueMethod::Statement,
    reuse_ports: REUSE_PORTS,
    early_demux_was: true,
    takes_vrfs: true,
};

pub(super) fn plan() -> Plan {
    Plan {
        numbers: InterceptionNumbers {
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
                slot: 0,
                rungs: Vec::new(),
                interfaces: vec!["acc".to_owned(), "ppp*".to_owned()],
                ipv4_port: Some(1234),
                ipv6_port: Some(2345),
                ports: vec![8000..=8100, 80..=80, 8101..=8200],
                except_ports: vec![22..=22],
                except: vec![
                    "192.0.2.0/24".parse().unwrap(),
                    "2001:db8::1/128".parse().unwrap(),
                ],
                rejects_quic: false,
                firewall_cache: None,
            },
            Selection {
                slot: 1,
                interfaces: vec!["acc".to_owned()],
                ipv4_port: Some(3456),
                ..Selection::default()
            },
        ],
        as_clients: false,
        more_interfaces: BTreeSet::new(),
        bypasses: Vec::new(),
        left_alone: Default::default(),
        client_leg_marks: BTreeSet::from([0x0100_0000]),
        server_leg_marks: BTreeSet::new(),
        former_sessions: Vec::new(),
        former_listeners: None,
    }
}

fn text(method: QueueMethod, taking: bool) -> String {
    let plan = plan();
    let marks = Marks::new(plan.numbers.marks, 2, 1).unwrap();
    let machine = Machine {
        queue: method,
        ..MACHINE
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
    let text = text(QueueMethod::Statement, true);
    let start = "table inet midspan\ndelete table inet midspan\ntable inet midspan {\n";
    assert!(text.starts_with(start), "{text}");
    assert!(text.ends_with("\t}\n}\n"));
}

/// Whether or not this kernel has all of it, and whether or not this process may ask the kernel.
#[test]
fn nft_can_read_the_text() {
    for method in [QueueMethod::Statement, QueueMethod::Target] {
        let text = text(method, true);
        let complaint = match nftables::check(&text) {
            Ok(()) => String::new(),
            Err(NftablesError::Refused { complaint, .. }) => complaint,
            Err(error) => panic!("{error}"),
        };
        assert!(!complaint.contains("syntax error"), "{complaint}\n{text}");
    }
}

#[test]
fn a_listener_takes_what_it_is_told_and_leaves_the_rest() {
    assert_eq!(
        chain(&text(QueueMethod::Statement, true), "intercept_0"),
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
            "meta mark set meta mark & 0xf0ffffff | 0x0b000000 accept",
        ]
    );
    assert_eq!(
        chain(&text(QueueMethod::Statement, true), "intercept_1")[4..],
        [
            "meta nfproto ipv6 return",
            "meta mark set meta mark & 0xf0ffffff | 0x0a000000 accept",
        ]
    );
}

#[test]
fn only_first_segments_from_client_interfaces_are_taken() {
    let syn = "tcp flags & (fin|syn|rst|ack) == syn";
    assert_eq!(
        chain(&text(QueueMethod::Statement, true), "intercept")
            .into_iter()
            .filter(|rule| !rule.contains("@watched") && !rule.contains("@left_alone"))
            .collect::<Vec<_>>(),
        [
            "type filter hook forward priority 100; policy accept;".to_owned(),
            format!("iifname \"acc\" {syn} jump intercept_0"),
            format!("iifname \"ppp*\" {syn} jump intercept_0"),
            format!("iifname \"acc\" {syn} jump intercept_1"),
        ]
    );
}

/// Only where packets of a VRF do not reach the sockets.
#[test]
fn clients_in_a_vrf_pass_first() {
    let plan = plan();
    let marks = Marks::new(plan.numbers.marks, 2, 1).unwrap();
    let first_rule = |takes_vrfs| {
        let machine = Machine {
            takes_vrfs,
            ..MACHINE
        };
        chain(&ruleset(&plan, &marks, machine, true), "intercept")[1].to_owned()
    };
    let pass = "meta iifkind \"vrf\" return";
    assert_eq!(first_rule(false), pass);
    assert_ne!(first_rule(true), pass);
}

#[test]
fn while_nothing_is_taken_the_legs_keep_their_rules() {
    let (on, off) = (
        text(QueueMethod::Statement, true),
        text(QueueMethod::Statement, false),
    );
    assert!(!off.contains("chain intercept"));
    for name in [
        "client_side",
        "from_this_machine",
        "from_clients",
        "server_side",
        "output",
        "untaken",
    ] {
        assert_eq!(chain(&on, name), chain(&off, name));
        assert!(!chain(&on, name).is_empty(), "{name}");
    }
}

#[test]
fn packets_of_other_interfaces_and_of_sessions_that_go_on_see_few_rules() {
    let text = text(QueueMethod::Statement, true);
    assert_eq!(
        chain(&text, "client_side")[1..],
        [
            "iifname \"lo\" goto from_this_machine",
            "iifname \"acc\" goto from_clients",
            "iifname \"ppp*\" goto from_clients",
        ]
    );
    // After the rule for SYNs, before any other match of a socket.
    assert_eq!(
        chain(&text, "from_clients")[1],
        "meta l4proto tcp socket transparent 1 \
         socket mark & 0x0f000000 == { 0x0f000000, 0x01000000 } goto client_leg"
    );
    let ours = "meta mark & 0x0f000000 != 0 accept";
    assert_eq!(chain(&text, "server_side")[1], ours);
    assert_eq!(
        chain(&text, "server_side_behind_nat")[1],
        "meta nfproto ipv4 accept"
    );
}

#[test]
fn quic_is_rejected_only_where_its_tcp_would_be_intercepted() {
    let mut plan = plan();
    plan.selections[0].rejects_quic = true;
    let marks = Marks::new(plan.numbers.marks, 2, 1).unwrap();
    let text = |taking| ruleset(&plan, &marks, MACHINE, taking);
    let take = chain(&text(true), "intercept");
    let quic: Vec<&String> = take.iter().filter(|rule| rule.contains("udp")).collect();
    assert_eq!(
        quic,
        [
            "udp dport 443 ct state new ip saddr . ip daddr @left_alone_ipv4 return",
            "udp dport 443 ct state new ip6 saddr . ip6 daddr @left_alone_ipv6 return",
            "iifname \"acc\" udp dport 443 ct state new jump quic_0",
            "iifname \"ppp*\" udp dport 443 ct state new jump quic_0",
        ]
    );
    assert_eq!(
        chain(&text(true), "quic_0"),
        [
            "ct status dnat return",
            "ip daddr 192.0.2.0/24 return",
            "ip saddr 192.0.2.0/24 return",
            "ip6 daddr 2001:db8::1/128 return",
            "ip6 saddr 2001:db8::1/128 return",
            // They share the queue with SYNs, and must not fill it.
            "limit rate over 500/second burst 128 packets drop",
            "meta mark set meta mark & 0xf0ffffff | 0x0b000000 accept",
        ]
    );
    assert!(!text(false).contains("udp dport"));
}

#[test]
fn the_queue_lets_pass_when_nobody_listens() {
    assert_eq!(
        chain(&text(QueueMethod::Statement, true), "to_queue"),
        [
            "type filter hook forward priority 101; policy accept;",
            "meta mark & 0x0f000000 == { 0x0b000000, 0x0a000000 } queue flags bypass to 7700",
        ]
    );
    assert!(!text(QueueMethod::Target, true).contains("queue flags"));
}

#[test]
fn zones_are_for_our_sockets_only() {
    assert_eq!(
        chain(&text(QueueMethod::Statement, true), "output")[1..],
        [
            "meta mark & 0x0f000000 == { 0x0f000000, 0x01000000, 0x0b000000, 0x0a000000 } \
             ct zone set 7700",
            "meta mark & 0x0f000000 == 0x0e000000 ct original zone set 7701",
        ]
    );
}

#[test]
fn a_socket_in_time_wait_makes_room_for_a_new_connection() {
    let mut plan = plan();
    let marks = Marks::new(plan.numbers.marks, 2, 1).unwrap();
    let text = |plan: &Plan| chain(&ruleset(plan, &marks, MACHINE, true), "syn_for_socket");
    let both = text(&plan);
    assert_eq!(
        both[1..],
        [
            "socket wildcard 0 return",
            "socket wildcard 1 return",
            "meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:3333 goto client_leg",
            "meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:4444 goto client_leg",
        ]
    );
    // The kernel may lack `tproxy` for IPv6.
    plan.leave_out_ipv6();
    assert_eq!(text(&plan), both[..4]);
}

#[test]
fn what_completes_a_watched_connection_is_shown_to_the_relay_once() {
    let text = text(QueueMethod::Statement, true);
    let ends = "ip6 saddr . tcp sport . ip6 daddr . tcp dport";
    let rule = format!(
        "iifname \"ppp*\" tcp flags & (fin|syn|rst|ack) == ack ct state != established {ends} \
         @watched_ipv6 delete @watched_ipv6 {{ {ends} }} \
         meta mark set meta mark & 0xf0ffffff | 0x0b000000 accept"
    );
    let intercept = chain(&text, "intercept");
    assert!(intercept.contains(&rule), "{intercept:?}");
    let watch = format!("meta mark & 0x0f000000 == 0x0c000000 add @watched_ipv6 {{ {ends} }}");
    assert!(chain(&text, "untaken").contains(&watch));
}

#[test]
fn what_is_bypassed_is_asked_first() {
    let mut plan = plan();
    plan.bypasses = vec![
        "192.0.2.0/24".parse().unwrap(),
        "192.0.2.7/32".parse().unwrap(),
        "::/0".parse().unwrap(),
    ];
    let marks = Marks::new(plan.numbers.marks, 2, 1).unwrap();
    let machine = Machine {
        early_demux_was: false,
        ..MACHINE
    };
    let text = ruleset(&plan, &marks, machine, true);
    assert!(
        text.contains("elements = { 192.0.2.0/24, 192.0.2.7/32 }"),
        "{text}"
    );
    assert_eq!(
        chain(&text, "intercept")[1..4],
        [
            "ip daddr @bypass_ipv4 return",
            "ip saddr @bypass_ipv4 return",
            "meta nfproto ipv6 return",
        ]
    );
}

#[test]
fn connections_of_a_listener_that_has_gone_go_on() {
    let mut plan = plan();
    plan.more_interfaces = BTreeSet::from(["old".to_owned()]);
    plan.selections.clear();
    let marks = Marks::with_slots(plan.numbers.marks, &[], 1).unwrap();
    let machine = Machine {
        early_demux_was: false,
        ..MACHINE
    };
    let text = ruleset(&plan, &marks, machine, true);
    let rules = chain(&text, "client_side");
    let way = "iifname \"old\" goto from_clients".to_owned();
    assert!(rules.contains(&way), "{rules:?}");
    assert!(!text.contains("jump intercept_"));
}

#[test]
fn a_socket_that_is_just_being_replaced_is_looked_for_twice_and_never_missed_for_long() {
    let text = text(QueueMethod::Statement, true);
    let look = "meta l4proto { tcp, icmp, icmpv6 } socket transparent 1 jump our_socket";
    let looks = chain(&text, "from_clients");
    assert_eq!(looks.iter().filter(|rule| *rule == look).count(), 2);
    // The packet that completes the handshake is put into the set before the kernel replaces the
    // socket …
    let ours = chain(&text, "our_socket");
    let note = "update @opening_ipv4 { ip saddr . tcp sport . ip daddr . tcp dport }";
    assert!(ours.contains(&note.to_owned()), "{ours:?}");
    // … and a SYN is not, because there may be more SYNs at a time than the set holds.
    assert!(!looks.iter().any(|rule| rule.contains("opening")));
    assert!(text.contains("size 65536; flags dynamic,timeout; timeout 200ms"));
    // A rule for a full socket never depends on an earlier match that found a half-open socket.
    assert!(!ours.iter().any(|rule| rule.contains("return")), "{ours:?}");
}

#[test]
fn a_syn_for_another_window_goes_to_other_sockets() {
    let mut plan = plan();
    plan.selections[0].rungs.push(crate::interception::Rung {
        hop_limit: 66,
        ipv4_port: Some(4567),
        ipv6_port: Some(5678),
    });
    let marks = Marks::new(plan.numbers.marks, 2, 1).unwrap();
    let text = ruleset(&plan, &marks, MACHINE, true);
    let four = text
        .find("ip ttl 66 tproxy ip to 127.0.0.1:4567 accept")
        .unwrap();
    let six = text
        .find("ip6 hoplimit 66 tproxy ip6 to [::1]:5678 accept")
        .unwrap();
    let usual = text.find("tproxy ip to 127.0.0.1:1234 accept").unwrap();
    assert!(four < usual && six < usual);
}

#[test]
fn sessions_with_former_numbers_keep_their_zones() {
    let mut plan = plan();
    let numbers = InterceptionNumbers {
        marks: MarkField::new(0x00f0_0000).unwrap(),
        zone: 7800,
        ..plan.numbers.clone()
    };
    let sessions = FormerSessions::new(&numbers, &BTreeSet::from([0x0010_0000]), &[].into());
    plan.continue_sessions(sessions.unwrap());
    let marks = Marks::new(plan.numbers.marks, 2, 1).unwrap();
    let text = ruleset(&plan, &marks, MACHINE, true);
    let client = "socket mark & 0x00f00000 == { 0x00100000, 0x00f00000 } goto former_client_leg_0";
    let server = "socket mark & 0x00f00000 == 0x00e00000 goto to_this_machine";
    let from_clients = format!("meta l4proto tcp socket transparent 1 {client}");
    assert!(
        chain(&text, "from_clients").contains(&from_clients),
        "{text}"
    );
    for (name, rules) in [
        ("syn_for_socket", vec![client]),
        ("our_whole_socket", vec![client, server]),
        ("server_leg", vec![server]),
        (
            "former_client_leg_0",
            vec!["ct zone set 7800 goto to_this_machine"],
        ),
        (
            "output",
            vec![
                "meta mark & 0x00f00000 == { 0x00100000, 0x00f00000 } ct zone set 7800",
                "meta mark & 0x00f00000 == 0x00e00000 ct original zone set 7801",
            ],
        ),
    ] {
        let present = chain(&text, name);
        for rule in rules {
            assert!(present.contains(&rule.to_owned()), "{name}: {present:?}");
        }
    }
    let time_wait = "ct direction reply ct original zone != { 7701, 7801 } return".to_owned();
    assert!(chain(&text, "server_leg").contains(&time_wait));
    // While the former relay still opens connections, half-open sockets are its own, and it sends SYNs again.
    let last = |text: &str, name: &str| chain(text, name).last().cloned().unwrap();
    assert_eq!(last(&text, "our_socket"), "goto client_leg");
    plan.former_listeners = Some(FormerListeners {
        marks: numbers.marks,
        selections: vec![Selection {
            slot: 1,
            ipv4_port: Some(4321),
            ..Selection::default()
        }],
    });
    let text = ruleset(&plan, &marks, MACHINE, true);
    assert_eq!(last(&text, "our_socket"), "goto former_client_leg_0");
    assert!(last(&text, "syn_for_socket").ends_with("goto former_client_leg_0"));
    let again = chain(&text, "from_this_machine");
    assert_eq!(
        again[..2],
        [
            "meta mark & 0x00f00000 == 0x00a00000 meta l4proto tcp meta nfproto ipv4 tproxy ip to \
             127.0.0.1:4321 accept",
            "meta mark & 0x00f00000 == 0x00a00000 drop",
        ]
    );
    for (name, rule) in [
        (
            "output",
            "meta mark & 0x00f00000 == 0x00a00000 ct zone set 7800",
        ),
        (
            "keep_source",
            "oifname \"lo\" meta mark & 0x00f00000 == 0x00a00000 meta nfproto ipv4 meta l4proto tcp \
             snat ip to ip saddr",
        ),
    ] {
        let present = chain(&text, name);
        assert!(present.contains(&rule.to_owned()), "{name}: {present:?}");
    }
}

#[test]
fn sessions_with_the_same_marks_need_no_rules_of_their_own() {
    let mut plan = plan();
    let numbers = plan.numbers.clone();
    let sessions = FormerSessions::new(&numbers, &BTreeSet::from([0x0200_0000]), &[].into());
    plan.continue_sessions(sessions.unwrap());
    assert_eq!(plan.former_sessions, []);
    assert_eq!(
        plan.client_leg_marks,
        BTreeSet::from([0x0100_0000, 0x0200_0000])
    );
    assert_eq!(plan.server_leg_marks, BTreeSet::new());
}
