//! BBR on simulated paths: the use of a bottleneck, its queue, losses, several flows, the change of
//! a live sender.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_link::Step;
use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{
    Admission, Decision, Handshake, KnowledgeParts, LegDecision, Policy, Request, SessionId,
    SessionSample, Start,
};
use midspan_sim::proxy::RelayConfiguration;
use midspan_sim::tcp::{ByteCounting, SenderConfiguration, Variant};
use midspan_sim::{
    Flow, LinkId, LossPattern, NoObserver, Observer, Policies, Results, Scenario, Simulation,
    Source,
};
use midspan_units::{ByteSize, Time, TimeSpan};

use crate::common::{Auditor, link};

/// As Linux sends.
fn sender(variant: Variant) -> SenderConfiguration {
    SenderConfiguration {
        variant,
        segment_size: 1448,
        header_size: 52,
        byte_counting: ByteCounting::All,
        hystart: true,
        nagle: false,
        minimum_timeout: TimeSpan::from_milliseconds(200),
        ..SenderConfiguration::default()
    }
}

/// Flows of BBR over one bottleneck. Each begins a second after the one before.
fn bottleneck(flows: usize, rate: &str, delay: &str, loss: &str, queue: u32) -> Scenario {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(60));
    let nodes = scenario.add_chain("hop", 2, &link(rate, delay, loss, queue));
    for number in 0..flows {
        let mut flow = Flow::bulk(&format!("flow {number}"), nodes[0], nodes[1])
            .with_sender(sender(Variant::Bbr));
        flow.start = TimeSpan::from_seconds(number as u64);
        scenario.add_flow(flow);
    }
    scenario
}

/// The longest queue in front of the bottleneck, in packets, after a time.
#[derive(Debug)]
struct Queue {
    after: Time,
    longest: usize,
}

impl Queue {
    fn after(seconds: u64) -> Self {
        Self {
            after: Time::ZERO + TimeSpan::from_seconds(seconds),
            longest: 0,
        }
    }
}

impl Observer for Queue {
    const WATCHES_QUEUES: bool = true;

    fn queue(&mut self, now: Time, _: LinkId, up: bool, packets: usize, _: u64) {
        if up && now >= self.after {
            self.longest = self.longest.max(packets);
        }
    }
}

/// Delivered bits per second, from `from` to `to` seconds, for every flow.
fn goodput(scenario: &Scenario, from: u64, to: u64) -> Vec<f64> {
    let delivered = |seconds| {
        let mut part = scenario.clone();
        part.duration = TimeSpan::from_seconds(seconds);
        let results = Simulation::new(&part).unwrap().run();
        results.flows.into_iter().map(|flow| flow.delivered)
    };
    let span = (to - from) as f64;
    delivered(from)
        .zip(delivered(to))
        .map(|(before, after)| (after - before) as f64 * 8.0 / span)
        .collect()
}

#[test]
fn one_flow_fills_a_clean_bottleneck_and_leaves_a_short_queue() {
    // 20 Mbit/s and 100 ms: a product of 166 packets.
    let scenario = bottleneck(1, "20 Mbit/s", "50 ms", "0 %", 1000);
    let share = goodput(&scenario, 5, 60)[0] / 20e6 * 1500.0 / 1448.0;
    assert!(share >= 0.95, "{share}");
    let mut simulation = Simulation::observed(&scenario, Queue::after(5)).unwrap();
    let results = simulation.run();
    let longest = simulation.into_observer().longest;
    assert!(longest <= 166 / 2, "{longest} packets wait");
    assert_eq!(results.flows[0].legs[0].sender.retransmissions, 0);
}

#[test]
fn a_queue_that_overflows_in_startup_is_no_lasting_harm() {
    // A queue of a quarter of the product overflows when the rate doubles.
    let scenario = bottleneck(1, "20 Mbit/s", "50 ms", "0 %", 40);
    let share = goodput(&scenario, 10, 60)[0] / 20e6 * 1500.0 / 1448.0;
    assert!(share >= 0.9, "{share}");
    let results = Simulation::new(&scenario).unwrap().run();
    let sender = results.flows[0].legs[0].sender;
    assert!(
        sender.retransmissions > 0 && sender.timeouts <= 1,
        "{sender:?}"
    );
}

#[test]
fn one_percent_of_losses_takes_little_more_than_one_percent() {
    // Queues that hold what startup sends: 2.885 times the product.
    for (rate, delay, queue) in [("20 Mbit/s", "300 ms", 4000), ("50 Mbit/s", "5 ms", 200)] {
        let bits = if rate.starts_with('2') { 20e6 } else { 50e6 };
        let scenario = bottleneck(1, rate, delay, "1 %", queue);
        let share = goodput(&scenario, 20, 60)[0] / bits * 1500.0 / 1448.0;
        assert!(share >= 0.85, "{rate} {delay}: {share}");
        let results = Simulation::new(&scenario).unwrap().run();
        let sender = results.flows[0].legs[0].sender;
        // Nothing is sent again but what was lost, and few probes.
        let again = sender.retransmissions as f64 / sender.segments as f64;
        assert!((0.009..0.012).contains(&again), "{rate} {delay}: {again}");
        assert_eq!(sender.timeouts, 0, "{rate} {delay}");
    }
}

#[test]
fn two_flows_share_a_bottleneck() {
    let scenario = bottleneck(2, "20 Mbit/s", "20 ms", "0 %", 500);
    let both = goodput(&scenario, 20, 60);
    let (one, other) = (both[0], both[1]);
    assert!(one + other >= 0.95 * 20e6 * 1448.0 / 1500.0, "{both:?}");
    assert!((0.6..=1.67).contains(&(one / other)), "{both:?}");
}

