//! The worked figures of Hasegawa and Hasegawa: §2.1, §5, §6.1 and §6.4.

use std::num::NonZeroU32;

use midspan_model::asymmetry::{self, AdvisedSegment, BitErrors};
use midspan_model::papers::hasegawa;
use midspan_units::{ByteSize, TimeSpan};

const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

#[test]
fn section_2_1_upstream() {
    let [user_data, datagrams] = hasegawa::upstream();
    assert!((user_data.value - 109.589).abs() < 0.001);
    assert_eq!(user_data.value.round(), user_data.paper);
    assert!((datagrams.value - 106.667).abs() < 0.001);
    // The printed condition, k ≥ 1/N, would hold for any smaller upstream.
    let k = hasegawa::k();
    assert!(k < 2.0 && k > 1.9, "{k}");
}

#[test]
fn section_6_1_throughput_from_acks() {
    for figure in hasegawa::throughput_from_acks() {
        let printed = (figure.value * 10.0).round() / 10.0;
        assert_eq!(printed, figure.paper, "{}", figure.case);
    }
}

#[test]
fn section_6_4_bit_errors() {
    let [bits, errors, retransmissions] = hasegawa::section_6_4();
    assert_eq!(bits.value, 35_360.0);
    assert_eq!(format!("{:.1e}", errors.value), "2.8e-8");
    assert_eq!(format!("{:.1}", retransmissions.value), "0.1");
    // In one direction and back.
    let loss = asymmetry::segment_loss(errors.value, 35_360).unwrap();
    assert!((loss - 1e-3).abs() < 1e-12);
}

#[test]
fn section_6_4_equations_agree_with_their_approximations() {
    // Eqs (2)–(7) for p ≪ 1: B_b ≈ (1/Rtd)·√(3L/(2Ne)), cwnd_b ≈ √(8L/(3Ne)), r ≈ eL.
    let (e, bits, rtd) = (2.8e-8, 35_360u64, 0.5);
    let errors = BitErrors::new(e, TimeSpan::from_milliseconds(500), TWO).unwrap();
    let length = bits as f64;
    let close = |exact: f64, approximate: f64| (exact / approximate - 1.0).abs() < 1.1e-3;
    let rate = errors.throughput(bits).unwrap().bits_per_second();
    assert!(close(rate, (3.0 * length / (4.0 * e)).sqrt() / rtd));
    let window = errors.window_bits(bits).unwrap();
    assert!(close(window, (8.0 * length / (6.0 * e)).sqrt()));
    assert!(close(
        errors.retransmission_ratio(bits).unwrap(),
        e * length
    ));
}

#[test]
fn section_6_4_segments_in_the_window() {
    let [three, two] = hasegawa::segments_in_window();
    assert!((three.value - 3.964).abs() < 0.001);
    assert!((two.value - 5.959).abs() < 0.001);
    assert_eq!(two.value.round(), two.paper);
}

#[test]
fn section_6_4_advises_the_segment_that_the_paper_chose() {
    let advised = asymmetry::advised_segment(1500, ByteSize::from_bytes(17_520), None);
    assert_eq!(
        advised,
        Some(AdvisedSegment {
            segment: 4420,
            fragments: 3
        })
    );
}
