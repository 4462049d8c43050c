//! Makes a table from records: one row per case, one column per quantity.

use std::collections::BTreeMap;

use midspan_records::Record;

use crate::table::{Alignment, Cell, Table};
use crate::units::{self, Scale};

/// One row per case, one column per quantity, both in the order in which they first appear.
///
/// If all values of a column share a unit, its heading contains the unit. Items and methods of
/// measurement get separate columns if there is more than one. Notes become footnotes.
#[must_use]
pub fn pivot(title: &str, records: &[Record]) -> Table {
    let quantities = distinct(records.iter().map(|record| record.quantity.as_str()));
    pivot_of(title, records, &quantities)
}

/// Like [`pivot`], with these quantities in this order; a quantity that no record has is left out.
#[must_use]
pub fn pivot_of(title: &str, records: &[Record], quantities: &[&str]) -> Table {
    let records: Vec<&Record> = records
        .iter()
        .filter(|record| quantities.contains(&record.quantity.as_str()))
        .collect();
    let columns: Vec<QuantityColumn> = distinct(quantities.iter().copied())
        .into_iter()
        .filter_map(|quantity| QuantityColumn::new(quantity, &records))
        .collect();
    let keys = KeyColumns::new(&records);
    let note_of_all = note_of_all(&records);

    let mut table = Table::new(title);
    table.add_remark(note_of_all.unwrap_or_default());
    keys.add_to(&mut table);
    for column in &columns {
        table.add_column(&column.heading(), Alignment::Right);
    }
    for (key, of_row) in rows(&records) {
        let mut cells = keys.cells(key);
        for column in &columns {
            cells.push(column.cell(&of_row, note_of_all, &mut table));
        }
        table.add_row(cells);
    }
    table
}

/// The records of each row, in the order in which the rows first appear.
fn rows<'a>(records: &[&'a Record]) -> Vec<(RowKey<'a>, Vec<&'a Record>)> {
    let mut positions: BTreeMap<RowKey, usize> = BTreeMap::new();
    let mut rows: Vec<(RowKey, Vec<&Record>)> = Vec::new();
    for record in records {
        let key = RowKey::of(record);
        let position = *positions.entry(key).or_insert(rows.len());
        match rows.get_mut(position) {
            Some((_, of_row)) => of_row.push(record),
            None => rows.push((key, vec![record])),
        }
    }
    rows
}

/// The common key of the records of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey<'a> {
    item: &'a str,
    case: &'a str,
    by: &'static str,
}

impl<'a> RowKey<'a> {
    fn of(record: &'a Record) -> Self {
        Self {
            item: &record.item,
            case: &record.case,
            by: record.by.name(),
        }
    }
}

/// The parts of the key that must be shown to distinguish the rows.
struct KeyColumns {
    item: bool,
    case: bool,
    by: bool,
}

impl KeyColumns {
    fn new(records: &[&Record]) -> Self {
        let varies = |differs: fn(&Record, &Record) -> bool| {
            records.windows(2).any(|pair| differs(pair[0], pair[1]))
        };
        let item = varies(|a, b| a.item != b.item);
        Self {
            item,
            case: !item || records.iter().any(|record| !record.case.is_empty()),
            by: varies(|a, b| a.by != b.by),
        }
    }

    fn add_to(&self, table: &mut Table) {
        let shown = [(self.item, "item"), (self.case, "case"), (self.by, "by")];
        for (_, heading) in shown.into_iter().filter(|(shown, _)| *shown) {
            table.add_column(heading, Alignment::Left);
        }
    }

    fn cells(&self, row: RowKey) -> Vec<Cell> {
        let shown = [
            (self.item, row.item),
            (self.case, row.case),
            (self.by, row.by),
        ];
        let shown = shown.into_iter().filter(|(shown, _)| *shown);
        shown.map(|(_, text)| Cell::new(text)).collect()
    }
}

/// A quantity and the format of its values.
struct QuantityColumn<'a> {
    quantity: &'a str,
    /// The scale and decimals for all values, or `None`: then every cell has its own.
    shared: Option<(Scale, usize)>,
}

impl<'a> QuantityColumn<'a> {
    /// `None` if no record has the quantity.
    fn new(quantity: &'a str, records: &[&Record]) -> Option<Self> {
        let of_quantity = || records.iter().filter(|record| record.quantity == quantity);
        let unit = &of_quantity().next()?.unit;
        let values: Vec<f64> = of_quantity()
            .flat_map(|record| [Some(record.value), record.paper])
            .flatten()
            .collect();
        let shared = if of_quantity().all(|record| record.unit == *unit) {
            Scale::common(&values, unit)
        } else {
            None
        };
        Some(Self {
            quantity,
            shared: shared.map(|scale| {
                let decimals = scale.decimals(&values);
                (scale, decimals)
            }),
        })
    }

    fn heading(&self) -> String {
        match &self.shared {
            Some((scale, _)) => scale.heading(self.quantity),
            None => self.quantity.to_owned(),
        }
    }

