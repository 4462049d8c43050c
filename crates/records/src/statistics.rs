//! Means, medians, percentiles and their uncertainty.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Half the width of the 95 % interval according to Student's t distribution; `None` for one
    /// value.
    pub half_width: Option<f64>,
}

impl Mean {
    /// Lower and upper end of the interval.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        let half = self.half_width?;
        Some((self.value - half, self.value + half))
    }
}

/// The mean of independent `values` with its 95 % interval; `None` if there is no value, or if one
/// is not finite.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn mean(values: &[f64]) -> Option<Mean> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let n = values.len() as f64;
    let value = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|one| (one - value).powi(2)).sum();
    let half_width = StudentsT::new(0.0, 1.0, n - 1.0)
        .ok()
        .map(|student| student.inverse_cdf(0.975) * (squares / (n - 1.0) / n).sqrt());
    Some(Mean { value, half_width })
}

/// A median with an interval that covers the true median with probability `coverage`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Median {
    /// The median.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability that the interval covers the true median. With few values, the interval is the
    /// widest possible one, and this is below 0.95.
    pub coverage: f64,
}

/// The `fraction` quantile (0 to 1) of `values`, interpolated between neighbours; `None` if there
/// is no value, or if one is not a number.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
pub fn quantile(values: &[f64], fraction: f64) -> Option<f64> {
    let sorted = sorted(values)?;
    let position = fraction.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    let share = position - position.floor();
    Some(sorted[below] + (sorted[above] - sorted[below]) * share)
}

/// The median of `values` with its 95 % interval from order statistics: the number of values
/// below the true median is binomial with p = 1/2, whatever the distribution.
#[must_use]
pub fn median(values: &[f64]) -> Option<Median> {
    let sorted = sorted(values)?;
    let n = sorted.len();
    // The widest interval [x(1), x(n)] fails with probability 2·2⁻ⁿ; narrow it as long as that is
    // allowed.
    let mut tail = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut term = tail;
    let mut drop = 0;
    for k in 0..n / 2 {
        #[allow(clippy::cast_precision_loss)]
        let next = term * (n - k) as f64 / (k + 1) as f64;
        if 2.0 * (tail + next) > 0.05 || 2 * (k + 1) >= n {
            break;
        }
        tail += next;
        term = next;
        drop = k + 1;
    }
    Some(Median {
        value: quantile(&sorted, 0.5)?,
        low: sorted[drop],
        high: sorted[n - 1 - drop],
        coverage: (1.0 - 2.0 * tail).max(0.0),
    })
}

fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&values, 0.5), Some(2.5));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[f64::NAN], 0.5), None);
    }

    #[test]
    fn the_interval_of_a_mean_is_student_s() {
        // s = √2.5; t(0.975, 4) = 2.776445: 3 ± 2.776445 · √(2.5 / 5)
        let five = mean(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((five.value - 3.0).abs() < 1e-12);
        assert!(
            (five.half_width.unwrap() - 1.963_243).abs() < 1e-6,
            "{five:?}"
        );
        // t(0.975, 1) = 12.7062
        let (low, high) = mean(&[0.0, 2.0]).unwrap().interval().unwrap();
        assert!((low + 11.7062).abs() < 1e-4 && (high - 13.7062).abs() < 1e-4);
        assert_eq!(mean(&[7.0]).unwrap().interval(), None);
        assert_eq!((mean(&[]), mean(&[f64::NAN])), (None, None));
    }

    #[test]
    fn three_values_cover_three_quarters() {
        let median = median(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((median.value, median.low, median.high), (2.0, 1.0, 3.0));
        assert!((median.coverage - 0.75).abs() < 1e-12);
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
            let median = median(&values).unwrap();
            assert_eq!((median.low, median.high), (low, high), "n = {n}");
            assert!((median.coverage - coverage).abs() < 5e-4, "n = {n}");
        }
    }
}
