//! Measurements: real outputs of the programs, and arbitrary input.

#![allow(clippy::unwrap_used)]

use midspan_plan::measured::{Measured, MeasuredError, iperf3, metrics, pcap, ping, ss};
use proptest::prelude::*;

const SS: &str = include_str!("../samples/ss.txt");
const SS_RECEIVER: &str = include_str!("../samples/ss-receiver.txt");
const PING: &str = include_str!("../samples/ping.txt");
const PING_LOST: &str = include_str!("../samples/ping-lost.txt");
const IPERF3: &str = include_str!("../samples/iperf3.json");
const METRICS: &str = include_str!("../samples/metrics.txt");
const SENDER: &[u8] = include_bytes!("../samples/sender.pcap");
const RECEIVER: &[u8] = include_bytes!("../samples/receiver.pcap");

fn near(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() <= 1e-6 * expected.abs().max(1e-6))
}

#[test]
fn ss_contains_round_trip_loss_rate_and_congestion_control() {
    let found = ss::read(SS).unwrap();
    assert_eq!(found.len(), 2);
    let busiest = &found[0];
    assert_eq!(busiest.name, "10.9.0.1:54690 to 10.9.0.2:5201");
    assert!(near(busiest.stretches[0].round_trip, 0.011e-3));
    assert!(near(busiest.mean_round_trip, 8.476e-3));
    // retrans:0/17 of data_segs_out:3339.
    assert!(near(busiest.stretches[0].loss, 17.0 / 3339.0));
    assert!(near(busiest.throughput, 19_139_656.0));
    assert_eq!(busiest.segment, Some(1448));
    assert_eq!(busiest.congestion_control.as_deref(), Some("cubic"));
    assert_eq!(busiest.receive_window, Some(928_768));
    assert_eq!(busiest.limited, Some([0.0, 0.0]));
    assert_eq!(found[1].congestion_control.as_deref(), Some("bbr"));
    assert!(
        found[1]
            .untold
            .iter()
            .any(|what| what.contains("application"))
    );
    // The round trip grew by a factor of a thousand: the queue was full, and the rate was reached.
    let data_path = busiest.data_path(None).unwrap();
    assert!(
        data_path
            .assumptions
            .iter()
            .any(|what| what.contains("queue")),
        "{:?}",
        data_path.assumptions
    );
}

#[test]
fn the_receiver_of_an_ss_has_little_to_say() {
    // Only the control connection sends on this side.
    for measured in ss::read(SS_RECEIVER).unwrap() {
        assert!(measured.throughput.is_none_or(|rate| rate.is_finite()));
    }
    let nobody = "State Recv-Q Send-Q\nESTAB 0 0 1.1.1.1:1 2.2.2.2:2\n\t cubic rtt:1/1\n";
    assert!(matches!(ss::read(nobody), Err(MeasuredError::Empty { .. })));
    assert!(matches!(ss::read(PING), Err(MeasuredError::Format { .. })));
}

#[test]
fn older_ss_prints_rates_with_prefixes() {
    let text = "ESTAB 0 0 1.1.1.1:1 2.2.2.2:2\n\t ts sack cubic rtt:20.5/3 mss:1448 bytes_acked:9 \
                data_segs_out:100 retrans:0/5 send 1.5Mbps delivery_rate 12.5Mbps minrtt:19.5\n";
    let found = ss::read(text).unwrap();
    assert!(near(found[0].throughput, 12.5e6));
    assert!(near(found[0].stretches[0].loss, 0.05));
    assert!(near(found[0].stretches[0].round_trip, 0.0195));
}

#[test]
fn ping_contains_round_trip_and_loss() {
    let found = ping::read(PING).unwrap();
    assert_eq!(found.name, "10.9.0.2");
    assert!(near(found.stretches[0].round_trip, 0.041e-3));
    assert_eq!(found.stretches[0].loss, Some(0.0));
    assert!(found.untold.iter().any(|what| what.contains("60.00 %")));
    let lossy = PING.replace("5 received, 0%", "4 received, 20%");
    let found = ping::read(&lossy).unwrap();
    assert!(near(found.stretches[0].loss, 1.0 - 0.8_f64.sqrt()));
    let error = ping::read(PING_LOST).unwrap_err().to_string();
    assert!(error.contains("there was no reply"), "{error}");
    let busybox = "4 packets transmitted, 4 packets received, 0% packet loss\n\
                   round-trip min/avg/max = 10.5/11.0/12.0 ms\n";
    assert!(near(
        ping::read(busybox).unwrap().stretches[0].round_trip,
        0.0105
    ));
}

