//! A number followed by a unit: the text form that all quantities share.

use thiserror::Error;

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The text does not begin with a number.
    #[error("\"{text}\" is not a {kind}: it must begin with a number, as in \"{example}\"")]
    NoNumber {
        /// The kind of quantity: "rate", "size", ….
        kind: &'static str,
        /// The given text.
        text: String,
        /// An example of a valid text.
        example: &'static str,
    },
    /// The number has no unit.
    #[error("\"{text}\" has no unit: write one of {units}, as in \"{example}\"")]
    NoUnit {
        /// The given text.
        text: String,
        /// The valid units.
        units: String,
        /// An example of a valid text.
        example: &'static str,
    },
    /// The unit is unknown.
    #[error("unknown unit \"{unit}\": write one of {units}, as in \"{example}\"")]
    UnknownUnit {
        /// The given unit.
        unit: String,
        /// The valid units.
        units: String,
        /// An example of a valid text.
        example: &'static str,
    },
    /// The value is outside the range of the type.
    #[error("\"{text}\" is out of range: a {kind} lies between {low} and {high}")]
    OutOfRange {
        /// The kind of quantity: "rate", "size", ….
        kind: &'static str,
        /// The given text.
        text: String,
        /// Smallest value, as text.
        low: &'static str,
        /// Largest value, as text.
        high: &'static str,
    },
}

/// A unit's name and its worth in base units.
pub(crate) type Unit = (&'static str, u64);

/// The text form of a kind of quantity.
pub(crate) struct Form {
    pub kind: &'static str,
    pub example: &'static str,
    pub low: &'static str,
    pub high: &'static str,
    /// Accepted units, in the order in which error messages list them.
    pub units: &'static [Unit],
}

impl Form {
    /// Parses `text` to base units, rounded to the nearest whole number.
    pub fn parse(&self, text: &str) -> Result<u64, ParseError> {
        let (number, unit) = self.split(text)?;
        let Some(&(_, worth)) = self.units.iter().find(|(name, _)| *name == unit) else {
            return Err(self.unit_error(text, unit));
        };
        scale(number, worth).ok_or_else(|| ParseError::OutOfRange {
            kind: self.kind,
            text: text.to_owned(),
            low: self.low,
            high: self.high,
        })
    }

    fn split<'a>(&self, text: &'a str) -> Result<(&'a str, &'a str), ParseError> {
        let trimmed = text.trim();
        let end = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let is_number = number.bytes().any(|b| b.is_ascii_digit())
            && number.bytes().filter(|b| *b == b'.').count() <= 1;
        if !is_number {
            return Err(ParseError::NoNumber {
                kind: self.kind,
                text: text.to_owned(),
                example: self.example,
            });
        }
        Ok((number, unit.trim()))
    }

    fn unit_error(&self, text: &str, unit: &str) -> ParseError {
        let units = self
            .units
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ");
        if unit.is_empty() {
            ParseError::NoUnit {
                text: text.to_owned(),
                units,
                example: self.example,
            }
        } else {
            ParseError::UnknownUnit {
                unit: unit.to_owned(),
                units,
                example: self.example,
            }
        }
    }

    /// Prints `value` in the largest of `units` that needs at most three decimals, so that the text
    /// is short and still parses back to the same value.
    pub fn print(value: u64, units: &[Unit]) -> String {
        let mut by_worth: Vec<&Unit> = units.iter().collect();
        by_worth.sort_by_key(|(_, worth)| std::cmp::Reverse(*worth));
        for (name, worth) in by_worth {
            let thousandths = u128::from(value) * 1000;
            let exact = thousandths.is_multiple_of(u128::from(*worth));
            if (value >= *worth || *worth == 1) && exact {
                let thousandths = thousandths / u128::from(*worth);
                let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
                let text = text.trim_end_matches('0').trim_end_matches('.');
                return format!("{text} {name}");
            }
        }
        unreachable!("every form has a unit worth 1")
    }
}

/// `number` (decimal digits with at most one point) times `worth`, rounded to nearest.
///
/// Integer arithmetic: a float would lose the last digits of large sizes.
fn scale(number: &str, worth: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // Digits beyond the 18th do not change a result that fits into 64 bits.
    let fraction = &fraction[..fraction.len().min(18)];
    let denominator = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let numerator: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let part = (numerator * u128::from(worth) + denominator / 2) / denominator;
    let total = whole.checked_mul(u128::from(worth))?.checked_add(part)?;
    u64::try_from(total).ok()
}
