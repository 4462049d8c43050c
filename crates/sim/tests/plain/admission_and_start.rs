//! Decisions of a policy before the first byte are carried out: whether to split, and how legs
//! start.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use crate::common::{link, says::Says};
use midspan_policy::{Admission, Buffer, LegDecision, LegStart, Start};
use midspan_sim::proxy::RelayConfiguration;
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{
    Client, Flow, NoObserver, NodeId, Observer, Packet, Policies, Results, Scenario, ScenarioError,
    Segment, Simulation, StopReason,
};
use midspan_units::{ByteSize, Time, TimeSpan};

fn admits(admission: Admission) -> Says {
    Says {
        admission,
        ..Says::default()
    }
}

/// A policy with this start for the server leg, which is the outbound leg of an upload.
fn starts(server: LegStart) -> Says {
    Says {
        start: Start {
            server,
            ..Start::default()
        },
        ..Says::default()
    }
}

/// Links of 10 Mbit/s and 20 ms, with a flow over all of them that is split at every node in
/// between.
fn scenario(links: usize, receiver: ReceiverConfiguration) -> Scenario {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(20));
    let nodes: Vec<NodeId> =
        scenario.add_chain("hop", links + 1, &link("10 Mbit/s", "20 ms", "0 %", 400));
    let mut flow = Flow::bulk("flow", nodes[0], nodes[links])
        .with_sender(SenderConfiguration::default())
        .with_receiver(ReceiverConfiguration {
            acknowledge: AckRule::Every,
            ..ReceiverConfiguration::default()
        });
    for node in &nodes[1..links] {
        flow = flow.split_at(*node, RelayConfiguration::default());
    }
    flow.receiver = receiver;
    scenario.add_flow(flow);
    scenario
}

fn whole_buffer(buffer: u64) -> ReceiverConfiguration {
    ReceiverConfiguration {
        buffer,
        acknowledge: AckRule::Every,
        ..ReceiverConfiguration::default()
    }
}

fn simulation<O: Observer>(
    scenario: &Scenario,
    policies: impl IntoIterator<Item = (usize, Says)>,
    observer: O,
) -> Simulation<O> {
    let flow = midspan_sim::FlowId(0);
    let policies = policies
        .into_iter()
        .fold(Policies::new(), |known, (split, says)| {
            known.with(flow, split, Box::new(says))
        });
    Simulation::with_policies(scenario, policies, observer).unwrap()
}

fn run(scenario: &Scenario, policies: impl IntoIterator<Item = (usize, Says)>) -> Results {
    simulation(scenario, policies, NoObserver).run()
}

/// The largest data segment, and the largest amount in flight, on a leg.
#[derive(Debug, Default)]
struct Watched {
    leg: u32,
    largest: u32,
    sent: u64,
    acknowledged: u64,
    most_under_way: u64,
    resets: u32,
}

impl Observer for Watched {
    fn sent(&mut self, _: Time, packet: &Packet) {
        if packet.connection != self.leg {
            return;
        }
        if let Segment::Data(data) = packet.segment {
            self.largest = self.largest.max(data.length);
            self.sent = self.sent.max(data.sequence + u64::from(data.length));
            self.most_under_way = self.most_under_way.max(self.sent - self.acknowledged);
        }
        self.resets += u32::from(packet.segment == Segment::Reset);
    }

    fn delivered(&mut self, _: Time, packet: &Packet) {
        if let Segment::Acknowledgement(ack) = packet.segment
            && packet.connection == self.leg
        {
            self.acknowledged = ack.number;
        }
    }
}

fn outbound() -> Watched {
    Watched {
        leg: 1,
        ..Watched::default()
    }
}

#[test]
fn a_flow_that_is_bypassed_is_the_flow_without_a_proxy() {
    let split = scenario(3, whole_buffer(1 << 20));
    let mut plain = split.clone();
    for policies in [
        vec![
            (0, admits(Admission::Bypass)),
            (1, admits(Admission::Bypass)),
        ],
        vec![
            (1, admits(Admission::Bypass)),
            (0, admits(Admission::Bypass)),
        ],
    ] {
        let results = run(&split, policies);
        assert_eq!(results.flows[0].legs.len(), 1);
        let mut flow = plain.flows()[0].clone();
        flow.splits.clear();
        plain = Scenario::new(1, TimeSpan::from_seconds(20));
        plain.add_chain("hop", 4, &link("10 Mbit/s", "20 ms", "0 %", 400));
        plain.add_flow(flow);
        assert_eq!(results, Simulation::new(&plain).unwrap().run());
    }
}

