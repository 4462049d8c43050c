use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::test_packets::{Packet, ack, timestamps};
use crate::{PolicyChoice, Settings};

fn at(milliseconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
}

fn agent(policy: &str) -> Agent {
    Agent::new(Settings {
        policy: policy.parse().unwrap(),
        ..Settings::new("wan")
    })
}

fn verdicts(agent: &mut Agent) -> Vec<(u32, bool)> {
    let mut all = Vec::new();
    agent.take_verdicts(&mut all);
    all
}

/// Numbers 1,000, 2,460, 3,920 …: one segment more each.
fn nth(step: u32) -> Packet {
    ack(1000 + step * 1460)
}

#[test]
fn every_fourth_leaves_and_the_last_after_its_time() {
    let mut agent = agent("fda:4");
    for step in 0..8 {
        agent.handle_packet(at(u64::from(step)), step, &nth(step).bytes());
    }
    // The first ACK of a flow passes; 1 to 4 become one ACK; 5 to 7 wait.
    let first = [(0, true), (1, false), (2, false), (3, false), (4, true)];
    let rest = [(5, false), (6, false)];
    assert_eq!(verdicts(&mut agent), [&first[..], &rest].concat());
    agent.handle_timeout(at(7));
    assert_eq!(agent.poll_timeout(), Some(at(105)));
    agent.handle_timeout(at(104));
    assert_eq!(verdicts(&mut agent), []);
    agent.handle_timeout(at(105));
    assert_eq!(verdicts(&mut agent), [(7, true)]);
    let status = agent.status(at(105));
    let counts = (status.acks_seen, status.acks_sent, status.acks_saved);
    assert_eq!((counts, status.timeouts, status.held), ((8, 3, 5), 1, 0));
    assert_eq!((status.bytes_seen, status.bytes_saved), (320, 200));
}

#[test]
fn what_is_urgent_passes_behind_what_was_held() {
    let mut agent = agent("fda:8");
    let fin = Packet {
        flags: flags::ACK | flags::FIN,
        ..nth(2)
    };
    let duplicate = nth(1);
    let data = Packet { data: 20, ..nth(2) };
    for urgent in [fin, duplicate, data] {
        agent.handle_packet(at(0), 1, &nth(0).bytes());
        agent.handle_packet(at(0), 2, &nth(1).bytes());
        agent.handle_packet(at(0), 3, &urgent.bytes());
        assert_eq!(
            verdicts(&mut agent),
            [(1, true), (2, true), (3, true)],
            "{urgent:?}"
        );
        let syn = Packet {
            flags: flags::SYN,
            ..ack(0)
        };
        agent.handle_packet(at(0), 4, &syn.bytes());
        assert_eq!(verdicts(&mut agent), [(4, true)]);
    }
    // An RST ends the flow, and its held ACK leaves first.
    agent.handle_packet(at(0), 1, &nth(0).bytes());
    agent.handle_packet(at(0), 2, &nth(1).bytes());
    let reset = Packet {
        flags: flags::RST,
        ..nth(1)
    };
    agent.handle_packet(at(0), 3, &reset.bytes());
    assert_eq!(verdicts(&mut agent), [(1, true), (2, true), (3, true)]);
    assert_eq!(agent.status(at(0)).flows, 0);
}

/// A duplicate with a SACK block of this many segments behind a gap of one.
fn behind_a_gap(segments: u32) -> Packet {
    let start = 1000 + 1460;
    let mut options = vec![1, 1, 5, 10];
    options.extend(u32::to_be_bytes(start));
    options.extend(u32::to_be_bytes(start + segments * 1460));
    Packet { options, ..nth(0) }
}

#[test]
fn in_a_recovery_the_newest_selection_stands_for_those_before_it() {
    let mut agent = Agent::new(Settings {
        upstream: Some("8 kbit/s".parse().unwrap()),
        policy: PolicyChoice::Filter,
        ..Settings::new("wan")
    });
    // An ACK takes 52 ms of the upstream.
    agent.handle_packet(at(0), 0, &nth(0).bytes());
    for (id, time) in (1..=6).zip(1..) {
        agent.handle_packet(at(time), id, &behind_a_gap(id).bytes());
    }
    let first = [(0, true), (1, true), (2, true), (3, true)];
    let rest = [(4, false), (5, false)];
    assert_eq!(verdicts(&mut agent), [&first[..], &rest].concat());
    // The same ACK again reports a segment that arrived twice: it leaves, after the held one.
    agent.handle_packet(at(7), 7, &behind_a_gap(6).bytes());
    assert_eq!(verdicts(&mut agent), [(6, true), (7, true)]);
    agent.handle_packet(at(8), 8, &behind_a_gap(7).bytes());
    // The gap is filled.
    agent.handle_packet(at(9), 9, &nth(8).bytes());
    assert_eq!(verdicts(&mut agent), [(8, true), (9, true)]);
}

