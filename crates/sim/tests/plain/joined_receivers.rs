//! Receivers that answer a packet as soon as it is sent: the results equal those with one event for
//! each link and each receiver.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use crate::common;
use midspan_sim::proxy::RelayConfiguration;
use midspan_sim::tcp::{AckRule, SenderConfiguration, Variant, WindowGrowth};
use midspan_sim::{Flow, NoObserver, Scenario, Simulation, Source};
use midspan_units::{ByteSize, TimeSpan};
use proptest::prelude::*;

/// One flow: its variant, how its receiver's window grows, whether it acknowledges every segment,
/// whether it is split, its direction, when it starts, and what ends it.
type Kind = (Variant, WindowGrowth, bool, bool, bool, u64, Option<bool>);

fn kind() -> impl Strategy<Value = Kind> {
    (
        prop::sample::select(vec![
            Variant::Tahoe,
            Variant::NewReno,
            Variant::Cubic,
            Variant::Bbr,
        ]),
        prop_oneof![
            Just(WindowGrowth::Fixed),
            Just(WindowGrowth::Linux24),
            Just(WindowGrowth::Autotuned { initial: 20_000 }),
        ],
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        0_u64..500,
        prop::option::weighted(0.2, any::<bool>()),
    )
}

fn scenario(kinds: &[Kind], hops: &[(u64, u64, u64)], seed: u64) -> Scenario {
    let mut scenario = Scenario::new(seed, TimeSpan::from_seconds(4));
    let nodes: Vec<_> = (0..=hops.len())
        .map(|node| scenario.add_node(&format!("node {node}")))
        .collect();
    for (index, (rate, delay, loss)) in hops.iter().enumerate() {
        let rate = format!("{rate} kbit/s");
        let hop = common::link(&rate, &format!("{delay} ms"), &format!("{loss} %"), 20);
        let name = format!("hop {index}");
        scenario.add_link(&name, nodes[index], nodes[index + 1], &hop, &hop);
    }
    for (index, kind) in kinds.iter().enumerate() {
        let (variant, window_growth, every, split, back, start, end) = *kind;
        let (first, last) = (nodes[0], nodes[hops.len()]);
        let (from, to) = if back { (last, first) } else { (first, last) };
        let mut flow = Flow::bulk(&format!("flow {index}"), from, to);
        flow = flow.with_sender(SenderConfiguration {
            variant,
            minimum_timeout: TimeSpan::from_milliseconds(200),
            ..SenderConfiguration::default()
        });
        flow.receiver.window_growth = window_growth;
        flow.receiver.buffer = 60_000;
        if every {
            flow.receiver.acknowledge = AckRule::Every;
        }
        if split && hops.len() > 1 {
            flow = flow.split_at(nodes[1], RelayConfiguration::default());
        }
        flow.start = TimeSpan::from_milliseconds(start);
        match end {
            None => {}
            Some(true) => flow.stop = Some(TimeSpan::from_seconds(2)),
            Some(false) => flow.source = Source::Fixed(ByteSize::from_bytes(100_000)),
        }
        scenario.add_flow(flow);
    }
    scenario
}

proptest! {
    #[test]
    fn joined_receivers_give_the_results_of_separate_ones(
        kinds in prop::collection::vec(kind(), 1..6),
        hops in prop::collection::vec((300_u64..10_000, 0_u64..40, 0_u64..4), 1..4),
        pauses in prop::collection::vec(0_u64..4000, 0..4),
        seed in any::<u64>(),
    ) {
        let scenario = scenario(&kinds, &hops, seed);
        let mut joined = Simulation::new(&scenario).unwrap();
        let mut separate = Simulation::link_by_link(&scenario, NoObserver).unwrap();
        let mut pauses = pauses;
        pauses.sort_unstable();
        for pause in pauses {
            let until = TimeSpan::from_milliseconds(pause);
            let (joined, separate) = (joined.run_until(until), separate.run_until(until));
            prop_assert_eq!(joined.flows, separate.flows);
            prop_assert_eq!((joined.until, joined.stop), (separate.until, separate.stop));
        }
        let (mut joined, separate) = (joined.run(), separate.run());
        prop_assert!(joined.events <= separate.events);
        joined.events = separate.events;
        prop_assert_eq!(&joined.flows, &separate.flows);
        if kinds.iter().any(|kind| kind.6.is_none()) {
            prop_assert_eq!(joined, separate);
        }
    }
}

#[test]
fn of_a_joined_receiver_only_the_ack_has_an_event() {
    let kind = (
        Variant::NewReno,
        WindowGrowth::Fixed,
        true,
        false,
        false,
        0,
        None,
    );
    let scenario = scenario(&[kind], &[(1000, 10, 0), (2000, 20, 1)], 1);
    let results = Simulation::new(&scenario).unwrap().run();
    let acks = results.flows[0].legs[0].receiver.acknowledgements;
    // The other events are the sender's timer and the start.
    assert!(
        acks > 100 && results.events < acks + acks / 4,
        "{acks}: {}",
        results.events
    );
}
