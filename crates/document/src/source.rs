//! A text, with the name that error messages show.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Largest file that is read, in bytes: 1 MiB.
pub const SIZE_LIMIT: usize = 1 << 20;

/// A text and its name. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    name: Arc<str>,
    text: Arc<str>,
    /// The folder of the file; `None` for a text that is not from a file.
    folder: Option<Arc<Path>>,
}

impl Source {
    /// A text that is already in memory, at most [`SIZE_LIMIT`] bytes (checked when it is read).
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            folder: None,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, is larger than [`SIZE_LIMIT`] or is not UTF-8.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::load_bounded(path.as_ref(), SIZE_LIMIT)
    }

    /// The former text of a file, which may have another one now. It can name other files, as the file can.
    #[must_use]
    pub fn of_file(path: &Path, text: impl Into<Arc<str>>) -> Self {
        Self {
            folder: path.parent().map(Arc::from),
            ..Self::new(path.display().to_string(), text)
        }
    }

    /// Reads a file that this text names: `file` is relative to the folder of this text's file, or
    /// absolute. It has at most `limit` bytes.
    ///
    /// Only a text that was read from a file can name other files. A built-in text, or a text from
    /// the network, cannot.
    ///
    /// # Errors
    /// This text is not from a file; or the other file is no regular file, cannot be read, is
    /// larger than `limit` or is not UTF-8.
    pub fn load_other(&self, file: &str, limit: usize) -> Result<Self, LoadError> {
        let Some(path) = self.path_of(file) else {
            return Err(LoadError::NotFromFile {
                name: file.to_owned(),
                text: self.name.to_string(),
            });
        };
        let name = path.display().to_string();
        // Opening a FIFO would wait for its other end, and a device may have no end.
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => Self::load_bounded(&path, limit),
            Ok(_) => Err(LoadError::NotAFile { name }),
            Err(source) => Err(LoadError::Unreadable { name, source }),
        }
    }

    /// The path of a file that this text names; `None` if this text is not from a file.
    #[must_use]
    pub fn path_of(&self, file: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(file))
    }

    fn load_bounded(path: &Path, limit: usize) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let bytes = match read_bounded(path, limit) {
            Ok(bytes) => bytes,
            Err(source) => return Err(LoadError::Unreadable { name, source }),
        };
        if bytes.len() > limit {
            let mebibytes = limit >> 20;
            return Err(LoadError::TooLarge { name, mebibytes });
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self {
                folder: path.parent().map(Arc::from),
                ..Self::new(name, text)
            }),
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

    /// Another text in place of this one: with the same name, from the same file.
    #[must_use]
    pub fn with_text(&self, text: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            ..self.clone()
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
fn read_bounded(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
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
    /// It is too large.
    #[error("{name} is larger than {mebibytes} MiB: is it the right file?")]
    TooLarge {
        /// The file, as the user gave it.
        name: String,
        /// The limit in MiB.
        mebibytes: usize,
    },
    /// It is a folder, a device or something else without a fixed content.
    #[error("{name} is no regular file: is it the right file?")]
    NotAFile {
        /// The file, as the user gave it.
        name: String,
    },
    /// The text that names the file is not from a file itself.
    #[error(
        "cannot read {name}: only a text that was read from a file can name one, and {text} was not"
    )]
    NotFromFile {
        /// The file that is named.
        name: String,
        /// The name of the text.
        text: String,
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
