//! Loss recovery of CUBIC and Reno with tracked segments, as in Linux: RACK-TLP, F-RTO, proportional rate reduction.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::rack::until;
use super::*;

fn tracked(variant: Variant) -> SenderConfiguration {
    SenderConfiguration {
        byte_counting: crate::tcp::ByteCounting::All,
        threshold_from_cwnd: true,
        tracks_segments: true,
        nagle: false,
        ..configuration(variant)
    }
}

/// A flow of `segments` segments, of which the first ten leave at 0 ms.
fn flow(variant: Variant, segments: u64) -> Script {
    let mut sender = Sender::new(tracked(variant), 1_000_000);
    sender.handle_write(segments * SEGMENT);
    sender.handle_open();
    let mut script = Script { sender };
    assert_eq!(script.sent(0).len() as u64, segments.min(10));
    script
}

#[test]
fn a_lost_tail_of_a_short_flow_is_probed_after_two_round_trips() {
    let mut script = flow(Variant::Cubic, 10);
    assert_eq!(script.ack(100, 7), []);
    assert_eq!(script.windows(), (17_000, None));
    // 7, 8 and 9 are lost. 100 ms, two round trips of 100 ms, 2 ms.
    assert_eq!(script.deadline(), (302, Timer::Retransmission, vec![9]));
    // The probe arrives: 7 and 8 were sent before it, so they are lost. One segment was delivered, so one leaves.
    assert_eq!(script.sack(402, 7, &[(9, 10)]), [7]);
    // ssthresh = 0.7 · 17.
    assert_eq!(script.windows(), (1_000, Some(11_000)));
    assert_eq!(script.ack(502, 8), [8]);
    assert_eq!(script.ack(602, 10), []);
    // The ACK that ends recovery sets cwnd to ssthresh, and then counts like any other.
    let (cwnd, threshold) = script.windows();
    assert_eq!((cwnd / SEGMENT, threshold), (11, Some(11_000)));
    let counters = script.sender.counters();
    assert_eq!((counters.timeouts, counters.retransmissions), (0, 3));
}

#[test]
fn a_probe_that_has_repaired_a_loss_lowers_the_window() {
    let mut script = flow(Variant::Cubic, 10);
    script.ack(100, 9);
    assert_eq!(script.windows(), (19_000, None));
    // One segment is in flight: its ACK may be delayed, but the time-out of 300 ms is sooner.
    assert_eq!(script.deadline(), (400, Timer::Retransmission, vec![9]));
    script.ack(500, 10);
    assert_eq!(script.windows().1, None);
    // No duplicate ACK has shown that the original has arrived too: the next data shows that it was lost.
    script.sender.handle_write(SEGMENT);
    assert_eq!(script.sent(600), [10]);
    script.ack(700, 11);
    assert_eq!(script.windows(), (14_000, Some(14_000)));
    assert_eq!(script.sender.counters().timeouts, 0);
}

#[test]
fn a_probe_whose_original_was_late_does_not() {
    let mut script = flow(Variant::Cubic, 10);
    script.ack(100, 9);
    assert_eq!(script.deadline().2, [9]);
    // The original arrives, then the probe.
    script.ack(420, 10);
    script.ack(500, 10);
    script.sender.handle_write(SEGMENT);
    assert_eq!(script.sent(600), [10]);
    script.ack(700, 11);
    assert_eq!(script.windows().1, None);
}

#[test]
fn what_arrives_out_of_order_within_a_quarter_of_the_round_trip_is_not_sent_again() {
    let mut script = flow(Variant::Cubic, u64::MAX / SEGMENT);
    script.ack(100, 1);
    // 1 is late; 2 and 3 are before it.
    script.sack(101, 1, &[(2, 3)]);
    script.sack(102, 1, &[(2, 4)]);
    script.ack(120, 4);
    // Reordering was seen. From now on, even many segments beyond a gap show no loss before the time has passed.
    for end in 6..10 {
        assert_eq!(script.sack(121, 4, &[(5, end)]).len(), 1);
    }
    script.ack(124, 10);
    assert_eq!(until(&mut script, 190), []);
    let counters = *script.sender.counters();
    assert_eq!(
        (counters.retransmissions, counters.fast_retransmits),
        (0, 0)
    );
    assert_eq!(script.windows().1, None);
}

/// The ACK of a segment is lost, and the next one reports two ranges, the newest first: no segment has overtaken
/// another.
#[test]
fn a_lost_ack_is_no_reordering() {
    let mut script = flow(Variant::Cubic, u64::MAX / SEGMENT);
    script.ack(100, 1);
    // 2, 4 and 6 are lost, and the ACKs of 1 and 3.
    script.sack(105, 2, &[(5, 6), (3, 4)]);
    assert_eq!(script.sender.counters().fast_retransmits, 0);
    script.sack(107, 2, &[(7, 8), (5, 6), (3, 4)]);
    assert_eq!(script.sender.counters().fast_retransmits, 1);
}

#[test]
fn when_the_time_has_passed_it_is_sent_again() {
    let mut script = flow(Variant::Cubic, 10);
    script.ack(100, 1);
    script.sack(101, 1, &[(2, 3)]);
    // 101 ms after it was sent, a quarter of 100 ms, 2 ms.
    assert_eq!(until(&mut script, 200), [(128, 1)]);
    assert_eq!(script.sender.counters().fast_retransmits, 1);
}

