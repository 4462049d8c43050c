//! Tables: rows of cells under headed columns, with footnotes.

use std::io::IsTerminal;

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, TableComponent, Width, presets,
};

use crate::text::{clean, columns_taken, wrap};

/// The smallest width in characters; a narrower terminal breaks the lines itself.
const LEAST_WIDTH: u16 = 40;
/// Width at which footnotes are broken if the width is not limited, in characters.
const PIPE_WIDTH: u16 = 100;
/// Space on both sides of a cell.
const PADDING: u16 = 2;

/// The edge at which the cells of a column are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alignment {
    /// For words.
    #[default]
    Left,
    /// For numbers.
    Right,
}

/// A column's heading and alignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub(crate) heading: String,
    pub(crate) alignment: Alignment,
}

/// The content of one row in one column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    pub(crate) text: String,
    /// Less prominent text after the main text, such as a spread.
    pub(crate) aside: String,
    pub(crate) ok: Option<bool>,
    /// Numbers of its footnotes, counted from 1 in the order in which they were first used.
    pub(crate) notes: Vec<usize>,
}

impl Cell {
    /// A cell with a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            text: clean(text),
            ..Self::default()
        }
    }

    /// The same cell with less prominent text after the main text, in brackets: "1.81 (1.79–1.85)".
    #[must_use]
    pub fn with_aside(mut self, aside: &str) -> Self {
        self.aside = clean(aside);
        self
    }

    /// The same cell with the verdict on a stated bound: "pass" or "MISSED".
    #[must_use]
    pub fn with_ok(mut self, ok: Option<bool>) -> Self {
        self.ok = ok;
        self
    }

    /// The word for the verdict, if there is one.
    pub(crate) fn verdict(&self) -> Option<&'static str> {
        self.ok.map(|ok| if ok { "pass" } else { "MISSED" })
    }

    /// The whole cell on one line.
    pub(crate) fn to_text(&self) -> String {
        let mut parts = vec![self.text.clone()];
        if !self.aside.is_empty() {
            parts.push(format!("({})", self.aside));
        }
        parts.extend(self.verdict().map(str::to_owned));
        parts.extend(self.notes.iter().map(|note| format!("[{note}]")));
        parts.retain(|part| !part.is_empty());
        parts.join(" ")
    }
}

/// Text that is written in lines of a given width.
struct Lines {
    text: String,
    width: usize,
}

impl Lines {
    /// Adds `line`, broken between words; the text after a break is indented.
    fn add(&mut self, line: &str, indent: usize) {
        self.text.push_str(&wrap(line, self.width, indent));
        self.text.push('\n');
    }
}

/// Rows of cells under headed columns, with footnotes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// The footnotes.
    pub(crate) notes: Vec<String>,
    /// Remarks on the whole table.
    pub(crate) remarks: Vec<String>,
}

