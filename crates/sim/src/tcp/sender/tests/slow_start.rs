//! Opening, slow start, congestion avoidance, byte counting.

use super::*;
use crate::packet::Data;
use crate::tcp::ByteCounting;

fn initial(segments: u32) -> SenderConfiguration {
    SenderConfiguration {
        initial_window: segments,
        ..configuration(Variant::NewReno)
    }
}

#[test]
fn each_ack_lets_two_segments_out() {
    let mut script = Script::new(initial(2));
    assert_eq!(script.sent(0), [0, 1]);
    assert_eq!(script.ack(100, 1), [2, 3]);
    assert_eq!(script.ack(101, 2), [4, 5]);
    assert_eq!(script.ack(200, 3), [6, 7]);
    assert_eq!(script.ack(201, 4), [8, 9]);
    assert_eq!(script.windows(), (6000, None));
}

#[test]
fn an_ack_for_two_segments_grows_the_window_by_one() {
    let mut script = Script::new(initial(4));
    assert_eq!(script.sent(0), [0, 1, 2, 3]);
    assert_eq!(script.ack(100, 2), [4, 5, 6]);
    assert_eq!(script.ack(101, 4), [7, 8, 9]);
    assert_eq!(script.windows(), (6000, None));
}

#[test]
fn byte_counting_grows_it_by_both() {
    let mut script = Script::new(SenderConfiguration {
        byte_counting: ByteCounting::Limit(2),
        ..initial(4)
    });
    assert_eq!(script.sent(0), [0, 1, 2, 3]);
    assert_eq!(script.ack(100, 2), [4, 5, 6, 7]);
    // Four segments at once count as two.
    assert_eq!(script.ack(200, 6), [8, 9, 10, 11, 12, 13]);
    assert_eq!(script.windows(), (8000, None));
}

#[test]
fn all_that_is_acknowledged_counts_up_to_ssthresh() {
    let mut script = Script::new(SenderConfiguration {
        byte_counting: ByteCounting::All,
        ..initial(4)
    });
    assert_eq!(script.sent(0), [0, 1, 2, 3]);
    // Four segments at once count as four.
    assert_eq!(script.ack(100, 4), [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(script.windows(), (8000, None));
}

#[test]
fn the_window_limit_ends_growth() {
    let mut script = Script::new(SenderConfiguration {
        window_limit: 3000,
        ..initial(2)
    });
    assert_eq!(script.sent(0), [0, 1]);
    assert_eq!(script.ack(100, 1), [2, 3]);
    assert_eq!(script.ack(101, 2), [4]);
    assert_eq!(script.ack(200, 3), [5]);
    // cwnd no longer limits sending: it stays.
    assert_eq!(script.ack(201, 4), [6]);
    assert_eq!(script.ack(300, 5), [7]);
    assert_eq!(script.windows().0, 6000);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut sender = Sender::new(initial(4), 1_000_000);
    sender.handle_open();
    sender.handle_write(1000);
    assert!(sender.poll_transmit(at(0)).is_some());
    let ack = Acknowledgement {
        number: 1000,
        window_edge: 1_000_000,
        blocks: SelectiveBlocks::default(),
    };
    sender.handle_acknowledgement(at(100), &ack);
    assert_eq!(sender.cwnd(), 4000);
}

#[test]
fn congestion_avoidance_adds_one_segment_for_each_window() {
    // A loss among ten segments leaves five; then each ACK adds 1000²/cwnd: 1000²/5000 = 200 (the
    // ACK that ends recovery), 1000²/5200 = 192.3, 185.5, 179.3, 173.7, 168.6.
    let mut script = Script::new(configuration(Variant::NewReno));
    assert_eq!(script.sent(0).len(), 10);
    for _ in 0..3 {
        script.ack(100, 0);
    }
    assert_eq!(script.ack(200, 12), [12, 13, 14, 15, 16]);
    assert_eq!(script.windows(), (5200, Some(5000)));
    let mut windows = Vec::new();
    for number in 13..=17 {
        script.ack(300, number);
        windows.push(script.windows().0);
    }
    assert_eq!(windows, [5392, 5577, 5757, 5930, 6099]);
}

#[test]
fn the_syn_is_sent_first_and_timed() {
    let mut sender = Sender::new(
        SenderConfiguration {
            handshake: true,
            ..initial(2)
        },
        1_000_000,
    );
    sender.handle_write(5000);
    assert_eq!(sender.poll_transmit(at(0)), None);
    sender.handle_open();
    let syn = Data {
        kind: DataKind::Synchronise,
        sequence: 0,
        length: 0,
    };
    assert_eq!(sender.poll_transmit(at(0)), Some(syn));
    assert_eq!(sender.poll_transmit(at(0)), None);
    let ack = Acknowledgement {
        number: 0,
        window_edge: 64_000,
        blocks: SelectiveBlocks::default(),
    };
    sender.handle_acknowledgement(at(80), &ack);
    assert_eq!(
        sender.round_trip_time(),
        Some(TimeSpan::from_milliseconds(80))
    );
    let sent: Vec<u64> = std::iter::from_fn(|| sender.poll_transmit(at(80)))
        .map(|data| data.sequence)
        .collect();
    assert_eq!(sent, [0, 1000]);
}

#[test]
fn a_lost_syn_is_sent_again_and_leaves_one_segment() {
    let mut sender = Sender::new(
        SenderConfiguration {
            handshake: true,
            ..initial(4)
        },
        1_000_000,
    );
    sender.handle_write(5000);
    sender.handle_open();
    let mut syns = Vec::new();
    let mut now = at(0);
    for _ in 0..3 {
        assert!(sender.poll_transmit(now).is_some());
        syns.push(now.nanoseconds() / 1_000_000);
        now = sender.poll_timeout().unwrap().0;
        sender.handle_timeout(now);
    }
    assert_eq!(syns, [0, 1000, 3000]);
    assert!(sender.poll_transmit(now).is_some());
    let ack = Acknowledgement {
        number: 0,
        window_edge: 64_000,
        blocks: SelectiveBlocks::default(),
    };
    sender.handle_acknowledgement(at(7100), &ack);
    assert_eq!(sender.cwnd(), 1000);
    assert_eq!(sender.round_trip_time(), None);
}
