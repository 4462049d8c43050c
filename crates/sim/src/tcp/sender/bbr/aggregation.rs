//! How many more segments are acknowledged within a short time than the bandwidth explains.
//!
//! Links and receivers that hold ACKs back deliver them in groups. In the pause before a group, the
//! sender needs more than twice the bandwidth-delay product in flight to keep sending. So cwnd grows by the
//! largest excess of the last five to ten rounds (Linux: `bbr_update_ack_aggregation`).

use midspan_units::{Time, TimeSpan};

use super::bandwidth::Bandwidth;

/// Rounds after which the older of two maxima is forgotten.
const ROUNDS: u32 = 5;
/// An epoch with this many segments ends.
const LONGEST: u64 = 1 << 20;
/// The window grows by no more than what arrives in this time.
const MOST: TimeSpan = TimeSpan::from_milliseconds(100);

/// The largest excess of the last five to ten rounds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Aggregation {
    epoch_start: Time,
    /// Segments acknowledged in this epoch.
    acknowledged: u64,
    /// The largest excess of the present and of the previous rounds; `current` is the index of the
    /// present ones.
    excess: [u64; 2],
    current: usize,
    rounds: u32,
}

impl Aggregation {
    pub(super) const fn new(now: Time) -> Self {
        Self {
            epoch_start: now,
            acknowledged: 0,
            excess: [0; 2],
            current: 0,
            rounds: 0,
        }
    }

    pub(super) const fn begin_epoch(&mut self, now: Time) {
        self.epoch_start = now;
        self.acknowledged = 0;
    }

    /// An ACK for `segments` more; `window` is cwnd in segments.
    pub(super) fn handle(
        &mut self,
        now: Time,
        segments: u64,
        (bandwidth, window): (Bandwidth, u64),
        round_start: bool,
    ) {
        if round_start {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.current = 1 - self.current;
                self.excess[self.current] = 0;
            }
        }
        let mut expected = bandwidth.segments_in(now.since(self.epoch_start));
        if self.acknowledged <= expected || self.acknowledged + segments >= LONGEST {
            self.begin_epoch(now);
            expected = 0;
        }
        self.acknowledged += segments;
        let excess = self.acknowledged.saturating_sub(expected).min(window);
        self.excess[self.current] = self.excess[self.current].max(excess);
    }

    /// Segments by which cwnd grows.
    pub(super) fn window(&self, bandwidth: Bandwidth) -> u64 {
        let [one, other] = self.excess;
        one.max(other).min(bandwidth.segments_in(MOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_acks_enlarge_the_window_for_five_to_ten_rounds() {
        let bandwidth = Bandwidth::of(1000, TimeSpan::from_seconds(1));
        let at = |milliseconds| Time::ZERO + TimeSpan::from_milliseconds(milliseconds);
        let mut aggregation = Aggregation::new(at(0));
        // 20 segments every 20 ms, at once: 20 more than expected at that time.
        for group in 1..10 {
            aggregation.handle(at(20 * group), 20, (bandwidth, 100), false);
        }
        // (Times are rounded down.)
        assert!((20..=21).contains(&aggregation.window(bandwidth)));
        // One segment each millisecond.
        let mut rounds = 0;
        for now in 200.. {
            aggregation.handle(at(now), 1, (bandwidth, 100), now % 10 == 0);
            rounds += u32::from(now % 10 == 0);
            if aggregation.window(bandwidth) < 20 {
                break;
            }
        }
        assert!((5..=10).contains(&rounds), "{rounds}");
        // Never more than what arrives in 100 ms.
        aggregation.handle(at(10_000), 400, (bandwidth, 1000), false);
        assert_eq!(aggregation.window(bandwidth), 99);
    }
}
