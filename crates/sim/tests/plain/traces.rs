//! Traces: tables, distributions and captures of a scenario whose packets are known.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use std::process::{Command, Stdio};

use crate::common::{Log, link};
use midspan_link::Direction;
use midspan_sim::proxy::RelayConfiguration;
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::trace::{BurstWatch, Capture, Kind, Trace};
use midspan_sim::{Flow, LinkId, LossPattern, Scenario, Simulation, Source};
use midspan_units::{ByteSize, TimeSpan};

/// Eight segments over two links; the fifth is lost on the second link.
fn scenario(split: bool) -> Scenario {
    with_options(split, 0)
}

/// The same with this many bytes of TCP options in each packet.
fn with_options(split: bool, options: u32) -> Scenario {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(10));
    let nodes = scenario.add_chain("hop, the", 3, &link("8 Mbit/s", "10 ms", "0 %", 3));
    // The SYN is the first packet.
    scenario.configure(LinkId(1), Direction::Up, |link| {
        link.losses = LossPattern::Scripted(vec![6])
    });
    let flow = Flow {
        source: Source::Fixed(ByteSize::from_bytes(8000)),
        ..Flow::bulk("file", nodes[0], nodes[2])
            .with_sender(SenderConfiguration {
                variant: Variant::Sack,
                segment_size: 1000,
                initial_window: 4,
                header_size: 40 + options,
                ..SenderConfiguration::default()
            })
            .with_receiver(ReceiverConfiguration {
                acknowledge: AckRule::Every,
                buffer: 1 << 20,
                segment_size: 1000,
                header_size: 40 + options,
                ..ReceiverConfiguration::default()
            })
    };
    scenario.add_flow(if split {
        flow.split_at(nodes[1], RelayConfiguration::default())
    } else {
        flow
    });
    scenario
}

