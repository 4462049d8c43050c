//! Fewer ACKs on a narrow upstream: policies at receivers, queues that filter or prefer ACKs,
//! compressed headers, and a cable with a shared upstream.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use crate::common::{Auditor, link};
use midspan_link::{Configuration, Direction, PolledConfiguration};
use midspan_policy::RoundTripSource;
use midspan_policy::ack_thinning::{AceSettings, AckFilter, AckFirst};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Thinning, Variant};
use midspan_sim::{
    Flow, FlowResults, LinkId, QueueDiscipline, Results, Scenario, Simulation, Source, StopReason,
    Traffic,
};
use midspan_units::{ByteSize, TimeSpan};
use proptest::prelude::*;

const TIMEOUT: TimeSpan = TimeSpan::from_milliseconds(100);
const LINE: LinkId = LinkId(0);

/// A download of 1 MB over 4 Mbit/s, with 20 kbit/s for ACKs.
fn scenario(acknowledge: AckRule) -> Scenario {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(600));
    let nodes = ["client", "server"].map(|name| scenario.add_node(name));
    let (up, down) = (
        link("20 kbit/s", "10 ms", "0 %", 50),
        link("4 Mbit/s", "10 ms", "0 %", 50),
    );
    scenario.add_link("line", nodes[0], nodes[1], &up, &down);
    let mut flow = Flow::bulk("download", nodes[1], nodes[0])
        .with_sender(SenderConfiguration {
            variant: Variant::Reno,
            ..SenderConfiguration::default()
        })
        .with_receiver(ReceiverConfiguration {
            buffer: 30 * 1460,
            acknowledge,
            ..ReceiverConfiguration::default()
        });
    flow.source = Source::Fixed(ByteSize::from_bytes(1_000_000));
    scenario.add_flow(flow);
    scenario
}

fn ace(round_trip: RoundTripSource) -> AckRule {
    AckRule::Thinned(Thinning::Ace {
        settings: AceSettings::default(),
        round_trip,
    })
}

fn run(scenario: &Scenario) -> Results {
    let results = Simulation::observed(scenario, Auditor::default())
        .unwrap()
        .run();
    assert_eq!(results.stop, StopReason::Finished);
    results
}

fn seconds(flow: &FlowResults) -> f64 {
    flow.finished.unwrap().nanoseconds() as f64 / 1e9
}

fn acks(results: &Results) -> u64 {
    results.flows[0].legs[0].receiver.acknowledgements
}

#[test]
fn each_policy_sends_the_acks_it_is_made_for() {
    let every = run(&scenario(AckRule::Every));
    assert_eq!(acks(&every), 686);
    let (max_packets_per_ack, timeout) = (5, TIMEOUT);
    let cases = [
        (
            Thinning::FixedDelay {
                segments: 4,
                timeout,
            },
            171..190,
        ),
        (
            Thinning::ExplicitWindow {
                max_packets_per_ack,
                timeout,
            },
            137..170,
        ),
        (
            Thinning::WindowPrediction {
                initial_window: 10,
                max_packets_per_ack,
                timeout,
            },
            137..170,
        ),
    ];
    for (thinning, expected) in cases {
        let results = run(&scenario(AckRule::Thinned(thinning)));
        assert!(
            expected.contains(&acks(&results)),
            "{thinning:?}: {}",
            acks(&results)
        );
        assert!(
            seconds(&results.flows[0]) < seconds(&every.flows[0]) / 2.0,
            "{thinning:?}"
        );
    }
    let sources = [
        RoundTripSource::Handshake,
        RoundTripSource::IcmpEcho,
        RoundTripSource::Timestamp,
    ];
    for source in sources {
        let results = run(&scenario(ace(source)));
        assert!(
            (137..280).contains(&acks(&results)),
            "{source:?}: {}",
            acks(&results)
        );
    }
}

#[test]
fn a_policy_behind_a_delaying_receiver_gets_the_acks_that_it_makes() {
    let (segments, timeout) = (2, TimeSpan::from_milliseconds(40));
    let delayed = run(&scenario(AckRule::Delayed { segments, timeout }));
    let thinned = |thinning| {
        run(&scenario(AckRule::DelayedAndThinned {
            segments,
            timeout,
            thinning,
        }))
    };
    // A policy that passes every ACK changes nothing.
    let passed = thinned(Thinning::FixedDelay {
        segments: 1,
        timeout: TIMEOUT,
    });
    assert_eq!(passed, delayed);
    // Three ACKs of two segments each cover at least the five that ACE thinning waits for.
    let ace = thinned(Thinning::Ace {
        settings: AceSettings::default(),
        round_trip: RoundTripSource::Timestamp,
    });
    assert!((114..200).contains(&acks(&ace)), "{}", acks(&ace));
    assert!(seconds(&ace.flows[0]) < seconds(&delayed.flows[0]) / 1.5);
    // A target of four is reached with every second ACK, and nothing waits for the time-out.
    let four = thinned(Thinning::FixedDelay {
        segments: 4,
        timeout: TIMEOUT,
    });
    assert!((171..200).contains(&acks(&four)), "{}", acks(&four));
}

