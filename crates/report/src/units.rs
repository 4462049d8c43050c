//! A number and its unit, formatted for people.
//!
//! Records contain SI base units, bit/s and bytes. People read "1.81 s", "560 ms", "19.2 Mbit/s",
//! "10 MB", "36 %", "1,234". Prefixes are decimal. After the conversion to such a unit, a number is
//! rounded to three significant digits; more than three are kept if they are in front of the decimal
//! point. Zeros at the end of the decimals are left out. Below 10⁻⁶ and from 10¹⁵ on, a number has an
//! exponent.

/// A unit with its prefix, such as Mbit/s, and its worth in the base unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    symbol: String,
    worth: f64,
}

/// From this value on, a number is written with an exponent.
const LARGE: f64 = 1e15;
/// Below this value, a number is written with an exponent.
const SMALL: f64 = 1e-6;

impl Scale {
    /// The scale in which `value` of `unit` has one to three digits before the point, if there is
    /// one. `unit` is a record's: "s", "bit/s", "bytes", "share" (0 to 1, shown in %), "" for a
    /// count; any other unit is kept unchanged.
    #[must_use]
    pub fn of(value: f64, unit: &str) -> Self {
        let rounded = three_digits(value.abs());
        let scales = Self::all(unit);
        let largest_below = scales
            .iter()
            .rev()
            .find(|scale| rounded >= scale.worth)
            .or(scales.first());
        // Zero and values that are not finite have no magnitude: they get the unit without a
        // prefix.
        let base = scales.iter().find(|scale| scale.worth == 1.0);
        let scale = if value == 0.0 || !value.is_finite() {
            base.or(largest_below)
        } else {
            largest_below
        };
        scale.cloned().unwrap_or_else(|| Self::plain(unit))
    }

    /// The scale in which all `values` of `unit` can be compared easily; `None` if they are too far
    /// apart. Values that are not finite do not count.
    #[must_use]
    pub fn common(values: &[f64], unit: &str) -> Option<Self> {
        let sizes: Vec<f64> = sizes(values).collect();
        if sizes.iter().any(|size| !(SMALL..LARGE).contains(size)) {
            return None;
        }
        let mut scales = Self::all(unit);
        if scales.len() == 1 {
            return scales.pop();
        }
        if sizes.is_empty() {
            return Some(Self::of(0.0, unit));
        }
        let fits = |low: f64, high: f64| {
            scales.iter().rev().find(|scale| {
                sizes
                    .iter()
                    .all(|size| (low..high).contains(&three_digits(size / scale.worth)))
            })
        };
        fits(1.0, 1e3).or_else(|| fits(0.1, 1e4)).cloned()
    }

