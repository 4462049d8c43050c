//! Sources other than bulk: dialogues, successive files, traffic without TCP, fragments.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use crate::common::{Auditor, link};
use midspan_link::Direction;
use midspan_sim::tcp::SenderConfiguration;
use midspan_sim::{
    Dialogue, Distribution, Flow, FlowId, LinkId, LossPattern, NodeId, Observer, Packet, Pattern,
    Scenario, ScenarioError, Simulation, Source, StopReason, Traffic,
};
use midspan_units::{ByteSize, Time, TimeSpan};

fn milliseconds(time: Time) -> f64 {
    time.since(Time::ZERO).as_milliseconds()
}

/// A client and a server with an infinitely fast link of 50 ms between them.
fn pair() -> (Scenario, [NodeId; 2]) {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(100));
    let mut wire = link("1 Mbit/s", "50 ms", "0 %", 1000);
    wire.state.rate = None;
    let nodes = scenario.add_chain("wire", 2, &wire);
    (scenario, [nodes[0], nodes[1]])
}

fn connection(scenario: &mut Scenario, [client, server]: [NodeId; 2], name: &str) -> [FlowId; 2] {
    let requests = Flow {
        source: Source::Dialogue,
        ..Flow::bulk(&format!("{name}/requests"), client, server)
    };
    let answers = Flow {
        source: Source::Dialogue,
        sender: SenderConfiguration {
            handshake: false,
            ..SenderConfiguration::default()
        },
        ..Flow::bulk(name, server, client)
    };
    [scenario.add_flow(requests), scenario.add_flow(answers)]
}

fn size(bytes: u64) -> ByteSize {
    ByteSize::from_bytes(bytes)
}

#[test]
fn a_conversation_takes_a_round_trip_for_each_answer() {
    let (mut scenario, nodes) = pair();
    let connections = vec![connection(&mut scenario, nodes, "talk")];
    scenario.add_dialogue(Dialogue {
        connections,
        count: 5,
        request: size(100),
        answer: size(1000),
    });
    let mut simulation = Simulation::observed(&scenario, Auditor::default()).unwrap();
    let results = simulation.run();
    assert_eq!(results.stop, StopReason::Finished);
    // The SYN and its answer, then five round trips.
    assert!(
        (milliseconds(results.until) - 600.0).abs() < 1e-6,
        "{:?}",
        results.until
    );
    let delivered: Vec<u64> = results.flows.iter().map(|flow| flow.delivered).collect();
    assert_eq!(delivered, [500, 5000]);
}

#[test]
fn the_objects_of_a_page_are_shared_by_its_connections() {
    let (mut scenario, nodes) = pair();
    let connections = ["a", "b", "c"]
        .map(|name| connection(&mut scenario, nodes, name))
        .to_vec();
    scenario.add_dialogue(Dialogue {
        connections,
        count: 8,
        request: size(100),
        answer: size(1000),
    });
    let results = Simulation::new(&scenario).unwrap().run();
    assert_eq!(results.stop, StopReason::Finished);
    // Three in each of the first two round trips, two in the last one.
    assert!(
        (milliseconds(results.until) - 400.0).abs() < 1e-6,
        "{:?}",
        results.until
    );
    let delivered: u64 = results
        .flows
        .iter()
        .skip(1)
        .step_by(2)
        .map(|flow| flow.delivered)
        .sum();
    assert_eq!(delivered, 8000);
}

#[test]
fn a_conversation_goes_on_whatever_is_lost() {
    let (mut scenario, nodes) = pair();
    let connections = vec![connection(&mut scenario, nodes, "talk")];
    scenario.add_dialogue(Dialogue {
        connections,
        count: 20,
        request: size(100),
        answer: size(9000),
    });
    for direction in [Direction::Up, Direction::Down] {
        let pattern = LossPattern::Scripted((1..60).step_by(4).collect());
        scenario.configure(LinkId(0), direction, |link| link.losses = pattern);
    }
    let results = Simulation::observed(&scenario, Auditor::default())
        .unwrap()
        .run();
    assert_eq!(results.stop, StopReason::Finished);
    assert_eq!(results.flows[1].delivered, 180_000);
}

#[test]
fn files_in_turns_rest_between() {
    let (mut scenario, [client, server]) = pair();
    scenario.duration = TimeSpan::from_seconds(10);
    scenario.add_flow(Flow {
        source: Source::OnOff {
            size: Distribution::Constant(1000.0),
            pause: Distribution::Constant(0.95),
        },
        ..Flow::bulk("files", client, server)
    });
    let results = Simulation::new(&scenario).unwrap().run();
    // The SYN, then a file each second.
    assert_eq!(
        (results.stop, results.flows[0].delivered),
        (StopReason::TimeIsUp, 10_000)
    );
}

