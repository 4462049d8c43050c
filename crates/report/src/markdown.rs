//! Tables as Markdown, for documents.

use std::fmt::Write as _;

use crate::table::{Alignment, Cell, Table};

impl Table {
    /// The table as Markdown, without its title, with footnotes and remarks as lists below it.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let headings = self.columns.iter().map(|column| escape(&column.heading));
        let rules = self.columns.iter().map(|column| match column.alignment {
            Alignment::Left => "---".to_owned(),
            Alignment::Right => "---:".to_owned(),
        });
        let mut text = line(headings) + &line(rules);
        for row in &self.rows {
            text += &line(row.iter().map(|cell| escape(&Cell::to_text(cell))));
        }
        for (index, note) in self.notes.iter().enumerate() {
            let gap = if index == 0 { "\n" } else { "" };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{gap}- \\[{}] {}", index + 1, escape(note));
        }
        for (index, remark) in self.remarks.iter().enumerate() {
            let gap = if index == 0 { "\n" } else { "" };
            let _ = writeln!(text, "{gap}- {}", escape(remark));
        }
        text
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text with Markdown's special characters escaped.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if matches!(c, '|' | '\\' | '*' | '_' | '`' | '<' | '>' | '[' | '#') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_notes() {
        let mut table = Table::new("Sessions");
        table.add_column("case", Alignment::Left);
        table.add_column("a|b", Alignment::Right);
        let mut cell = Cell::new("DIFFERS");
        table.add_note(&mut cell, "a *clean* end");
        table.add_row(vec![Cell::new("reset"), cell]);
        table.add_row(vec![Cell::new("refused")]);
        table.add_remark("one run");
        let expected = "\
| case | a\\|b |
| --- | ---: |
| reset | DIFFERS \\[1] |
| refused |  |

- \\[1] a \\*clean\\* end

- one run
";
        assert_eq!(table.to_markdown(), expected);
    }
}