#[test]
fn the_policy_of_another_proxy_still_decides_where_one_is_bypassed() {
    let scenario = scenario(3, whole_buffer(1 << 20));
    let paced = LegStart {
        pacing_rate: Some("1 Mbit/s".parse().unwrap()),
        ..LegStart::default()
    };
    let results = run(
        &scenario,
        [(0, admits(Admission::Bypass)), (1, starts(paced))],
    );
    assert_eq!(results.flows[0].legs.len(), 2);
    // 20 s at 1 Mbit/s; 1,460 of 1,500 bytes are data.
    let delivered = results.flows[0].delivered;
    assert!((2_400_000..2_434_000).contains(&delivered), "{delivered}");
}

#[test]
fn a_refused_flow_gets_a_reset_from_the_proxy_where_it_is_refused() {
    // 40 bytes take 32 µs on each link, plus 20 ms: the SYN in one direction, the reset back.
    for (refusing, round_trip) in [(0, 40_064), (1, 80_128)] {
        let scenario = scenario(3, whole_buffer(1 << 20));
        let says = admits(Admission::Refuse);
        let results = run(&scenario, [(refusing, says)]);
        let flow = &results.flows[0];
        let refused = flow.refused.unwrap().nanoseconds() / 1000;
        assert_eq!(refused, round_trip);
        assert_eq!((flow.delivered, flow.finished), (0, None));
        assert_eq!(results.stop, StopReason::Finished);
    }
}

#[test]
fn segments_grow_up_to_the_ceiling_of_the_start_and_no_further() {
    for (ceiling, asked, size) in [(4420, 4420, 4420), (4420, 9000, 4420), (1000, 900, 900)] {
        let mut says = starts(LegStart {
            segment_ceiling: Some(ByteSize::from_bytes(ceiling)),
            ..LegStart::default()
        });
        let scenario = scenario(2, whole_buffer(1 << 20));
        // Without a decision the size stays as it is, if the ceiling allows it.
        let mut plain = simulation(&scenario, [(0, says.clone())], outbound());
        plain.run();
        assert_eq!(u64::from(plain.observer().largest), ceiling.min(1460));
        says.decision.server = LegDecision {
            segment_size: Some(ByteSize::from_bytes(asked)),
            ..LegDecision::default()
        };
        let mut decided = simulation(&scenario, [(0, says)], outbound());
        decided.run();
        let largest = u64::from(decided.observer().largest);
        assert_eq!(largest, size.max(ceiling.min(1460)));
    }
}

#[test]
fn a_larger_window_scale_sends_ahead_of_the_window() {
    // A window of 16 KB: 3.3 Mbit/s over 40 ms. Read as eight times as large, it is no limit.
    let scenario = scenario(2, whole_buffer(16_384));
    let watched = |scale| {
        let says = starts(LegStart {
            window_scale: scale,
            ..LegStart::default()
        });
        let mut simulation = simulation(&scenario, [(0, says)], outbound());
        let delivered = simulation.run().flows[0].delivered;
        (delivered, simulation.observer().most_under_way)
    };
    let (narrow, under_way) = watched(None);
    assert!(under_way <= 16_384, "{under_way}");
    assert_eq!(watched(Some(0)), (narrow, under_way));
    let (wide, under_way) = watched(Some(3));
    assert!((16_385..=8 * 16_384).contains(&under_way), "{under_way}");
    assert!(wide > 2 * narrow, "{wide} against {narrow}");
    // A window scale above 14 is an error (RFC 7323).
    let says = starts(LegStart {
        window_scale: Some(15),
        ..LegStart::default()
    });
    let policies = Policies::new().with(midspan_sim::FlowId(0), 0, Box::new(says));
    let error = Simulation::with_policies(&scenario, policies, NoObserver).unwrap_err();
    assert!(error.to_string().contains("at most 14"), "{error}");
}

