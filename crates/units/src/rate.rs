//! Data rates in bit/s.

use std::fmt;
use std::str::FromStr;

use crate::TimeSpan;
use crate::quantity::{Form, ParseError};

/// A data rate in bit/s, above zero. Prefixes are decimal, as usual in networking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

const FORM: Form = Form {
    kind: "rate",
    example: "8 Mbit/s",
    low: "1 bit/s",
    high: "18 Ebit/s",
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
    ],
};

impl BitRate {
    /// A rate of `rate` bit/s; `None` for zero.
    #[must_use]
    pub const fn from_bits_per_second(rate: u64) -> Option<Self> {
        if rate == 0 { None } else { Some(Self(rate)) }
    }

    /// The rate in bit/s; never zero.
    #[must_use]
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// The rate in bytes per second, rounded down, at least 1.
    #[must_use]
    pub const fn bytes_per_second(self) -> u64 {
        if self.0 < 8 { 1 } else { self.0 / 8 }
    }

    /// Time to send `bytes` at this rate, rounded up to a nanosecond; saturates.
    #[must_use]
    pub fn transmission_time(self, bytes: u64) -> TimeSpan {
        let bits_times_second = u128::from(bytes) * 8 * 1_000_000_000;
        let nanoseconds = bits_times_second.div_ceil(u128::from(self.0));
        TimeSpan::from_nanoseconds(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Bytes that this rate carries in `span`, rounded down; saturates.
    #[must_use]
    pub fn bytes_in(self, span: TimeSpan) -> u64 {
        let bits = u128::from(self.0) * u128::from(span.nanoseconds()) / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    /// The rate at which `bytes` pass in `span`; `None` if that is below 1 bit/s, or if `span` is
    /// zero.
    #[must_use]
    pub fn from_transfer(bytes: u64, span: TimeSpan) -> Option<Self> {
        let nanoseconds = u128::from(span.nanoseconds());
        let rate = (u128::from(bytes) * 8 * 1_000_000_000).checked_div(nanoseconds)?;
        Self::from_bits_per_second(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

impl FromStr for BitRate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::from_bits_per_second(FORM.parse(text)?).ok_or_else(|| ParseError::OutOfRange {
            kind: FORM.kind,
            text: text.to_owned(),
            low: FORM.low,
            high: FORM.high,
        })
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Form::print(self.0, FORM.units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_at_ten_megabits_takes_1200_microseconds() {
        let rate: BitRate = "10 Mbit/s".parse().unwrap();
        assert_eq!(rate.transmission_time(1500).nanoseconds(), 1_200_000);
        assert_eq!(rate.bytes_in(TimeSpan::from_nanoseconds(1_200_000)), 1500);
    }

    #[test]
    fn zero_is_refused() {
        assert!("0 Mbit/s".parse::<BitRate>().is_err());
        assert!("0.0000001 kbit/s".parse::<BitRate>().is_err());
    }

    #[test]
    fn a_missing_unit_names_the_units() {
        let error = "20".parse::<BitRate>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"20\" has no unit: write one of bit/s, kbit/s, Mbit/s, Gbit/s, as in \"8 Mbit/s\""
        );
    }

    #[test]
    fn fractions_are_exact() {
        assert_eq!(
            "2.048 Mbit/s".parse::<BitRate>().unwrap().bits_per_second(),
            2_048_000
        );
    }
}
