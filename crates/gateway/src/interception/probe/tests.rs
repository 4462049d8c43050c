//! The rules' text, and the conclusions from counters.

use super::addresses::neighbour;
use super::packets::Addresses;
use super::table::Stage;
use super::verdict::{At, Reach};
use super::*;
use ipnet::IpNet;

fn case(kind: Kind, selection: usize) -> Case {
    Case {
        kind,
        selection,
        mark: 0x0c00_0000,
        addresses: Addresses {
            client: "10.1.0.3".parse().unwrap(),
            client_port: 40_000,
            server: "198.51.100.77".parse().unwrap(),
            server_port: 443,
            sequence: u32::MAX,
        },
    }
}

fn seen(stages: &[(usize, Stage)]) -> Seen {
    stages
        .iter()
        .map(|(index, stage)| table::counter(*index, *stage))
        .collect()
}

#[test]
fn nothing_leaves_the_machine() {
    let text = table::ruleset("t", &[case(Kind::Taken, 0), case(Kind::ServerLeg, 0)], &[]);
    let last = text.split_once("chain output_end {").unwrap().1;
    let last = last.split_once("\t}").unwrap().0;
    assert_eq!(last.matches(" drop").count(), 3, "{text}");
    assert!(last.contains("priority 2000000000"));
    // The sequence number after the greatest one is 0.
    assert!(last.contains("tcp ackseq 0 counter name \"case0_answer_end\" drop"));
    assert!(!text.contains("\"case1_input_begin\""), "{text}");
}

#[test]
fn the_last_stage_tells_the_hook() {
    let taken = case(Kind::Taken, 0);
    let sent = (0, Stage::Begin(Hook::Output));
    let arrived = (0, Stage::Begin(Hook::Prerouting));
    let local = (0, Stage::Begin(Hook::Input));
    let answered = (0, Stage::AnswerBegin);
    for (stages, expected) in [
        (&[][..], Reach::Unsent),
        (&[sent], Reach::Stopped(At::Hook(Hook::Output))),
        (&[sent, arrived], Reach::Stopped(At::Hook(Hook::Prerouting))),
        (
            &[sent, arrived, local],
            Reach::Stopped(At::Hook(Hook::Input)),
        ),
        (
            &[sent, arrived, local, answered],
            Reach::Stopped(At::Answer),
        ),
        (&[sent, (0, Stage::Astray)], Reach::Stopped(At::Astray)),
        (&[sent, (0, Stage::AnswerEnd)], Reach::Passed),
    ] {
        assert_eq!(judge(&taken, &seen(stages), 0), expected, "{stages:?}");
    }
}

#[test]
fn one_server_that_can_be_reached_is_enough() {
    let cases = [case(Kind::ServerLeg, 0), case(Kind::ServerLeg, 0)];
    let begun = [
        (0, Stage::Begin(Hook::Output)),
        (1, Stage::Begin(Hook::Output)),
    ];
    let none = vec![seen(&begun); 2];
    assert_eq!(stopped(&cases, &none).len(), 2);
    let one = seen(&[begun[0], begun[1], (1, Stage::End(Hook::Output))]);
    assert!(stopped(&cases, &[one.clone(), one]).is_empty());
}

#[test]
fn the_chain_is_the_first_that_is_not_passed() {
    let chain = |priority, family: &str, name: &str| BaseChain {
        priority,
        family: family.to_owned(),
        table: "filter".to_owned(),
        name: name.to_owned(),
    };
    let chains = [
        chain(-150, "ip", "early"),
        chain(0, "inet", "input"),
        chain(0, "ip6", "other"),
        chain(50, "inet", "late"),
    ];
    let seen = seen(&[(3, Stage::Behind(Hook::Input, -150))]);
    let found = stopping(3, At::Hook(Hook::Input), &seen, &chains, Family::V4);
    assert_eq!(found, [chains[1].clone()]);
}

#[test]
fn a_neighbour_is_of_the_same_network() {
    for (own, length, expected) in [
        ("10.1.0.1", 24, Some("10.1.0.3")),
        ("10.1.0.2", 24, Some("10.1.0.1")),
        ("10.1.0.1", 30, Some("10.1.0.2")),
        ("10.1.0.1", 32, None),
        ("fd01::1", 64, Some("fd01::7701")),
        ("fe80::1", 64, None),
        ("fd01::1", 128, None),
    ] {
        let prefix = IpNet::new(own.parse().unwrap(), length).unwrap();
        assert_eq!(
            neighbour(prefix),
            expected.map(|text| text.parse().unwrap()),
            "{own}"
        );
    }
}
