//! The retransmission timer.

use super::*;

fn two() -> Script {
    let mut script = Script::new(SenderConfiguration {
        initial_window: 2,
        maximum_timeout: TimeSpan::from_seconds(10),
        ..configuration(Variant::NewReno)
    });
    assert_eq!(script.sent(0), [0, 1]);
    script
}

#[test]
fn the_timeout_doubles_up_to_its_maximum() {
    let mut script = two();
    let deadlines: Vec<u64> = (0..6)
        .map(|_| {
            let (now, timer, sent) = script.deadline();
            assert_eq!((timer, sent), (Timer::Retransmission, vec![0]));
            now
        })
        .collect();
    // 1, 2, 4, 8, then 10 s each.
    assert_eq!(deadlines, [1000, 3000, 7000, 15_000, 25_000, 35_000]);
    assert_eq!(script.windows(), (1000, Some(2000)));
    assert_eq!(script.sender.counters().timeouts, 6);
}

#[test]
fn the_backed_off_timeout_stays_until_a_new_segment_is_timed() {
    let mut script = two();
    assert_eq!(script.deadline().0, 1000);
    assert_eq!(script.deadline().0, 3000);
    // The ACK is for a segment that was sent three times, so it is not timed (Karn's algorithm).
    assert_eq!(script.ack(3100, 2), [2, 3]);
    assert_eq!(script.sender.round_trip_time(), None);
    assert_eq!(
        script.sender.poll_timeout(),
        Some((at(7100), Timer::Retransmission))
    );
    // 2 was sent once: 100 ms, so RTO = 100 + 4 · 50.
    assert_eq!(script.ack(3200, 3), [4]);
    assert_eq!(
        script.sender.poll_timeout(),
        Some((at(3500), Timer::Retransmission))
    );
}

#[test]
fn a_policy_reads_what_a_socket_would_say() {
    let mut script = two();
    script.deadline();
    let sample = script.sender.sample(at(1000));
    assert_eq!(
        (sample.congestion_window, sample.slow_start_threshold),
        (1, Some(2))
    );
    assert_eq!((sample.unacknowledged, sample.timeouts_pending), (2, 1));
    assert_eq!(sample.bytes_retransmitted.bytes(), 1000);
    assert_eq!(sample.segments_retransmitted, 1);
    assert_eq!(sample.round_trip_time, None);
    script.ack(1100, 2);
    script.ack(1200, 3);
    let sample = script.sender.sample(at(1200));
    assert_eq!(
        sample.round_trip_time,
        Some(TimeSpan::from_milliseconds(100))
    );
    assert_eq!(sample.bytes_acknowledged.bytes(), 3000);
    assert_eq!((sample.peer_window, sample.timeouts_pending), (997_000, 0));
}

#[test]
fn a_second_timeout_of_the_same_segment_keeps_ssthresh() {
    let mut script = Script::new(configuration(Variant::NewReno));
    assert_eq!(script.sent(0).len(), 10);
    assert_eq!(script.deadline(), (1000, Timer::Retransmission, vec![0]));
    assert_eq!(script.windows(), (1000, Some(5000)));
    script.deadline();
    assert_eq!(script.windows(), (1000, Some(5000)));
}

#[test]
fn a_new_ack_restarts_the_timer_and_the_last_one_stops_it() {
    let mut sender = Sender::new(configuration(Variant::NewReno), 1_000_000);
    sender.handle_write(3000);
    sender.handle_open();
    let mut script = Script { sender };
    assert_eq!(script.sent(0), [0, 1, 2]);
    assert_eq!(
        script.sender.poll_timeout(),
        Some((at(1000), Timer::Retransmission))
    );
    script.ack(150, 1);
    // RTO = 150 + 4 · 75.
    assert_eq!(
        script.sender.poll_timeout(),
        Some((at(600), Timer::Retransmission))
    );
    script.ack(160, 2);
    assert_eq!(
        script.sender.poll_timeout(),
        Some((at(610), Timer::Retransmission))
    );
    script.ack(170, 3);
    assert_eq!(script.sender.poll_timeout(), None);
}

#[test]
fn the_timeout_is_at_least_its_minimum() {
    let mut script = two();
    script.ack(20, 2);
    // 20 + 4 · 10 is below 200.
    assert_eq!(
        script.sender.retransmission_timeout(),
        TimeSpan::from_milliseconds(200)
    );
}