fn tables(scenario: &Scenario) -> [String; 6] {
    let mut outputs = [const { Vec::new() }; 6];
    let mut slots = outputs.iter_mut();
    let trace = Trace::new(scenario, |_| slots.next()).unwrap();
    let mut simulation = Simulation::link_by_link(scenario, trace).unwrap();
    simulation.run();
    simulation.into_observer().finish().unwrap();
    outputs.map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn tables_say_what_happened() {
    let [cwnd, rtt, sequence, queue, rate, drops] = tables(&scenario(false));
    let head = |text: &str, lines: usize| text.lines().take(lines).collect::<Vec<_>>().join("\n");
    assert_eq!(
        head(&sequence, 5),
        "time_s,flow,leg,event,sequence,bytes\n\
         0.000000000,file,1,syn,0,0\n\
         0.040160000,file,1,ack,0,1048576\n\
         0.040160000,file,1,data,0,1000\n\
         0.040160000,file,1,data,1000,1000"
    );
    assert_eq!(
        drops,
        "time_s,link,direction,reason,flow,leg,bytes\n\
         0.094400000,\"hop, the 1\",up,lost,file,1,1040\n"
    );
    // One packet is sent, three wait: the fourth of the first four.
    assert!(
        queue.contains("0.040160000,\"hop, the 0\",up,3,3120\n"),
        "{queue}"
    );
    // The first sample is that of the handshake, in ticks of a millisecond.
    assert_eq!(
        head(&rtt, 2),
        "time_s,flow,leg,rtt_s\n0.040160000,file,1,0.04"
    );
    // A SYN, then all data that has come out of the first link: 8 segments, and one that is sent again.
    let sum = |direction: &str| -> u64 {
        let prefix = format!("\"hop, the 0\",{direction}");
        let lines = rate.lines().filter(|line| line.contains(&prefix));
        lines
            .map(|line| line.split(',').nth(4).unwrap().parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!(sum("up"), 40 + 9 * 1040, "{rate}");
    assert!(
        rate.starts_with("time_s,link,direction,bytes,rate_bits_per_second\n0.100000000,"),
        "{rate}"
    );
    // Slow start; then half of the data that was in flight.
    assert!(cwnd.contains(",file,1,5000,,"), "{cwnd}");
    assert!(
        cwnd.lines()
            .skip(1)
            .any(|line| line.split(',').nth(4) == Some("2000")),
        "{cwnd}"
    );
}

#[test]
fn a_trace_changes_nothing() {
    for split in [false, true] {
        let scenario = scenario(split);
        let plain = Simulation::link_by_link(&scenario, Log::default())
            .unwrap()
            .run();
        let trace = Trace::new(&scenario, |_| Some(Vec::new())).unwrap();
        let capture = Capture::new(&scenario, Vec::new()).unwrap();
        let both = (Some(trace), Some(capture));
        let traced = Simulation::link_by_link(&scenario, both).unwrap().run();
        assert_eq!(plain, traced);
    }
}

#[test]
fn a_kind_that_is_not_asked_for_is_not_written() {
    let scenario = scenario(false);
    let mut drops = Vec::new();
    let mut slot = Some(&mut drops);
    let trace = Trace::new(&scenario, |kind| {
        (kind == Kind::Drops).then(|| slot.take()).flatten()
    });
    let mut simulation = Simulation::link_by_link(&scenario, trace.unwrap()).unwrap();
    simulation.run();
    simulation.into_observer().finish().unwrap();
    assert_eq!(drops.iter().filter(|byte| **byte == b'\n').count(), 2);
}

#[test]
fn bursts_and_forward_data_after_a_loss() {
    let mut scenario = scenario(true);
    // A loss on the inbound leg: the data after it is forwarded in one piece.
    scenario.configure(LinkId(1), Direction::Up, |link| {
        link.losses = LossPattern::Scripted(vec![])
    });
    scenario.configure(LinkId(0), Direction::Up, |link| {
        link.losses = LossPattern::Scripted(vec![2])
    });
    let watch = BurstWatch::new(&scenario, TimeSpan::ZERO).unwrap();
    let mut simulation = Simulation::observed(&scenario, watch).unwrap();
    simulation.run();
    let mut watch = simulation.into_observer();
    assert_eq!(
        watch.connections().collect::<Vec<_>>(),
        [("file", 1), ("file", 2)]
    );
    let forward = watch.forward_data(0).unwrap();
    assert!(forward.largest().unwrap() >= 4, "{forward:?}");
    let bursts = watch.bursts(1).unwrap();
    assert!(bursts.largest().unwrap() >= 4, "{bursts:?}");
}

/// The content of each record of a capture: time in ns, original size, and the packet.
fn records(pcap: &[u8]) -> Vec<(u64, u32, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(pcap[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 101));
    let mut records = Vec::new();
    let mut at = 24;
    while at < pcap.len() {
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        let captured = word(at + 8) as usize;
        let bytes = pcap[at + 16..at + 16 + captured].to_vec();
        records.push((time, word(at + 12), bytes));
        at += 16 + captured;
    }
    records
}

fn captured(split: bool) -> Vec<u8> {
    let scenario = scenario(split);
    let mut pcap = Vec::new();
    let capture = Capture::new(&scenario, &mut pcap).unwrap();
    let mut simulation = Simulation::observed(&scenario, capture).unwrap();
    simulation.run();
    simulation.into_observer().finish().unwrap();
    pcap
}

#[test]
fn a_capture_parses_back() {
    let records = records(&captured(false));
    assert!(
        records.windows(2).all(|pair| pair[0].0 <= pair[1].0),
        "in order of time"
    );
    let number =
        |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let (time, size, syn) = &records[0];
    assert_eq!((*time, *size, syn[33]), (0, 52, 0x02));
    assert_eq!(&syn[12..20], [10, 0, 0, 1, 10, 0, 0, 3]);
    let (_, _, answer) = &records[1];
    assert_eq!((answer[33], number(answer, 28)), (0x12, 1));
    let (_, size, first) = &records[2];
    assert_eq!((*size, number(first, 24), first[33]), (1040, 1, 0x18));
    // The checksum of every IP header is right.
    for (_, _, bytes) in &records {
        let sum: u32 = bytes[..20]
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
    // Each segment begins where one before it has ended, also where a part of its size is that of options.
    let with_options = with_options(false, 12);
    let mut pcap = Vec::new();
    let capture = Capture::new(&with_options, &mut pcap).unwrap();
    let mut simulation = Simulation::observed(&with_options, capture).unwrap();
    simulation.run();
    simulation.into_observer().finish().unwrap();
    for (_, size, bytes) in self::records(&pcap).iter().skip(2) {
        let data = size - 20 - u32::from(bytes[32] >> 4) * 4;
        assert!([0, 1000].contains(&data), "{data} of {size}");
    }
    // Nine segments with data: one was sent twice.
    let data = records.iter().filter(|(_, size, _)| *size == 1040).count();
    assert_eq!(data, 9);
    // A SACK block reports the data after the gap: from 5,001 on.
    let sack = records
        .iter()
        .find(|(_, _, bytes)| bytes.len() == 52 && bytes[42] == 5);
    assert_eq!(number(&sack.unwrap().2, 44), 5001);
}

#[test]
fn tcpdump_reads_a_capture() {
    let mut child = match Command::new("tcpdump")
        .args(["-n", "-r", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(error) => return println!("skipped: tcpdump does not start: {error}"),
    };
    // The output is small enough for the pipe.
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &captured(true)).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), records(&captured(true)).len(), "{text}");
    assert!(
        lines[0].contains("10.0.0.1.10000 > 10.0.0.2.5001: Flags [S], seq 0"),
        "{text}"
    );
    assert!(
        text.contains("Flags [S.]") && text.contains("sack 1 {"),
        "{text}"
    );
    assert!(
        text.contains("10.0.0.2.10001 > 10.0.0.3.5001"),
        "the second leg: {text}"
    );
}
