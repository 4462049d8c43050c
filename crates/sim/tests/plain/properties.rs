//! Properties of any path: random chains, flows, proxies, losses, buffers.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use crate::common::{self, Auditor, Log};
use midspan_link::{Configuration, Direction, QueueLimit, Schedule, State, Step};
use midspan_policy::ack_thinning::AceSettings;
use midspan_policy::{Handshake, RoundTripSource};
use midspan_sim::proxy::{Buffers, LocalAck, RelayConfiguration, Service, ServiceTime};
use midspan_sim::tcp::{
    AckRule, ByteCounting, ReceiverConfiguration, SenderConfiguration, Thinning, Variant,
    WindowGrowth,
};
use midspan_sim::{
    Distribution, Flow, LinkId, LossPattern, NoObserver, NodeId, Observer, Pattern, Results,
    Scenario, Simulation, Source, StopReason, Traffic,
};
use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};
use proptest::prelude::*;

fn configuration() -> impl Strategy<Value = Configuration> {
    (
        100_000_u64..50_000_000,
        0_u64..60_000,
        prop_oneof![3 => Just(0.0), 2 => 0.0..0.1_f64],
        prop_oneof![
            (0_u32..40).prop_map(QueueLimit::Packets),
            (3000_u64..60_000).prop_map(|bytes| QueueLimit::Bytes(ByteSize::from_bytes(bytes))),
        ],
        prop::option::weighted(0.2, 100_000_u64..50_000_000),
    )
        .prop_map(|(rate, delay, loss, queue, later)| Configuration {
            state: State {
                rate: BitRate::from_bits_per_second(rate),
                delay: TimeSpan::from_nanoseconds(delay * 1000),
                loss: Probability::from_f64(loss).unwrap(),
            },
            queue,
            overhead: 0,
            schedule: Schedule {
                steps: later
                    .map(|rate| Step {
                        at: TimeSpan::from_milliseconds(300),
                        rate: BitRate::from_bits_per_second(rate),
                        ..Step::default()
                    })
                    .into_iter()
                    .collect(),
                repeat: None,
            },
            ..Configuration::default()
        })
}

fn sender() -> impl Strategy<Value = SenderConfiguration> {
    (
        prop::sample::select(vec![
            Variant::Tahoe,
            Variant::Reno,
            Variant::NewReno,
            Variant::Sack,
            Variant::Cubic,
            Variant::Bbr,
        ]),
        100_u32..2000,
        1_u32..20,
        prop_oneof![Just(u64::MAX), 2000_u64..100_000],
        any::<[bool; 4]>(),
        prop_oneof![
            Just(ByteCounting::Off),
            (1_u32..3).prop_map(ByteCounting::Limit),
            Just(ByteCounting::All)
        ],
        prop::option::weighted(0.3, 200_000_u64..20_000_000),
    )
        .prop_map(
            |(variant, segment_size, initial_window, window_limit, switches, counting, pacing)| {
                SenderConfiguration {
                    variant,
                    segment_size,
                    initial_window,
                    window_limit,
                    handshake: switches[0],
                    limited_transmit: switches[1],
                    nagle: switches[2],
                    grow_only_when_limited: switches[3],
                    byte_counting: counting,
                    pacing_rate: pacing.and_then(BitRate::from_bits_per_second),
                    minimum_timeout: TimeSpan::from_milliseconds(200),
                    maximum_timeout: TimeSpan::from_seconds(4),
                    ..SenderConfiguration::default()
                }
            },
        )
}

fn receiver() -> impl Strategy<Value = ReceiverConfiguration> {
    (
        2000_u64..200_000,
        prop_oneof![
            2 => Just(WindowGrowth::Fixed),
            1 => Just(WindowGrowth::Linux24),
            1 => (1_u64..100_000).prop_map(|initial| WindowGrowth::Autotuned { initial }),
        ],
        any::<bool>(),
        prop_oneof![
            Just(AckRule::Every),
            (1_u32..5, 1_u64..500).prop_map(|(segments, timeout)| AckRule::Delayed {
                segments,
                timeout: TimeSpan::from_milliseconds(timeout),
            }),
            (1_u32..5, 1_u64..500).prop_map(|(segments, timeout)| AckRule::DelayedAndThinned {
                segments,
                timeout: TimeSpan::from_milliseconds(timeout),
                thinning: Thinning::Ace {
                    settings: AceSettings::of_hosts(),
                    round_trip: RoundTripSource::Timestamp,
                },
            }),
        ],
    )
        .prop_map(
            |(buffer, window_growth, selective, acknowledge)| ReceiverConfiguration {
                buffer,
                window_growth,
                acknowledge,
                selective,
                ..ReceiverConfiguration::default()
            },
        )
}