#[test]
fn a_segment_that_is_lost_again_is_found_without_a_time_out() {
    for variant in [Variant::Cubic, Variant::Sack] {
        let mut script = flow(variant, u64::MAX / SEGMENT);
        assert!(script.sack(100, 0, &[(1, 5)]).contains(&0));
        script.sack(101, 0, &[(1, 10)]);
        assert!(script.sender.highest() > 10 * SEGMENT);
        // 10 was sent after the second sending of 0 and arrives.
        let again = script.sack(201, 0, &[(1, 11)]);
        assert!(again.contains(&0), "{again:?}");
        let counters = script.sender.counters();
        assert_eq!((counters.timeouts, counters.retransmissions), (0, 2));
    }
}

#[test]
fn a_spurious_time_out_restores_the_window() {
    let mut script = flow(Variant::Cubic, u64::MAX / SEGMENT);
    script.ack(100, 10);
    assert_eq!(script.windows(), (20_000, None));
    // All segments are late. A probe of new data, then a time-out.
    let sent = until(&mut script, 1000);
    let counters = *script.sender.counters();
    assert_eq!((counters.timeouts, counters.retransmissions), (1, 1));
    assert_eq!(sent.last(), Some(&(602, 10)));
    assert_eq!(script.windows().1, Some(14_000));
    // The ACK of the first sending arrives.
    script.ack(1001, 30);
    assert!(script.windows().0 >= 20_000);
    until(&mut script, 1050);
    assert_eq!(script.sender.counters().retransmissions, 1);
}

#[test]
fn without_sack_a_sender_recovers_by_duplicate_acks() {
    let mut script = flow(Variant::NewReno, u64::MAX / SEGMENT);
    for now in 100..102 {
        script.ack(now, 0);
    }
    assert_eq!(script.ack(102, 0), [0]);
}

/// A path of 100 ms without a queue that delivers everything except `lost`, counted in sendings. Returns the sender
/// at the end, and checks each ACK.
fn transfer(variant: Variant, segments: u64, lost: &BTreeSet<u64>) -> Sender {
    let mut script = flow(variant, 0);
    let mut arrivals: Vec<(u64, u64)> = Vec::new();
    let mut received = BTreeSet::new();
    let (mut sendings, mut next, mut before_ack) = (0, 0, 0);
    script.sender.handle_write(segments * SEGMENT);
    let mut now = 0;
    let (mut delivered, mut sent_in_recovery, mut acks) = (0, 0, 0);
    while next < segments {
        let mut sent = Vec::new();
        if let Some((deadline, _)) = script.sender.poll_timeout()
            && deadline <= at(now)
        {
            script.sender.handle_timeout(at(now));
            sent.extend(script.sent(now));
        }
        let due: Vec<u64> = (arrivals.iter().filter(|(at, _)| *at == now))
            .map(|(_, segment)| *segment)
            .collect();
        arrivals.retain(|(at, _)| *at != now);
        for segment in due {
            let is_new = segment >= next && received.insert(segment);
            while received.remove(&next) {
                next += 1;
            }
            let blocks = blocks(&received, segment);
            let was_recovering = is_recovering(&script.sender);
            let released = script.sack(now, next, &blocks);
            let state = is_recovering(&script.sender);
            let number = script.sender.unacknowledged();
            if state && !was_recovering {
                (delivered, sent_in_recovery, acks) = (0, 0, 0);
            }
            if state {
                delivered += u64::from(is_new);
                acks += 1;
                let count = released.len() as u64;
                sent_in_recovery += count;
                // RFC 9937 §6: the delivered segments, and at most one for each ACK.
                assert!(
                    count <= delivered + acks - (sent_in_recovery - count),
                    "{count}"
                );
            } else if was_recovering && number > before_ack {
                let (cwnd, threshold) = script.windows();
                let threshold = threshold.unwrap();
                assert!(
                    (threshold..=threshold + 2 * SEGMENT).contains(&cwnd),
                    "{cwnd}"
                );
            }
            before_ack = number;
            sent.extend(released);
        }
        sent.extend(script.sent(now));
        for segment in sent {
            sendings += 1;
            if !lost.contains(&sendings) {
                arrivals.push((now + 100, segment));
            }
        }
        now += 1;
        assert!(now < 600_000, "it does not end");
    }
    script.sender
}

fn is_recovering(sender: &Sender) -> bool {
    let tracker = sender.tracker.as_ref().unwrap();
    tracker.recovery.state == super::super::bbr::LossState::Recovery
}

/// Up to three ranges of arrived segments: the one with `newest` first.
fn blocks(received: &BTreeSet<u64>, newest: u64) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for segment in received {
        match ranges.last_mut() {
            Some((_, end)) if *end == *segment => *end += 1,
            _ => ranges.push((*segment, *segment + 1)),
        }
    }
    ranges.sort_by_key(|(start, end)| !(*start <= newest && newest < *end));
    ranges.truncate(3);
    ranges
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every segment arrives, recovery ends at ssthresh, and no ACK releases more than RFC 9937 allows.
    #[test]
    fn recovery_is_smooth_and_ends_at_ssthresh(
        lost in prop::collection::btree_set(1_u64..300, 0..20),
        is_cubic in any::<bool>(),
    ) {
        let variant = if is_cubic { Variant::Cubic } else { Variant::Sack };
        let sender = transfer(variant, 300, &lost);
        prop_assert!(sender.counters().segments >= 300);
    }

    /// As long as an ACK arrives in each round trip, losses need no time-out.
    #[test]
    fn a_few_losses_need_no_time_out(lost in prop::collection::btree_set(1_u64..200, 0..6)) {
        let sender = transfer(Variant::Cubic, 200, &lost);
        // The first sendings have no round trip for a probe.
        if !lost.contains(&1) {
            prop_assert_eq!(sender.counters().timeouts, 0);
        }
    }
}
