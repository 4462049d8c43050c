//! A key over a list or a range of values: `KEY=1 %,2 %,5 %` or `KEY=1 %..5 %:9`.

use std::ops::Range;

use crate::{Located, Override, Source};

/// Largest number of values of one sweep.
const LIMIT: usize = 10_000;

/// A key and the values that it takes one after another.
///
/// Written as a list, `link.satellite.loss=0.1 %,1 %`, or as a range with the number of values,
/// `link.satellite.delay=10 ms..300 ms:30`. With `log` after the number, each value is the same
/// multiple of the previous one, as in `0.01 %..10 %:7log`. The key is that of an [`Override`].
#[derive(Debug, Clone)]
pub struct Sweep {
    key: String,
    values: Vec<(String, Override)>,
}

impl Sweep {
    /// Parses `text`, which has the form `KEY=VALUES`. `origin` is its name in errors, such as
    /// `--sweep`.
    ///
    /// # Errors
    /// The key is wrong, as in [`Override::parse`]; or the values are no list and no range, or too
    /// many.
    pub fn parse(origin: &str, text: &str) -> Result<Self, Located> {
        let whole = Override::parse(origin, text)?;
        let source = Source::new(origin, text);
        let (key, place) = (whole.key().to_owned(), whole.value_span());
        let written = text.get(place.clone()).unwrap_or_default();
        let values = values(&source, written, place)?
            .into_iter()
            .map(|value| {
                let one = Override::parse(origin, &format!("{key}={value}"))?;
                Ok((value, one))
            })
            .collect::<Result<_, Located>>()?;
        Ok(Self { key, values })
    }

    /// The dotted key, as typed.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The values as text, each with the override that sets it.
    #[must_use]
    pub fn values(&self) -> &[(String, Override)] {
        &self.values
    }
}

/// The values that `written` describes.
fn values(source: &Source, written: &str, place: Range<usize>) -> Result<Vec<String>, Located> {
    let error = |problem: &str| Located::new(source, place.clone(), problem);
    let values = match written.split_once("..") {
        Some((from, rest)) => range(from, rest).ok_or_else(|| {
            error(
                "is no range: write FROM..TO:COUNT or FROM..TO:COUNTlog with the same unit at \
                 both ends, as in \"10 ms..300 ms:30\"; at least 2 and at most 10,000 values",
            )
        })?,
        None => written
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect(),
    };
    if values.len() > LIMIT || values.iter().any(String::is_empty) {
        return Err(error(
            "is no list: write KEY=A,B,C with at most 10,000 values",
        ));
    }
    Ok(values)
}

fn range(from: &str, rest: &str) -> Option<Vec<String>> {
    let (to, count) = rest.rsplit_once(':')?;
    let (count, log) = match count.trim().strip_suffix("log") {
        Some(count) => (count, true),
        None => (count, false),
    };
    let count: u32 = count.trim().parse().ok()?;
    let ((from, unit), (to, same)) = (split(from)?, split(to)?);
    let fits = (2..=LIMIT as u64).contains(&u64::from(count)) && unit == same;
    if !fits || (log && (from <= 0.0 || to <= 0.0)) {
        return None;
    }
    let at = |index: u32| {
        let share = f64::from(index) / f64::from(count - 1);
        let value = match index {
            0 => from,
            _ if index == count - 1 => to,
            _ if log => from * libm::pow(to / from, share),
            _ => from + (to - from) * share,
        };
        // Nine digits: values between the two ends should be readable rather than exact.
        let rounded: f64 = format!("{value:.8e}").parse().unwrap_or(value);
        format!("{rounded}{unit}")
    };
    Some((0..count).map(at).collect())
}

/// A number and the text after it.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|character: char| !(character.is_ascii_digit() || character == '.'))
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, &text[end..]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        let sweep = Sweep::parse("--sweep", text).unwrap();
        sweep
            .values()
            .iter()
            .map(|(value, _)| value.clone())
            .collect()
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(values("a.b=1 %, 2 %"), ["1 %", "2 %"]);
        assert_eq!(values("a=5"), ["5"]);
        assert_eq!(
            values("a=1 Mbit/s..3 Mbit/s:3"),
            ["1 Mbit/s", "2 Mbit/s", "3 Mbit/s"]
        );
        assert_eq!(
            values("a=0.0001..0.1:4log"),
            ["0.0001", "0.001", "0.01", "0.1"]
        );
        assert_eq!(values("a=0 ms..1 ms:4")[1], "0.333333333 ms");
        let sweep = Sweep::parse("--sweep", " link.a.b = 1,2").unwrap();
        assert_eq!(sweep.key(), "link.a.b");
    }

    #[test]
    fn what_is_no_sweep_is_refused_at_its_place() {
        for text in [
            "",
            "a",
            "=1",
            "a=",
            "a=1,,2",
            "a=1..2",
            "a=1..2:1",
            "a=1 s..2 ms:3",
            "a=0..1:3log",
            "a=1..2:10001",
            "a=x..y:3",
        ] {
            assert!(Sweep::parse("--sweep", text).is_err(), "{text}");
        }
        let error = Sweep::parse("--sweep", "a.b=1,,2").unwrap_err();
        assert_eq!(
            error.to_string(),
            "--sweep:1:5: is no list: write KEY=A,B,C with at most 10,000 values"
        );
    }
}
