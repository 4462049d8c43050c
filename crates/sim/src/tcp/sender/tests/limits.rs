//! Busy, receive-window-limited and send-buffer-limited times, computed by hand.

use super::*;

/// The times in milliseconds: busy, limited by the receive window, limited by the send buffer.
fn limited(sender: &Sender, now: u64) -> [u64; 3] {
    let times = sender.sample(at(now)).limited;
    [times.busy, times.receive_window, times.send_buffer].map(|time| time.nanoseconds() / 1_000_000)
}

fn ack(sender: &mut Sender, now: u64, number: u64, window: u64) -> usize {
    let ack = Acknowledgement {
        number: number * SEGMENT,
        window_edge: number * SEGMENT + window,
        blocks: SelectiveBlocks::default(),
    };
    sender.handle_acknowledgement(at(now), &ack);
    send(sender, now)
}

fn send(sender: &mut Sender, now: u64) -> usize {
    std::iter::from_fn(|| sender.poll_transmit(at(now))).count()
}

/// A sender with a cwnd of ten segments.
fn open(segments: u64, peer_window: u64) -> Sender {
    let mut sender = Sender::new(configuration(Variant::NewReno), peer_window);
    sender.handle_open();
    sender.handle_write(segments * SEGMENT);
    sender
}

#[test]
fn busy_until_all_is_acknowledged_and_again_from_the_next_write() {
    let mut sender = open(4, 1_000_000);
    assert_eq!(send(&mut sender, 10), 4);
    assert_eq!(limited(&sender, 60), [50, 0, 0]);
    ack(&mut sender, 110, 4, 1_000_000);
    assert_eq!(limited(&sender, 500), [100, 0, 0]);
    sender.handle_write(SEGMENT);
    assert_eq!(send(&mut sender, 500), 1);
    assert_eq!(limited(&sender, 530), [130, 0, 0]);
}

#[test]
fn waiting_for_cwnd_is_only_busy() {
    let mut sender = open(100, 1_000_000);
    assert_eq!(send(&mut sender, 0), 10);
    assert_eq!(limited(&sender, 100), [100, 0, 0]);
}

#[test]
fn the_peers_window_counts_while_it_is_less_than_cwnd() {
    let mut sender = open(100, 4000);
    assert_eq!(send(&mut sender, 0), 4);
    // The window opens to twelve segments: cwnd, ten, is now the limit.
    assert_eq!(ack(&mut sender, 100, 1, 12_000), 7);
    assert_eq!(limited(&sender, 100), [100, 100, 0]);
    assert_eq!(limited(&sender, 150), [150, 100, 0]);
    // Everything is acknowledged, and the window stays where it was, at segment 13.
    assert_eq!(ack(&mut sender, 160, 11, 2000), 2);
    assert_eq!(limited(&sender, 200), [200, 140, 0]);
}

#[test]
fn a_full_send_buffer_counts_when_all_of_it_was_sent() {
    let mut sender = open(4, 1_000_000);
    sender.handle_full_buffer(true);
    assert_eq!(send(&mut sender, 0), 4);
    assert_eq!(limited(&sender, 100), [100, 0, 100]);
    // The last of the data: nothing else waits.
    sender.handle_write(SEGMENT);
    sender.handle_full_buffer(false);
    assert_eq!(ack(&mut sender, 100, 1, 1_000_000), 1);
    assert_eq!(limited(&sender, 180), [180, 0, 100]);
}

#[test]
fn a_window_limit_is_a_send_buffer() {
    let mut sender = Sender::new(
        SenderConfiguration {
            window_limit: 3 * SEGMENT,
            ..configuration(Variant::NewReno)
        },
        3000,
    );
    sender.handle_open();
    sender.handle_write(u64::MAX);
    assert_eq!(send(&mut sender, 0), 3);
    assert_eq!(limited(&sender, 100), [100, 0, 100]);
    // Now the receiver's window is the smaller limit.
    assert_eq!(ack(&mut sender, 100, 1, 2000), 0);
    assert_eq!(limited(&sender, 150), [150, 50, 100]);
}

#[test]
fn waiting_for_pacing_is_only_busy() {
    let mut sender = Sender::new(
        SenderConfiguration {
            // A segment of 1,040 bytes with its header every 10 ms.
            pacing_rate: Some("832 kbit/s".parse().unwrap()),
            ..configuration(Variant::NewReno)
        },
        2000,
    );
    sender.handle_open();
    sender.handle_write(u64::MAX);
    assert_eq!(send(&mut sender, 0), 1);
    assert_eq!(send(&mut sender, 10), 1);
    assert_eq!(limited(&sender, 20), [20, 0, 0]);
    assert_eq!(send(&mut sender, 20), 0);
    assert_eq!(limited(&sender, 35), [35, 15, 0]);
}
