//! Probabilities, such as loss per packet.

use std::fmt;
use std::str::FromStr;

use crate::quantity::{Form, ParseError};

/// A probability between 0 and 1, stored in units of 10⁻¹².
///
/// An integer, so that printing and parsing do not change it, and a comparison with a random number
/// has the same result on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Probability(u64);

const ONE: u64 = 1_000_000_000_000;

const FORM: Form = Form {
    kind: "probability",
    example: "0.1 %",
    low: "0 %",
    high: "100 %",
    units: &[("%", ONE / 100), ("", ONE)],
};

impl Probability {
    /// Probability 0.
    pub const ZERO: Self = Self(0);
    /// Probability 1.
    pub const ONE: Self = Self(ONE);

    /// The probability nearest to `value`; `None` outside 0…1 and for NaN.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    pub fn from_f64(value: f64) -> Option<Self> {
        (0.0..=1.0)
            .contains(&value)
            .then(|| Self((value * ONE as f64).round() as u64))
    }

    /// The probability as a number between 0 and 1.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / ONE as f64
    }

    /// Whether an event of this probability happens, given 64 uniformly random bits.
    #[must_use]
    pub fn happens(self, random: u64) -> bool {
        // random / 2⁶⁴ < p, in integers.
        u128::from(random) * u128::from(ONE) < u128::from(self.0) << 64
    }
}

impl FromStr for Probability {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let value = FORM.parse(text)?;
        if value > ONE {
            return Err(ParseError::OutOfRange {
                kind: FORM.kind,
                text: text.to_owned(),
                low: FORM.low,
                high: FORM.high,
            });
        }
        Ok(Self(value))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = ONE / 100;
        let text = format!("{}.{:010}", self.0 / percent, self.0 % percent);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{text} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_and_plain_numbers_agree() {
        let a: Probability = "0.1 %".parse().unwrap();
        let b: Probability = "0.001".parse().unwrap();
        assert_eq!(a, b);
        assert_eq!(a.to_string(), "0.1 %");
    }

    #[test]
    fn the_bounds_are_never_and_always() {
        assert!(!Probability::ZERO.happens(0));
        assert!(Probability::ONE.happens(u64::MAX));
        assert!("101 %".parse::<Probability>().is_err());
        assert!("-1 %".parse::<Probability>().is_err());
    }
}
