//! Results that never change: the same numbers on every machine, and in every release that does not
//! change the model on purpose. They cover every variant, every loss pattern, a link that changes,
//! service times and pacing. A change of the model shows here as a change of this table.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use crate::common::link;
use midspan_link::{Direction, Schedule, Step};
use midspan_sim::proxy::{Buffers, LocalAck, RelayConfiguration, Service, ServiceTime};
use midspan_sim::tcp::{ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, LinkId, LossPattern, Scenario, Simulation};
use midspan_units::{BitRate, Probability, TimeSpan};

fn probability(value: f64) -> Probability {
    Probability::from_f64(value).unwrap()
}

fn scenario(variant: Variant) -> Scenario {
    let mut scenario = Scenario::new(7, TimeSpan::from_seconds(60));
    let nodes = scenario.add_chain("hop", 4, &link("8 Mbit/s", "15 ms", "0.5 %", 40));
    let mut fading = link("12 Mbit/s", "20 ms", "0 %", 60);
    fading.schedule = Schedule {
        steps: vec![
            Step {
                at: TimeSpan::ZERO,
                rate: BitRate::from_bits_per_second(12_000_000),
                ..Step::default()
            },
            Step {
                at: TimeSpan::from_seconds(2),
                rate: BitRate::from_bits_per_second(3_000_000),
                ..Step::default()
            },
        ],
        repeat: Some(TimeSpan::from_seconds(5)),
    };
    let end = scenario.add_node("end");
    scenario.add_link("fading", nodes[3], end, &fading, &fading);
    let per_bit = LossPattern::PerBit(probability(5e-7));
    scenario.configure(LinkId(1), Direction::Up, |link| link.losses = per_bit);
    let bursts = LossPattern::GilbertElliott {
        to_bad: probability(0.001),
        to_good: probability(0.3),
        good: probability(0.0001),
        bad: probability(0.5),
    };
    scenario.configure(LinkId(2), Direction::Up, |link| link.losses = bursts);
    let relay = |local_ack, pacing: Option<&str>| RelayConfiguration {
        buffers: Buffers::Granted { size: 200_000 },
        service: Some(Service {
            time: ServiceTime::Exponential(TimeSpan::from_nanoseconds(300_000)),
            local_ack,
        }),
        pacing: pacing.map(|rate| rate.parse().unwrap()),
        ..RelayConfiguration::default()
    };
    let sender = SenderConfiguration {
        variant,
        minimum_timeout: TimeSpan::from_milliseconds(200),
        ..SenderConfiguration::default()
    };
    let receiver = ReceiverConfiguration {
        buffer: 300_000,
        ..ReceiverConfiguration::default()
    };
    let flow = |name: &str| {
        Flow::bulk(name, nodes[0], end)
            .with_sender(sender)
            .with_receiver(receiver)
    };
    scenario.add_flow(flow("whole"));
    scenario.add_flow(
        flow("split")
            .split_at(nodes[1], relay(LocalAck::BeforeService, None))
            .split_at(nodes[3], relay(LocalAck::AfterService, Some("6 Mbit/s"))),
    );
    scenario
}

/// Bytes delivered by both flows, segments, retransmissions, time-outs, ACKs, events.
fn numbers(variant: Variant) -> [u64; 7] {
    let results = Simulation::new(&scenario(variant)).unwrap().run();
    let legs = || results.flows.iter().flat_map(|flow| &flow.legs);
    [
        results.flows[0].delivered,
        results.flows[1].delivered,
        legs().map(|leg| leg.sender.segments).sum(),
        legs().map(|leg| leg.sender.retransmissions).sum(),
        legs().map(|leg| leg.sender.timeouts).sum(),
        legs().map(|leg| leg.receiver.acknowledgements).sum(),
        results.events,
    ]
}

#[test]
fn the_numbers_of_every_variant() {
    let seen = [
        Variant::Tahoe,
        Variant::Reno,
        Variant::NewReno,
        Variant::Sack,
        Variant::Cubic,
    ]
    .map(numbers);
    assert_eq!(seen, KNOWN);
}

const KNOWN: [[u64; 7]; 5] = [
    [3001760, 11382160, 25855, 263, 17, 14258, 73364],
    [3454360, 11893160, 27258, 245, 26, 15041, 77059],
    [3944920, 12094640, 27963, 261, 5, 15577, 79795],
    [4488040, 12967720, 30161, 240, 7, 16567, 85419],
    [4949400, 18766840, 42834, 404, 7, 23671, 116784],
];

#[test]
fn a_simulation_may_run_on_any_thread() {
    let here = numbers(Variant::NewReno);
    let there = std::thread::spawn(|| numbers(Variant::NewReno))
        .join()
        .unwrap();
    assert_eq!(here, there);
}
