//! What a user sees of a run.

use std::fmt;

/// Most lines that are kept of a run: a program that prints without end is cut off.
const MOST_LINES: usize = 2000;

/// Lines in order, without times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transcript {
    lines: Vec<String>,
}

impl Transcript {
    /// The lines of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut transcript = Self::default();
        for line in text.lines() {
            transcript.add(line.trim_end().to_owned());
        }
        transcript
    }

    /// One more line.
    pub fn add(&mut self, line: String) {
        if self.lines.len() < MOST_LINES {
            self.lines.push(line);
        }
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(formatter, "    {line}")?;
        }
        Ok(())
    }
}
