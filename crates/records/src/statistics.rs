//! Means and percentiles. The [spread](crate::Spread) of repeated measurements has a module of its
//! own.

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
pub fn mean(values: &[f64]) -> Option<Mean> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let n = values.len() as f64;
    let value = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|one| (one - value).powi(2)).sum();
    let half_width = student(n - 1.0).map(|t| t * (squares / (n - 1.0) / n).sqrt());
    Some(Mean { value, half_width })
}

/// The 0.975 quantile of Student's distribution with this many degrees of freedom; `None` below one degree.
///
/// It is computed with logarithms of the C library, whose last digits depend on the processor. Eight decimals
/// are the same everywhere, and more than an interval needs.
fn student(degrees: f64) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
    Some((distribution.inverse_cdf(0.975) * 1e8).round() / 1e8)
}

/// The `fraction` quantile (0 to 1) of `values`, interpolated between neighbours; `None` if there
/// is no value, or if one is not a number.
#[must_use]
pub fn quantile(values: &[f64], fraction: f64) -> Option<f64> {
    let sorted = sorted(values)?;
    let position = fraction.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    let share = position - position.floor();
    Some(sorted[below] + (sorted[above] - sorted[below]) * share)
}

/// `values` in ascending order; `None` if there is none, or if one is not a number.
pub(crate) fn sorted(values: &[f64]) -> Option<Vec<f64>> {
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
}
