//! Policies on simulated sockets: the same code as in the proxy.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use crate::common::{Auditor, link, says::Says};
use midspan_policy::{
    AckPolicy, AckSample, AckVerdict, Buffer, Configured, Decision, Handshake, LegDecision,
    LegSettings, Policy, SessionSettings,
};
use midspan_sim::proxy::{Buffers, RelayConfiguration};
use midspan_sim::tcp::{ByteCounting, ReceiverConfiguration, SenderConfiguration};
use midspan_sim::{
    Client, Flow, FlowId, NoObserver, Observer, Packet, Policies, Scenario, Segment, Simulation,
};
use midspan_units::{ByteSize, Time, TimeSpan};

/// A simulation with this policy at the first proxy of a flow.
fn with<O: Observer>(
    scenario: &Scenario,
    flow: FlowId,
    policy: impl Policy + Send + 'static,
    observer: O,
) -> Simulation<O> {
    let policies = Policies::new().with(flow, 0, Box::new(policy));
    Simulation::with_policies(scenario, policies, observer).unwrap()
}

/// A fast leg, a proxy, a slow leg.
fn scenario(client: Client) -> (Scenario, FlowId) {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(20));
    let nodes = scenario.add_chain("hop", 3, &link("10 Mbit/s", "20 ms", "0 %", 100));
    let mut flow = Flow::bulk("flow", nodes[0], nodes[2]).split_at(
        nodes[1],
        RelayConfiguration {
            buffers: Buffers::Separate { send: 200_000 },
            ..RelayConfiguration::default()
        },
    );
    flow.client = client;
    for split in &mut flow.splits {
        split.inbound.buffer = 100_000;
    }
    let flow = scenario.add_flow(flow);
    (scenario, flow)
}

/// The largest segment, and the shortest gap between segments, on the outbound leg after a second.
#[derive(Debug, Default)]
struct Outbound {
    largest: u32,
    last: Option<Time>,
    shortest: Option<TimeSpan>,
}

impl Observer for Outbound {
    fn sent(&mut self, now: Time, packet: &Packet) {
        let Segment::Data(data) = packet.segment else {
            return;
        };
        if packet.connection != 1 || now.since(Time::ZERO) < TimeSpan::from_seconds(1) {
            return;
        }
        self.largest = self.largest.max(data.length);
        if let Some(last) = self.last.replace(now) {
            let gap = now.since(last);
            self.shortest = Some(self.shortest.map_or(gap, |shortest| shortest.min(gap)));
        }
    }
}

#[test]
fn the_decision_for_the_outbound_leg_is_obeyed_and_the_other_is_not() {
    let obeyed = LegDecision {
        pacing_rate: Some("2 Mbit/s".parse().unwrap()),
        segment_size: Some(ByteSize::from_bytes(960)),
        send_buffer: Some(ByteSize::from_bytes(50_000)),
        ..LegDecision::default()
    };
    let other = LegDecision {
        pacing_rate: Some("1 kbit/s".parse().unwrap()),
        ..LegDecision::default()
    };
    for (client, decision) in [
        (
            Client::Sender,
            Decision {
                client: other,
                server: obeyed,
            },
        ),
        (
            Client::Receiver,
            Decision {
                client: obeyed,
                server: other,
            },
        ),
    ] {
        let (scenario, flow) = scenario(client);
        let says = Says {
            decision,
            ..Says::default()
        };
        let mut simulation = with(&scenario, flow, says.clone(), Outbound::default());
        let results = simulation.run();
        // 1,000 bytes including headers at 2 Mbit/s: 4 ms.
        let outbound = simulation.observer();
        assert_eq!(outbound.largest, 960);
        assert_eq!(outbound.shortest, Some(TimeSpan::from_milliseconds(4)));
        let delivered = results.flows[0].delivered;
        assert!((4_600_000..4_900_000).contains(&delivered), "{delivered}");
        let samples = says.samples.lock().unwrap();
        assert_eq!(samples.len(), 200);
        let (_, last) = samples.last().unwrap();
        let (inward, outward) = match client {
            Client::Sender => (last.client, last.server),
            Client::Receiver => (last.server, last.client),
        };
        assert_eq!(
            inward.round_trip_time,
            Some(TimeSpan::from_nanoseconds(41_232_000))
        );
        assert!(inward.bytes_received >= outward.bytes_acknowledged);
        assert_eq!(outward.segment_size, 960);
        assert!(outward.not_sent.bytes() <= 50_000 + 960);
        let rate = outward.delivery_rate.unwrap().bits_per_second();
        assert!((1_700_000..2_200_000).contains(&rate), "{rate}");
    }
}

#[test]
fn an_in_flight_cap_bounds_the_rate() {
    let (scenario, flow) = scenario(Client::Sender);
    let cap = LegDecision {
        in_flight_cap: Some(ByteSize::from_bytes(14_600)),
        ..LegDecision::default()
    };
    let decision = Decision {
        server: cap,
        ..Decision::default()
    };
    let says = Says {
        decision,
        ..Says::default()
    };
    let delivered = with(&scenario, flow, says, Auditor::default()).run().flows[0].delivered;
    // 14,600 bytes in each round trip of 40 ms plus a segment's transmission.
    assert!((6_800_000..7_300_000).contains(&delivered), "{delivered}");
}

