//! Whole simulations, packet by packet, compared with times that were computed by hand.
//!
//! Links of 8 Mbit/s and 10 ms. A segment has 960 bytes of data and takes 1 ms to send; an ACK or a
//! SYN has 40 bytes and takes 0.04 ms. Lines contain: microseconds, event, leg, segment.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use crate::common::{Log, link};
use midspan_link::Direction;
use midspan_sim::proxy::RelayConfiguration;
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration};
use midspan_sim::{Flow, LinkId, LossPattern, Scenario, Simulation, Source, StopReason};
use midspan_units::{ByteSize, TimeSpan};

/// A file of `segments` segments over a chain of `links` links.
fn scenario(links: usize, segments: u64, initial_window: u32) -> Scenario {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(10));
    let wire = link("8 Mbit/s", "10 ms", "0 %", 100);
    let nodes = scenario.add_chain("wire", links + 1, &wire);
    let sender = SenderConfiguration {
        segment_size: 960,
        initial_window,
        minimum_timeout: TimeSpan::from_milliseconds(200),
        ..SenderConfiguration::default()
    };
    let receiver = ReceiverConfiguration {
        acknowledge: AckRule::Every,
        buffer: 64_000,
        segment_size: 960,
        ..ReceiverConfiguration::default()
    };
    let mut flow = Flow {
        source: Source::Fixed(ByteSize::from_bytes(960 * segments)),
        ..Flow::bulk("file", nodes[0], nodes[links])
            .with_sender(sender)
            .with_receiver(receiver)
    };
    for node in &nodes[1..links] {
        flow = flow.split_at(*node, RelayConfiguration::default());
    }
    scenario.add_flow(flow);
    scenario
}

fn log(scenario: &Scenario) -> Vec<String> {
    let mut simulation = Simulation::observed(scenario, Log::default()).unwrap();
    assert_eq!(simulation.run().stop, StopReason::Finished);
    let log = &simulation.observer().0;
    log.lines().map(str::to_owned).collect()
}

#[test]
fn slow_start_over_one_link() {
    assert_eq!(
        log(&scenario(1, 5, 2)),
        [
            "0 sent 0 Synchronise 0+0",
            "10040 delivered 0 Synchronise 0+0",
            "10040 sent 0 ack 0 window 64000 []",
            "20080 delivered 0 ack 0 window 64000 []",
            // Two segments, back to back.
            "20080 sent 0 Payload 0+960",
            "20080 sent 0 Payload 960+960",
            "31080 delivered 0 Payload 0+960",
            "31080 sent 0 ack 960 window 64000 []",
            "32080 delivered 0 Payload 960+960",
            "32080 sent 0 ack 1920 window 64000 []",
            // Each ACK releases two segments; the file ends with the fifth.
            "41120 delivered 0 ack 960 window 64000 []",
            "41120 sent 0 Payload 1920+960",
            "41120 sent 0 Payload 2880+960",
            "42120 delivered 0 ack 1920 window 64000 []",
            "42120 sent 0 Payload 3840+960",
            "52120 delivered 0 Payload 1920+960",
            "52120 sent 0 ack 2880 window 64000 []",
            "53120 delivered 0 Payload 2880+960",
            "53120 sent 0 ack 3840 window 64000 []",
            // The ACK waited for the fourth segment.
            "54120 delivered 0 Payload 3840+960",
            "54120 sent 0 ack 4800 window 64000 []",
        ]
    );
}

#[test]
fn a_proxy_acknowledges_and_forwards() {
    assert_eq!(
        log(&scenario(2, 3, 2)),
        [
            "0 sent 0 Synchronise 0+0",
            // The proxy answers, and opens its outbound leg at the same time.
            "10040 delivered 0 Synchronise 0+0",
            "10040 sent 0 ack 0 window 64000 []",
            "10040 sent 1 Synchronise 0+0",
            // For events at the same time, the link that was added first comes first.
            "20080 delivered 0 ack 0 window 64000 []",
            "20080 sent 0 Payload 0+960",
            "20080 sent 0 Payload 960+960",
            "20080 delivered 1 Synchronise 0+0",
            "20080 sent 1 ack 0 window 64000 []",
            "30120 delivered 1 ack 0 window 64000 []",
            "31080 delivered 0 Payload 0+960",
            "31080 sent 0 ack 960 window 64000 []",
            "31080 sent 1 Payload 0+960",
            "32080 delivered 0 Payload 960+960",
            "32080 sent 0 ack 1920 window 64000 []",
            "32080 sent 1 Payload 960+960",
            "41120 delivered 0 ack 960 window 64000 []",
            "41120 sent 0 Payload 1920+960",
            "42080 delivered 1 Payload 0+960",
            "42080 sent 1 ack 960 window 64000 []",
            "42120 delivered 0 ack 1920 window 64000 []",
            "43080 delivered 1 Payload 960+960",
            "43080 sent 1 ack 1920 window 64000 []",
            "52120 delivered 0 Payload 1920+960",
            "52120 sent 0 ack 2880 window 64000 []",
            "52120 delivered 1 ack 960 window 64000 []",
            "52120 sent 1 Payload 1920+960",
            "53120 delivered 1 ack 1920 window 64000 []",
            "62160 delivered 0 ack 2880 window 64000 []",
            "63120 delivered 1 Payload 1920+960",
            "63120 sent 1 ack 2880 window 64000 []",
        ]
    );
}

#[test]
fn a_lost_segment_is_repaired_by_fast_retransmit() {
    // The third packet on the link is the second segment.
    let mut scenario = scenario(1, 8, 5);
    scenario.configure(LinkId(0), Direction::Up, |link| {
        link.losses = LossPattern::Scripted(vec![3])
    });
    let log = log(&scenario);
    let sent: Vec<&str> = log
        .iter()
        .filter(|line| line.contains("sent 0 Payload") || line.contains("dropped"))
        .map(String::as_str)
        .collect();
    assert_eq!(
        sent,
        [
            "20080 sent 0 Payload 0+960",
            "20080 sent 0 Payload 960+960",
            // It was sent completely, after the first.
            "22080 dropped 0 true lost 0 Payload 960+960",
            "20080 sent 0 Payload 1920+960",
            "20080 sent 0 Payload 2880+960",
            "20080 sent 0 Payload 3840+960",
            // The ACK of the first.
            "41120 sent 0 Payload 4800+960",
            "41120 sent 0 Payload 5760+960",
            // The ACKs of the third, fourth and fifth segment, from 43.12 ms on: limited transmit
            // ends the file, and the third duplicate ACK causes the second segment to be sent
            // again.
            "43120 sent 0 Payload 6720+960",
            "45120 sent 0 Payload 960+960",
        ]
    );
    // On the link it does not wait: 45.12 + 1 + 10.
    assert!(
        log.contains(&"56120 delivered 0 Payload 960+960".to_owned()),
        "{log:#?}"
    );
    assert_eq!(log.last().unwrap(), "56120 sent 0 ack 7680 window 64000 []");
}
