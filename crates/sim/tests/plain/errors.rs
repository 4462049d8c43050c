//! The error for a scenario that cannot be simulated names the reason and the place.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use crate::common::link;
use midspan_sim::proxy::{Buffers, RelayConfiguration};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration};
use midspan_sim::{Flow, NodeId, Scenario, Simulation, Source, StopReason};
use midspan_units::{ByteSize, TimeSpan};

fn two_nodes() -> (Scenario, NodeId, NodeId) {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(10));
    let wire = link("8 Mbit/s", "10 ms", "0 %", 100);
    let nodes = scenario.add_chain("wire", 2, &wire);
    (scenario, nodes[0], nodes[1])
}

fn error(scenario: &Scenario) -> String {
    Simulation::new(scenario).unwrap_err().to_string()
}

#[test]
fn nodes_must_exist_and_be_joined() {
    let (mut scenario, from, to) = two_nodes();
    scenario.add_flow(Flow::bulk("file", from, NodeId(7)));
    assert_eq!(
        error(&scenario),
        "flow \"file\": there is no node 7; the scenario has 2"
    );
    let (mut scenario, from, _) = two_nodes();
    let island = scenario.add_node("island");
    scenario.add_flow(Flow::bulk("file", from, island));
    assert_eq!(
        error(&scenario),
        "flow \"file\": no links lead from \"wire 0\" to \"island\""
    );
    let (mut scenario, ..) = two_nodes();
    scenario.add_flow(Flow::bulk("file", to, to));
    assert_eq!(
        error(&scenario),
        "flow \"file\": no links lead from \"wire 1\" to \"wire 1\""
    );
}

#[test]
fn links_have_names_of_their_own() {
    let (mut scenario, from, to) = two_nodes();
    let wire = link("8 Mbit/s", "10 ms", "0 %", 100);
    scenario.add_link("wire 0", from, to, &wire, &wire);
    assert_eq!(
        error(&scenario),
        "two links are called \"wire 0\": give each a name of its own"
    );
}

#[test]
fn buffers_and_windows_hold_at_least_a_segment() {
    let (mut scenario, from, to) = two_nodes();
    let sender = SenderConfiguration {
        window_limit: 1000,
        ..SenderConfiguration::default()
    };
    scenario.add_flow(Flow::bulk("file", from, to).with_sender(sender));
    assert_eq!(
        error(&scenario),
        "flow \"file\", leg 1: the window limit is 1000; it must be at least 1460"
    );
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(10));
    let wire = link("8 Mbit/s", "10 ms", "0 %", 100);
    let nodes = scenario.add_chain("wire", 3, &wire);
    let relay = RelayConfiguration {
        buffers: Buffers::Granted { size: 0 },
        ..RelayConfiguration::default()
    };
    scenario.add_flow(Flow::bulk("file", nodes[0], nodes[2]).split_at(nodes[1], relay));
    assert_eq!(
        error(&scenario),
        "flow \"file\", leg 1: the granted buffer is 0; it must be at least 1460"
    );
    let (mut scenario, from, to) = two_nodes();
    let receiver = ReceiverConfiguration {
        acknowledge: AckRule::Delayed {
            segments: 0,
            timeout: TimeSpan::ZERO,
        },
        ..ReceiverConfiguration::default()
    };
    scenario.add_flow(Flow::bulk("file", from, to).with_receiver(receiver));
    assert_eq!(
        error(&scenario),
        "flow \"file\", leg 1: the segments for each ACK is 0; it must be at least 1"
    );
}

#[test]
fn a_scenario_without_end_is_stopped_with_the_reason() {
    let (mut scenario, from, to) = two_nodes();
    scenario.duration = TimeSpan::from_nanoseconds(u64::MAX);
    scenario.event_limit = 10_000;
    scenario.add_flow(Flow::bulk("file", from, to));
    let results = Simulation::new(&scenario).unwrap().run();
    assert_eq!(
        (results.stop, results.events),
        (StopReason::EventLimit, 10_000)
    );
}

#[test]
fn a_simulation_can_be_run_in_steps() {
    let (mut scenario, from, to) = two_nodes();
    scenario.add_flow(Flow {
        source: Source::Fixed(ByteSize::from_bytes(1_000_000)),
        ..Flow::bulk("file", from, to)
    });
    let whole = Simulation::new(&scenario).unwrap().run();
    let mut simulation = Simulation::new(&scenario).unwrap();
    let half = simulation.run_until(TimeSpan::from_milliseconds(500));
    assert_eq!(half.stop, StopReason::TimeIsUp);
    assert!(half.flows[0].delivered < 1_000_000);
    assert_eq!(simulation.run(), whole);
    assert_eq!(whole.stop, StopReason::Finished);
}
