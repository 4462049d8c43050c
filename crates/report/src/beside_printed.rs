//! Makes a table from records with the number that a paper prints.

use midspan_records::Record;

use crate::table::{Alignment, Cell, Table};
use crate::units::Scale;

/// Digits shown: one more than any paper prints.
const DIGITS: i32 = 9;

/// A further column: its heading, and the text for each record.
pub type Extra<'a> = (&'a str, &'a dyn Fn(&Record) -> String);

/// A row for each record: the number that a paper prints, the record's own, and their difference; the
/// further columns come before these.
#[must_use]
pub fn beside_printed(title: &str, records: &[Record], extras: &[Extra<'_>]) -> Table {
    let mut table = Table::new(title);
    let extra = extras.iter().map(|(heading, _)| *heading);
    for heading in ["item", "case", "quantity"].into_iter().chain(extra) {
        table.add_column(heading, Alignment::Left);
    }
    for heading in ["paper", "here", "difference"] {
        table.add_column(heading, Alignment::Right);
    }
    for record in records {
        // The paper's own unit prefix for both, so that digits can be compared.
        let scale = Scale::of(record.paper.unwrap_or(record.value), &record.unit);
        let shown = |value: f64| scale.label(&digits(scale.convert(value)));
        let paper = record.paper.map_or_else(String::new, shown);
        let difference = record
            .paper
            .filter(|paper| *paper != 0.0)
            .map_or_else(String::new, |paper| {
                format!("{:+.4} %", (record.value / paper - 1.0) * 100.0)
            });
        let spread = match (record.low, record.high) {
            (Some(low), Some(high)) => format!(" ({}–{})", shown(low), shown(high)),
            _ => String::new(),
        };
        let mut here = Cell::new(&format!("{}{spread}", shown(record.value))).with_ok(record.ok);
        if let Some(note) = &record.note {
            table.add_note(&mut here, note);
        }
        let mut row = vec![
            Cell::new(&record.item),
            Cell::new(&record.case),
            Cell::new(&record.quantity),
        ];
        row.extend(extras.iter().map(|(_, of)| Cell::new(&of(record))));
        row.extend([Cell::new(&paper), here, Cell::new(&difference)]);
        table.add_row(row);
    }
    table
}

/// `value` with nine significant digits, without trailing zeros.
fn digits(value: f64) -> String {
    #[allow(clippy::cast_possible_truncation)]
    let before_point = if value == 0.0 {
        1
    } else {
        libm::log10(value.abs()).floor() as i32 + 1
    };
    let decimals = usize::try_from(DIGITS - before_point).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return text.to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn digits_are_kept_and_empty_zeros_are_not() {
        assert_eq!(digits(2.823_370), "2.82337");
        assert_eq!(digits(180.320_358), "180.320358");
        assert_eq!(digits(800.0), "800");
        assert_eq!(digits(0.0), "0");
        assert_eq!(digits(1e12), "1000000000000");
    }
}
