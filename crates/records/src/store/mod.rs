//! Finished runs in a file, so that a second call continues where the first was stopped.
//!
//! A [`Store`] holds one row for each [`RunKey`]. The key contains everything on which the result
//! depends, as names and texts that the caller writes out: the path as a path file, the case, the
//! seed. It contains no name of a type or field of the program, so after such a name has changed,
//! stored runs are still found.
//!
//! The file has one line of JSON for each row, `{"run":"lab 1","key":"…","row":{…}}`; `run` is the
//! kind with its version, and `key` the SHA-256 of the key. Several processes may append to one file
//! at the same time, because each line is written under a lock on the file. A line that was cut
//! short, by a full disk or a power failure, is ignored, and the next row begins on a new line. If
//! two rows have the same key, the later one counts. A store of one kind of runs ignores the rows of
//! other kinds in the file and does not change them.
//!
//! A store can be a folder instead, with a file for each row ([`folder`]): for processes on several
//! machines that share a file system, where locks are not reliable. [`merge()`] joins several stores.

mod folder;
mod merge;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use merge::{Merged, merge};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Largest file that is read.
const LARGEST: u64 = 256 << 20;
/// The beginning of every line.
const BEGINNING: &[u8] = b"{\"run\":";

/// Why stored runs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refuses something.
    #[error("cannot {what} the stored runs in {}: {source}", file.display())]
    File {
        /// What was tried, such as "read".
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file has something else.
    #[error(
        "{} has no stored runs; name another file, or one that does not exist yet",
        file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// The file is larger than any that is read.
    #[error("{} is larger than 256 MiB, the most that is read", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// A merged store would replace one that exists.
    #[error("{} exists; name a file that does not exist yet", file.display())]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// A row cannot be written as JSON, or read.
    #[error("a finished run cannot be stored: {0}")]
    Row(serde_json::Error),
    /// A row is of another kind or version.
    #[error(
        "a finished run cannot be stored: it is of the kind \"{found}\", expected is \"{expected}\""
    )]
    OtherKind {
        /// The row's kind and version.
        found: String,
        /// The store's kind and version.
        expected: String,
    },
}

/// A kind of runs, and the version of their results.
#[derive(Debug, Clone, Copy)]
pub struct RunKind {
    /// The name, such as "lab".
    pub name: &'static str,
    /// The version of the results. Increase it with every change after which a run of the same key
    /// has another result, or a row another meaning: rows of other versions are ignored.
    pub version: u32,
    /// How files of this kind began before they were stores, if there were any; their lines are
    /// ignored.
    pub before: Option<&'static str>,
}

impl Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// Everything that the result of a run depends on.
///
/// The names are part of the stored key: once stored, a name stays. A property that did not exist
/// when a run was stored is left out where it has its default, so that the run is found again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct RunKey(BTreeMap<&'static str, String>);

impl RunKey {
    /// A key without properties.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same key with a property. Of two with the same name, the later one counts.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.0.insert(name, value.to_string());
        self
    }

    /// The key as it is stored: SHA-256 of the properties as JSON, in the order of their names.
    #[must_use]
    pub fn digest(&self) -> String {
        // A map of texts: writing it cannot fail.
        let text = serde_json::to_string(&self.0).unwrap_or_default();
        let mut digest = String::with_capacity(64);
        for byte in Sha256::digest(text) {
            // Writing to a string cannot fail.
            let _ = write!(digest, "{byte:02x}");
        }
        digest
    }
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line<R> {
    #[serde(rename = "run")]
    kind: String,
    #[serde(rename = "key")]
    key: String,
    #[serde(rename = "row")]
    row: R,
}

/// The finished runs of one kind, with a row of type `R` for each.
#[derive(Debug)]
pub struct Store<R> {
    kind: RunKind,
    rows: BTreeMap<String, R>,
    place: Place,
    ignored: Ignored,
}

