//! The worked figures of Tam, Du and Wang: §1.3 and the testbed's k.

use midspan_model::papers::tam;

#[test]
fn section_1_3() {
    let [sizes, k] = tam::section_1_3();
    assert_eq!(format!("{:.1}", sizes.value), "24.2");
    // 100/24.2 = 4.13; with all digits 4.14.
    assert!((k.value - 4.137).abs() < 0.001);
    assert!((100.0 / 24.2 - k.paper).abs() < 0.005);
    assert!((k.value - k.paper).abs() < 0.01);
    // "Because most platforms implement delayed acknowledgment, downstream TCP transfer will be
    // affected when k is bigger than 2."
    let two = 2.try_into().unwrap();
    assert!(!tam::SECTION_1_3.fits(two));
    assert_eq!(tam::SECTION_1_3.packets_per_ack().unwrap().get(), 5);
}

#[test]
fn figure_9_k() {
    let [wide, half, narrow] = tam::testbed_k();
    assert_eq!(format!("{:.1}", wide.value), "1.9");
    assert!((half.value - 3.835).abs() < 0.001);
    assert!((narrow.value - 19.173).abs() < 0.001);
}

/// §5.2: Reno becomes slower from 100 kbit/s down, ACE with at most 5 packets per ACK from 50
/// kbit/s.
#[test]
fn figure_9_where_the_upstream_becomes_the_limit() {
    let upstream = |kilobits: u64| {
        let text = format!("{kilobits} kbit/s");
        tam::testbed(text.parse().unwrap())
    };
    let (delayed, ace) = (2.try_into().unwrap(), 5.try_into().unwrap());
    assert!(upstream(100).fits(delayed) && !upstream(95).fits(delayed));
    assert!(upstream(50).fits(ace) && upstream(39).fits(ace) && !upstream(38).fits(ace));
    // At 10 kbit/s the ACKs limit both: a factor of 2.5, where the paper measures 3.
    let rate = |ppa| upstream(10).packet_rate(ppa).packets_per_second();
    assert!((rate(ace) / rate(delayed) - 2.5).abs() < 1e-9);
    assert!((rate(delayed) * 1523.0 * 8.0 / 1e6 - 0.417).abs() < 0.001);
}
