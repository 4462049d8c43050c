//! What repeated measurements of one quantity come to.

use crate::statistics::{quantile, sorted};

/// The median of repeated measurements, the range of the values, and the interval of the median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub greatest: f64,
    /// Lower end of the interval that covers the true median.
    pub low: f64,
    /// Upper end of this interval.
    pub high: f64,
    /// Probability that the interval covers the true median: at least 0.95 from six values on.
    /// With fewer values, the interval is the whole range, and this is below 0.95.
    pub coverage: f64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// The spread of `values`; `None` if there is no value, or if one is not a number.
    ///
    /// The 95 % interval of the median is from order statistics: the number of values below the
    /// true median is binomial with p = 1/2, whatever the distribution.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values)?;
        let n = sorted.len();
        // The widest interval [x(1), x(n)] fails with probability 2·2⁻ⁿ; narrow it as long as that
        // is allowed.
        let mut tail = 0.5_f64.powi(i32::try_from(n).ok()?);
        let mut term = tail;
        let mut drop = 0;
        for k in 0..n / 2 {
            let next = term * (n - k) as f64 / (k + 1) as f64;
            if 2.0 * (tail + next) > 0.05 || 2 * (k + 1) >= n {
                break;
            }
            tail += next;
            term = next;
            drop = k + 1;
        }
        Some(Self {
            median: quantile(&sorted, 0.5)?,
            least: *sorted.first()?,
            greatest: *sorted.last()?,
            low: sorted[drop],
            high: sorted[n - 1 - drop],
            coverage: (1.0 - 2.0 * tail).max(0.0),
            count: n,
        })
    }

    /// What a reader of the interval needs: the number of values, which `of` names, such as "paired
    /// ratios", and the probability that the interval covers the true median. A single value has no
    /// interval.
    #[must_use]
    pub fn note(&self, of: &str) -> String {
        if self.count == 1 {
            return "measured once, so without an interval".to_owned();
        }
        format!(
            "median of {} {of}; the interval covers the true median with {:.0} %",
            self.count,
            self.coverage * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{By, Record};

    #[test]
    fn three_values_cover_three_quarters() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.low, spread.high), (2.0, 1.0, 3.0));
        assert!((spread.coverage - 0.75).abs() < 1e-12);
        assert_eq!(
            spread.note("values"),
            "median of 3 values; the interval covers the true median with 75 %"
        );
    }

    #[test]
    fn one_value_has_no_interval() {
        let spread = Spread::of(&[3.0]).unwrap();
        assert_eq!(
            spread.note("values"),
            "measured once, so without an interval"
        );
        let record = Record::new("", "", "", "", By::Lab, 3.0).with_interval(&spread);
        assert_eq!((record.low, record.high), (None, None));
    }

    #[test]
    fn the_range_holds_all_values_and_the_interval_fewer() {
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        let spread = Spread::of(&values).unwrap();
        assert_eq!((spread.least, spread.greatest), (1.0, 9.0));
        assert_eq!((spread.low, spread.high, spread.count), (2.0, 8.0, 9));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn order_statistics_match_the_published_table() {
        // n = 6: ranks 1 and 6 (96.9 %); n = 9: 2 and 8 (96.1 %); n = 20: 6 and 15 (95.9 %).
        for (n, low, high, coverage) in [
            (6, 1.0, 6.0, 0.969),
            (9, 2.0, 8.0, 0.961),
            (20, 6.0, 15.0, 0.959),
        ] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let spread = Spread::of(&values).unwrap();
            assert_eq!((spread.low, spread.high), (low, high), "n = {n}");
            assert!((spread.coverage - coverage).abs() < 5e-4, "n = {n}");
        }
    }
}