/// Where the rows are written.
#[derive(Debug)]
enum Place {
    /// Nowhere.
    Memory,
    /// At the end of a file.
    File(PathBuf, File),
    /// Each to a file of its own, in this folder.
    Folder(PathBuf),
}

/// Lines that are not used.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Ignored {
    /// Of an earlier version.
    earlier: usize,
    /// Cut short, or not readable for another reason.
    broken: usize,
}

impl<R: Serialize + DeserializeOwned> Store<R> {
    /// A store without a file: it forgets everything when the program ends.
    #[must_use]
    pub fn in_memory(kind: RunKind) -> Self {
        Self {
            kind,
            rows: BTreeMap::new(),
            place: Place::Memory,
            ignored: Ignored::default(),
        }
    }

    /// The rows of a file or folder, which new ones are added to. A file is made if nothing of this
    /// name exists; a folder must exist.
    ///
    /// # Errors
    /// The file cannot be read or written, has something else, or is too large.
    pub fn open(name: &Path, kind: RunKind) -> Result<Self, StoreError> {
        let mut store = Self::in_memory(kind);
        if name.is_dir() {
            for line in folder::lines(name)? {
                store.read(&line);
            }
            store.place = Place::Folder(name.to_owned());
            return Ok(store);
        }
        let (file, content) = open_file(name)?;
        if !is_readable(&content, kind.before) {
            return Err(StoreError::Foreign {
                file: name.to_owned(),
            });
        }
        for line in content.split(|byte| *byte == b'\n') {
            store.read(line);
        }
        store.place = Place::File(name.to_owned(), file);
        Ok(store)
    }

    /// The rows of these runs in a folder, which new ones are added to. The other rows of the folder are
    /// not read: for one of many processes, which makes a few of the runs.
    ///
    /// # Errors
    /// The folder does not exist, or a row cannot be read or is too large.
    pub fn open_some(folder: &Path, kind: RunKind, keys: &[RunKey]) -> Result<Self, StoreError> {
        let mut store = Self::in_memory(kind);
        folder::check(folder)?;
        for key in keys {
            if let Some(line) = folder::find(folder, &kind.to_string(), &key.digest())? {
                store.read(&line);
            }
        }
        store.place = Place::Folder(folder.to_owned());
        Ok(store)
    }

    /// The row of a run; `None` if the run has not been made.
    #[must_use]
    pub fn get(&self, key: &RunKey) -> Option<&R> {
        self.rows.get(&key.digest())
    }

    /// Adds the row of a finished run, and writes it. After a failure of power, the rows of the last
    /// seconds may be missing.
    ///
    /// # Errors
    /// The row cannot be written; then it is not added either.
    pub fn put(&mut self, key: &RunKey, row: R) -> Result<(), StoreError> {
        let line = Line {
            kind: self.kind.to_string(),
            key: key.digest(),
            row,
        };
        self.add(line)
    }

    fn add(&mut self, line: Line<R>) -> Result<(), StoreError> {
        let written = || {
            let mut text = serde_json::to_string(&line).map_err(StoreError::Row)?;
            text.push('\n');
            Ok(text)
        };
        match &self.place {
            Place::Memory => (),
            Place::File(name, file) => append(file, &written()?).map_err(failed("add to", name))?,
            Place::Folder(name) => folder::add(name, &line.kind, &line.key, &written()?)?,
        }
        self.rows.insert(line.key, line.row);
        Ok(())
    }

    /// All rows as lines of a file, in the order of their keys: to pass them to a store elsewhere.
    ///
    /// # Errors
    /// A row cannot be written as JSON.
    pub fn lines(&self) -> Result<Vec<String>, StoreError> {
        let kind = self.kind.to_string();
        let lines = self.rows.iter().map(|(key, row)| {
            let (kind, key) = (kind.clone(), key.clone());
            serde_json::to_string(&Line { kind, key, row }).map_err(StoreError::Row)
        });
        lines.collect()
    }

