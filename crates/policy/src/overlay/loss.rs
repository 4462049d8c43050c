//! The loss of a leg between two nodes, in the direction of its sender.

use midspan_units::{Time, TimeSpan};

use super::aging::halved;

/// The fast estimate notices that a leg becomes lossy: with the loss p from a moment on, it is at
/// p · (1 − 2^(−10/5)) = 0.75 · p after 10 s. It counts from this many segments on.
const FAST: TimeSpan = TimeSpan::from_seconds(5);
const ENOUGH: f64 = 200.0;
/// The slow estimate keeps a leg lossy that has just been: it is not taken again after the first
/// seconds without a loss.
const SLOW: TimeSpan = TimeSpan::from_seconds(300);
/// A leg without evidence has the loss 10⁻⁴, as if a tenth of 1,000 segments had been lost.
const FIRST_LOST: f64 = 0.1;
const FIRST_SENT: f64 = 1000.0;

/// The loss of a leg without evidence, 10⁻⁴.
pub const UNKNOWN_LOSS: f64 = FIRST_LOST / FIRST_SENT;

/// The probability that a segment is lost, from counters of segments that were sent and sent again.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LossEstimate {
    fast: Counted,
    slow: Counted,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Counted {
    at: Time,
    sent: f64,
    lost: f64,
}

impl Counted {
    fn aged(&self, now: Time, half_life: TimeSpan) -> Self {
        let elapsed = now.since(self.at);
        Self {
            at: self.at.max(now),
            sent: halved(self.sent, elapsed, half_life),
            lost: halved(self.lost, elapsed, half_life),
        }
    }

    fn note(&mut self, now: Time, sent: f64, lost: f64, half_life: TimeSpan) {
        *self = self.aged(now, half_life);
        self.sent += sent;
        self.lost += lost;
    }

    fn probability(&self) -> f64 {
        ((self.lost + FIRST_LOST) / (self.sent + FIRST_SENT)).clamp(0.0, 1.0)
    }
}

impl LossEstimate {
    /// Adds segments that were sent, and how many of them were lost; at most all.
    pub fn note(&mut self, now: Time, sent: u64, lost: u64) {
        let (sent, lost) = (sent as f64, lost.min(sent) as f64);
        self.fast.note(now, sent, lost, FAST);
        self.slow.note(now, sent, lost, SLOW);
    }

    /// The probability, 0…1: the larger one of the fast and the slow estimate.
    #[must_use]
    pub fn get(&self, now: Time) -> f64 {
        let slow = self.slow.aged(now, SLOW).probability();
        let fast = self.fast.aged(now, FAST);
        match fast.sent >= ENOUGH {
            true => slow.max(fast.probability()),
            false => slow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    #[test]
    fn without_evidence_it_is_small_and_not_zero() {
        assert!((LossEstimate::default().get(at(5)) - UNKNOWN_LOSS).abs() < 1e-15);
        let mut clean = LossEstimate::default();
        clean.note(at(0), 1_000_000, 0);
        assert!(clean.get(at(0)) < 1e-6 && clean.get(at(0)) > 0.0);
    }

    #[test]
    fn a_brownout_is_seen_after_ten_seconds_and_remembered() {
        // Five sessions of 100 KB a second: 350 segments, of which 3 % are lost from 60 s on.
        let mut loss = LossEstimate::default();
        for second in 0..60 {
            loss.note(at(second), 350, u64::from(second % 10 == 0));
        }
        assert!(loss.get(at(60)) < 0.001, "{}", loss.get(at(60)));
        for second in 60..70 {
            loss.note(at(second), 350, 10);
        }
        assert!(loss.get(at(70)) > 0.01, "{}", loss.get(at(70)));
        // No traffic: the leg stays lossy for minutes, not without limit.
        assert!(loss.get(at(130)) > 0.003, "{}", loss.get(at(130)));
        assert!(loss.get(at(7_200)) < 0.0005, "{}", loss.get(at(7_200)));
        // Traffic without losses shows it sooner.
        for second in 70..370 {
            loss.note(at(second), 350, 0);
        }
        assert!(loss.get(at(370)) < 0.0015, "{}", loss.get(at(370)));
    }

    proptest! {
        #[test]
        fn it_is_a_probability_and_losses_do_not_lower_it(
            steps in proptest::collection::vec((0_u64..20, 0_u64..5_000, 0_u64..9_000), 0..60),
            more in 1_u64..50,
        ) {
            let (mut now, mut loss) = (0, LossEstimate::default());
            for (later, sent, lost) in steps {
                now += later;
                loss.note(at(now), sent, lost);
                prop_assert!((0.0..=1.0).contains(&loss.get(at(now))));
            }
            let (mut clean, mut lossy) = (loss, loss);
            clean.note(at(now), 100, 0);
            lossy.note(at(now), 100, more);
            prop_assert!(lossy.get(at(now)) >= clean.get(at(now)));
        }
    }
}
