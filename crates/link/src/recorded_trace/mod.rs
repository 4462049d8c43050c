//! Recorded traces, as texts: delivery opportunities of Mahimahi, or a table of changes.

mod opportunities;
mod table;

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use midspan_units::BitRate;

use crate::schedule::Schedule;
pub use opportunities::Opportunities;
pub(crate) use opportunities::Position;
use table::Table;

/// Longest line in bytes; a valid one is far shorter.
const LONGEST_LINE: usize = 1024;

/// The lowest rate that exists.
const LOWEST_RATE: BitRate = match BitRate::from_bits_per_second(1) {
    Some(rate) => rate,
    None => unreachable!(),
};

/// What was recorded of one direction of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedTrace {
    /// When packets could be delivered: the format of Mahimahi's `mm-link`.
    Opportunities(Opportunities),
    /// Rate, delay and loss over time: a table with commas. The schedule begins at zero and
    /// repeats, unless it has one step only; its first step sets the same values as the others.
    Changes(Schedule),
}

/// The recorded trace that a direction of a link replays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// SHA-256 of its content, in hexadecimal digits.
    pub sha256: Arc<str>,
    /// When packets leave; `None` for a table, whose changes are the schedule of the direction.
    pub opportunities: Option<Arc<Opportunities>>,
}

/// Why a text is no recorded trace, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct TraceError {
    /// The place, in bytes of the text.
    pub place: Range<usize>,
    /// The problem, and what to do.
    pub problem: String,
}

impl TraceError {
    fn new(place: Range<usize>, problem: impl Display) -> Self {
        Self {
            place,
            problem: problem.to_string(),
        }
    }
}

impl RecordedTrace {
    /// Reads a trace. If its first line is a number, each line is a delivery opportunity: a whole
    /// number of milliseconds since the start. Otherwise the first line names the columns of a
    /// table, as in `time (s),rate (Mbit/s),delay (ms),loss (%)`.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let is_long = |line: &Part<'_>| line.text.len() > LONGEST_LINE;
        if let Some(Part { start, .. }) = lines(text).find(is_long) {
            let problem = format!("a line longer than {LONGEST_LINE} bytes");
            return Err(TraceError::new(start..start, problem));
        }
        match lines(text).next() {
            None => Err(TraceError::new(0..0, "the trace is empty")),
            Some(first) if first.text.starts_with(|sign: char| sign.is_ascii_digit()) => {
                Opportunities::parse(lines(text)).map(Self::Opportunities)
            }
            Some(header) => Table::parse(header, lines(text).skip(1)).map(Self::Changes),
        }
    }
}

/// A part of the text, and where it begins.
#[derive(Debug, Clone, Copy)]
struct Part<'a> {
    start: usize,
    text: &'a str,
}

impl<'a> Part<'a> {
    fn place(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    fn error(&self, problem: impl Display) -> TraceError {
        TraceError::new(self.place(), problem)
    }

    /// The part without white space at its ends.
    fn trimmed(&self) -> Part<'a> {
        let text = self.text.trim_start();
        Part {
            start: self.start + (self.text.len() - text.len()),
            text: text.trim_end(),
        }
    }

    /// The parts between commas.
    fn cells(self) -> impl Iterator<Item = Part<'a>> {
        let mut start = self.start;
        self.text.split(',').map(move |text| {
            let cell = Part { start, text };
            start += text.len() + 1;
            cell.trimmed()
        })
    }
}

/// The lines, without their ends. A mark of the byte order before the first one is left out.
fn lines(text: &str) -> impl Iterator<Item = Part<'_>> {
    const BYTE_ORDER_MARK: char = '\u{feff}';
    let marked = text.strip_prefix(BYTE_ORDER_MARK);
    let mut start = marked.map_or(0, |_| BYTE_ORDER_MARK.len_utf8());
    let lines = marked.unwrap_or(text).split_inclusive('\n');
    lines.map(move |line| {
        let part = Part {
            start,
            text: line.trim_end_matches(['\n', '\r']),
        };
        start += line.len();
        part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the text is refused: the text at the place of the error, and a part of its
    /// message.
    #[track_caller]
    pub(super) fn assert_error(text: &str, place: &str, problem: &str) {
        let error = RecordedTrace::parse(text).unwrap_err();
        let message = error.to_string();
        assert_eq!(&text[error.place], place, "{message}");
        assert!(message.contains(problem), "{message}");
    }

    #[test]
    fn a_text_without_a_trace_is_refused() {
        assert_error("", "", "empty");
        assert_error("-5\n", "-5", "neither a number");
        let long = format!("1\n{}\n", "1".repeat(1025));
        assert_error(&long, "", "longer than 1024 bytes");
    }
}
