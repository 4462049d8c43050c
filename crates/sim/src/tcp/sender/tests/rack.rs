//! BBR's loss recovery: RACK-TLP and F-RTO.

use super::*;

/// The first ten segments have left at 0 ms, and half of them are acknowledged at 100 ms.
fn after_a_round_trip() -> Script {
    let mut script = Script::new(configuration(Variant::Bbr));
    assert_eq!(script.sent(0), (0..10).collect::<Vec<_>>());
    script.ack(100, 5);
    script
}

/// Lets all deadlines up to `until` pass; returns what is sent, with times rounded down. (Those of
/// the pacing rate are no whole milliseconds.)
pub(super) fn until(script: &mut Script, until: u64) -> Vec<(u64, u64)> {
    let mut sent = Vec::new();
    while let Some((time, _)) = script.sender.poll_timeout()
        && time <= at(until)
    {
        script.sender.handle_timeout(time);
        while let Some(data) = script.sender.poll_transmit(time) {
            sent.push((time.nanoseconds() / 1_000_000, data.sequence / SEGMENT));
        }
    }
    sent
}

#[test]
fn three_segments_beyond_a_gap_show_a_loss() {
    let mut script = Script::new(configuration(Variant::Bbr));
    script.sent(0);
    // Two are too few: the rest may be late, for a quarter of the round trip.
    assert!(!script.sack(100, 0, &[(1, 3)]).contains(&0));
    assert_eq!(script.sender.counters().fast_retransmits, 0);
    // The third shows the loss. The segment leaves when the pacing rate allows it.
    let mut sent = script.sack(101, 0, &[(1, 4)]);
    assert_eq!(script.sender.counters().fast_retransmits, 1);
    sent.extend(until(&mut script, 115).iter().map(|(_, segment)| *segment));
    assert_eq!(sent.first(), Some(&0));
    assert_eq!(script.sender.counters().retransmissions, 1);
}

#[test]
fn fewer_show_it_when_the_reordering_window_has_passed() {
    let mut script = Script::new(configuration(Variant::Bbr));
    script.sent(0);
    script.sack(100, 0, &[(1, 3)]);
    // It was sent at the same time as those that have arrived: 100 ms, a quarter, 2 ms.
    let later = until(&mut script, 200);
    let again = later.iter().find(|(_, segment)| *segment == 0);
    assert_eq!(again.map(|(now, _)| *now), Some(127));
}

#[test]
fn a_segment_that_is_lost_again_is_found_without_a_time_out() {
    let mut script = Script::new(configuration(Variant::Bbr));
    script.sent(0);
    assert!(script.sack(100, 0, &[(1, 5)]).contains(&0));
    // New data follows it; it arrives, the resent segment does not.
    let mut sent = until(&mut script, 150);
    sent.retain(|(_, segment)| *segment >= 10);
    let (left, first) = sent[0];
    let again = script.sack(left + 100, 0, &[(first, first + 1), (1, 5)]);
    let again = again.contains(&0)
        || until(&mut script, left + 140)
            .iter()
            .any(|(_, segment)| *segment == 0);
    assert!(again);
    assert_eq!(script.sender.counters().timeouts, 0);
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    let mut script = after_a_round_trip();
    // The application writes nothing more, and the last segments are lost.
    script.sender.handle_stop();
    let end = script.sender.highest() / SEGMENT;
    script.ack(101, end - 3);
    let sent = until(&mut script, 310);
    // 101 ms, two smoothed round trips of 100 ms, 2 ms, and what pacing still held back.
    let [(now, segment)] = sent[..] else {
        panic!("{sent:?}");
    };
    assert!((303..=306).contains(&now) && segment == end - 1, "{sent:?}");
    assert_eq!(script.sender.counters().timeouts, 0);
    // The probe arrives: the two before it are lost, because they were sent earlier. One segment
    // was delivered, so one leaves.
    assert_eq!(script.sack(410, end - 3, &[(end - 1, end)]), [end - 3]);
    assert_eq!(script.ack(515, end - 2), [end - 2]);
}

#[test]
fn a_spurious_time_out_sends_only_one_segment_again() {
    let mut script = after_a_round_trip();
    let sent = until(&mut script, 150);
    assert!(!sent.is_empty());
    let end = script.sender.highest() / SEGMENT;
    // Nothing arrives for long: a probe of new data, then a time-out.
    until(&mut script, 1000);
    let counters = *script.sender.counters();
    assert!(counters.timeouts >= 1, "{counters:?}");
    assert_eq!(counters.retransmissions, counters.timeouts);
    // Then the ACK of the data that was sent first arrives: nothing was lost.
    script.ack(1001, end - 1);
    until(&mut script, 1010);
    let after = *script.sender.counters();
    assert_eq!(after.retransmissions, counters.retransmissions);
    assert_eq!(after.fast_retransmits, 0);
}

#[test]
fn a_time_out_sends_again_what_was_lost() {
    let mut script = after_a_round_trip();
    until(&mut script, 150);
    let end = script.sender.highest() / SEGMENT;
    until(&mut script, 800);
    assert!(script.sender.counters().timeouts >= 1);
    // The first segment has arrived now. New data shows whether the others were lost.
    let mut new = script.ack(900, 6);
    new.extend(until(&mut script, 950).iter().map(|(_, one)| *one));
    let first = *new.first().unwrap();
    assert!(first >= end, "{new:?}");
    let mut again = script.sack(1000, 6, &[(first, first + 1)]);
    again.extend(until(&mut script, 1050).iter().map(|(_, one)| *one));
    assert_eq!(again.first(), Some(&6), "{again:?}");
}

/// A segment that is sent again into an empty path may be acknowledged sooner than any before.
#[test]
fn a_time_out_is_not_spurious_because_its_segment_is_acknowledged_a_little_sooner() {
    let mut script = after_a_round_trip();
    // The application writes nothing more; everything in flight is lost, and so is the probe.
    script.sender.handle_stop();
    let sent = until(&mut script, 700);
    assert_eq!(script.sender.counters().timeouts, 1);
    let (left, first) = *sent.last().unwrap();
    assert_eq!(first, 5);
    // The shortest round trip was 100 ms.
    let mut again = script.ack(left + 99, first + 1);
    again.extend(until(&mut script, left + 150).iter().map(|(_, one)| *one));
    assert!(again.contains(&(first + 1)), "{again:?}");
}