#[test]
fn iperf3_contains_throughput_round_trip_and_retransmissions() {
    let found = iperf3::read(IPERF3).unwrap();
    assert!(found.throughput.unwrap() > 1.8e7 && found.throughput.unwrap() < 2e7);
    assert_eq!(found.segment, Some(1448));
    assert_eq!(found.congestion_control.as_deref(), Some("cubic"));
    assert!(near(found.mean_round_trip, 8.134e-3) || found.mean_round_trip.unwrap() > 5e-3);
    assert!(found.stretches[0].loss.unwrap() > 1e-3);
    for (text, what) in [
        ("{", "EOF"),
        ("{}", "no `end`"),
        (r#"{"error": "unable to connect"}"#, "unable to connect"),
        (
            r#"{"start": {"test_start": {"protocol": "UDP"}}, "end": {}}"#,
            "TCP",
        ),
    ] {
        let error = iperf3::read(text).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn captures_tell_both_sides_of_their_point() {
    let at_sender = pcap::read(SENDER).unwrap();
    let at_receiver = pcap::read(RECEIVER).unwrap();
    for found in [&at_sender[0], &at_receiver[0]] {
        assert_eq!(found.name, "10.9.0.1:54690 to 10.9.0.2:5201");
        assert_eq!(found.segment, Some(1448));
        assert_eq!(found.stretches.len(), 2);
        assert!(found.throughput.unwrap() > 1.5e7 && found.throughput.unwrap() < 2.2e7);
        // All losses were in the sender's own queue, before either point.
        assert!(found.stretches[0].loss.unwrap() > 0.0);
        assert_eq!(found.stretches[1].loss, Some(0.0));
        let per_ack = found.packets_per_ack.unwrap();
        assert!((1.0..=2.5).contains(&per_ack), "{per_ack}");
    }
    // From a quarter of the capture on: without the handshake.
    let mut rest = SENDER[..24].to_vec();
    let mut at = 24;
    for index in 0.. {
        let Some(record) = SENDER.get(at..at + 16) else {
            break;
        };
        let length = 16 + u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        if index >= 150 {
            rest.extend(&SENDER[at..at + length]);
        }
        at += length;
    }
    let found = pcap::read(rest.as_slice()).unwrap();
    assert_eq!(found[0].stretches.len(), 1);
    assert!(
        found[0]
            .untold
            .iter()
            .any(|what| what.contains("handshake"))
    );
    assert_eq!(found[0].receive_window, None);
}

#[test]
fn metrics_tell_of_both_legs() {
    let found = metrics::read(METRICS).unwrap();
    assert_eq!(found.len(), 1);
    let web = &found[0];
    assert_eq!(web.name, "listener web towards the client");
    let ends: Vec<&str> = web.stretches.iter().map(|part| part.end.as_str()).collect();
    assert_eq!(ends, ["proxy", "client"]);
    assert!(
        web.stretches
            .iter()
            .all(|part| part.round_trip.is_some_and(|time| time < 0.01))
    );
    assert_eq!(web.stretches[1].loss, Some(0.0));
    assert!(web.throughput.unwrap() > 1e6);
    // Two segments in a hundred sent again.
    let again = 2_621_715.0 / 1448.0 * 0.02 / 0.98;
    let lossy = METRICS.replace(
        "retransmitted_segments_total{listener=\"web\",leg=\"client\"} 0",
        &format!("retransmitted_segments_total{{listener=\"web\",leg=\"client\"}} {again}"),
    );
    assert!(near(
        metrics::read(&lossy).unwrap()[0].stretches[1].loss,
        0.02
    ));
    let quoted = METRICS.replace("\"web\"", "\"a \\\"}b{\\\\\"");
    assert_eq!(
        metrics::read(&quoted).unwrap()[0].name,
        "listener a \"}b{\\ towards the client"
    );
    assert!(matches!(
        metrics::read(PING),
        Err(MeasuredError::Format { .. })
    ));
    let idle = METRICS.replace("2621715", "0").replace("} 542", "} 0");
    assert!(matches!(
        metrics::read(&idle),
        Err(MeasuredError::Empty { .. })
    ));
}

/// A pcapng file made from a pcap file, with a clock in nanoseconds.
fn as_pcapng(file: &[u8]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().div_ceil(4) * 4, 0);
        let length = u32::try_from(12 + body.len()).unwrap().to_be_bytes();
        [&kind.to_be_bytes()[..], &length, &body, &length].concat()
    };
    let mut out = block(
        0x0a0d_0d0a,
        &[
            0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255,
        ],
    );
    out.extend(block(
        1,
        &[0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0],
    ));
    let mut at = 24;
    while let Some(record) = file.get(at..at + 16) {
        let field = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        let time = u64::from(field(0)) * 1_000_000_000 + u64::from(field(4)) * 1000;
        let length = field(8) as usize;
        let mut body = vec![0, 0, 0, 0];
        body.extend(u32::try_from(time >> 32).unwrap().to_be_bytes());
        body.extend(u32::try_from(time & 0xffff_ffff).unwrap().to_be_bytes());
        body.extend(field(8).to_be_bytes());
        body.extend(field(12).to_be_bytes());
        body.extend(&file[at + 16..at + 16 + length]);
        out.extend(block(6, &body));
        at += 16 + length;
    }
    out
}

#[test]
fn pcapng_gives_the_same_values() {
    let [one, other] = [
        pcap::read(SENDER).unwrap(),
        pcap::read(as_pcapng(SENDER).as_slice()).unwrap(),
    ];
    assert_eq!(one.len(), other.len());
    assert_eq!(one[0].name, other[0].name);
    assert_eq!(one[0].stretches[0].loss, other[0].stretches[0].loss);
    assert!((one[0].throughput.unwrap() / other[0].throughput.unwrap() - 1.0).abs() < 1e-4);
}

/// Every value for a plan is a number, and nothing panics.
fn sound(found: &Measured) {
    let numbers = [
        found.throughput,
        found.peak,
        found.mean_round_trip,
        found.packets_per_ack,
    ];
    let stretches = found
        .stretches
        .iter()
        .flat_map(|part| [part.round_trip, part.loss]);
    for number in numbers.into_iter().chain(stretches).flatten() {
        assert!(number.is_finite() && number >= 0.0, "{found:?}");
    }
    if let Ok(data_path) = found.data_path(None) {
        let answer = midspan_plan::Answer::new(&data_path, &[]).unwrap();
        assert!(answer.throughput().is_finite());
    }
}

#[test]
fn absurd_numbers_are_not_taken_for_measurements() {
    let large = "midspan_forwarded_bytes_total{listener=\"a\",direction=\"to_client\"} 1e308\n\
                 midspan_leg_retransmitted_segments_total{listener=\"a\",leg=\"client\"} 1e308\n\
                 midspan_leg_busy_seconds_total{listener=\"a\",leg=\"client\"} 1e308\n";
    let small = "midspan_forwarded_bytes_total{listener=\"a\",direction=\"to_client\"} 7\n";
    for metric in metrics::read(&[large, large, small].concat()).unwrap() {
        sound(&metric);
    }
    let line = "ESTAB 0 0 a b\n\t reno bytes_sent:5 data_segs_out:1 delivery_rate 1e308Tbps\n";
    for connection in ss::read(line).unwrap() {
        sound(&connection);
        assert_eq!(connection.throughput, None);
    }
    let text = r#"{"end": {"sum_sent": {"bits_per_second": 1}},
                   "intervals": [{"sum": {"bits_per_second": -5}}]}"#;
    let found = iperf3::read(text).unwrap();
    sound(&found);
    assert_eq!(found.peak, Some(1.0));
}

