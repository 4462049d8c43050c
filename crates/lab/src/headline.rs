//! The result of a lab run in one sentence.

use midspan_records::Record;

/// The quantity of a ratio of completion times.
pub(crate) const RATIO: &str = "completion time ratio";

/// The range of the ratios of completion times between Midspan and plain routing, and how many
/// flows were slower; empty if the records have no such ratio.
///
/// A ratio that is above 1 only in its third digit is not counted as slower, because the sentence
/// does not show that digit.
#[must_use]
pub fn headline(records: &[Record]) -> String {
    let ratios: Vec<(&str, f64)> = records
        .iter()
        .filter(|record| record.quantity == RATIO && record.value.is_finite())
        .filter_map(|record| Some((record.case.strip_suffix(" / direct")?, record.value)))
        .collect();
    let Some((first, _)) = ratios.first() else {
        return String::new();
    };
    let least = ratios
        .iter()
        .map(|(_, ratio)| *ratio)
        .fold(f64::NAN, f64::min);
    let greatest = ratios
        .iter()
        .map(|(_, ratio)| *ratio)
        .fold(f64::NAN, f64::max);
    let range = match (shown(least), shown(greatest)) {
        (least, greatest) if least == greatest => least,
        (least, greatest) => format!("{least}–{greatest}"),
    };
    let slower = ratios.iter().filter(|(_, ratio)| is_slower(*ratio)).count();
    if let [_] = ratios.as_slice() {
        let flow = first.rsplit_once(' ').map_or(*first, |(flow, _)| flow);
        let verdict = if slower > 0 { ": slower" } else { "" };
        return format!("Through Midspan, {flow} took {range} of the time without it{verdict}.");
    }
    let verdict = match slower {
        0 => "none slower".to_owned(),
        slower => format!("{slower} of {} slower", ratios.len()),
    };
    format!(
        "Through Midspan, {} flows took {range} of the time without it; {verdict}.",
        ratios.len()
    )
}

/// A ratio as the sentence shows it.
fn shown(ratio: f64) -> String {
    format!("{ratio:.2}")
}

fn is_slower(ratio: f64) -> bool {
    ratio >= 1.005
}

#[cfg(test)]
mod tests {
    use midspan_records::By;

    use super::*;

    fn sentence(ratios: &[(&str, f64)]) -> String {
        let records: Vec<Record> = ratios
            .iter()
            .map(|(case, ratio)| Record::new("geo", case, RATIO, "", By::Lab, *ratio))
            .collect();
        headline(&records)
    }

    #[test]
    fn one_gain_does_not_hide_five_losses() {
        assert_eq!(
            sentence(&[
                ("a midspan / direct", 0.51),
                ("b midspan / direct", 1.2),
                ("c midspan / direct", 1.31),
                ("d midspan / direct", 1.01),
                ("e midspan / direct", 1.1),
                ("f midspan / direct", 1.06),
            ]),
            "Through Midspan, 6 flows took 0.51–1.31 of the time without it; 5 of 6 slower."
        );
    }

    #[test]
    fn the_sentence_has_the_range_and_what_was_slower() {
        assert_eq!(
            sentence(&[("a midspan / direct", 0.514), ("b midspan / direct", 0.9)]),
            "Through Midspan, 2 flows took 0.51–0.90 of the time without it; none slower."
        );
        assert_eq!(
            sentence(&[("a midspan / direct", 1.001), ("b midspan / direct", 0.999)]),
            "Through Midspan, 2 flows took 1.00 of the time without it; none slower."
        );
        assert_eq!(
            sentence(&[
                ("1 MB midspan / direct", 0.72),
                ("1 MB midspan / haproxy", 3.0)
            ]),
            "Through Midspan, 1 MB took 0.72 of the time without it."
        );
        assert_eq!(
            sentence(&[("1 MB midspan / direct", 1.34)]),
            "Through Midspan, 1 MB took 1.34 of the time without it: slower."
        );
    }

    #[test]
    fn without_a_comparison_there_is_no_sentence() {
        assert_eq!(sentence(&[("1 MB midspan / haproxy", 0.9)]), "");
        assert_eq!(sentence(&[("1 MB midspan / direct", f64::NAN)]), "");
        assert_eq!(sentence(&[]), "");
    }
}