fn relay() -> impl Strategy<Value = RelayConfiguration> {
    let buffers = prop_oneof![
        (2000_u64..100_000).prop_map(|send| Buffers::Separate { send }),
        (2000_u64..100_000).prop_map(|size| Buffers::Granted { size }),
    ];
    let service = prop::option::of((0_u64..3000, any::<[bool; 2]>()));
    let pacing = prop::option::of(500_000_u64..20_000_000);
    let unsent = prop::option::of(1_u64..20_000);
    let parts = (buffers, service, pacing, any::<bool>(), unsent);
    parts.prop_map(
        |(buffers, service, pacing, early, notsent_lowat)| RelayConfiguration {
            buffers,
            notsent_lowat,
            refuse: false,
            inbound_hop: false,
            connect_time: TimeSpan::ZERO,
            service: service.map(|(microseconds, [random, first])| {
                let time = TimeSpan::from_nanoseconds(microseconds * 1000);
                Service {
                    time: if random {
                        ServiceTime::Exponential(time)
                    } else {
                        ServiceTime::Constant(time)
                    },
                    local_ack: if first {
                        LocalAck::BeforeService
                    } else {
                        LocalAck::AfterService
                    },
                }
            }),
            pacing: pacing.and_then(BitRate::from_bits_per_second),
            handshake: if early {
                Handshake::Early
            } else {
                Handshake::EndToEnd
            },
        },
    )
}

/// A chain of links, and flows over parts of it in both directions, each split at some of the nodes
/// between its ends.
fn scenario() -> impl Strategy<Value = Scenario> {
    let flow = (
        any::<[prop::sample::Index; 2]>(),
        any::<bool>(),
        (sender(), receiver()),
        prop::collection::vec((relay(), sender(), receiver(), any::<bool>()), 5),
        1_u64..300_000,
        0_u64..500,
    );
    (
        any::<u64>(),
        prop::collection::vec((configuration(), configuration()), 1..5),
        prop::collection::vec(flow, 1..4),
        prop::option::weighted(0.4, 1_000_u64..5_000_000),
    )
        .prop_map(|(seed, links, flows, cross)| {
            let mut scenario = Scenario::new(seed, TimeSpan::from_seconds(3));
            let nodes: Vec<NodeId> = (0..=links.len())
                .map(|index| scenario.add_node(&format!("node {index}")))
                .collect();
            for (index, (up, down)) in links.iter().enumerate() {
                let name = format!("link {index}");
                scenario.add_link(&name, nodes[index], nodes[index + 1], up, down);
            }
            if let Some(rate) = cross.and_then(BitRate::from_bits_per_second) {
                let on = Distribution::Pareto {
                    mean: 0.05,
                    shape: 1.5,
                };
                scenario.add_traffic(Traffic {
                    name: "cross".into(),
                    from: nodes[links.len()],
                    to: nodes[0],
                    packet_size: 700,
                    rate,
                    sources: 3,
                    pattern: Pattern::OnOff {
                        on,
                        off: Distribution::Exponential { mean: 0.1 },
                    },
                    start: TimeSpan::from_milliseconds(100),
                    end: Some(TimeSpan::from_seconds(2)),
                });
            }
            for (index, (ends, back, (sender, receiver), splits, size, start)) in
                flows.into_iter().enumerate()
            {
                let first = ends[0].index(links.len());
                let last = first + 1 + ends[1].index(links.len() - first);
                let mut way: Vec<NodeId> = nodes[first..=last].to_vec();
                if back {
                    way.reverse();
                }
                let mut flow = Flow {
                    sender,
                    receiver,
                    source: Source::Fixed(ByteSize::from_bytes(size)),
                    start: TimeSpan::from_milliseconds(start),
                    ..Flow::bulk(&format!("flow {index}"), way[0], way[way.len() - 1])
                };
                for (node, (relay, outbound, inbound, wanted)) in
                    way[1..way.len() - 1].iter().zip(splits)
                {
                    if wanted {
                        flow = flow.split_at(*node, relay);
                        let split = flow.splits.last_mut().unwrap();
                        split.outbound = outbound;
                        split.inbound = inbound;
                    }
                }
                scenario.add_flow(flow);
            }
            scenario
        })
}

