//! Fast retransmit and fast recovery: Tahoe, Reno, NewReno.

use super::*;

/// Ten segments are sent, and an ACK for the first releases two more: 1 to 11 are in flight, and
/// cwnd is 11 segments.
fn eleven_under_way(variant: Variant) -> Script {
    let mut script = Script::new(configuration(variant));
    assert_eq!(script.sent(0), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(script.ack(100, 1), [10, 11]);
    assert_eq!(script.windows(), (11_000, None));
    script
}

/// Segment 1 is lost; 2, 3, 4 arrive. Two new segments leave by limited transmit.
fn three_duplicates(script: &mut Script) {
    assert_eq!(script.ack(101, 1), [12]);
    assert_eq!(script.ack(102, 1), [13]);
    assert_eq!(script.ack(103, 1), [1]);
}

#[test]
fn limited_transmit_can_be_turned_off() {
    let mut script = Script::new(SenderConfiguration {
        limited_transmit: false,
        ..configuration(Variant::Reno)
    });
    assert_eq!(script.sent(0).len(), 10);
    assert_eq!(script.ack(100, 1), [10, 11]);
    assert_eq!(script.ack(101, 1), []);
    assert_eq!(script.ack(102, 1), []);
    assert_eq!(script.ack(103, 1), [1]);
}

#[test]
fn reno_halves_inflates_and_deflates() {
    for variant in [Variant::Reno, Variant::NewReno] {
        let mut script = eleven_under_way(variant);
        three_duplicates(&mut script);
        // ssthresh = 11/2, cwnd = ssthresh + 3.
        assert_eq!(script.windows(), (8500, Some(5500)));
        // 5 to 9 arrive: cwnd 13.5, so 1 to 13 may be in flight, and are.
        for now in 104..109 {
            assert_eq!(script.ack(now, 1), []);
        }
        assert_eq!(script.windows().0, 13_500);
        // 10 to 13 arrive, and each releases one segment.
        assert_eq!(script.ack(109, 1), [14]);
        assert_eq!(script.ack(110, 1), [15]);
        assert_eq!(script.ack(111, 1), [16]);
        assert_eq!(script.ack(112, 1), [17]);
        // The second copy of segment 1 arrives, and its ACK covers all segments up to 13. cwnd
        // falls to ssthresh (5,500 bytes) and grows by 1000²/5500 bytes for this ACK. cwnd now
        // allows 5.68 segments; 14 to 17 are in flight, so one more leaves.
        assert_eq!(script.ack(200, 14), [18]);
        assert_eq!(script.windows(), (5681, Some(5500)));
        // Congestion avoidance: + 1000²/5681.8, then + 1000²/5857.8.
        assert_eq!(script.ack(209, 15), [19]);
        assert_eq!(script.windows().0, 5857);
        assert_eq!(script.ack(210, 16), [20, 21]);
        assert_eq!(script.windows().0, 6028);
        assert_eq!(script.sender.counters().fast_retransmits, 1);
        assert_eq!(script.sender.counters().retransmissions, 1);
    }
}

/// Segments 1 and 3 are lost: 2, 4, 5 cause three duplicate ACKs, 6 to 13 cause eight more.
fn two_losses(variant: Variant) -> Script {
    let mut script = eleven_under_way(variant);
    three_duplicates(&mut script);
    for now in 104..109 {
        assert_eq!(script.ack(now, 1), []);
    }
    assert_eq!(script.ack(109, 1), [14]);
    assert_eq!(script.ack(110, 1), [15]);
    assert_eq!(script.ack(111, 1), [16]);
    assert_eq!(script.windows(), (16_500, Some(5500)));
    script
}

#[test]
fn a_partial_ack_keeps_new_reno_in_recovery() {
    let mut script = two_losses(Variant::NewReno);
    // 1 arrives, 3 is missing. cwnd = 16.5 − 2 + 1; 3 is sent again, and one new segment: from 3
    // on, 15 may be in flight.
    assert_eq!(script.ack(200, 3), [3, 17]);
    assert_eq!(script.windows(), (15_500, Some(5500)));
    // 14, 15, 16 arrive.
    assert_eq!(script.ack(209, 3), [18]);
    assert_eq!(script.ack(210, 3), [19]);
    assert_eq!(script.ack(211, 3), [20]);
    // 3 arrives: everything that was in flight at the loss (up to 13) is acknowledged.
    assert_eq!(script.ack(300, 17), [21]);
    assert_eq!(script.windows(), (5681, Some(5500)));
    let counters = script.sender.counters();
    assert_eq!(
        (counters.fast_retransmits, counters.retransmissions),
        (1, 2)
    );
}

#[test]
fn only_the_first_partial_ack_restarts_the_timer() {
    let mut script = two_losses(Variant::NewReno);
    script.ack(200, 3);
    let deadline = script.sender.poll_timeout();
    script.ack(300, 5);
    assert_eq!(script.sender.poll_timeout(), deadline);
    // The first measurement was 100 ms: RTO = 100 + 4 · 50.
    assert_eq!(deadline, Some((at(500), Timer::Retransmission)));
}

#[test]
fn a_partial_ack_takes_reno_out_of_recovery_and_into_a_timeout() {
    let mut script = two_losses(Variant::Reno);
    assert_eq!(script.ack(200, 3), []);
    assert_eq!(script.windows(), (5681, Some(5500)));
    // 14, 15, 16 cause three duplicate ACKs but no fast retransmission: they were sent before
    // the first loss.
    for now in 209..212 {
        assert_eq!(script.ack(now, 3), []);
    }
    // RTO = 300 ms after the ACK at 200. 14 segments were in flight, but cwnd was 5.68: ssthresh is
    // 2.84, rounded down to 2 segments.
    assert_eq!(script.deadline(), (500, Timer::Retransmission, vec![3]));
    assert_eq!(script.windows(), (1000, Some(2000)));
    // 4 to 16 had arrived: slow start continues from 17.
    assert_eq!(script.ack(600, 17), [17, 18]);
}

#[test]
fn tahoe_goes_back_and_starts_slowly() {
    let mut script = eleven_under_way(Variant::Tahoe);
    three_duplicates(&mut script);
    // ssthresh = 11/2, rounded down to whole segments.
    assert_eq!(script.windows(), (1000, Some(5000)));
    // 5 to 13 arrive: nothing leaves.
    for now in 104..113 {
        assert_eq!(script.ack(now, 1), []);
    }
    // 1 arrives: slow start from 14 on, up to 5 segments.
    assert_eq!(script.ack(200, 14), [14, 15]);
    assert_eq!(script.ack(300, 15), [16, 17]);
    assert_eq!(script.ack(301, 16), [18, 19]);
    assert_eq!(script.ack(400, 17), [20, 21]);
    assert_eq!(script.windows().0, 5000);
    // Congestion avoidance: 1000²/5000, 1000²/5200.
    assert_eq!(script.ack(401, 18), [22]);
    assert_eq!(script.ack(402, 19), [23]);
    assert_eq!(script.windows().0, 5392);
}

#[test]
fn tahoe_sends_again_what_a_second_loss_left_out() {
    // 1 and 3 are lost. Go-back-N: after 1, the ACK for 3 arrives; then 3 and 4 leave, although 4
    // has arrived already; its ACK covers everything.
    let mut script = eleven_under_way(Variant::Tahoe);
    three_duplicates(&mut script);
    assert_eq!(script.ack(200, 3), [3, 4]);
    assert_eq!(script.ack(300, 14), [14, 15, 16]);
}

#[test]
fn duplicates_of_what_was_sent_twice_are_not_a_loss() {
    let mut script = eleven_under_way(Variant::Tahoe);
    three_duplicates(&mut script);
    assert_eq!(script.ack(200, 3), [3, 4]);
    for now in 300..304 {
        assert_eq!(script.ack(now, 3), []);
    }
    assert_eq!(script.sender.counters().fast_retransmits, 1);
}
