//! `ppa`, the number of packets that one ACK covers (Tam §3.2, 3).

/// `min_ack_per_win` of the paper: ACKs that must leave for each window, so that the loss of one or
/// two does not cause a retransmission time-out.
pub const MIN_ACK_PER_WIN: u32 = 3;

/// The rule of Tam §3.2 (3):
///
/// ```text
/// if est_cwnd ≤ min_ack_per_win: ppa = 1
/// else: ppa = MIN(FLOOR(est_cwnd / min_ack_per_win), max_packets_per_ack)
/// ```
///
/// A zero of either limit counts as one; the result is at least one.
///
/// ```
/// use midspan_policy::ack_thinning::packets_per_ack;
/// // “Delayed acknowledgment will not occur until est_cwnd is at least 6.”
/// assert_eq!(packets_per_ack(5, 3, 5), 1);
/// assert_eq!(packets_per_ack(6, 3, 5), 2);
/// // “For a maximum cwnd of 12 … the computed ppa would be 4.”
/// assert_eq!(packets_per_ack(12, 3, 5), 4);
/// assert_eq!(packets_per_ack(100, 3, 5), 5);
/// ```
#[must_use]
pub fn packets_per_ack(
    congestion_window: u32,
    min_ack_per_win: u32,
    max_packets_per_ack: u32,
) -> u32 {
    (congestion_window / min_ack_per_win.max(1)).clamp(1, max_packets_per_ack.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_window_has_at_least_its_acks(
            window in 1_u32..10_000, minimum in 1_u32..10, maximum in 1_u32..100,
        ) {
            let ppa = packets_per_ack(window, minimum, maximum);
            prop_assert!((1..=maximum).contains(&ppa));
            prop_assert!(window / ppa >= minimum.min(window));
        }
    }

    #[test]
    fn limits_of_zero_are_one() {
        assert_eq!(packets_per_ack(0, 0, 0), 1);
        assert_eq!(packets_per_ack(7, 0, 5), 5);
    }
}
