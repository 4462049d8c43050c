//! Numbers with units, in few columns. `–` stands for an unknown value.

/// An unknown value.
pub const UNKNOWN: &str = "–";

/// A rate, such as `48.2 Mbit/s`.
#[must_use]
pub fn rate(bits_per_second: Option<u64>) -> String {
    bits_per_second.map_or_else(unknown, |rate| {
        scaled(
            rate,
            1000,
            &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
        )
    })
}

/// A size, such as `3.1 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    scaled(bytes, 1024, &["B", "KiB", "MiB", "GiB", "TiB"])
}

fn scaled(value: u64, base: u64, units: &[&str]) -> String {
    #[allow(clippy::cast_precision_loss)]
    let (mut value, base) = (value as f64, base as f64);
    let mut place = 0;
    // What would be shown as 1000 has the next unit.
    while value >= base.min(999.5) && place + 1 < units.len() {
        value /= base;
        place += 1;
    }
    let unit = units.get(place).unwrap_or(&"");
    match place {
        0 => format!("{value:.0} {unit}"),
        _ if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A time in milliseconds, such as `742` or `0.3`.
#[must_use]
pub fn milliseconds(seconds: Option<f64>) -> String {
    match seconds.map(|seconds| seconds * 1e3) {
        None => unknown(),
        Some(time) if time < 9.95 => format!("{time:.1}"),
        Some(time) => format!("{time:.0}"),
    }
}

/// A share, such as `0.31 %`.
#[must_use]
pub fn percent(share: Option<f64>) -> String {
    match share.map(|share| share * 100.0) {
        None => unknown(),
        Some(0.0) => "0 %".to_owned(),
        Some(share) if share < 0.01 => "<0.01 %".to_owned(),
        Some(share) if share < 0.995 => format!("{share:.2} %"),
        Some(share) if share < 9.95 => format!("{share:.1} %"),
        Some(share) => format!("{share:.0} %"),
    }
}

/// A number with commas, such as `1,284`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A long time, such as `12 d` or `41 s`.
#[must_use]
pub fn age(seconds: f64) -> String {
    let (value, unit) = match seconds {
        seconds if seconds < 120.0 => (seconds, "s"),
        seconds if seconds < 7200.0 => (seconds / 60.0, "min"),
        seconds if seconds < 172_800.0 => (seconds / 3600.0, "h"),
        seconds => (seconds / 86_400.0, "d"),
    };
    format!("{:.0} {unit}", value.floor())
}

/// How often something happened in a second: `41/s`, `0.2/s`.
#[must_use]
pub fn per_second(number: f64) -> String {
    match number {
        0.0 => "0/s".to_owned(),
        number if number < 9.95 => format!("{number:.1}/s"),
        number => format!("{number:.0}/s"),
    }
}

/// A line of bars, one for each value, the highest for the largest.
#[must_use]
pub fn bars(values: impl IntoIterator<Item = u64> + Clone) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.clone().into_iter().max().unwrap_or(0).max(1);
    let bar = |value: u64| {
        let place = u128::from(value) * 8 / u128::from(most);
        let place = usize::try_from(place).unwrap_or(7).min(7);
        BARS.get(place).copied().unwrap_or(' ')
    };
    values.into_iter().map(bar).collect()
}

fn unknown() -> String {
    UNKNOWN.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_into_few_columns() {
        for (bits, text) in [
            (0, "0 bit/s"),
            (999, "999 bit/s"),
            (1000, "1.0 kbit/s"),
            (999_499, "999 kbit/s"),
            (999_500, "1.0 Mbit/s"),
            (48_249_999, "48.2 Mbit/s"),
            (99_960_000, "100 Mbit/s"),
            (u64::MAX, "18446744 Tbit/s"),
        ] {
            assert_eq!(rate(Some(bits)), text);
        }
        assert_eq!(rate(None), "–");
        assert_eq!(
            (bytes(1023), bytes(3 << 20)),
            ("1.0 KiB".to_owned(), "3.0 MiB".to_owned())
        );
        assert_eq!(milliseconds(Some(0.000_31)), "0.3");
        assert_eq!(milliseconds(Some(0.7423)), "742");
        assert_eq!(percent(Some(0.0031)), "0.31 %");
        assert_eq!(percent(Some(0.000_001)), "<0.01 %");
        assert_eq!(percent(Some(0.0)), "0 %");
        assert_eq!(
            (count(999), count(1284), count(1_000_000)),
            ("999".to_owned(), "1,284".to_owned(), "1,000,000".to_owned())
        );
        assert_eq!(
            (age(41.9), age(3600.0), age(1e6)),
            ("41 s".to_owned(), "60 min".to_owned(), "11 d".to_owned())
        );
        assert_eq!(bars([0, 1, 4, 8]), "▁▂▅█");
        assert_eq!(bars([0, 0]), "▁▁");
        assert_eq!(bars([]), "");
    }
}
