//! How a measured value loses its worth.

use midspan_units::TimeSpan;

/// Most halvings: after that, hardly a bit of a counter is left.
const MOST_HALVINGS: f64 = 60.0;

/// `value` after `elapsed`, if it halves in each `half_life`. Between two halvings, it falls in a
/// straight line, at most 6 % above 2⁻ˣ, so that no logarithm is needed. `half_life` is not zero.
pub(super) fn halved(value: f64, elapsed: TimeSpan, half_life: TimeSpan) -> f64 {
    let lives = elapsed.as_seconds() / half_life.as_seconds().max(1e-9);
    let whole = lives.floor().min(MOST_HALVINGS);
    let part = (lives - whole).clamp(0.0, 1.0);
    // At most 60, so the cast and the shift are exact.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let divisor = (1_u64 << whole as u32) as f64;
    value * (1.0 - part / 2.0) / divisor
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIFE: TimeSpan = TimeSpan::from_seconds(10);

    #[test]
    fn a_value_halves_in_each_half_life() {
        for (seconds, expected) in [(0, 8.0), (10, 4.0), (20, 2.0), (15, 3.0), (30, 1.0)] {
            let found = halved(8.0, TimeSpan::from_seconds(seconds), LIFE);
            assert!((found - expected).abs() < 1e-12, "{seconds}: {found}");
        }
        assert!(halved(1e12, TimeSpan::from_nanoseconds(u64::MAX), LIFE) < 1e-5);
    }

    proptest! {
        #[test]
        fn time_never_adds_worth(first in 0_u64..1_000_000, later in 0_u64..1_000_000) {
            let at = |milliseconds| halved(1.0, TimeSpan::from_milliseconds(milliseconds), LIFE);
            prop_assert!(at(first + later) <= at(first));
            let exact = (-(first as f64) / 10_000.0 * std::f64::consts::LN_2).exp();
            prop_assert!(at(first) >= exact * 0.999_999 && at(first) <= exact * 1.062 + 1e-15);
        }
    }
}
