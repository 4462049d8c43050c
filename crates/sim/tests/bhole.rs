//! Bhole, "Incorporation of TCP Proxy Service for improving TCP throughput": the tables, with
//! one set of parameters. `docs/papers/bhole.md` says why these.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_link::{Configuration, QueueLimit, State};
use midspan_sim::proxy::{Buffers, LocalAck, RelayConfiguration, Service, ServiceTime};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, Scenario, Simulation, StopReason};
use midspan_units::{Probability, TimeSpan};

const PACKET: u64 = 1000;

/// What a table varies.
#[derive(Clone)]
struct Case {
    rate: &'static str,
    delay: &'static str,
    hops: usize,
    /// Hops between the source and each PTS node.
    nodes: Vec<usize>,
    service: &'static str,
    local_ack: LocalAck,
    /// `C_max`, in packets.
    buffer: u64,
    seconds: &'static str,
    seed: u64,
}

impl Case {
    fn new(delay: &'static str, seconds: &'static str, nodes: &[usize]) -> Self {
        Self {
            rate: "10 Mbit/s",
            delay,
            hops: 8,
            nodes: nodes.to_vec(),
            service: "100 us",
            local_ack: LocalAck::BeforeService,
            buffer: 1024,
            seconds,
            seed: 1,
        }
    }

    fn scenario(&self) -> Scenario {
        let link = Configuration {
            state: State {
                rate: Some(self.rate.parse().unwrap()),
                delay: self.delay.parse().unwrap(),
                loss: Probability::ZERO,
            },
            queue: QueueLimit::Packets(50),
            ..Configuration::default()
        };
        let mut scenario = Scenario::new(self.seed, self.seconds.parse().unwrap());
        let nodes = scenario.add_chain("hop", self.hops + 1, &link);
        let sender = SenderConfiguration {
            variant: Variant::Tahoe,
            segment_size: 1000,
            header_size: 40,
            initial_window: 2,
            window_limit: 20 * PACKET,
            grow_only_when_limited: false,
            ..SenderConfiguration::default()
        };
        let receiver = ReceiverConfiguration {
            acknowledge: AckRule::Every,
            segment_size: 1000,
            header_size: 40,
            ..ReceiverConfiguration::default()
        };
        let relay = RelayConfiguration {
            buffers: Buffers::Granted {
                size: self.buffer * PACKET,
            },
            service: Some(Service {
                time: ServiceTime::Exponential(self.service.parse().unwrap()),
                local_ack: self.local_ack,
            }),
            pacing: None,
        };
        let mut flow = Flow::bulk("ftp", nodes[0], nodes[self.hops])
            .with_sender(sender)
            .with_receiver(receiver);
        flow.start = TimeSpan::from_milliseconds(100);
        for node in &self.nodes {
            flow = flow.split_at(nodes[*node], relay);
        }
        scenario.add_flow(flow);
        scenario
    }

    /// Packets that the source had sent, and that the receiver had got; the SYN is the first.
    fn packets(&self) -> (u64, u64) {
        let results = Simulation::new(&self.scenario()).unwrap().run();
        assert_eq!(results.stop, StopReason::TimeIsUp);
        let flow = &results.flows[0];
        for leg in &flow.legs {
            assert_eq!(
                leg.sender.retransmissions, 0,
                "nothing is lost in these tables"
            );
            assert_eq!(leg.receiver.bytes_beyond_window, 0);
        }
        (flow.legs[0].sent / PACKET + 1, flow.delivered / PACKET + 1)
    }

    fn sent(&self) -> u64 {
        self.packets().0
    }

    fn got(&self) -> u64 {
        self.packets().1
    }
}

fn assert_close(what: &str, ours: u64, paper: u64) {
    assert!(
        ours.abs_diff(paper) <= 2,
        "{what}: {ours}, the paper has {paper}"
    );
}

#[test]
fn table_1_without_congestion() {
    assert_close("TCP", Case::new("10 ms", "2.5 s", &[]).sent(), 230);
    assert_close("PTS", Case::new("10 ms", "2.5 s", &[4]).sent(), 510);
}

#[test]
fn table_4_by_position() {
    assert_close("TCP", Case::new("5 ms", "10 s", &[]).got(), 2210);
    let paper = [2530, 2970, 3570, 4470, 3570, 2970, 2530];
    for (node, paper) in (1..).zip(paper) {
        let got = Case::new("5 ms", "10 s", &[node]).got();
        assert_close(&format!("{node} : {}", 8 - node), got, paper);
    }
}

fn table_5(local_ack: LocalAck, seed: u64) -> Vec<u64> {
    let times = ["0.25 ms", "0.5 ms", "0.75 ms", "1 ms", "1.25 ms", "1.5 ms"];
    let row = times.map(|service| {
        let case = Case {
            service,
            local_ack,
            buffer: 400,
            seed,
            ..Case::new("8 ms", "10 s", &[4])
        };
        case.got()
    });
    row.into()
}

#[test]
fn table_5_by_service_time() {
    assert_close("TCP", Case::new("8 ms", "10 s", &[]).sent(), 1410);
    // Acknowledged first, as §II says: the service time hardly matters.
    let row = table_5(LocalAck::BeforeService, 1);
    assert_eq!(row, [2851; 6]);
    assert_close("0.25 ms", row[0], 2850);
    // Served first: the service time adds to the round trip. The paper lies between the two.
    let paper = [2850, 2844, 2830, 2817, 2810, 2790];
    let served_first = table_5(LocalAck::AfterService, 1);
    for (index, paper) in paper.into_iter().enumerate() {
        assert!(
            row[index] + 2 >= paper && paper >= served_first[index],
            "{served_first:?}"
        );
    }
}

#[test]
fn table_5_falls_by_3_percent_when_served_first() {
    let rows: Vec<Vec<u64>> = (1..=20)
        .map(|seed| table_5(LocalAck::AfterService, seed))
        .collect();
    let mean: Vec<u64> = (0..6)
        .map(|column| rows.iter().map(|row| row[column]).sum::<u64>() / 20)
        .collect();
    assert_eq!(mean, [2837, 2825, 2808, 2790, 2769, 2745]);
    assert!(mean[5] * 100 >= mean[0] * 96);
}

fn table_6() -> Vec<u64> {
    let row = [10, 20, 30, 40, 80, 160].map(|buffer| {
        let case = Case {
            buffer,
            ..Case::new("8 ms", "10 s", &[4])
        };
        case.got()
    });
    row.into()
}

#[test]
fn table_6_grows_with_the_buffer_and_saturates() {
    assert_close("TCP", Case::new("8 ms", "10 s", &[]).got(), 1390);
    let row = table_6();
    assert_eq!(row, [675, 1342, 2051, 2800, 2851, 2851]);
    assert!(row.windows(2).all(|pair| pair[0] <= pair[1]));
}

#[test]
fn figure_9_each_node_more_is_better() {
    let row: Vec<u64> = [vec![], vec![7], vec![5, 9], vec![3, 7, 10]]
        .into_iter()
        .map(|nodes| {
            let case = Case {
                rate: "5 Mbit/s",
                hops: 14,
                service: "1 ms",
                ..Case::new("2 ms", "10 s", &nodes)
            };
            case.got()
        })
        .collect();
    assert_eq!(row, [2396, 4846, 5852, 5871]);
    assert!(row.windows(2).all(|pair| pair[0] < pair[1]));
}