    /// The records of one row for this quantity; if there are several, all are shown.
    fn cell(&self, of_row: &[&Record], note_of_all: Option<&str>, table: &mut Table) -> Cell {
        let mine: Vec<&Record> = of_row
            .iter()
            .copied()
            .filter(|record| record.quantity == self.quantity)
            .collect();
        let cell = match mine.as_slice() {
            [] => Cell::new("–"),
            [only] => {
                let (value, aside) = self.texts(only);
                Cell::new(&value).with_aside(&aside)
            }
            several => {
                let texts = several.iter().map(|record| match self.texts(record) {
                    (value, aside) if aside.is_empty() => value,
                    (value, aside) => format!("{value} ({aside})"),
                });
                Cell::new(&texts.collect::<Vec<_>>().join("; "))
            }
        };
        let verdict = mine
            .iter()
            .filter_map(|record| record.ok)
            .reduce(|a, b| a && b);
        let mut cell = cell.with_ok(verdict);
        let notes = mine.iter().filter_map(|record| record.note.as_deref());
        for note in notes.filter(|note| Some(*note) != note_of_all) {
            table.add_note(&mut cell, note);
        }
        cell
    }

    /// The value, and the additional text after it.
    fn texts(&self, record: &Record) -> (String, String) {
        let own;
        let (scale, decimals, value) = match &self.shared {
            Some((scale, decimals)) => {
                let value = scale.number(record.value, Some(*decimals));
                (scale, Some(*decimals), value)
            }
            None => {
                own = Scale::of(record.value, &record.unit);
                (&own, None, units::format(record.value, &record.unit))
            }
        };
        let spread = units::spread(record.low, record.high, scale, decimals);
        let paper = record
            .paper
            .map(|paper| format!("paper {}", scale.number(paper, decimals)));
        let aside: Vec<String> = [spread, paper].into_iter().flatten().collect();
        (value, aside.join("; "))
    }
}

/// The note that all records share, if there is one and there are several records.
fn note_of_all<'a>(records: &[&'a Record]) -> Option<&'a str> {
    let (first, others) = records.split_first()?;
    let same = others.iter().all(|record| record.note == first.note);
    first.note.as_deref().filter(|_| same && !others.is_empty())
}

/// The values in the order of their first appearance, each once.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use midspan_records::By;

    use super::*;

    fn record(case: &str, quantity: &str, unit: &str, value: f64) -> Record {
        Record::new("geo", case, quantity, unit, By::Lab, value)
    }

    fn cell_texts(table: &Table) -> Vec<Vec<String>> {
        table
            .rows
            .iter()
            .map(|row| row.iter().map(Cell::to_text).collect())
            .collect()
    }

    fn headings(table: &Table) -> Vec<&str> {
        table
            .columns
            .iter()
            .map(|column| column.heading.as_str())
            .collect()
    }

    #[test]
    fn cases_are_rows_and_quantities_columns() {
        let records = [
            record("direct", "completion time", "s", 13.6).with_spread(13.1, 14.2),
            record("direct", "goodput", "bit/s", 5.88e6),
            record("midspan", "completion time", "s", 8.25),
        ];
        let table = pivot("", &records);
        assert_eq!(
            headings(&table),
            ["case", "completion time (s)", "goodput (Mbit/s)"]
        );
        assert_eq!(
            cell_texts(&table),
            [
                ["direct", "13.60 (13.10–14.20)", "5.88"],
                ["midspan", "8.25", "–"]
            ]
        );
    }

    #[test]
    fn values_far_apart_keep_their_own_units() {
        let records = [
            record("a", "delay", "s", 350e-6),
            record("b", "delay", "s", 13.6),
        ];
        let table = pivot("", &records);
        assert_eq!(headings(&table), ["case", "delay"]);
        assert_eq!(cell_texts(&table), [["a", "350 µs"], ["b", "13.6 s"]]);
    }

    #[test]
    fn fields_that_distinguish_rows_are_shown() {
        let mut simulated = record("a", "delay", "s", 1.0);
        simulated.by = By::Simulation;
        simulated.paper = Some(1.2);
        let mut other = record("a", "delay", "s", 2.0);
        other.item = "leo".to_owned();
        let table = pivot("", &[record("a", "delay", "s", 3.0), simulated, other]);
        assert_eq!(headings(&table), ["item", "case", "by", "delay (s)"]);
        assert_eq!(
            cell_texts(&table),
            [
                ["geo", "a", "lab", "3.0"],
                ["geo", "a", "simulation", "1.0 (paper 1.2)"],
                ["leo", "a", "lab", "2.0"],
            ]
        );
    }

    #[test]
    fn verdicts_and_notes_are_kept() {
        let records = [
            record("a", "rate", "bit/s", 2e6).with_ok(true),
            record("a", "rate", "bit/s", 3e6)
                .with_ok(false)
                .with_note("late"),
        ];
        let table = pivot("", &records);
        let cell = &table.rows[0][1];
        assert_eq!((cell.text.as_str(), cell.ok), ("2; 3", Some(false)));
        assert_eq!(cell.notes, [1]);
        assert_eq!(table.notes, ["late"]);
    }

    #[test]
    fn a_note_of_all_records_is_shown_once() {
        let records = [
            record("a", "x", "", 1.0).with_note("made up"),
            record("b", "x", "", 1.0).with_note("made up"),
        ];
        let table = pivot("", &records);
        assert_eq!(
            (table.notes.len(), table.remarks.as_slice()),
            (0, ["made up".to_owned()].as_slice())
        );
        let table = pivot("", &records[..1]);
        assert_eq!((table.notes.len(), table.remarks.len()), (1, 0));
    }

    #[test]
    fn chosen_quantities_come_in_the_chosen_order() {
        let records = [record("a", "x", "", 1.0), record("a", "y", "", 2.0)];
        let table = pivot_of("", &records, &["y", "z", "x", "y"]);
        assert_eq!(headings(&table), ["case", "y", "x"]);
        assert_eq!(pivot("", &[]).rows.len(), 0);
    }
}