impl Table {
    /// An empty table. The title may be empty.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: clean(title),
            ..Self::default()
        }
    }

    /// Adds a column on the right. Add all columns before the first row.
    pub fn add_column(&mut self, heading: &str, alignment: Alignment) {
        self.columns.push(Column {
            heading: clean(heading),
            alignment,
        });
    }

    /// Adds a row at the bottom. Missing cells are empty; cells beyond the last column are left
    /// out.
    pub fn add_row(&mut self, mut cells: Vec<Cell>) {
        cells.resize(self.columns.len(), Cell::default());
        self.rows.push(cells);
    }

    /// Adds a footnote to `cell`. The same note is printed only once, however often it is used; an
    /// empty note is not printed.
    pub fn add_note(&mut self, cell: &mut Cell, note: &str) {
        let note = clean(note.trim());
        if note.is_empty() {
            return;
        }
        let position = self.notes.iter().position(|known| *known == note);
        let position = position.unwrap_or_else(|| {
            self.notes.push(note);
            self.notes.len() - 1
        });
        if !cell.notes.contains(&(position + 1)) {
            cell.notes.push(position + 1);
        }
    }

    /// Adds a remark on the whole table, which is printed below it; an empty remark is not printed.
    pub fn add_remark(&mut self, remark: &str) {
        let remark = clean(remark.trim());
        if !remark.is_empty() {
            self.remarks.push(remark);
        }
    }

    /// The table as text, with footnotes below, and a final line break.
    ///
    /// With a width (in characters, see [`stdout_width`]), lines are broken between words to fit.
    /// If the table is still too wide, every row becomes a list. Without a width, the table is as
    /// wide as it needs, for pipes and files.
    #[must_use]
    pub fn to_text(&self, width: Option<u16>) -> String {
        let width = width.map(|width| width.max(LEAST_WIDTH));
        let mut lines = Lines {
            text: String::new(),
            width: usize::from(width.unwrap_or(PIPE_WIDTH)),
        };
        if !self.title.is_empty() {
            lines.add(&self.title, 0);
        }
        match width {
            _ if self.columns.is_empty() => {}
            Some(width) if self.least_width() > usize::from(width) => {
                for row in &self.rows {
                    self.add_list(row, &mut lines);
                }
            }
            _ => lines.text.push_str(&self.grid(width)),
        }
        for (position, note) in self.notes.iter().enumerate() {
            lines.add(&format!("[{}] {note}", position + 1), 4);
        }
        for remark in &self.remarks {
            lines.add(remark, 0);
        }
        lines.text
    }

    /// Rows below each other, columns next to each other.
    fn grid(&self, width: Option<u16>) -> String {
        let mut grid = comfy_table::Table::new();
        grid.force_no_tty()
            .load_preset(presets::NOTHING)
            .set_style(TableComponent::HeaderLines, '-')
            .set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = width {
            grid.set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width);
        }
        grid.set_header(self.columns.iter().map(|column| &column.heading));
        for row in &self.rows {
            grid.add_row(row.iter().map(Cell::to_text));
        }
        for (position, column) in self.columns.iter().enumerate() {
            if let Some(styled) = grid.column_mut(position) {
                styled.set_cell_alignment(match column.alignment {
                    Alignment::Left => CellAlignment::Left,
                    Alignment::Right => CellAlignment::Right,
                });
                let least = u16::try_from(self.longest_word(position)).unwrap_or(u16::MAX);
                let least = Width::Fixed(least.saturating_add(PADDING));
                styled.set_constraint(ColumnConstraint::LowerBoundary(least));
            }
        }
        grid.lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect()
    }

    /// A row as a list: its first cell, then each of the others with its heading.
    fn add_list(&self, row: &[Cell], lines: &mut Lines) {
        let mut cells = self.columns.iter().zip(row.iter().map(Cell::to_text));
        if let Some((_, first)) = cells.next() {
            lines.add(&first, 2);
        }
        for (column, text) in cells.filter(|(_, text)| !text.is_empty()) {
            lines.add(&format!("- {}: {text}", column.heading), 4);
        }
    }

    /// The smallest width of the grid without breaking a word.
    fn least_width(&self) -> usize {
        let columns = 0..self.columns.len();
        columns
            .map(|position| self.longest_word(position) + usize::from(PADDING))
            .sum()
    }

    /// The length of the longest word in a column, its heading included.
    fn longest_word(&self, position: usize) -> usize {
        let heading = self
            .columns
            .get(position)
            .map(|column| column.heading.clone());
        let cells = self.rows.iter().filter_map(|row| row.get(position));
        heading
            .into_iter()
            .chain(cells.map(Cell::to_text))
            .filter_map(|text| text.split(' ').map(columns_taken).max())
            .max()
            .unwrap_or(0)
    }
}

/// The width of the terminal on standard output, in characters; `None` if standard output is a pipe
/// or a file.
#[must_use]
pub fn stdout_width() -> Option<u16> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    comfy_table::Table::new().width().or(Some(80))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("Downloads");
        table.add_column("case", Alignment::Left);
        table.add_column("completion time (s)", Alignment::Right);
        let mut missed = Cell::new("13.6").with_aside("13–14").with_ok(Some(false));
        table.add_note(&mut missed, "only two repetitions");
        let mut passed = Cell::new("8.2").with_ok(Some(true));
        table.add_note(&mut passed, "only two repetitions");
        table.add_row(vec![Cell::new("10 MB direct"), missed]);
        table.add_row(vec![Cell::new("10 MB through midspan"), passed]);
        table.add_row(vec![Cell::new("1 MB")]);
        table.add_remark("medians");
        table
    }

    #[test]
    fn a_pipe_gets_plain_columns() {
        let expected = "\
Downloads
 case                       completion time (s)
------------------------------------------------
 10 MB direct           13.6 (13–14) MISSED [1]
 10 MB through midspan             8.2 pass [1]
 1 MB
[1] only two repetitions
medians
";
        assert_eq!(table().to_text(None), expected);
    }

    #[test]
    fn a_terminal_gets_no_line_too_wide_and_whole_words() {
        for width in [0, 1, 40, 41, 50, 60, 200] {
            let text = table().to_text(Some(width));
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(usize::from(width.max(40))), "{text}");
            for word in ["through", "midspan", "completion", "(13–14)", "MISSED"] {
                assert!(text.contains(word), "{width}: {word} in\n{text}");
            }
        }
    }

    #[test]
    fn a_narrow_terminal_gets_lists() {
        let mut table = table();
        table.add_column("an_unbreakable_heading_of_its_own", Alignment::Right);
        let row = ["5 MB", "7", "8"].map(Cell::new).to_vec();
        table.rows = vec![row];
        let expected = "\
Downloads
5 MB
- completion time (s): 7
- an_unbreakable_heading_of_its_own: 8
[1] only two repetitions
medians
";
        assert_eq!(table.to_text(Some(40)), expected);
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        let mut table = Table::new("\u{1b}]0;title\u{7}");
        table.add_column("\u{1b}[2J", Alignment::Left);
        let mut cell = Cell::new("\u{9b}31m");
        table.add_note(&mut cell, "\u{1b}c");
        table.add_row(vec![cell]);
        let text = table.to_text(None) + &table.to_text(Some(80));
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
    }

    #[test]
    fn an_empty_table_is_its_title() {
        assert_eq!(Table::new("nothing").to_text(None), "nothing\n");
        assert_eq!(Table::new("").to_text(Some(80)), "");
    }
}
