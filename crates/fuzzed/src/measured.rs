//! Measurements that the planner reads.

use midspan_plan::measured::{self, Measured};
use midspan_units::BitRate;

/// A capture, pcap or pcapng.
pub fn pcap(input: &[u8]) {
    all(measured::pcap::read(input).unwrap_or_default());
}

/// Output of `ss -tin`.
pub fn ss(input: &[u8]) {
    all(measured::ss::read(&text(input)).unwrap_or_default());
}

/// Output of `ping`.
pub fn ping(input: &[u8]) {
    all(measured::ping::read(&text(input)));
}

/// Output of `iperf3 --json`.
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
            if let Ok(data_path) = measured.data_path(rate) {
                assert_eq!(data_path.nodes.len(), measured.stretches.len() + 1);
            }
        }
    }
}

/// Every number in the output is finite, and every share is between 0 and 1.
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
