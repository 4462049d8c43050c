//! Numbers of any quantity in one unit, for programs that read results.

use crate::{BitRate, ByteSize, Probability, TimeSpan, number};

/// The value of a written quantity in its SI base unit ("bit/s", "bytes", "s" or "share"), and this unit. A
/// number without a unit has an empty unit. `None` if the text is not a quantity.
///
/// ```
/// # use midspan_units::si_value;
/// assert_eq!(si_value("10 ms"), Some((0.01, "s")));
/// assert_eq!(si_value("2 %"), Some((0.02, "share")));
/// assert_eq!(si_value("cubic"), None);
/// ```
#[must_use]
pub fn si_value(text: &str) -> Option<(f64, &'static str)> {
    if let Ok(plain) = text.trim().parse::<f64>() {
        return plain.is_finite().then_some((plain, ""));
    }
    if let Ok(time) = text.parse::<TimeSpan>() {
        return Some((time.as_seconds(), "s"));
    }
    if let Ok(rate) = text.parse::<BitRate>() {
        return Some((number(rate.bits_per_second()), "bit/s"));
    }
    if let Ok(size) = text.parse::<ByteSize>() {
        return Some((number(size.bytes()), "bytes"));
    }
    let probability = text.parse::<Probability>().ok()?;
    Some((probability.as_f64(), "share"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quantity_has_one_unit() {
        for (text, value, unit) in [
            ("1.5 Mbit/s", 1_500_000.0, "bit/s"),
            ("64 KiB", 65_536.0, "bytes"),
            ("250 ms", 0.25, "s"),
            ("0.1 %", 0.001, "share"),
            ("200", 200.0, ""),
            (" 0.5 ", 0.5, ""),
        ] {
            assert_eq!(si_value(text), Some((value, unit)), "{text}");
        }
        for text in ["", "bbr", "inf", "NaN", "10 packets", "1 parsec"] {
            assert_eq!(si_value(text), None, "{text}");
        }
    }
}