#[test]
fn flows_do_not_mix_and_their_number_is_bounded() {
    let mut agent = agent("fda:2");
    agent.settings.flows = 2;
    for (id, (port, step)) in [(1, 0), (2, 0), (1, 1), (3, 0), (2, 1), (3, 1)]
        .into_iter()
        .enumerate()
    {
        let id = u32::try_from(id).unwrap();
        agent.handle_packet(at(0), id, &Packet { port, ..nth(step) }.bytes());
    }
    // 2 and 4 wait, each for its own flow; the third flow passes untouched.
    assert_eq!(
        verdicts(&mut agent),
        [(0, true), (1, true), (3, true), (5, true)]
    );
    let status = agent.status(at(0));
    assert_eq!((status.flows, status.untracked, status.held), (2, 2, 2));
    // Old flows make room.
    agent.handle_timeout(at(200));
    agent.handle_timeout(at(60_200));
    assert_eq!(agent.status(at(60_200)).flows, 0);
}

#[test]
fn no_more_than_half_of_the_queue_waits() {
    let mut agent = agent("fda:8");
    agent.settings.queue_length = 4;
    for port in 1..=3_u16 {
        for step in 0..2 {
            let id = u32::from(port) * 10 + step;
            agent.handle_packet(at(0), id, &Packet { port, ..nth(step) }.bytes());
        }
    }
    assert_eq!(
        verdicts(&mut agent),
        [(10, true), (20, true), (30, true), (31, true)]
    );
    assert_eq!(agent.status(at(0)).unheld, 1);
}

#[test]
fn round_trips_are_measured_by_what_arrives() {
    let mut agent = agent("ace");
    let syn = Packet {
        flags: flags::SYN,
        options: vec![2, 4, 5, 180],
        ..ack(0)
    };
    agent.handle_packet(at(0), 1, &syn.bytes());
    let answer = Packet {
        flags: flags::SYN | flags::ACK,
        incoming: true,
        ..ack(2)
    };
    agent.handle_incoming(at(70), &answer.bytes());
    let rtt = |agent: &Agent| agent.status(at(0)).busiest[0].rcv_rtt;
    assert_eq!(rtt(&agent), Some(TimeSpan::from_milliseconds(70)));
    let sent = Packet {
        options: timestamps(500, 9),
        ..nth(0)
    };
    agent.handle_packet(at(100), 2, &sent.bytes());
    let arrived = Packet {
        incoming: true,
        data: 1448,
        options: timestamps(20, 500),
        ..ack(2)
    };
    // Truncated after its headers, as the packet socket delivers it.
    agent.handle_incoming(at(190), &arrived.bytes()[..52]);
    assert_eq!(rtt(&agent), Some(TimeSpan::from_milliseconds(90)));
    // An ACK that was held is timed from when it left.
    let mut held = self::agent("fda:2");
    held.handle_packet(at(0), 1, &nth(0).bytes());
    let waits = Packet {
        options: timestamps(600, 9),
        ..nth(1)
    };
    held.handle_packet(at(10), 2, &waits.bytes());
    held.handle_timeout(at(110));
    assert_eq!(verdicts(&mut held), [(1, true), (2, true)]);
}

#[test]
fn ace_thins_once_it_knows_the_window() {
    let mut agent = agent("ace");
    let mut sent = BTreeMap::new();
    let (mut time, mut step) = (0, 0);
    // One segment each millisecond, and a round trip of 50.
    while time < 1000 {
        let packet = Packet {
            options: timestamps(time, 1),
            ..ack(1000 + step * 1448)
        };
        agent.handle_packet(at(u64::from(time)), step, &packet.bytes());
        if time >= 50 {
            let echo = timestamps(9, time - 50);
            let data = Packet {
                incoming: true,
                data: 1448,
                options: echo,
                ..ack(2)
            };
            agent.handle_incoming(at(u64::from(time)), &data.bytes());
        }
        agent.handle_timeout(at(u64::from(time)));
        sent.extend(verdicts(&mut agent));
        (time, step) = (time + 1, step + 1);
    }
    let status = agent.status(at(1000));
    let flow = &status.busiest[0];
    assert_eq!((flow.est_cwnd, flow.ppa), (50, 5));
    assert!(sent.range(..100).all(|(_, passes)| *passes));
    let late = sent.range(500..).filter(|(_, passes)| **passes).count();
    assert!((95..=105).contains(&late), "{late} of 500, one in five");
}