fn traffic(from: NodeId, to: NodeId) -> Traffic {
    Traffic {
        name: "cross".into(),
        from,
        to,
        packet_size: 1000,
        rate: "8 Mbit/s".parse().unwrap(),
        sources: 1,
        pattern: Pattern::Constant,
        start: TimeSpan::from_seconds(1),
        end: Some(TimeSpan::from_seconds(3)),
    }
}

#[test]
fn cross_traffic_congests_a_link_for_its_time() {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(5));
    let nodes = scenario.add_chain("hop", 3, &link("8 Mbit/s", "1 ms", "0 %", 20));
    scenario.add_flow(Flow::bulk("flow", nodes[0], nodes[2]));
    let mut simulation = Simulation::observed(&scenario, Auditor::default()).unwrap();
    let alone = simulation.run().flows[0].delivered;
    // 1,000 packets a second use 2 s of 5.
    scenario.add_traffic(traffic(nodes[1], nodes[2]));
    let mut simulation = Simulation::observed(&scenario, Auditor::default()).unwrap();
    let results = simulation.run();
    let auditor = simulation.observer();
    assert_eq!(
        auditor.sent,
        auditor.delivered + auditor.dropped + simulation.packets_on_the_way()
    );
    assert_eq!(results.traffic[0].sent, 2000);
    assert!(results.traffic[0].delivered > 1800, "{:?}", results.traffic);
    let beside = results.flows[0].delivered;
    assert!(
        beside * 10 < alone * 7 && beside * 10 > alone * 3,
        "{beside} of {alone}"
    );
}

/// Packets in each 100 ms.
#[derive(Debug, Default)]
struct Counts(Vec<f64>);

impl Observer for Counts {
    fn sent(&mut self, now: Time, _: &Packet) {
        let bin = (now.nanoseconds() / 100_000_000) as usize;
        if self.0.len() <= bin {
            self.0.resize(bin + 1, 0.0);
        }
        self.0[bin] += 1.0;
    }
}

impl Counts {
    /// The variance of the means of blocks of `block` bins, divided by the square of the mean.
    fn variance(&self, block: usize) -> f64 {
        let means: Vec<f64> = self
            .0
            .chunks_exact(block)
            .map(|bins| bins.iter().sum::<f64>() / block as f64)
            .collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let squares = means
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>();
        squares / means.len() as f64 / mean / mean
    }

    /// The Hurst parameter by the variance-time plot, from 1 s to 40 s: variance falls with
    /// block^(2H − 2).
    fn hurst(&self) -> f64 {
        1.0 + libm::log(self.variance(400) / self.variance(10)) / libm::log(40.0) / 2.0
    }
}

#[test]
fn many_pareto_sources_are_self_similar_and_many_exponential_ones_are_not() {
    let run = |distribution: fn(f64) -> Distribution| {
        let mut scenario = Scenario::new(3, TimeSpan::from_seconds(4000));
        let nodes = scenario.add_chain("hop", 2, &link("100 Mbit/s", "1 ms", "0 %", 20));
        scenario.add_traffic(Traffic {
            rate: "200 kbit/s".parse().unwrap(),
            sources: 50,
            pattern: Pattern::OnOff {
                on: distribution(0.3),
                off: distribution(0.6),
            },
            start: TimeSpan::ZERO,
            end: None,
            ..traffic(nodes[0], nodes[1])
        });
        let mut simulation = Simulation::observed(&scenario, Counts::default()).unwrap();
        let results = simulation.run();
        assert_eq!(results.stop, StopReason::TimeIsUp);
        // A third of 50 times 25 packets a second, and half a packet for each on-phase.
        let rate = results.traffic[0].sent as f64 / 4000.0;
        (rate, simulation.observer().hurst())
    };
    let (rate, hurst) = run(|mean| Distribution::Exponential { mean });
    assert!(
        (420.0..450.0).contains(&rate) && hurst < 0.6,
        "{rate} {hurst}"
    );
    let (rate, hurst) = run(|mean| Distribution::Pareto { mean, shape: 1.4 });
    // (3 − 1.4) / 2 = 0.8 in the limit.
    assert!(
        (350.0..480.0).contains(&rate) && (0.72..0.92).contains(&hurst),
        "{rate} {hurst}"
    );
}