#[test]
fn the_configured_policy_paces_from_the_start() {
    let (scenario, flow) = scenario(Client::Sender);
    let settings = SessionSettings {
        server: LegSettings {
            pacing_rate: Some("1 Mbit/s".parse().unwrap()),
            send_buffer: Buffer::Fixed(ByteSize::from_bytes(10_000)),
            ..LegSettings::default()
        },
        ..SessionSettings::default()
    };
    let mut simulation = with(&scenario, flow, Configured::new(settings), NoObserver);
    let delivered = simulation.run().flows[0].delivered;
    // 20 s at 1 Mbit/s; 1,460 of 1,500 bytes are data.
    assert!((2_400_000..2_434_000).contains(&delivered), "{delivered}");
}

#[test]
fn a_small_send_buffer_shows_in_the_limited_times() {
    let (scenario, flow) = scenario(Client::Sender);
    let limited = |size| {
        let says = Says {
            decision: Decision {
                server: LegDecision {
                    send_buffer: Some(ByteSize::from_bytes(size)),
                    ..LegDecision::default()
                },
                ..Decision::default()
            },
            ..Says::default()
        };
        with(&scenario, flow, says.clone(), NoObserver).run();
        let samples = says.samples.lock().unwrap();
        samples.last().unwrap().1.server.limited
    };
    // 10 Mbit/s for 40 ms are 50,000 bytes. The first data arrives after about 60 ms of 20 s.
    let times = limited(14_600);
    assert!(times.busy > TimeSpan::from_milliseconds(19_800));
    assert!(times.send_buffer > TimeSpan::from_milliseconds(19_000));
    assert_eq!(times.receive_window, TimeSpan::ZERO);
    // With a larger buffer, cwnd and then the inbound leg are the limit.
    let times = limited(150_000);
    assert!(times.busy > TimeSpan::from_milliseconds(19_800));
    assert!(times.send_buffer < TimeSpan::from_milliseconds(1000));
}

/// One ACK for `segments` segments, at the latest 50 ms after the first one that is held.
#[derive(Debug)]
struct Thin {
    segments: u32,
    covered: u32,
}

impl AckPolicy for Thin {
    fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict {
        self.covered += sample.newly_covered;
        if sample.duplicate || sample.selective || self.covered >= self.segments {
            self.covered = 0;
            return AckVerdict::Pass;
        }
        AckVerdict::HoldUntil(now + TimeSpan::from_milliseconds(50))
    }
}

#[test]
fn thinned_acks_are_fewer_and_nothing_stops() {
    let run = |segments: Option<u32>| {
        let mut scenario = Scenario::new(1, TimeSpan::from_seconds(20));
        let nodes = scenario.add_chain("hop", 2, &link("10 Mbit/s", "20 ms", "0.02 %", 100));
        // A window that grows by the bytes acknowledged, not by the number of ACKs (RFC 3465).
        let flow = Flow::bulk("flow", nodes[0], nodes[1]).with_sender(SenderConfiguration {
            byte_counting: ByteCounting::Limit(2),
            ..SenderConfiguration::default()
        });
        let flow = scenario.add_flow(flow);
        let mut simulation = Simulation::observed(&scenario, Auditor::default()).unwrap();
        if let Some(segments) = segments {
            let policy = Box::new(Thin {
                segments,
                covered: 0,
            });
            assert!(simulation.set_ack_policy(flow, 0, policy));
        }
        let results = simulation.run();
        (
            results.flows[0].delivered,
            results.links[0].down.handled.packets,
        )
    };
    let (all, many) = run(None);
    let (thinned, few) = run(Some(8));
    assert!(few * 2 < many, "{few} of {many}");
    assert!(thinned * 10 > all * 7, "{thinned} of {all}");
}

/// When data first reaches the far end, and when the proxy answers the SYN.
#[derive(Debug, Default)]
struct Handshakes {
    answered: Option<Time>,
    refused_data: bool,
}

impl Observer for Handshakes {
    fn sent(&mut self, now: Time, packet: &Packet) {
        if packet.connection == 0 && matches!(packet.segment, Segment::Acknowledgement(_)) {
            self.answered.get_or_insert(now);
        }
    }
}

#[test]
fn a_syn_is_answered_at_once_or_when_the_far_end_has() {
    let answered = |handshake, proxies: usize| {
        let mut scenario = Scenario::new(1, TimeSpan::from_seconds(5));
        let mut wire = link("10 Mbit/s", "50 ms", "0 %", 100);
        wire.state.rate = None;
        let nodes = scenario.add_chain("hop", 2 + proxies, &wire);
        let relay = RelayConfiguration {
            handshake,
            ..RelayConfiguration::default()
        };
        let mut flow = Flow::bulk("flow", nodes[0], nodes[1 + proxies])
            .with_sender(SenderConfiguration {
                window_limit: 100_000,
                ..Default::default()
            })
            .with_receiver(ReceiverConfiguration {
                buffer: 100_000,
                ..Default::default()
            });
        for node in &nodes[1..=proxies] {
            flow = flow.split_at(*node, relay);
        }
        scenario.add_flow(flow);
        let mut simulation = Simulation::observed(&scenario, Handshakes::default()).unwrap();
        let results = simulation.run();
        assert!(results.flows[0].delivered > 1_000_000);
        assert!(!simulation.observer().refused_data);
        simulation.observer().answered.unwrap().since(Time::ZERO)
    };
    assert_eq!(
        answered(Handshake::Early, 2),
        TimeSpan::from_milliseconds(50)
    );
    // A round trip over the two other legs is added.
    assert_eq!(
        answered(Handshake::EndToEnd, 1),
        TimeSpan::from_milliseconds(150)
    );
    assert_eq!(
        answered(Handshake::EndToEnd, 2),
        TimeSpan::from_milliseconds(250)
    );
}