#[test]
fn every_byte_arrives_in_order_and_the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut scenario = bottleneck(2, "10 Mbit/s", "30 ms", "2 %", 60);
        scenario.seed = seed;
        scenario.duration = TimeSpan::from_seconds(15);
        let mut simulation = Simulation::link_by_link(&scenario, Auditor::default()).unwrap();
        let results = simulation.run();
        let auditor = simulation.into_observer();
        for leg in 0..2 {
            assert_eq!(
                auditor.whole(leg),
                results.flows[leg as usize].legs[0].delivered
            );
        }
        results
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_fixed_size_ends_with_a_probe_and_without_a_time_out() {
    // The last segments of 100 kB are lost: a probe after two round trips finds that out.
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(20));
    let mut lossy = link("20 Mbit/s", "50 ms", "0 %", 1000);
    // The SYN is the first packet, and 70 segments follow.
    lossy.losses = LossPattern::Scripted(vec![70, 71]);
    let nodes = scenario.add_chain("hop", 2, &lossy);
    let mut flow = Flow::bulk("file", nodes[0], nodes[1]).with_sender(sender(Variant::Bbr));
    flow.source = Source::Fixed(ByteSize::from_bytes(100_000));
    scenario.add_flow(flow);
    let results = Simulation::new(&scenario).unwrap().run();
    let flow = &results.flows[0];
    let sender = flow.legs[0].sender;
    assert_eq!(flow.delivered, 100_000);
    assert_eq!(
        (sender.timeouts, sender.retransmissions),
        (0, 2),
        "{sender:?}"
    );
}

#[test]
fn a_link_that_fails_for_seconds_is_survived() {
    let mut scenario = Scenario::new(3, TimeSpan::from_seconds(30));
    let mut failing = link("10 Mbit/s", "20 ms", "0 %", 200);
    failing.schedule.steps = [(5, "100 %"), (8, "0 %")]
        .map(|(at, loss)| Step {
            at: TimeSpan::from_seconds(at),
            loss: Some(loss.parse().unwrap()),
            ..Step::default()
        })
        .into();
    let nodes = scenario.add_chain("hop", 2, &failing);
    scenario.add_flow(Flow::bulk("flow", nodes[0], nodes[1]).with_sender(sender(Variant::Bbr)));
    let results = Simulation::new(&scenario).unwrap().run();
    let sender = results.flows[0].legs[0].sender;
    assert!(sender.timeouts >= 2, "{sender:?}");
    // 27 of 30 s, less the time until the first time-out after the failure.
    let delivered = results.flows[0].delivered as f64 * 8.0;
    assert!(
        delivered > 0.9 * 25.0 * 10e6 * 1448.0 / 1500.0,
        "{delivered}"
    );
}

/// Changes the congestion control of the server's leg at a time.
struct Changes(u64);

impl Policy for Changes {
    fn admit(&mut self, _: Time, _: &Request) -> Admission {
        Admission::Intercept {
            handshake: Handshake::Early,
            connect_timeout: None,
        }
    }

    fn start(
        &mut self,
        _: Time,
        _: &Request,
        _: Option<LearnedStart>,
        _: &mut dyn KnowledgeParts,
    ) -> Start {
        Start::default()
    }

    fn sample(&mut self, now: Time, _: &SessionSample, _: &mut dyn KnowledgeParts) -> Decision {
        let is_time = now >= Time::ZERO + TimeSpan::from_seconds(self.0);
        Decision {
            server: LegDecision {
                congestion_control: is_time.then_some("bbr"),
                ..LegDecision::default()
            },
            ..Decision::default()
        }
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        Some(TimeSpan::from_milliseconds(100))
    }
}

fn changed_at(seconds: Option<u64>, until: u64) -> Results {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(until));
    let nodes = scenario.add_chain("hop", 3, &link("20 Mbit/s", "150 ms", "0.5 %", 1000));
    let mut flow = Flow::bulk("flow", nodes[0], nodes[2])
        .with_sender(sender(Variant::Bbr))
        .split_at(nodes[1], RelayConfiguration::default());
    flow.splits[0].outbound = sender(Variant::Cubic);
    let flow = scenario.add_flow(flow);
    let policies = match seconds {
        Some(seconds) => Policies::new().with(flow, 0, Box::new(Changes(seconds))),
        None => Policies::new(),
    };
    Simulation::with_policies(&scenario, policies, NoObserver)
        .unwrap()
        .run()
}

#[test]
fn a_live_sender_changes_to_bbr() {
    let delivered = |results: Results| results.flows[0].legs[1].delivered;
    // Losses of 0.5 % on 300 ms leave CUBIC little. Until the change, nothing differs.
    let cubic = delivered(changed_at(None, 40));
    let (before, unchanged) = (changed_at(Some(20), 20), changed_at(None, 20));
    assert_eq!(before.flows[0].legs[1], unchanged.flows[0].legs[1]);
    let changed = delivered(changed_at(Some(20), 40));
    assert!(changed > 3 * cubic, "{changed} {cubic}");
    // From then on it uses the path, from the second round trip on.
    let gained = (changed - delivered(before)) as f64 * 8.0 / 20.0;
    assert!(gained > 0.75 * 20e6 * 1448.0 / 1500.0, "{gained}");
    let results = changed_at(Some(20), 40);
    assert_eq!(results.flows[0].legs[1].sender.timeouts, 0);
}
