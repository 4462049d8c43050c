//! The results of a run that a user sees.

use std::fmt;

/// Most lines kept of a run; the rest of a longer output is cut off.
const MOST_LINES: usize = 2000;

/// Lines in order, without times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transcript {
    lines: Vec<String>,
}

impl Transcript {
    /// A transcript with the lines of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut transcript = Self::default();
        for line in text.lines() {
            transcript.add(line.trim_end().to_owned());
        }
        transcript
    }

    /// Adds a line.
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
