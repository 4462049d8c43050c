//! Shikama, "Evaluation of Mitigation to Bursty Packets by a TCP Proxy in a Wired and Wireless
//! Network": that an unpaced split proxy sends bursts, and that pacing at the input of TCP ends
//! them. Schemes A (split, paced), B (split) and C (not split) of §4, 200 s each.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

mod common;

use common::link;
use midspan_sim::proxy::{Buffers, RelayConfiguration};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, Observer, Packet, Results, Scenario, Segment, Simulation};
use midspan_units::{Time, TimeSpan};

/// Half of the pacing gap: 1,500 bytes at 5 Mbit/s take 2.4 ms.
const HALF_GAP: TimeSpan = TimeSpan::from_nanoseconds(1_200_000);
const SEGMENT: u64 = 1460;
/// The first slow start is over.
const START: TimeSpan = TimeSpan::from_seconds(10);
/// The leg from the proxy on.
const WIRED: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Scheme {
    A,
    B,
    C,
}

/// Runs of segments on the wired leg whose gaps are under half the pacing gap, and forward data.
#[derive(Debug, Default)]
struct Bursts {
    lengths: Vec<u64>,
    last: Option<Time>,
    largest_forward_data: u64,
}

impl Observer for Bursts {
    fn sent(&mut self, now: Time, packet: &Packet) {
        let data = matches!(packet.segment, Segment::Data(_));
        if packet.connection != WIRED || !data || now.since(Time::ZERO) < START {
            return;
        }
        let joins = self.last.is_some_and(|last| now.since(last) < HALF_GAP);
        match self.lengths.last_mut().filter(|_| joins) {
            Some(length) => *length += 1,
            None => self.lengths.push(1),
        }
        self.last = Some(now);
    }

    fn forwarded(&mut self, _: Time, _: u32, bytes: u64) {
        self.largest_forward_data = self.largest_forward_data.max(bytes.div_ceil(SEGMENT));
    }
}

impl Bursts {
    /// The length that 999 of 1,000 bursts do not exceed, and the longest.
    fn summary(&self) -> (u64, u64) {
        let mut lengths = self.lengths.clone();
        lengths.sort_unstable();
        (
            lengths[(lengths.len() - 1) * 999 / 1000],
            *lengths.last().unwrap(),
        )
    }
}

fn run(scheme: Scheme, loss: &str, queue: u32) -> (Results, Bursts) {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(200));
    let nodes = ["n0", "n1", "n2", "n3"].map(|name| scenario.add_node(name));
    let wireless = |loss| link("5 Mbit/s", "10 ms", loss, 1000);
    scenario.add_link(
        "wireless",
        nodes[0],
        nodes[1],
        &wireless(loss),
        &wireless("0 %"),
    );
    let wire = link("100 Mbit/s", "0 s", "0 %", 1000);
    scenario.add_link("wire", nodes[1], nodes[2], &wire, &wire);
    let narrow = link("10 Mbit/s", "30 ms", "0 %", queue);
    scenario.add_link("narrow", nodes[2], nodes[3], &narrow, &narrow);
    let sender = |window_limit| SenderConfiguration {
        variant: Variant::NewReno,
        initial_window: 2,
        window_limit,
        grow_only_when_limited: false,
        minimum_timeout: TimeSpan::from_milliseconds(200),
        ..SenderConfiguration::default()
    };
    let receiver = |buffer| ReceiverConfiguration {
        buffer,
        acknowledge: AckRule::Delayed {
            segments: 2,
            timeout: TimeSpan::from_milliseconds(100),
        },
        ..ReceiverConfiguration::default()
    };
    let mut flow = Flow::bulk("file", nodes[0], nodes[3]).with_receiver(receiver(128_000));
    if scheme == Scheme::C {
        flow.sender = sender(128_000);
    } else {
        let relay = RelayConfiguration {
            buffers: Buffers::Separate { send: 128_000 },
            service: None,
            pacing: (scheme == Scheme::A).then(|| "5 Mbit/s".parse().unwrap()),
        };
        flow.sender = sender(64_000);
        flow = flow.split_at(nodes[1], relay);
        let split = flow.splits.last_mut().unwrap();
        split.outbound = sender(128_000);
        split.inbound = receiver(64_000);
    }
    scenario.add_flow(flow);
    let mut simulation = Simulation::observed(&scenario, Bursts::default()).unwrap();
    let results = simulation.run();
    (results, simulation.into_observer())
}

fn throughput(results: &Results) -> u64 {
    results.flows[0].delivered
}

/// Packets that found the queue of n2 full.
fn overflows(results: &Results) -> u64 {
    results.links[2].up.queue_full.packets
}

#[test]
fn an_unpaced_proxy_sends_bursts_up_to_the_wireless_window() {
    // §5.1: 64 KB are 43 segments; fewer losses make larger bursts.
    let (_, rare) = run(Scheme::B, "0.001", 1000);
    let (_, often) = run(Scheme::B, "0.01", 1000);
    assert_eq!((rare.summary().1, rare.largest_forward_data), (43, 43));
    assert!(
        often.summary().0 < rare.summary().0,
        "{:?} {:?}",
        often.summary(),
        rare.summary()
    );
}

#[test]
fn pacing_ends_bursts_and_overflows() {
    for loss in ["0.0001", "0.001", "0.01", "0.05"] {
        let (small, bursts) = run(Scheme::A, loss, 20);
        let (large, _) = run(Scheme::A, loss, 50);
        assert!(bursts.largest_forward_data > 30, "{bursts:?}");
        assert!(bursts.summary().0 <= 2, "{loss}: {:?}", bursts.summary());
        // All in the first slow start.
        assert!(overflows(&small) <= 3, "{loss}: {}", overflows(&small));
        // A does not depend on the queue of n2.
        let (small, large) = (throughput(&small), throughput(&large));
        assert!(
            small.abs_diff(large) * 200 <= large,
            "{loss}: {small} {large}"
        );
    }
}

#[test]
fn the_paced_proxy_is_best_and_the_unpaced_one_may_be_worse_than_none() {
    for loss in ["0.0001", "0.001", "0.01", "0.05"] {
        let [a, b, c] = [Scheme::A, Scheme::B, Scheme::C].map(|scheme| run(scheme, loss, 20).0);
        // Within 0.5 %.
        let best = throughput(&a) * 201 / 200;
        assert!(best >= throughput(&b) && best >= throughput(&c), "{loss}");
        if loss == "0.0001" {
            assert!(throughput(&b) < throughput(&c));
            assert!(overflows(&b) > 50 && overflows(&c) == 0);
        }
    }
}