#[test]
fn empty_and_foreign_inputs_are_refused() {
    for bytes in [
        &b""[..],
        b"\n",
        b"\xd4\xc3\xb2\xa1",
        &SENDER[..24],
        PING.as_bytes(),
        &[0; 64],
    ] {
        assert!(pcap::read(bytes).is_err());
    }
    for text in ["", "\u{0}", "State", "ESTAB\n x"] {
        assert!(
            ss::read(text).is_err() && ping::read(text).is_err() && iperf3::read(text).is_err()
        );
    }
    let huge = [&SENDER[..32], &[0xff; 16]].concat();
    assert!(pcap::read(huge.as_slice()).is_err());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(iperf3::read(&deep).is_err());
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 300,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Changes some bytes, and cuts off the end.
fn damaged(
    bytes: &[u8],
    changes: &[(prop::sample::Index, u8)],
    end: prop::sample::Index,
) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, byte) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    bytes.truncate(end.index(bytes.len()) + 1);
    bytes
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn damaged_captures_are_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..200),
        end in any::<prop::sample::Index>(), pcapng in any::<bool>(),
    ) {
        let file = if pcapng { as_pcapng(&SENDER[..8000]) } else { SENDER[..8000].to_vec() };
        for found in pcap::read(damaged(&file, &changes, end).as_slice()).into_iter().flatten() {
            sound(&found);
        }
    }

    #[test]
    fn damaged_texts_are_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        end in any::<prop::sample::Index>(), which in 0..4,
    ) {
        let text = [SS, PING, IPERF3, METRICS][which as usize];
        let text = String::from_utf8_lossy(&damaged(text.as_bytes(), &changes, end)).into_owned();
        ss::read(&text).into_iter().flatten().for_each(|found| sound(&found));
        metrics::read(&text).into_iter().flatten().for_each(|found| sound(&found));
        ping::read(&text).into_iter().for_each(|found| sound(&found));
        iperf3::read(&text).into_iter().for_each(|found| sound(&found));
    }

    #[test]
    fn random_bytes_are_no_capture(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for begin in [&[][..], &SENDER[..24], &as_pcapng(&SENDER[..24])] {
            let file = [begin, &bytes].concat();
            pcap::read(file.as_slice()).into_iter().flatten().for_each(|found| sound(&found));
        }
    }
}
