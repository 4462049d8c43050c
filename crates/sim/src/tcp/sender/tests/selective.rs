//! SACK recovery (RFC 6675), which CUBIC uses too.

use super::*;

fn eleven_under_way(variant: Variant) -> Script {
    let mut script = Script::new(configuration(variant));
    assert_eq!(script.sent(0), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(script.ack(100, 1), [10, 11]);
    script
}

#[test]
fn two_losses_are_repaired_in_one_recovery() {
    // 1 and 3 are lost.
    let mut script = eleven_under_way(Variant::Sack);
    assert_eq!(script.sack(101, 1, &[(2, 3)]), [12]);
    assert_eq!(script.sack(102, 1, &[(4, 5), (2, 3)]), [13]);
    // The third ACK: ssthresh = cwnd = 11/2. In flight: 1 (retransmitted), 3 (not yet lost: only
    // two segments above it), 6 to 13: ten. Nothing else leaves.
    assert_eq!(script.sack(103, 1, &[(4, 6), (2, 3)]), [1]);
    assert_eq!(script.windows(), (5500, Some(5500)));
    // 6: now 3 is lost too, and pipe is 1 and 7 to 13: eight. Each further ACK reduces it by one.
    for end in 7..11 {
        assert_eq!(script.sack(104, 1, &[(4, end), (2, 3)]), []);
    }
    // 10 arrives: 1, 11, 12, 13. There is room for one: 3.
    assert_eq!(script.sack(108, 1, &[(4, 11), (2, 3)]), [3]);
    // 11, 12, 13: new data.
    assert_eq!(script.sack(109, 1, &[(4, 12), (2, 3)]), [14]);
    assert_eq!(script.sack(110, 1, &[(4, 13), (2, 3)]), [15]);
    assert_eq!(script.sack(111, 1, &[(4, 14), (2, 3)]), [16]);
    // 1 arrives: 3, 14, 15, 16 are in flight.
    assert_eq!(script.sack(200, 3, &[(4, 14)]), [17]);
    assert_eq!(script.sack(209, 3, &[(4, 15)]), [18]);
    assert_eq!(script.sack(210, 3, &[(4, 16)]), [19]);
    assert_eq!(script.sack(211, 3, &[(4, 17)]), [20]);
    // 3 arrives: the end of recovery.
    assert_eq!(script.ack(300, 17), [21]);
    assert_eq!(script.windows(), (5681, Some(5500)));
    let counters = script.sender.counters();
    assert_eq!(
        (counters.fast_retransmits, counters.retransmissions),
        (1, 2)
    );
    assert_eq!(counters.timeouts, 0);
}

#[test]
fn more_than_two_segments_above_a_gap_are_enough_for_one_ack() {
    // The ACKs of 2 and 3 are lost; that of 4 reports three segments.
    let mut script = eleven_under_way(Variant::Sack);
    assert_eq!(script.sack(103, 1, &[(2, 5)]), [1]);
    assert_eq!(script.sender.counters().fast_retransmits, 1);
}

#[test]
fn an_ack_without_new_information_is_not_a_duplicate() {
    let mut script = eleven_under_way(Variant::Sack);
    assert_eq!(script.sack(101, 1, &[(2, 3)]), [12]);
    for now in 102..106 {
        assert_eq!(script.sack(now, 1, &[(2, 3)]), []);
    }
    assert_eq!(script.sender.counters().fast_retransmits, 0);
}

#[test]
fn after_a_timeout_what_has_arrived_is_skipped() {
    // Only 4 and 5 of 1 to 11 arrive.
    let mut script = eleven_under_way(Variant::Sack);
    assert_eq!(script.sack(101, 1, &[(4, 5)]), [12]);
    assert_eq!(script.sack(102, 1, &[(4, 6)]), [13]);
    assert_eq!(script.deadline(), (400, Timer::Retransmission, vec![1]));
    assert_eq!(script.sack(500, 2, &[(4, 6)]), [2, 3]);
    // cwnd is three segments, and data that has arrived does not count.
    assert_eq!(script.sack(600, 3, &[(4, 6)]), [6, 7]);
    assert_eq!(script.ack(601, 6), [8, 9]);
}

#[test]
fn the_rescue_retransmission_repairs_a_lost_tail() {
    // Six segments in all; 0, 4 and 5 are lost, so no SACK block ever lies above 4.
    let mut sender = Sender::new(configuration(Variant::Sack), 1_000_000);
    sender.handle_write(6000);
    sender.handle_open();
    let mut script = Script { sender };
    assert_eq!(script.sent(0), [0, 1, 2, 3, 4, 5]);
    assert_eq!(script.sack(100, 0, &[(1, 2)]), []);
    assert_eq!(script.sack(101, 0, &[(1, 3)]), []);
    // ssthresh = 3; in flight: 0 (retransmitted), 4 and 5. There is no room.
    assert_eq!(script.sack(102, 0, &[(1, 4)]), [0]);
    // 0 arrives: 4 and 5 are assumed to be in flight; one more is allowed, and there is nothing
    // else to send: the last segment is sent again.
    assert_eq!(script.ack(200, 4), [5]);
    // It arrives: only 4 is missing, and it was never retransmitted.
    assert_eq!(script.sack(300, 4, &[(5, 6)]), [4]);
    assert_eq!(script.ack(400, 6), []);
    assert_eq!(script.sender.counters().timeouts, 0);
}

#[test]
fn cubic_keeps_seven_tenths() {
    let mut script = eleven_under_way(Variant::Cubic);
    script.sack(101, 1, &[(2, 3)]);
    script.sack(102, 1, &[(2, 4)]);
    assert_eq!(script.sack(103, 1, &[(2, 5)]), [1]);
    assert_eq!(script.windows(), (7700, Some(7700)));
    // 1 arrives, with 5 to 13 before it: from here on W_max is 11, K = ∛(3.3/0.4) = 2.02 s.
    script.ack(200, 14);
    assert_eq!(script.windows().0, 7700);
    // W_est: + 0.529 · 1/7.7 segments for this ACK; the cubic function is higher: towards
    // 0.4 · (0.1 − 2.02)³ + 11 = 8.17 for a round trip of 100 ms: + (8.17 − 7.7)/7.7.
    script.ack(300, 15);
    assert!(
        (7750..7775).contains(&script.windows().0),
        "{:?}",
        script.windows()
    );
}
