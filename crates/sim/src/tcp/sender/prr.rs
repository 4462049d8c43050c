//! Proportional rate reduction (RFC 9937; Linux: `tcp_cwnd_reduction`): how cwnd comes down to ssthresh
//! during recovery. Counts are in segments.
//!
//! While more than ssthresh is in flight, segments leave in proportion to delivered ones: ssthresh of them
//! for each former cwnd. Below ssthresh, as many leave as were delivered, and one more for each ACK that makes
//! progress without showing a further loss, because then the path is not full.

/// The state of a reduction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reduction {
    /// `RecoverFS`: cwnd when the reduction began.
    before: u64,
    /// `prr_delivered`: segments that were delivered since.
    delivered: u64,
    /// `prr_out`: segments that left since.
    out: u64,
}

/// What an ACK reports.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// Segments that it newly delivers.
    pub(super) delivered: u64,
    /// It acknowledges new data in order, and shows no further loss.
    pub(super) is_safe: bool,
    pub(super) in_flight: u64,
    pub(super) threshold: u64,
}

impl Reduction {
    /// A reduction begins with this cwnd.
    pub(super) const fn new(before: u64) -> Self {
        Self {
            before,
            delivered: 0,
            out: 0,
        }
    }

    /// A segment leaves.
    pub(super) const fn handle_sent(&mut self) {
        self.out += 1;
    }

    /// cwnd after an ACK; `None`: it stays, because nothing was delivered.
    pub(super) fn window(&mut self, progress: Progress) -> Option<u64> {
        let Progress {
            delivered,
            is_safe,
            in_flight,
            threshold,
        } = progress;
        if delivered == 0 || self.before == 0 {
            return None;
        }
        self.delivered += delivered;
        let allowed = if in_flight > threshold {
            threshold
                .saturating_mul(self.delivered)
                .div_ceil(self.before)
                .saturating_sub(self.out)
        } else {
            let conserved = self.delivered.saturating_sub(self.out);
            (conserved.max(delivered) + u64::from(is_safe)).min(threshold - in_flight)
        };
        // The first lost segment is sent again at once.
        let least = u64::from(self.out == 0);
        Some(in_flight + allowed.max(least))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn progress(delivered: u64, is_safe: bool, in_flight: u64, threshold: u64) -> Progress {
        Progress {
            delivered,
            is_safe,
            in_flight,
            threshold,
        }
    }

    /// The example of RFC 9937 (§5): one of 20 segments is lost, and ssthresh is 14.
    #[test]
    fn seven_of_ten_delivered_segments_are_replaced() {
        let mut reduction = Reduction::new(20);
        let mut in_flight = 19;
        let mut sent = 0;
        for ack in 0..19 {
            in_flight -= u64::from(ack > 0);
            let window = reduction.window(progress(1, false, in_flight, 14)).unwrap();
            while in_flight < window {
                reduction.handle_sent();
                (in_flight, sent) = (in_flight + 1, sent + 1);
            }
        }
        assert_eq!((in_flight, sent), (14, 13));
    }

    #[test]
    fn after_many_losses_the_flight_grows_by_one_for_each_safe_ack() {
        // 15 of 20 are lost; the fifth ACK has shown it.
        let mut reduction = Reduction::new(20);
        assert_eq!(reduction.window(progress(4, false, 0, 14)), Some(4));
        (0..4).for_each(|_| reduction.handle_sent());
        // Each of the four brings another and one more.
        assert_eq!(reduction.window(progress(1, true, 3, 14)), Some(5));
        (0..2).for_each(|_| reduction.handle_sent());
        // A further loss: only what was delivered.
        assert_eq!(reduction.window(progress(1, false, 3, 14)), Some(4));
        assert_eq!(reduction.window(progress(0, false, 3, 14)), None);
    }

    proptest! {
        /// RFC 9937 §6: below ssthresh no more leaves than was delivered and one for each safe ACK; above it
        /// no more than in proportion; and at the end ssthresh is in flight.
        #[test]
        fn sending_is_bounded_and_ends_at_ssthresh(
            before in 4_u64..200,
            share in 1_u64..10,
            lost in prop::collection::vec(any::<bool>(), 200),
            stretch in 1_u64..6,
        ) {
            let threshold = (before * share / 10).max(2);
            let mut reduction = Reduction::new(before);
            let (mut in_flight, mut delivered, mut sent) = (before, 0, 0);
            let mut acks = 0;
            let mut left = before;
            let mut lost = lost.into_iter();
            while left > 0 {
                let of_ack = left.min(stretch);
                left -= of_ack;
                let gone = (0..of_ack).filter(|_| lost.next().unwrap_or(false)).count() as u64;
                in_flight -= of_ack;
                let arrived = of_ack - gone;
                delivered += arrived;
                let above = in_flight > threshold;
                let Some(window) = reduction.window(progress(arrived, gone == 0, in_flight, threshold)) else {
                    continue;
                };
                acks += 1;
                let burst = window - in_flight;
                if above {
                    let share = (threshold * delivered).div_ceil(before);
                    prop_assert!(sent + burst <= share.max(sent).max(1));
                } else {
                    prop_assert!(window <= threshold.max(in_flight + 1));
                    prop_assert!(burst <= delivered.saturating_sub(sent).max(arrived) + 1);
                }
                (0..burst).for_each(|_| reduction.handle_sent());
                in_flight += burst;
                sent += burst;
            }
            prop_assert!(sent <= delivered + acks);
            // As many ACKs without a loss as it takes.
            for _ in 0..before {
                if in_flight == 0 {
                    break;
                }
                in_flight -= 1;
                let window = reduction.window(progress(1, true, in_flight, threshold)).unwrap();
                (in_flight..window).for_each(|_| reduction.handle_sent());
                in_flight = in_flight.max(window);
            }
            prop_assert!(delivered == 0 || in_flight <= threshold);
            prop_assert!(delivered == 0 || in_flight == threshold);
        }
    }
}
