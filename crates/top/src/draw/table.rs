//! A table with a selected row, of which as much is made as fits.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Cell, Row, Table};

/// A column: its heading, and its width.
pub(crate) type Column = (&'static str, u16);

/// The rows that fit: the number of the first one, and how many.
pub(crate) fn room(area: Rect, selected: usize) -> (usize, usize) {
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    (selected.saturating_sub(room - 1), room)
}

/// Draws the rows, of which the first has the number `first`. The last column takes the rest of the
/// width.
pub(crate) fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    columns: &[Column],
    rows: Vec<Vec<String>>,
    (first, selected): (usize, usize),
) {
    let names = columns.iter().map(|(name, _)| *name);
    let header = Row::new(names).style(Style::new().add_modifier(Modifier::BOLD));
    let rows = rows.into_iter().enumerate().map(|(place, cells)| {
        let row = Row::new(cells.into_iter().map(Cell::from));
        match first + place == selected {
            true => row.style(Style::new().add_modifier(Modifier::REVERSED)),
            false => row,
        }
    });
    let last = columns.len().saturating_sub(1);
    let widths = columns
        .iter()
        .enumerate()
        .map(|(place, (_, width))| match place == last {
            true => Constraint::Min(*width),
            false => Constraint::Length(*width),
        });
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

/// The beginning and the end of a text, which distinguish addresses and ports.
pub(crate) fn shorten(text: &str, room: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(1);
    let end = letters.len() - kept / 2;
    let start = letters.iter().take(kept - kept / 2);
    start.chain(&['…']).chain(&letters[end..]).collect()
}
