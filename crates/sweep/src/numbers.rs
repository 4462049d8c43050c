//! Swept values as numbers.

use midspan_document::Sweep;
use midspan_units::si_value;

/// The name of the column that has the values of a swept key as numbers, such as
/// "link.satellite.delay (s)". `None` unless all values are quantities of one unit.
#[must_use]
pub fn column_of(sweep: &Sweep) -> Option<String> {
    let values = sweep.values().iter();
    let mut units: Vec<&str> = values
        .map(|(text, _)| Some(si_value(text)?.1))
        .collect::<Option<_>>()?;
    // A share may be written without "%", too.
    if units.contains(&"share") {
        units.retain(|unit| !unit.is_empty());
    }
    units.dedup();
    match units.as_slice() {
        [""] => Some(format!("{} (number)", sweep.key())),
        [unit] => Some(format!("{} ({unit})", sweep.key())),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_one_unit_have_a_column() {
        for (text, expected) in [
            ("a=10 ms,1 s", Some("a (s)")),
            ("a.b=1,2", Some("a.b (number)")),
            ("a=1 %", Some("a (share)")),
            ("a=0.1,1 %,0.2", Some("a (share)")),
            ("a=1,2 s", None),
            ("a=1 s,1 Mbit/s", None),
            ("a=cubic,bbr", None),
        ] {
            let sweep = Sweep::parse("--sweep", text).unwrap();
            assert_eq!(column_of(&sweep).as_deref(), expected, "{text}");
        }
    }
}