#[test]
fn echo_requests_take_their_share_of_the_upstream() {
    let with = |source| {
        let results = run(&scenario(ace(source)));
        results.links[0].up.handled.packets - acks(&results)
    };
    assert_eq!(with(RoundTripSource::Timestamp), 0);
    assert!(with(RoundTripSource::IcmpEcho) > 5);
}

#[test]
fn a_policy_that_controls_congestion_thins_where_the_queue_marks() {
    let thinned = |mark_from| {
        let mut scenario = scenario(AckRule::Thinned(Thinning::CongestionControl {
            max_packets_per_ack: 5,
            timeout: TIMEOUT,
        }));
        let discipline = QueueDiscipline {
            mark_from,
            ..QueueDiscipline::default()
        };
        scenario.configure(LINE, Direction::Up, |link| {
            link.queue_discipline = discipline
        });
        acks(&run(&scenario))
    };
    assert_eq!(thinned(None), 686);
    assert!(thinned(Some(2)) < 350, "{}", thinned(Some(2)));
}

#[test]
fn a_filter_keeps_one_ack_waiting_and_regeneration_gives_them_back() {
    let filtered = |regenerate| {
        let mut scenario = Scenario::clone(&scenario(AckRule::default()));
        let discipline = QueueDiscipline {
            filter: Some(AckFilter::default()),
            ..QueueDiscipline::default()
        };
        scenario.configure(LINE, Direction::Up, |link| {
            link.queue_discipline = discipline
        });
        if let Some(segments) = regenerate {
            let mut flow = scenario.flows()[0].clone();
            flow.regenerate_acks = Some(segments);
            flow.name = "again".to_owned();
            scenario.add_flow(flow);
        }
        run(&scenario)
    };
    let plain = run(&scenario(AckRule::default()));
    let results = filtered(None);
    let up = results.links[0].up;
    assert!(up.filtered.packets > 100, "{up:?}");
    assert!(up.queue_peak_packets <= 2, "{up:?}");
    assert!(seconds(&results.flows[0]) < seconds(&plain.flows[0]) / 1.5);
    // The sender of the second flow gets more ACKs than arrived for it.
    let both = filtered(Some(2));
    assert!(both.flows.iter().all(|flow| flow.delivered == 1_000_000));
}

#[test]
fn acks_that_go_first_let_a_download_pass_an_upload() {
    let download = |first: bool| {
        let mut scenario = scenario(AckRule::default());
        let upload = Flow::bulk("upload", scenario.flows()[0].to, scenario.flows()[0].from);
        scenario.add_flow(upload);
        scenario.duration = TimeSpan::from_seconds(60);
        let discipline = QueueDiscipline {
            first: first.then(|| AckFirst::new(4500)),
            ..QueueDiscipline::default()
        };
        scenario.configure(LINE, Direction::Up, |link| {
            link.queue_discipline = discipline
        });
        let results = Simulation::observed(&scenario, Auditor::default())
            .unwrap()
            .run();
        (results.flows[0].delivered, results.flows[1].delivered)
    };
    let ((slow, _), (fast, upload)) = (download(false), download(true));
    assert!(fast > 3 * slow, "{fast} against {slow}");
    assert!(upload > 20_000, "{upload}: data is never starved");
}

