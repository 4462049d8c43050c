//! Whether a leg keeps losing segments without a queue: a sequential test.
//!
//! Wald's sequential probability ratio test (Annals of Mathematical Statistics, 1945) decides between two rates of loss with
//! as few segments as possible: 1 in 1,000, at which CUBIC does well on a short leg, and 1 in 100. Each acknowledged
//! segment is evidence for the first one, each loss for the second one. Several losses in one round trip count
//! once, because one queue that overflows loses many.
//!
//! Two kinds of losses are no evidence. While there is a queue, losses may come from it; the evidence from before stays. And
//! the first stretch with losses may be the overshoot of slow start. Its rest may be in the next stretch, in which all losses
//! count once.

/// ln(0.01 ∕ 0.001): a round trip with losses.
const LOSS: f64 = std::f64::consts::LN_10;
/// ln((1 − 0.01) ∕ (1 − 0.001)): an acknowledged segment.
const SEGMENT: f64 = -0.009_050;
/// ln((1 − β) ∕ α): the evidence at which the leg counts as lossy, with errors of both kinds of α = β = 5 %.
const ENOUGH: f64 = 2.944;
/// Least number of acknowledged segments in a stretch: in fewer, one loss is chance.
const STRETCH: u64 = 30;

/// The evidence for one leg so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LossTest {
    evidence: f64,
    /// Segments acknowledged, and segments retransmitted, when the newest stretch ended.
    newest: (u64, u32),
    /// Stretches since the first one with losses, which is the first of them; at most 3.
    since_loss: u8,
}

impl LossTest {
    /// Takes a reading: segments acknowledged and retransmitted since the beginning of the connection, and the congestion window
    /// in segments. Returns whether the leg counts as lossy.
    pub fn handle_reading(&mut self, now: (u64, u32), window: u32, has_queue: bool) -> bool {
        if has_queue {
            self.newest = now;
            return false;
        }
        let acknowledged = now.0.saturating_sub(self.newest.0);
        if acknowledged < STRETCH {
            return false;
        }
        let lost = now.1.wrapping_sub(self.newest.1);
        self.newest = now;
        if lost > 0 || self.since_loss > 0 {
            self.since_loss = (self.since_loss + 1).min(3);
        }
        let round_trips = acknowledged / u64::from(window.max(1));
        let losses = match self.since_loss {
            0 => 0,
            1 => return false,
            2 => u64::from(lost).min(1),
            _ => u64::from(lost).min(round_trips.max(1)),
        };
        let change = SEGMENT * acknowledged as f64 + LOSS * losses as f64;
        // A leg that has been clean for long may become lossy.
        self.evidence = (self.evidence + change).max(-ENOUGH);
        self.evidence >= ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// After how many readings the leg counts as lossy. Each reading has segments acknowledged and lost since the one before.
    fn decided(readings: impl IntoIterator<Item = (u64, u32)>) -> Option<usize> {
        let (mut test, mut sum) = (LossTest::default(), (0, 0));
        let mut readings = readings.into_iter();
        readings.position(|(acknowledged, lost)| {
            sum = (sum.0 + acknowledged, sum.1 + lost);
            test.handle_reading(sum, 15, false)
        })
    }

    #[test]
    fn losses_in_most_stretches_decide_soon() {
        // 1 % of the segments, at 40 Mbit/s each 20 ms.
        assert_eq!(
            decided([(66, 1), (66, 0), (66, 1), (66, 1), (66, 1)]),
            Some(4)
        );
        // More losses, in different round trips.
        assert_eq!(decided([(66, 1), (66, 0), (66, 3)]), Some(2));
        // In fewer than 30 segments, a loss is chance.
        assert_eq!(decided([(10, 1); 8]), None);
        assert_eq!(decided([(10, 1); 9]), Some(8));
    }

    #[test]
    fn slow_start_and_single_losses_decide_nothing() {
        // The overshoot of slow start in two readings, and a loss long after.
        let mut start = vec![(200, 60), (200, 20)];
        start.extend([(200, 0); 6]);
        start.push((200, 1));
        assert_eq!(decided(start), None);
        assert_eq!(decided([(600, 2); 100]), None);
        // 1 in 500: CUBIC on a bottleneck with a short queue.
        let rare = (0..10_000).map(|number| (50, u32::from(number % 10 == 0)));
        // Many losses in one round trip.
        assert_eq!(decided([(600, 1), (15, 0), (15, 20), (15, 0)]), None);
        assert_eq!(decided(rare), None);
    }

    #[test]
    fn a_leg_that_was_clean_for_long_may_become_lossy() {
        let clean = std::iter::repeat_n((66, 0), 10_000);
        let decided = decided(clean.chain(std::iter::repeat_n((66, 1), 6)));
        assert_eq!(decided, Some(10_004));
    }

    proptest! {
        /// Random losses of 2 % are found within 1,000 segments in nearly all cases; without losses, nothing is.
        #[test]
        fn random_losses_are_found(draws in prop::collection::vec(0_u32..50, 20 * 60)) {
            let lost = |segments: &[u32]| segments.iter().filter(|draw| **draw == 0).count() as u32;
            let readings: Vec<(u64, u32)> = draws.chunks(60).map(|it| (60, lost(it))).collect();
            let lossy = readings.iter().filter(|(_, lost)| *lost > 0).count();
            // Each of 20 readings has a loss with a probability of 70 %; of 10 in any order, the test finds it.
            prop_assert!(lossy < 10 || decided(readings).is_some());
            prop_assert_eq!(decided([(60, 0); 20]), None);
        }
    }
}
