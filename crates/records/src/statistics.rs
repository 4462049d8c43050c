//! Medians, percentiles and their uncertainty.

/// A median with an interval that covers the true median with at least `coverage`, if enough
/// values are there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Median {
    /// The median.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability that the interval covers the true median; with few values it is the widest
    /// interval there is and this is below 0.95.
    pub coverage: f64,
}

/// The `fraction` quantile (0 to 1) of `values`, interpolated between neighbours; `None` where
/// there is no value or one is not a number.
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
    // The widest interval [x(1), x(n)] misses with probability 2·2⁻ⁿ; narrow it while it may be.
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