fn run<O: Observer>(mut simulation: Simulation<O>) -> (Results, Simulation<O>) {
    let results = simulation.run();
    (results, simulation)
}

/// How a small file ends over two lossy links with a proxy between them: packets are lost in both
/// directions.
fn lossy(
    sender: SenderConfiguration,
    receiver: ReceiverConfiguration,
    relay: RelayConfiguration,
    lost: &[Vec<u64>; 2],
) -> StopReason {
    let wire = common::link("5 Mbit/s", "5 ms", "0 %", 1000);
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(100_000));
    let nodes = scenario.add_chain("wire", 3, &wire);
    for link in 0..2 {
        for (direction, lost) in [Direction::Up, Direction::Down].into_iter().zip(lost) {
            scenario.configure(LinkId(link), direction, |link| {
                link.losses = LossPattern::Scripted(lost.clone())
            });
        }
    }
    scenario.add_flow(Flow {
        source: Source::Fixed(ByteSize::from_bytes(30_000)),
        ..Flow::bulk("file", nodes[0], nodes[2])
            .with_sender(sender)
            .with_receiver(receiver)
            .split_at(nodes[1], relay)
    });
    Simulation::new(&scenario).unwrap().run().stop
}

#[test]
fn a_small_autotuned_window_does_not_stop_a_flow() {
    let sender = SenderConfiguration {
        variant: Variant::Tahoe,
        segment_size: 1281,
        initial_window: 1,
        handshake: false,
        minimum_timeout: TimeSpan::from_milliseconds(200),
        maximum_timeout: TimeSpan::from_seconds(4),
        ..SenderConfiguration::default()
    };
    let receiver = ReceiverConfiguration {
        buffer: 2000,
        window_growth: WindowGrowth::Autotuned { initial: 1 },
        acknowledge: AckRule::Every,
        ..ReceiverConfiguration::default()
    };
    let relay = RelayConfiguration {
        buffers: Buffers::Granted { size: 2190 },
        ..RelayConfiguration::default()
    };
    let stop = lossy(sender, receiver, relay, &[vec![], vec![]]);
    assert_eq!(stop, StopReason::Finished);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn data_arrives_in_order_once_and_packets_are_conserved(scenario in scenario()) {
        let simulation = Simulation::observed(&scenario, Auditor::default()).unwrap();
        let (results, simulation) = run(simulation);
        let auditor = simulation.observer();
        // A drop on a link that changes is reported when the packet leaves the link, so a packet in
        // transit may still be dropped.
        prop_assert_eq!(
            auditor.sent,
            auditor.delivered + auditor.dropped + simulation.packets_on_the_way()
        );
        let mut leg_number = 0;
        for (flow, wanted) in results.flows.iter().zip(scenario.flows()) {
            let Source::Fixed(size) = wanted.source else { unreachable!() };
            prop_assert!(flow.delivered <= size.bytes());
            prop_assert_eq!(flow.finished.is_some(), flow.delivered == size.bytes());
            prop_assert_eq!(flow.delivered, auditor.whole(leg_number + flow.legs.len() as u32 - 1));
            for leg in &flow.legs {
                // Fewer bytes if segments wait for service.
                prop_assert!(leg.delivered <= auditor.whole(leg_number));
                prop_assert!(leg.acknowledged <= leg.delivered && leg.delivered <= leg.sent);
                leg_number += 1;
            }
            // A proxy sends only data that it has.
            for pair in flow.legs.windows(2) {
                prop_assert!(pair[1].sent <= pair[0].delivered);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes(scenario in scenario()) {
        let log = || run(Simulation::observed(&scenario, Log::default()).unwrap());
        let (first, second) = (log(), log());
        prop_assert_eq!(first.0, second.0);
        prop_assert_eq!(&first.1.observer().0, &second.1.observer().0);
    }

    #[test]
    fn joined_links_give_the_results_of_separate_ones(scenario in scenario()) {
        let mut joined = run(Simulation::new(&scenario).unwrap()).0;
        let mut separate = run(Simulation::link_by_link(&scenario, NoObserver).unwrap()).0;
        (joined.events, separate.events) = (0, 0);
        // The first packets after the last delivery may have been passed on already.
        if joined.stop == StopReason::TimeIsUp {
            prop_assert_eq!(&joined, &separate);
        } else {
            prop_assert_eq!(&joined.flows, &separate.flows);
            prop_assert_eq!(joined.until, separate.until);
        }
    }

    #[test]
    fn a_flow_finishes_when_nothing_is_lost(
        sender in sender(),
        receiver in receiver(),
        relay in relay(),
        size in 1_u64..200_000,
    ) {
        let wire = common::link("5 Mbit/s", "5 ms", "0 %", 1000);
        let mut scenario = Scenario::new(1, TimeSpan::from_seconds(1000));
        let nodes = scenario.add_chain("wire", 3, &wire);
        scenario.add_flow(Flow {
            source: Source::Fixed(ByteSize::from_bytes(size)),
            ..Flow::bulk("file", nodes[0], nodes[2])
                .with_sender(sender)
                .with_receiver(receiver)
                .split_at(nodes[1], relay)
        });
        let results = Simulation::new(&scenario).unwrap().run();
        prop_assert_eq!(results.stop, StopReason::Finished);
        prop_assert_eq!(results.flows[0].delivered, size);
    }

    #[test]
    fn a_flow_finishes_whatever_is_lost(
        sender in sender(),
        receiver in receiver(),
        relay in relay(),
        lost in prop::collection::vec(1_u64..60, 0..20),
        lost_back in prop::collection::vec(1_u64..60, 0..20),
    ) {
        prop_assert_eq!(lossy(sender, receiver, relay, &[lost, lost_back]), StopReason::Finished);
    }

    #[test]
    fn a_flow_that_is_sent_ahead_finishes_whatever_is_lost(
        sender in sender(),
        // Not below the receiver's own scale, which is 2 for the largest of these buffers.
        scale in 2_u8..=14,
        receiver in receiver(),
        relay in relay(),
        lost in prop::collection::vec(1_u64..60, 0..20),
        lost_back in prop::collection::vec(1_u64..60, 0..20),
    ) {
        let sender = SenderConfiguration { window_scale: Some(scale), ..sender };
        prop_assert_eq!(lossy(sender, receiver, relay, &[lost, lost_back]), StopReason::Finished);
    }

    #[test]
    fn data_arrives_whole_over_links_that_cut_packets(
        scenario in scenario(),
        mtus in prop::collection::vec(68_u32..1600, 8),
        lost in prop::collection::vec(1_u64..200, 0..10),
    ) {
        let mut scenario = scenario;
        // Waiting fragments must not use up all identifications.
        scenario.reassembly_timeout = TimeSpan::from_milliseconds(200);
        for (index, mtu) in mtus.into_iter().enumerate() {
            let direction = [Direction::Up, Direction::Down][index % 2];
            scenario.configure(LinkId(index / 2), direction, |link| link.mtu = Some(mtu));
        }
        scenario.configure(LinkId(0), Direction::Up, |link| link.losses = LossPattern::Scripted(lost));
        let simulation = Simulation::observed(&scenario, Auditor::default()).unwrap();
        let (results, simulation) = run(simulation);
        let mut leg_number = 0;
        for (flow, wanted) in results.flows.iter().zip(scenario.flows()) {
            let Source::Fixed(size) = wanted.source else { unreachable!() };
            prop_assert!(flow.delivered <= size.bytes());
            leg_number += flow.legs.len() as u32;
            prop_assert_eq!(flow.delivered, simulation.observer().whole(leg_number - 1));
        }
    }
}