#[test]
fn an_in_flight_cap_does_not_lift_the_window_limit() {
    let mut scenario = scenario(2, whole_buffer(1 << 20));
    let mut flow = scenario.flows()[0].clone();
    flow.splits[0].outbound.window_limit = 20_000;
    scenario = {
        let mut other = Scenario::new(1, TimeSpan::from_seconds(5));
        other.add_chain("hop", 3, &link("10 Mbit/s", "20 ms", "0 %", 400));
        other.add_flow(flow);
        other
    };
    for (cap, most) in [(50_000, 20_000), (10_000, 20_000)] {
        let mut says = Says::default();
        says.decision.server.in_flight_cap = Some(ByteSize::from_bytes(cap));
        let mut simulation = simulation(&scenario, [(0, says)], outbound());
        simulation.run();
        let under_way = simulation.observer().most_under_way;
        assert!(under_way <= most, "{under_way} with a cap of {cap}");
    }
}

#[test]
fn little_is_written_ahead_of_what_was_sent() {
    let scenario = scenario(2, whole_buffer(32_768));
    let unsent = |most| {
        let says = starts(LegStart {
            notsent_lowat: most,
            ..LegStart::default()
        });
        let mut simulation = simulation(&scenario, [(0, says)], NoObserver);
        simulation.run_until(TimeSpan::from_seconds(10));
        let sender = simulation.sender(midspan_sim::FlowId(0), 1).unwrap();
        let waiting = sender.written() - sender.highest();
        (waiting, simulation.run().flows[0].delivered)
    };
    // The outbound leg is the slower one: without a limit, all arriving data waits in its buffer.
    let (many, delivered) = unsent(None);
    assert!(many > 100_000, "{many}");
    let (few, same) = unsent(Some(ByteSize::from_bytes(4_000)));
    assert!(few <= 4_000, "{few}");
    assert_eq!(same, delivered);
}

#[test]
fn buffers_and_congestion_control_are_those_of_the_start() {
    let scenario = scenario(2, whole_buffer(1 << 20));
    let fixed = |bytes| Buffer::Fixed(ByteSize::from_bytes(bytes));
    let mut says = starts(LegStart {
        congestion_control: Some("cubic".to_owned()),
        send_buffer: fixed(30_000),
        ..LegStart::default()
    });
    says.start.client.receive_buffer = fixed(25_000);
    let mut simulation = simulation(&scenario, [(0, says)], outbound());
    let flow = midspan_sim::FlowId(0);
    let advertised = simulation.receiver(flow, 0).unwrap().initial_window();
    assert_eq!(advertised, 25_000);
    let variant = simulation.sender(flow, 1).unwrap().configuration().variant;
    assert_eq!(variant, Variant::Cubic);
    simulation.run();
    assert!(simulation.observer().most_under_way <= 30_000);
    let says = starts(LegStart {
        congestion_control: Some("vegas".to_owned()),
        ..LegStart::default()
    });
    let policies = Policies::new().with(flow, 0, Box::new(says.clone()));
    let error = Simulation::with_policies(&scenario, policies, NoObserver).unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"flow, proxy 1\": the simulator has no congestion control \"vegas\"; it has cubic, reno and \
         bbr"
    );
    let nowhere = Policies::new().with(flow, 1, Box::new(says));
    let error = Simulation::with_policies(&scenario, nowhere, NoObserver).unwrap_err();
    assert_eq!(error, ScenarioError::NoProxy { flow: 0, split: 1 });
}

#[test]
fn the_legs_of_a_download_change_sides() {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(5));
    let nodes = scenario.add_chain("hop", 3, &link("10 Mbit/s", "20 ms", "0 %", 400));
    let mut flow = Flow::bulk("download", nodes[0], nodes[2])
        .split_at(nodes[1], RelayConfiguration::default());
    flow.client = Client::Receiver;
    scenario.add_flow(flow);
    let mut says = Says::default();
    says.start.client.segment_ceiling = Some(ByteSize::from_bytes(700));
    let mut simulation = simulation(&scenario, [(0, says)], outbound());
    simulation.run();
    assert_eq!(simulation.observer().largest, 700);
}
