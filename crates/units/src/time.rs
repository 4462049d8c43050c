//! Points in time and spans between them, in whole nanoseconds.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;
use std::time::Duration;

use crate::quantity::{Form, ParseError, Unit};

/// A point in time: nanoseconds since the start of the run, virtual or real.
///
/// A point and a span are different types: two points cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A span of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimeSpan(u64);

const FORM: Form = Form {
    kind: "time",
    example: "250 ms",
    low: "0 s",
    high: "584 years",
    units: &[
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("µs", 1_000),
        ("ns", 1),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
};

const PRINTED: &[Unit] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

impl Time {
    /// The start of the run.
    pub const ZERO: Self = Self(0);

    /// The point `nanoseconds` after the start of the run.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the start of the run.
    #[must_use]
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> TimeSpan {
        TimeSpan(self.0.saturating_sub(earlier.0))
    }
}

impl TimeSpan {
    /// A span of zero.
    pub const ZERO: Self = Self(0);

    /// A span of `nanoseconds`.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// A span of `milliseconds`; saturates.
    #[must_use]
    pub const fn from_milliseconds(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000_000))
    }

    /// A span of `seconds`; saturates.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The span in nanoseconds.
    #[must_use]
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// The span in seconds, for printing and statistics.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span in milliseconds, for printing and statistics.
    #[must_use]
    pub fn as_milliseconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        Self::from_nanos(span.0)
    }
}

impl From<Duration> for TimeSpan {
    /// Saturates at 584 years.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Arithmetic saturates: the end of time is a valid "never".
impl Add<TimeSpan> for Time {
    type Output = Self;

    fn add(self, span: TimeSpan) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<TimeSpan> for Time {
    fn add_assign(&mut self, span: TimeSpan) {
        *self = *self + span;
    }
}

impl Add for TimeSpan {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for TimeSpan {
    type Output = Self;

    /// Saturates at zero.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for TimeSpan {
    type Output = Self;

    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for TimeSpan {
    type Output = Self;

    /// # Panics
    /// If `divisor` is zero, as for integer division.
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl FromStr for TimeSpan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        FORM.parse(text).map(Self)
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0 s");
        }
        f.write_str(&Form::print(self.0, PRINTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_print_in_the_largest_unit_that_stays_short() {
        let text = |nanoseconds| TimeSpan::from_nanoseconds(nanoseconds).to_string();
        assert_eq!(text(280_000_000), "280 ms");
        assert_eq!(text(1_500_000_000), "1.5 s");
        assert_eq!(text(1_000_000_001), "1000000.001 us");
        assert_eq!(text(0), "0 s");
    }

    #[test]
    fn arithmetic_saturates() {
        let end = Time::from_nanoseconds(u64::MAX);
        assert_eq!(end + TimeSpan::from_seconds(1), end);
        assert_eq!(Time::ZERO.since(end), TimeSpan::ZERO);
    }
}
