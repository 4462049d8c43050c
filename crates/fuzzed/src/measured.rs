//! Measurements that the planner takes.

use midspan_plan::measured::{self, Measured};
use midspan_units::BitRate;

/// A capture, pcap or pcapng.
pub fn pcap(input: &[u8]) {
    all(measured::pcap::read(input).unwrap_or_default());
}

/// What `ss -tin` printed.
pub fn ss(input: &[u8]) {
    all(measured::ss::read(&text(input)).unwrap_or_default());
}

/// What `ping` printed.
pub fn ping(input: &[u8]) {
    all(measured::ping::read(&text(input)));
}

/// What `iperf3 --json` printed.
pub fn iperf3(input: &[u8]) {
    all(measured::iperf3::read(&text(input)));
}

/// The metrics of a running proxy.
pub fn metrics(input: &[u8]) {
    all(measured::metrics::read(&text(input)).unwrap_or_default());
}

fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

fn all(found: impl IntoIterator<Item = Measured>) {
    for measured in found {
        sound(&measured);
        for rate in [None, BitRate::from_bits_per_second(8_000_000)] {
            if let Ok(way) = measured.way(rate) {
                assert_eq!(way.nodes.len(), measured.stretches.len() + 1);
            }
        }
    }
}

/// A number that is shown is a number, and a share is one.
fn sound(measured: &Measured) {
    let is_number = |value: &f64| value.is_finite() && *value >= 0.0;
    let numbers = [
        measured.throughput,
        measured.peak,
        measured.mean_round_trip,
        measured.packets_per_ack,
    ];
    let times = measured.stretches.iter().map(|part| part.round_trip);
    assert!(
        numbers
            .into_iter()
            .chain(times)
            .flatten()
            .all(|value| is_number(&value)),
        "{measured:?}"
    );
    let losses = measured.stretches.iter().filter_map(|part| part.loss);
    let shares = losses.chain(measured.limited.into_iter().flatten());
    for share in shares {
        assert!((0.0..=1.0).contains(&share), "{measured:?}");
    }
    assert!(!measured.stretches.is_empty());
    assert!(!measured.name.chars().any(char::is_control));
}