    fn all(unit: &str) -> Vec<Self> {
        let known: &[(&str, f64)] = match unit {
            "s" => &[("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)],
            "bit/s" => &[
                ("bit/s", 1.0),
                ("kbit/s", 1e3),
                ("Mbit/s", 1e6),
                ("Gbit/s", 1e9),
                ("Tbit/s", 1e12),
            ],
            "bytes" => &[
                ("B", 1.0),
                ("KB", 1e3),
                ("MB", 1e6),
                ("GB", 1e9),
                ("TB", 1e12),
            ],
            "share" => &[("%", 0.01)],
            _ => return vec![Self::plain(unit)],
        };
        known
            .iter()
            .map(|&(symbol, worth)| Self {
                symbol: symbol.to_owned(),
                worth,
            })
            .collect()
    }

    fn plain(unit: &str) -> Self {
        Self {
            symbol: crate::text::clean(unit.trim()),
            worth: 1.0,
        }
    }

    /// The unit with its prefix; empty for a count.
    #[must_use]
    pub fn symbol(&self) -> &str {
        &self.symbol
    }

    /// `name` with the unit after it, as the heading of a column or an axis: "completion time (s)".
    #[must_use]
    pub fn heading(&self, name: &str) -> String {
        if self.symbol.is_empty() {
            name.to_owned()
        } else {
            format!("{name} ({})", self.symbol)
        }
    }

    /// `value`, given in the base unit, in this scale.
    #[must_use]
    pub fn convert(&self, value: f64) -> f64 {
        // Dividing by a power of ten below one is less exact than multiplying by its inverse.
        if self.worth < 1.0 {
            value * (1.0 / self.worth).round()
        } else {
            value / self.worth
        }
    }

    /// The number alone, with as many decimals as it needs, or with exactly `decimals`.
    #[must_use]
    pub fn number(&self, value: f64, decimals: Option<usize>) -> String {
        number(self.convert(value), decimals)
    }

    /// The number of decimals with which all `values` can be compared, with the decimal points
    /// aligned.
    #[must_use]
    pub fn decimals(&self, values: &[f64]) -> usize {
        let sizes: Vec<f64> = sizes(values).map(|size| self.convert(size)).collect();
        let needed = sizes.iter().map(|&size| needed_decimals(size)).max();
        let largest = sizes.iter().copied().fold(0.0, f64::max);
        let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        if largest <= 0.0 {
            return 0;
        }
        // Four digits of the largest value suffice, unless that leaves less than two of the
        // smallest.
        let enough = (3 - exponent(largest)).max(1 - exponent(smallest)).max(0);
        let enough = usize::try_from(enough).unwrap_or(0);
        // Ratios of 0.9998 and 1.0003 must not both be printed as 1: their small difference
        // matters.
        let is_ratio = self.symbol.is_empty() && values.iter().any(|value| value.fract() != 0.0);
        if is_ratio {
            return enough;
        }
        needed.unwrap_or(0).min(enough)
    }

    /// `number` with the unit after it.
    #[must_use]
    pub fn label(&self, number: &str) -> String {
        if self.symbol.is_empty() {
            number.to_owned()
        } else {
            format!("{number} {}", self.symbol)
        }
    }
}

/// `value` of `unit` for people: "1.81 s". A value that is not a number is printed as "n/a".
#[must_use]
pub fn format(value: f64, unit: &str) -> String {
    if value.is_nan() {
        return "n/a".to_owned();
    }
    let scale = Scale::of(value, unit);
    scale.label(&scale.number(value, None))
}

/// `value` of `unit` with its spread: "1.81 s (1.79–1.85)". Low and high have the same unit as the
/// value.
#[must_use]
pub fn format_with_spread(value: f64, low: Option<f64>, high: Option<f64>, unit: &str) -> String {
    let scale = Scale::of(value, unit);
    match spread(low, high, &scale, None) {
        Some(spread) => format!("{} ({spread})", format(value, unit)),
        None => format(value, unit),
    }
}

/// "1.79–1.85", or "at least …", "at most …" if one end is unknown.
pub(crate) fn spread(
    low: Option<f64>,
    high: Option<f64>,
    scale: &Scale,
    decimals: Option<usize>,
) -> Option<String> {
    let text = |value: f64| scale.number(value, decimals);
    match (low, high) {
        (Some(low), Some(high)) if low < 0.0 || high < 0.0 => {
            Some(format!("{} to {}", text(low), text(high)))
        }
        (Some(low), Some(high)) => Some(format!("{}–{}", text(low), text(high))),
        (Some(low), None) => Some(format!("at least {}", text(low))),
        (None, Some(high)) => Some(format!("at most {}", text(high))),
        (None, None) => None,
    }
}

fn sizes(values: &[f64]) -> impl Iterator<Item = f64> + '_ {
    values
        .iter()
        .copied()
        .filter(|value| value.is_finite() && *value != 0.0)
        .map(f64::abs)
}

/// `value` rounded to three significant digits, so that 999.9 ms counts as the 1 s that is printed.
fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// The power of ten of `value` when printed with three significant digits.
fn exponent(value: f64) -> i32 {
    let text = format!("{value:.2e}");
    text.split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0)
}

fn needed_decimals(value: f64) -> usize {
    let text = number(value, None);
    text.split_once('.').map_or(0, |(_, digits)| digits.len())
}

fn number(value: f64, decimals: Option<usize>) -> String {
    if value.is_nan() {
        return "n/a".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    if value == 0.0 {
        return format!("{:.*}", decimals.unwrap_or(0).min(9), 0.0);
    }
    if !(SMALL..LARGE).contains(&value.abs()) {
        return scientific(value);
    }
    let digits = decimals.unwrap_or_else(|| {
        let wanted = if value.fract() == 0.0 {
            0
        } else {
            2 - exponent(value)
        };
        usize::try_from(wanted).unwrap_or(0)
    });
    let text = format!("{value:.*}", digits.min(9));
    let text = match decimals {
        None if text.contains('.') => text.trim_end_matches('0').trim_end_matches('.'),
        _ => &text,
    };
    // A number that rounds to zero has no sign.
    let is_zero = text.bytes().all(|b| matches!(b, b'-' | b'0' | b'.'));
    grouped(if is_zero {
        text.trim_start_matches('-')
    } else {
        text
    })
}

fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => {
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{digits}e{exponent}")
        }
        _ => text,
    }
}

/// Commas between thousands.
fn grouped(text: &str) -> String {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (whole, fraction) = match rest.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (rest, String::new()),
    };
    let mut groups = String::new();
    for (position, digit) in whole.chars().enumerate() {
        if position > 0 && (whole.len() - position).is_multiple_of(3) {
            groups.push(',');
        }
        groups.push(digit);
    }
    format!("{sign}{groups}{fraction}")
}

#[cfg(test)]
#[path = "units_tests.rs"]
mod tests;
