//! The receiver's window, small segments, probes.

use super::*;
use crate::packet::Data;

fn ack(number: u64, window: u64) -> Acknowledgement {
    Acknowledgement {
        number,
        window_edge: number + window,
        blocks: SelectiveBlocks::default(),
    }
}

fn sent(sender: &mut Sender, now: u64) -> Vec<(u64, u32)> {
    std::iter::from_fn(|| sender.poll_transmit(at(now)))
        .map(|data| (data.sequence, data.length))
        .collect()
}

fn open(bytes: u64, peer_window: u64, nagle: bool) -> Sender {
    let mut sender = Sender::new(
        SenderConfiguration {
            nagle,
            ..configuration(Variant::NewReno)
        },
        peer_window,
    );
    sender.handle_write(bytes);
    sender.handle_open();
    sender
}

#[test]
fn the_receivers_window_is_never_exceeded() {
    let mut sender = open(u64::MAX, 2500, true);
    // 500 bytes are left: less than half of the largest window, so it waits.
    assert_eq!(sent(&mut sender, 0), [(0, 1000), (1000, 1000)]);
    sender.handle_acknowledgement(at(100), &ack(1000, 1500));
    assert_eq!(sent(&mut sender, 100), []);
    sender.handle_acknowledgement(at(101), &ack(2000, 2500));
    assert_eq!(sent(&mut sender, 101), [(2000, 1000), (3000, 1000)]);
}

#[test]
fn a_window_below_a_segment_is_filled() {
    let mut sender = open(u64::MAX, 600, true);
    assert_eq!(sent(&mut sender, 0), [(0, 600)]);
    sender.handle_acknowledgement(at(100), &ack(600, 600));
    assert_eq!(sent(&mut sender, 100), [(600, 600)]);
}

#[test]
fn nagle_holds_a_small_segment_while_data_is_under_way() {
    let mut sender = open(1300, 1_000_000, true);
    assert_eq!(sent(&mut sender, 0), [(0, 1000)]);
    sender.handle_acknowledgement(at(100), &ack(1000, 1_000_000));
    assert_eq!(sent(&mut sender, 100), [(1000, 300)]);
    let mut sender = open(1300, 1_000_000, false);
    assert_eq!(sent(&mut sender, 0), [(0, 1000), (1000, 300)]);
}

#[test]
fn a_small_segment_that_was_lost_is_sent_again() {
    let mut sender = open(300, 1_000_000, true);
    assert_eq!(sent(&mut sender, 0), [(0, 300)]);
    sender.handle_timeout(at(1000));
    assert_eq!(sent(&mut sender, 1000), [(0, 300)]);
}

#[test]
fn a_closed_window_is_probed_ever_more_slowly() {
    let mut sender = open(u64::MAX, 1000, true);
    assert_eq!(sent(&mut sender, 0), [(0, 1000)]);
    sender.handle_acknowledgement(at(100), &ack(1000, 0));
    assert_eq!(sent(&mut sender, 100), []);
    // RTO = 100 + 4 · 50, doubled at each probe.
    let mut probes = Vec::new();
    for _ in 0..3 {
        let (time, timer) = sender.poll_timeout().unwrap();
        assert_eq!(timer, Timer::Persist);
        sender.handle_timeout(time);
        let probe = Data {
            kind: DataKind::Probe,
            sequence: 1000,
            length: 0,
        };
        assert_eq!(sender.poll_transmit(time), Some(probe));
        assert_eq!(sender.poll_transmit(time), None);
        probes.push(time.nanoseconds() / 1_000_000);
        sender.handle_acknowledgement(time, &ack(1000, 0));
    }
    assert_eq!(probes, [400, 1000, 2200]);
    sender.handle_acknowledgement(at(3000), &ack(1000, 2000));
    assert_eq!(sent(&mut sender, 3000), [(1000, 1000), (2000, 1000)]);
    assert_eq!(sender.poll_timeout().unwrap().1, Timer::Retransmission);
    assert_eq!(sender.counters().probes, 3);
}

#[test]
fn half_of_the_largest_window_is_used_at_once() {
    let mut sender = open(u64::MAX, 1000, true);
    assert_eq!(sent(&mut sender, 0), [(0, 1000)]);
    sender.handle_acknowledgement(at(100), &ack(1000, 600));
    assert_eq!(sent(&mut sender, 100), [(1000, 600)]);
    sender.handle_acknowledgement(at(200), &ack(1600, 600));
    assert_eq!(sent(&mut sender, 200), [(1600, 600)]);
}

#[test]
fn an_ack_that_opens_the_window_is_not_a_duplicate() {
    let mut sender = open(u64::MAX, 4000, true);
    assert_eq!(sent(&mut sender, 0).len(), 4);
    for window in [5000, 6000, 7000, 8000] {
        sender.handle_acknowledgement(at(100), &ack(0, window));
    }
    assert_eq!(sender.counters().fast_retransmits, 0);
    for _ in 0..3 {
        sender.handle_acknowledgement(at(101), &ack(0, 8000));
    }
    assert_eq!(sender.counters().fast_retransmits, 1);
}

/// A sender that reads the windows of a peer without window scale with `scale` bits.
fn sending_ahead(scale: u8) -> Sender {
    let mut sender = Sender::new(
        SenderConfiguration {
            window_scale: Some(scale),
            ..configuration(Variant::NewReno)
        },
        1500,
    )
    .with_peer_window_scale(0);
    sender.handle_write(u64::MAX);
    sender.handle_open();
    sender
}

#[test]
fn a_window_is_read_with_more_bits_than_the_peer_announced() {
    let mut sender = sending_ahead(1);
    assert_eq!(
        sent(&mut sender, 0),
        [(0, 1000), (1000, 1000), (2000, 1000)]
    );
    // 4,000 + 2 · 2,000.
    sender.handle_acknowledgement(at(100), &ack(3000, 2000));
    assert_eq!(sent(&mut sender, 100).last(), Some(&(6000, 1000)));
}

#[test]
fn a_zero_window_stays_zero_and_what_it_lost_is_sent_again() {
    let mut sender = sending_ahead(2);
    assert_eq!(sent(&mut sender, 0).len(), 6);
    // The receiver's application has stopped: it has accepted one segment and has room for none.
    sender.handle_acknowledgement(at(100), &ack(1000, 0));
    assert_eq!(sent(&mut sender, 100), []);
    let (time, timer) = sender.poll_timeout().unwrap();
    assert_eq!(timer, Timer::Retransmission);
    sender.handle_timeout(time);
    let now = time.nanoseconds() / 1_000_000;
    assert_eq!(sent(&mut sender, now), [(1000, 1000)]);
    // It reads again.
    sender.handle_acknowledgement(at(now + 100), &ack(2000, 1000));
    assert_eq!(sent(&mut sender, now + 100), [(2000, 1000), (3000, 1000)]);
}
