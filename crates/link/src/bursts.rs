//! Bursts of packets, and the distribution of their lengths.

use std::collections::BTreeMap;

use midspan_units::{Time, TimeSpan};
use serde::{Deserialize, Serialize};

/// How often each value was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        *self.0.entry(value).or_default() += 1;
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (value, count) in &other.0 {
            *self.0.entry(*value).or_default() += count;
        }
    }

    /// Each value with its count, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(value, count)| (*value, *count))
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The largest value; `None` if nothing was counted.
    #[must_use]
    pub fn largest(&self) -> Option<u64> {
        self.0.keys().next_back().copied()
    }

    /// The value that `thousandths` of 1,000 values do not exceed: 999 for p99.9.
    #[must_use]
    pub fn quantile(&self, thousandths: u64) -> Option<u64> {
        let rank = self.count().checked_sub(1)? * thousandths.min(1000) / 1000;
        let mut below = 0;
        let found = self.0.iter().find(|(_, count)| {
            below += **count;
            below > rank
        });
        found.map(|(value, _)| *value)
    }
}

/// Finds runs of segments that follow each other with small gaps.
#[derive(Debug, Clone, Default)]
pub struct Bursts {
    gap: TimeSpan,
    /// Length of the present burst in segments; 0 if there is none.
    length: u64,
    last: Option<Time>,
    lengths: Histogram,
}

impl Bursts {
    /// Segments whose gaps are at most `gap` belong to one burst.
    #[must_use]
    pub fn new(gap: TimeSpan) -> Self {
        Self {
            gap,
            ..Self::default()
        }
    }

    /// A segment is sent at `now`.
    pub fn handle_segment(&mut self, now: Time) {
        if self.last.is_some_and(|last| now.since(last) <= self.gap) {
            self.length += 1;
        } else {
            self.finish();
            self.length = 1;
        }
        self.last = Some(now);
    }

    /// Ends the present burst, and returns the lengths of all bursts in segments.
    pub fn finish(&mut self) -> &Histogram {
        if self.length > 0 {
            self.lengths.add(self.length);
        }
        self.length = 0;
        self.last = None;
        &self.lengths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_thousand_may_be_longer() {
        let of = |lengths: &[(u64, u64)]| {
            let histogram = Histogram(lengths.iter().copied().collect());
            histogram.quantile(999).zip(histogram.largest())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(1, 1)]), Some((1, 1)));
        assert_eq!(of(&[(2, 1999), (43, 1)]), Some((2, 43)));
        assert_eq!(of(&[(2, 1990), (43, 10)]), Some((43, 43)));
    }

    #[test]
    fn a_gap_ends_a_burst() {
        let mut bursts = Bursts::new(TimeSpan::from_nanoseconds(10));
        for at in [0, 0, 10, 21, 100, 105] {
            bursts.handle_segment(Time::from_nanoseconds(at));
        }
        let lengths: Vec<(u64, u64)> = bursts.finish().iter().collect();
        assert_eq!(lengths, [(1, 1), (2, 1), (3, 1)]);
    }
}