proptest! {
    /// With any packets, each packet gets one verdict, none waits longer than the limit, and the
    /// newest ACK of a flow is never dropped.
    #[test]
    fn every_packet_gets_one_verdict(
        policy in prop::sample::select(vec!["ace", "ace-adaptive:9", "fda:3", "filter", "pass"]),
        packets in prop::collection::vec(
            (0_u64..40, 0_u16..4, -1_i32..6, 0_u8..20, any::<bool>()), 1..300),
    ) {
        let mut agent = Agent::new(Settings {
            policy: policy.parse::<PolicyChoice>().unwrap(),
            upstream: Some("32 kbit/s".parse().unwrap()),
            flows: 3,
            queue_length: 4,
            ..Settings::new("wan")
        });
        let mut now = at(0);
        let mut numbers = [1_000_000_u32; 4];
        let mut waiting: BTreeMap<u32, (Time, u16, u32)> = BTreeMap::new();
        let mut left = [0_u32; 4];
        let mut newest = [0_u32; 4];
        let total = packets.len();
        for (id, (gap, port, advance, kind, incoming)) in packets.into_iter().enumerate() {
            let id = u32::try_from(id).unwrap();
            let until = now + TimeSpan::from_milliseconds(gap);
            // The caller calls at the deadline.
            while let Some(due) = agent.poll_timeout() && due <= until {
                agent.handle_timeout(due);
                now = due.max(now);
            }
            now = until;
            let place = usize::from(port);
            numbers[place] = numbers[place].wrapping_add_signed(advance * 1460);
            let mut packet = Packet { port, ..ack(numbers[place]) };
            match kind {
                0 => packet.flags |= flags::FIN,
                1 => packet.flags |= flags::ECE,
                2 => packet.data = 10,
                3 => packet.options = vec![30, 4, 0, 0],
                4 => packet.flags |= flags::RST,
                5 => packet.flags = flags::SYN,
                6 => packet.window = 7,
                _ => packet.options = timestamps(id, id),
            }
            if incoming {
                let data = Packet { incoming, data: 100, options: timestamps(id, id), ..packet.clone() };
                agent.handle_incoming(now, &data.bytes());
            }
            waiting.insert(id, (now, port, numbers[place]));
            newest[place] = newest[place].max(numbers[place]);
            agent.handle_packet(now, id, &packet.bytes());
            for (id, passes) in verdicts(&mut agent) {
                let (_, port, number) = waiting.remove(&id).expect("one verdict");
                if passes {
                    let left = &mut left[usize::from(port)];
                    *left = (*left).max(number);
                }
            }
            prop_assert!(waiting.len() <= 2);
            for (since, ..) in waiting.values() {
                prop_assert!(policy == "filter" || now.since(*since) <= TimeSpan::from_milliseconds(100));
            }
        }
        while let Some(due) = agent.poll_timeout() {
            agent.handle_timeout(due);
            if agent.status(due).held == 0 {
                break;
            }
        }
        for (id, passes) in verdicts(&mut agent) {
            let (_, port, number) = waiting.remove(&id).expect("one verdict");
            if passes {
                let left = &mut left[usize::from(port)];
                *left = (*left).max(number);
            }
        }
        prop_assert!(waiting.is_empty(), "{total}: {waiting:?}");
        prop_assert_eq!(left, newest);
    }

    #[test]
    fn no_bytes_make_it_panic(packets in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..150), 0..20)) {
        let mut agent = agent("ace");
        for (id, packet) in packets.iter().enumerate() {
            agent.handle_packet(at(0), u32::try_from(id).unwrap(), packet);
            agent.handle_incoming(at(0), packet);
        }
        agent.handle_timeout(at(1000));
        prop_assert_eq!(verdicts(&mut agent).len(), packets.len());
    }
}