    /// Adds a row that is a line of a store elsewhere, and writes it.
    ///
    /// # Errors
    /// The text is no row of this kind and version, or cannot be written.
    pub fn add_line(&mut self, text: &str) -> Result<(), StoreError> {
        let line: Line<R> = serde_json::from_str(text).map_err(StoreError::Row)?;
        if line.kind != self.kind.to_string() {
            return Err(StoreError::OtherKind {
                found: line.kind,
                expected: self.kind.to_string(),
            });
        }
        self.add(line)
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A sentence on the lines of the file that are not used; `None` if all are.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let (Place::File(name, _) | Place::Folder(name)) = &self.place else {
            return None;
        };
        let Ignored { earlier, broken } = self.ignored;
        let reasons: Vec<String> = [
            (earlier, "of an earlier version of Midspan"),
            (broken, "incomplete or damaged"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
        (!reasons.is_empty()).then(|| {
            let lines = if earlier + broken == 1 {
                "line"
            } else {
                "lines"
            };
            format!(
                "{}: ignored {lines}: {}; these runs are made again",
                name.display(),
                reasons.join(", ")
            )
        })
    }

    /// Takes the row of a line over, or counts the line.
    fn read(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        if let Ok(found) = serde_json::from_slice::<Line<R>>(line)
            && found.kind == self.kind.to_string()
        {
            self.rows.insert(found.key, found.row);
            return;
        }
        let Ok(found) = serde_json::from_slice::<Line<serde_json::Value>>(line) else {
            if line.starts_with(BEGINNING) || line.contains(&0) {
                self.ignored.broken += 1;
            } else {
                self.ignored.earlier += 1;
            }
            return;
        };
        let (name, version) = found.kind.rsplit_once(' ').unwrap_or((&found.kind, ""));
        if name != self.kind.name {
            return;
        }
        if version == self.kind.version.to_string() {
            self.ignored.broken += 1;
        } else {
            self.ignored.earlier += 1;
        }
    }
}

/// The error of a system call on a file.
fn failed(what: &'static str, name: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let file = name.to_owned();
    move |source| StoreError::File { what, file, source }
}

/// Opens a file of rows, or makes it; returns its content, too.
fn open_file(name: &Path) -> Result<(File, Vec<u8>), StoreError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).append(true).create(true);
    let file = options.open(name).map_err(failed("open", name))?;
    let content = read_file(name, &file)?;
    Ok((file, content))
}

/// The content of a file of rows, while no other process is in the middle of a line.
fn read_file(name: &Path, file: &File) -> Result<Vec<u8>, StoreError> {
    file.lock_shared().map_err(failed("lock", name))?;
    let mut content = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut content);
    file.unlock().map_err(failed("unlock", name))?;
    read.map_err(failed("read", name))?;
    if content.len() as u64 > LARGEST {
        return Err(StoreError::TooLarge {
            file: name.to_owned(),
        });
    }
    Ok(content)
}

/// Whether the content is that of a file of rows, also one whose first line was cut short, or a file
/// from before there were stores.
fn is_readable(content: &[u8], before: Option<&str>) -> bool {
    let mut lines = content.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or(&[]);
    let is_followed = lines
        .next()
        .is_none_or(|second| second.starts_with(BEGINNING));
    // The file system may fill what it could not write with zeros.
    let is_empty = !first.is_empty() && first.iter().all(|byte| *byte == 0);
    let is_cut = BEGINNING.starts_with(first) && is_followed;
    is_empty
        || is_cut
        || first.starts_with(BEGINNING)
        || before.is_some_and(|before| first.starts_with(before.as_bytes()))
}

/// Adds a line to a file to which other processes may add lines, too.
fn append(mut file: &File, line: &str) -> io::Result<()> {
    file.lock()?;
    let written = end_last_line(file).and_then(|()| file.write_all(line.as_bytes()));
    file.unlock()?;
    written
}

/// Ends a line that was cut short.
fn end_last_line(mut file: &File) -> io::Result<()> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else {
        return Ok(());
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    if byte == *b"\n" {
        return Ok(());
    }
    file.write_all(b"\n")
}

#[cfg(test)]
mod tests;