#[test]
fn a_small_mtu_cuts_packets_and_one_lost_fragment_costs_the_whole() {
    let run = |lost: Vec<u64>| {
        let mut scenario = Scenario::new(1, TimeSpan::from_seconds(10));
        let nodes = scenario.add_chain("hop", 3, &link("8 Mbit/s", "5 ms", "0 %", 100));
        for hop in 0..2 {
            scenario.configure(LinkId(hop), Direction::Up, |link| {
                link.mtu = Some(1500 - 500 * hop as u32)
            });
        }
        scenario.configure(LinkId(1), Direction::Up, |link| {
            link.losses = LossPattern::Scripted(lost)
        });
        scenario.reassembly_timeout = TimeSpan::from_seconds(1);
        let sender = SenderConfiguration {
            segment_size: 4420,
            ..SenderConfiguration::default()
        };
        scenario.add_flow(Flow {
            source: Source::Fixed(size(44_200)),
            ..Flow::bulk("flow", nodes[0], nodes[2]).with_sender(sender)
        });
        scenario.add_flow(Flow::bulk("other", nodes[2], nodes[0]));
        let mut simulation = Simulation::observed(&scenario, Auditor::default()).unwrap();
        let results = simulation.run();
        assert_eq!(results.flows[0].delivered, 44_200);
        let sender = results.flows[0].legs[0].sender;
        (
            sender.segments,
            sender.retransmissions,
            results.links[1].up.handled.packets,
        )
    };
    let whole = run(vec![]);
    // 4,460 bytes at 1,500: 3 fragments of 1,500 bytes; at 1,000, each of them becomes 2.
    assert_eq!((whole.0, whole.1), (10, 0));
    let cut = run(vec![8]);
    assert_eq!((cut.0, cut.1), (11, 1));
    // The fragments of one more segment.
    assert!(cut.2 >= whole.2 + 6 - 20, "{cut:?} {whole:?}");
}

#[test]
fn a_connection_that_gets_nowhere_is_given_up() {
    let (mut scenario, [client, server]) = pair();
    scenario.duration = TimeSpan::from_seconds(100_000);
    scenario.configure(LinkId(0), Direction::Down, |link| {
        link.losses = LossPattern::Scripted((2..100).collect())
    });
    scenario.add_flow(Flow {
        source: Source::Fixed(size(10_000)),
        sender: SenderConfiguration {
            give_up_after: 5,
            ..SenderConfiguration::default()
        },
        ..Flow::bulk("flow", client, server)
    });
    let results = Simulation::new(&scenario).unwrap().run();
    let gave_up = results.flows[0].gave_up.unwrap();
    assert_eq!((results.stop, gave_up.leg), (StopReason::Finished, 0));
    // Opened after 0.1 s; then 1, 2, 4, 8, 16 s of waiting.
    assert!(
        (milliseconds(gave_up.at) - 31_100.0).abs() < 1.0,
        "{:?}",
        gave_up.at
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    let (scenario, [client, server]) = pair();
    let refuse = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = scenario.clone();
        change(&mut scenario);
        match Simulation::new(&scenario) {
            Err(error @ (ScenarioError::Setting { .. } | ScenarioError::UnknownNode { .. })) => {
                error.to_string()
            }
            other => panic!("{other:?}"),
        }
    };
    let shape = Pattern::OnOff {
        on: Distribution::Pareto {
            mean: 1.0,
            shape: 1.0,
        },
        off: Distribution::Constant(1.0),
    };
    let traffic = || traffic(client, server);
    assert_eq!(
        refuse(&|scenario| scenario.add_traffic(Traffic {
            pattern: shape,
            ..traffic()
        })),
        "traffic \"cross\": the time on has a shape of 1; it must be above 1, or there is no mean"
    );
    assert_eq!(
        refuse(&|scenario| scenario.add_traffic(Traffic {
            to: NodeId(9),
            ..traffic()
        })),
        "traffic \"cross\": there is no node 9; the scenario has 2"
    );
    assert_eq!(
        refuse(&|scenario| scenario.configure(LinkId(0), Direction::Up, |link| link.mtu = Some(67))),
        "link \"wire 0\": the MTU is 67; it must be at least 68"
    );
    assert_eq!(
        refuse(&|scenario| {
            let flow = scenario.add_flow(Flow::bulk("flow", client, server));
            scenario.add_dialogue(Dialogue {
                connections: vec![[flow, flow]],
                count: 1,
                request: size(1),
                answer: size(1),
            });
        }),
        "flow \"flow\": the source must be `Source::Dialogue`, because a dialogue uses this flow"
    );
}
