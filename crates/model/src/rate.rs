//! Computed rates. Unlike [`midspan_units::BitRate`], which is an input, a computed rate may be
//! zero and may have a fraction; it is never negative, infinite or not a number.

use std::fmt;

use midspan_units::BitRate;

/// Computed data rate in bit/s of user data: finite, zero or more.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Throughput(f64);

/// Computed packet rate in packets per second: finite, zero or more.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct PacketRate(f64);

/// `value`, or the nearest number that a rate may have.
fn bounded(value: f64) -> f64 {
    if value.is_nan() {
        0.0
    } else {
        value.clamp(0.0, f64::MAX)
    }
}

impl Throughput {
    /// No data gets through.
    pub const ZERO: Self = Self(0.0);

    pub(crate) fn from_f64(bits_per_second: f64) -> Self {
        Self(bounded(bits_per_second))
    }

    /// The rate in bit/s.
    #[must_use]
    pub const fn bits_per_second(self) -> f64 {
        self.0
    }

    /// The rate in Mbit/s.
    #[must_use]
    pub fn megabits_per_second(self) -> f64 {
        self.0 / 1e6
    }

    /// This rate divided by `other`; `None` if `other` is zero.
    #[must_use]
    pub fn ratio(self, other: Self) -> Option<f64> {
        (other.0 > 0.0).then(|| bounded(self.0 / other.0))
    }

    /// The smaller of the two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// The nearest whole rate; `None` below 1 bit/s. Saturates.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn to_bit_rate(self) -> Option<BitRate> {
        // A cast from float to integer saturates.
        BitRate::from_bits_per_second(self.0.round() as u64)
    }
}

impl From<BitRate> for Throughput {
    fn from(rate: BitRate) -> Self {
        Self(rate.bits_per_second() as f64)
    }
}

impl fmt::Display for Throughput {
    /// Prints three decimals of the largest unit in which the number is at least 1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worth, unit) = match self.0 {
            rate if rate >= 1e9 => (1e9, "Gbit/s"),
            rate if rate >= 1e6 => (1e6, "Mbit/s"),
            rate if rate >= 1e3 => (1e3, "kbit/s"),
            _ => (1.0, "bit/s"),
        };
        write!(f, "{:.3} {unit}", self.0 / worth)
    }
}

impl PacketRate {
    /// No packet gets through.
    pub const ZERO: Self = Self(0.0);

    pub(crate) fn from_f64(packets_per_second: f64) -> Self {
        Self(bounded(packets_per_second))
    }

    /// The rate in packets per second.
    #[must_use]
    pub const fn packets_per_second(self) -> f64 {
        self.0
    }

    /// User data rate of packets with `bytes` bytes of data each.
    #[must_use]
    pub fn throughput(self, bytes: u32) -> Throughput {
        Throughput::from_f64(self.0 * f64::from(bytes) * 8.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rate_is_infinite_or_not_a_number() {
        assert_eq!(Throughput::from_f64(f64::NAN).bits_per_second(), 0.0);
        assert!(
            Throughput::from_f64(f64::INFINITY)
                .bits_per_second()
                .is_finite()
        );
        assert_eq!(PacketRate::from_f64(-1.0).packets_per_second(), 0.0);
        assert!(
            PacketRate::from_f64(f64::MAX)
                .throughput(1500)
                .bits_per_second()
                .is_finite()
        );
    }

    #[test]
    fn rates_print_in_the_largest_unit() {
        assert_eq!(
            Throughput::from_f64(799_360.0).to_string(),
            "799.360 kbit/s"
        );
        assert_eq!(Throughput::ZERO.to_string(), "0.000 bit/s");
        assert_eq!(Throughput::ZERO.to_bit_rate(), None);
    }
}
