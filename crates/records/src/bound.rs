//! What a value must keep, and whether measurements keep it.

use std::fmt;

use crate::Spread;

/// What a value, or a ratio of two values, must keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
    /// At most this far from 1, for a ratio.
    NearOne(f64),
    /// For a ratio of times: no more than this share above 1, or no more than this many seconds.
    NotSlower {
        /// Such as 0.02.
        share: f64,
        /// Such as 0.001.
        seconds: f64,
    },
}

impl Bound {
    /// Whether a value keeps the bound that has no spread. `other` is the time that a ratio of
    /// times is divided by, in seconds; only [`Bound::NotSlower`] needs it.
    #[must_use]
    pub fn is_met(self, value: f64, other: Option<f64>) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::NearOne(within) => (value - 1.0).abs() <= within,
            Self::NotSlower { .. } => value <= self.most(other),
        }
    }

    /// The verdict on measurements: met if the median keeps the bound, missed if the whole interval
    /// of the median is beyond it, and otherwise open (`None`). `other` is as in
    /// [`is_met`](Self::is_met).
    #[must_use]
    pub fn verdict(self, spread: &Spread, other: Option<f64>) -> Option<bool> {
        let is_missed = match self {
            Self::AtLeast(least) => spread.high < least,
            Self::AtMost(_) | Self::NotSlower { .. } => spread.low > self.most(other),
            Self::NearOne(within) => spread.low > 1.0 + within || spread.high < 1.0 - within,
        };
        match (self.is_met(spread.median, other), is_missed) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }

    /// The greatest value that keeps the bound.
    fn most(self, other: Option<f64>) -> f64 {
        match self {
            Self::AtLeast(_) => f64::INFINITY,
            Self::AtMost(most) => most,
            Self::NearOne(within) => 1.0 + within,
            Self::NotSlower { share, seconds } => {
                1.0 + share.max(other.map_or(0.0, |other| seconds / other))
            }
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::NearOne(within) => write!(f, "{within} from 1 at most"),
            Self::NotSlower { share, seconds } => {
                let (most, more) = (1.0 + share, seconds * 1000.0);
                write!(f, "at most {most}, or {more} ms more")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_missed_only_if_the_whole_interval_is_beyond_it() {
        // Median 1.5, interval 1 to 2.
        let spread = Spread::of(&[1.0, 1.5, 2.0]).unwrap();
        let verdict = |bound: Bound| bound.verdict(&spread, None);
        assert_eq!(verdict(Bound::AtLeast(1.5)), Some(true));
        assert_eq!(verdict(Bound::AtLeast(1.6)), None);
        assert_eq!(verdict(Bound::AtLeast(2.1)), Some(false));
        assert_eq!(verdict(Bound::AtMost(1.5)), Some(true));
        assert_eq!(verdict(Bound::AtMost(1.4)), None);
        assert_eq!(verdict(Bound::AtMost(0.9)), Some(false));
        assert_eq!(verdict(Bound::NearOne(0.5)), Some(true));
        assert_eq!(verdict(Bound::NearOne(0.4)), None);
        let far = Spread::of(&[0.5, 0.6]).unwrap();
        assert_eq!(Bound::NearOne(0.3).verdict(&far, None), Some(false));
    }

    #[test]
    fn a_short_time_may_be_longer_by_a_number_of_seconds() {
        let bound = Bound::NotSlower {
            share: 0.02,
            seconds: 0.001,
        };
        assert!(bound.is_met(1.02, None) && !bound.is_met(1.021, None));
        // 1 ms is a tenth of 10 ms, and a thousandth of a second.
        assert!(bound.is_met(1.09, Some(0.01)) && !bound.is_met(1.11, Some(0.01)));
        assert!(!bound.is_met(1.021, Some(1.0)));
        assert_eq!(bound.to_string(), "at most 1.02, or 1 ms more");
    }
}