#[test]
fn compressed_headers_are_small_and_refreshed_after_a_loss() {
    let compressed = |loss: &str, header_size| {
        let mut scenario = scenario(AckRule::default());
        let mut flow = scenario.flows()[0].clone();
        flow.sender.header_size = header_size;
        flow.receiver.header_size = header_size;
        let mut again = Scenario::new(1, scenario.duration);
        let nodes = ["client", "server"].map(|name| again.add_node(name));
        let (up, down) = (
            link("20 kbit/s", "10 ms", loss, 50),
            link("4 Mbit/s", "10 ms", loss, 50),
        );
        let line = again.add_link("line", nodes[0], nodes[1], &up, &down);
        again.configure(line, Direction::Up, |link| link.header_compression = true);
        again.configure(line, Direction::Down, |link| link.header_compression = true);
        again.add_flow(flow);
        scenario = again;
        run(&scenario)
    };
    let clean = compressed("0 %", 40);
    let up = clean.links[0].up;
    let mean = up.delivered.bytes as f64 / up.delivered.packets as f64;
    // An ACK for two segments: change byte, checksum, and 2,920 in three bytes.
    assert!((6.0..7.0).contains(&mean), "{mean}");
    assert_eq!(up.damaged.packets, 0);
    let down = clean.links[0].down;
    let header = down.delivered.bytes as f64 / down.delivered.packets as f64 - 1_000_000.0 / 686.0;
    assert!((3.0..4.0).contains(&header), "{header}");
    // Timestamps change with every packet.
    let stamped = compressed("0 %", 52).links[0].up;
    assert!(stamped.delivered.bytes >= 52 * (stamped.delivered.packets - 20));
    let lossy = compressed("2 %", 40);
    assert!(lossy.links[0].up.damaged.packets > 0 && lossy.links[0].down.damaged.packets > 0);
    assert!(seconds(&lossy.flows[0]) > seconds(&clean.flows[0]));
}

fn plant() -> PolledConfiguration {
    PolledConfiguration {
        rate: "768 kbit/s".parse().unwrap(),
        poll: TimeSpan::from_milliseconds(1),
        slot: TimeSpan::from_milliseconds(2),
        contention_interval: TimeSpan::from_milliseconds(100),
        confirmation: TimeSpan::from_milliseconds(5),
        polled_for: TimeSpan::from_seconds(5),
        rounds: 10,
    }
}

/// Users who download and upload, on one cable.
fn cable(seed: u64, users: usize, loss: &str) -> Scenario {
    let mut scenario = Scenario::new(seed, TimeSpan::from_seconds(300));
    let [router, server] = ["router", "server"].map(|name| scenario.add_node(name));
    let channel = link("27 Mbit/s", "5 ms", "0 %", 1000);
    scenario.add_link("channel", router, server, &channel, &channel);
    let mut links = Vec::new();
    for user in 0..users {
        let node = scenario.add_node(&format!("user {user}"));
        let up = Configuration {
            state: midspan_link::State {
                rate: None,
                ..link("1 Mbit/s", "1 ms", loss, 20).state
            },
            ..link("1 Mbit/s", "1 ms", loss, 20)
        };
        let modem = scenario.add_link(
            &format!("modem {user}"),
            node,
            router,
            &up,
            &Configuration::default(),
        );
        links.push(modem);
        let mut flow = Flow::bulk(&format!("download {user}"), server, node);
        flow.source = Source::Fixed(ByteSize::from_bytes(200_000));
        scenario.add_flow(flow);
        scenario.add_traffic(Traffic {
            name: format!("udp {user}"),
            from: node,
            to: server,
            packet_size: 800,
            rate: "40 kbit/s".parse().unwrap(),
            sources: 1,
            pattern: midspan_sim::Pattern::Constant,
            start: TimeSpan::from_seconds(1),
            end: Some(TimeSpan::from_seconds(20)),
        });
    }
    scenario.add_cable("plant", &links, plant());
    scenario
}

#[test]
fn a_cable_carries_the_acks_of_its_users_and_counts_what_happens() {
    let results = run(&cable(1, 8, "0 %"));
    assert!(results.flows.iter().all(|flow| flow.delivered == 200_000));
    let counters = results.cables[0];
    assert!(
        counters.contention_frames >= 8 && counters.collisions > 0,
        "{counters:?}"
    );
    let up: u64 = (1..9)
        .map(|link| results.links[link].up.handled.packets)
        .sum();
    let delivered: u64 = (1..9)
        .map(|link| results.links[link].up.delivered.packets)
        .sum();
    assert!(delivered <= counters.polls + counters.contention_frames && delivered > up / 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Packets are conserved on a cable (the auditor counts them), and the same seed gives the same
    /// results.
    #[test]
    fn a_cable_is_deterministic_and_counts_every_lost_packet(seed in 0_u64..1000, users in 1_usize..12) {
        let scenario = cable(seed, users, "1 %");
        let [one, other] = [(); 2].map(|()| {
            Simulation::observed(&scenario, Auditor::default()).unwrap().run()
        });
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one.stop, StopReason::Finished);
    }
}
