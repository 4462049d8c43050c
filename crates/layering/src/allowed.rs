//! The list of uses that may be part of a circle until the circle is broken.
//!
//! An *arrow* is the use of one module by a sibling. A line has the form
//! `target: parent::from -> parent::to`; `#` starts a comment. The list contains arrows, not circles,
//! because such a list can only become shorter. If a circle is broken, no other arrow becomes part of
//! a circle. But another circle can become the shortest one through an arrow, so a list of circles
//! would need new lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::circles::Circle;
use crate::error::Error;

/// The list, as it was read.
#[derive(Debug, Default)]
pub struct Allowed {
    file: PathBuf,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    text: String,
    entry: Option<Entry>,
}

/// An arrow of a target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The target's name, as in `midspan-proxy` or `midspan-proxy/test/transparent`.
    pub target: String,
    /// The path of the module that uses.
    pub from: String,
    /// The path of the module that is used.
    pub to: String,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { target, from, to } = self;
        write!(formatter, "{target}: {from} -> {to}")
    }
}

impl Allowed {
    /// Reads the list.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a line has another form.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file).map_err(|source| Error::File {
            file: file.to_owned(),
            source,
        })?;
        let mut lines = Vec::new();
        for (at, text) in text.lines().enumerate() {
            let meant = text.split('#').next().unwrap_or_default().trim();
            let entry = match (meant.is_empty(), entry(meant)) {
                (true, _) => None,
                (false, Some(entry)) => Some(entry),
                (false, None) => {
                    return Err(Error::Allowed {
                        file: file.to_owned(),
                        line: at + 1,
                        text: text.to_owned(),
                    });
                }
            };
            lines.push(Line {
                text: text.to_owned(),
                entry,
            });
        }
        Ok(Self {
            file: file.to_owned(),
            lines,
        })
    }

    /// The arrows of the list.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.lines.iter().filter_map(|line| line.entry.as_ref())
    }

    /// Writes the list again without the arrows in `stale`.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write_without(&self, stale: &BTreeSet<Entry>) -> Result<(), Error> {
        let mut text = String::new();
        for line in &self.lines {
            if line
                .entry
                .as_ref()
                .is_none_or(|entry| !stale.contains(entry))
            {
                text.push_str(&line.text);
                text.push('\n');
            }
        }
        std::fs::write(&self.file, text).map_err(|source| Error::File {
            file: self.file.clone(),
            source,
        })
    }
}

/// The arrows of a target's circles, as entries.
pub fn entries_of<'a>(target: &'a str, circle: &'a Circle) -> impl Iterator<Item = Entry> + 'a {
    circle.arrows.iter().map(|arrow| Entry {
        target: target.to_owned(),
        from: arrow.from.clone(),
        to: arrow.to.clone(),
    })
}

fn entry(text: &str) -> Option<Entry> {
    let (target, arrow) = text.split_once(": ")?;
    let (from, to) = arrow.split_once(" -> ")?;
    let entry = Entry {
        target: target.trim().to_owned(),
        from: from.trim().to_owned(),
        to: to.trim().to_owned(),
    };
    let words = [&entry.target, &entry.from, &entry.to];
    words
        .iter()
        .all(|word| !word.is_empty() && !word.contains(char::is_whitespace))
        .then_some(entry)
}
