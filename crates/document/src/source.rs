//! A text, with the name that error messages show.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

/// Largest file that is read, in bytes: 1 MiB.
pub const SIZE_LIMIT: usize = 1 << 20;

/// A text and its name. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    name: Arc<str>,
    text: Arc<str>,
}

impl Source {
    /// A text that is already in memory, at most [`SIZE_LIMIT`] bytes (checked when it is read).
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, is larger than [`SIZE_LIMIT`] or is not UTF-8.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = match read_bounded(path) {
            Ok(bytes) => bytes,
            Err(source) => return Err(LoadError::Unreadable { name, source }),
        };
        if bytes.len() > SIZE_LIMIT {
            return Err(LoadError::TooLarge { name });
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(name, text)),
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let line = 1 + error.as_bytes()[..valid]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .count();
                Err(LoadError::NotUtf8 { name, line })
            }
        }
    }

    /// The name, as the user gave it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a byte offset, both from 1, the column in characters.
    ///
    /// An offset past the end counts as the end; one inside a character counts as that character.
    #[must_use]
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let offset = self.text.floor_char_boundary(offset);
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
        (line, 1 + before[line_start..].chars().count())
    }
}

/// One byte more than the limit is enough to know that a file is too large.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(SIZE_LIMIT).unwrap_or(u64::MAX);
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Why a file could not be read as text.
#[derive(Debug, Error)]
pub enum LoadError {
    /// It does not exist, or access is denied.
    #[error("cannot read {name}: {source}")]
    Unreadable {
        /// The file, as the user gave it.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// It is larger than [`SIZE_LIMIT`].
    #[error("{name} is larger than 1 MiB: is it the right file?")]
    TooLarge {
        /// The file, as the user gave it.
        name: String,
    },
    /// It is not text.
    #[error("{name}:{line}: not UTF-8 text: is it the right file?")]
    NotUtf8 {
        /// The file, as the user gave it.
        name: String,
        /// The line with the first byte that is not UTF-8.
        line: usize,
    },
}

impl miette::Diagnostic for LoadError {}
