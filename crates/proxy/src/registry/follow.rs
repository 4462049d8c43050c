//! Queries the registry again and again, and writes the file of members when the list changes.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use serde::Serialize;
use thiserror::Error;

use super::entries::{EntriesError, Members};
use super::etcd::{Credentials, Endpoint, Etcd, EtcdError};

/// Most bytes of the file of members that are read.
const FILE_LIMIT: u64 = midspan_document::SIZE_LIMIT as u64;

/// How often the file is written only because the registry has another revision.
const REVISION_PAUSE: Duration = Duration::from_secs(600);

/// Where the registry is, and which file has its members.
#[derive(Debug, Clone)]
pub struct FollowOptions {
    /// The members of the etcd cluster; at least one.
    pub endpoints: Vec<Endpoint>,
    /// The beginning of the keys of all entries. The rest of a key is the name of the node.
    pub prefix: String,
    /// The user of etcd, if it needs one.
    pub credentials: Option<Credentials>,
    /// The file that is written.
    pub file: PathBuf,
}

/// What one look at the registry has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    /// Number of nodes in the file.
    pub nodes: usize,
    /// The registry's revision.
    pub revision: u64,
    /// Whether the file was written.
    pub is_written: bool,
    /// What is wrong with the registry, although its other entries are used.
    pub faults: Vec<String>,
}

/// The file stays as it is.
#[derive(Debug, Error)]
pub enum FollowError {
    /// etcd does not answer.
    #[error("etcd: {0}")]
    Etcd(#[from] EtcdError),
    /// Its entries cannot be used.
    #[error(transparent)]
    Entries(#[from] EntriesError),
    /// The file cannot be written.
    #[error("cannot write {}: {source}", .file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Follows a registry.
#[derive(Debug)]
pub struct Follower {
    etcd: Etcd,
    prefix: String,
    file: PathBuf,
    /// The list in the file, or an empty one if the file is not of this program.
    members: Members,
    is_other_file: bool,
    /// When the file was written last.
    written: Option<Instant>,
}

impl Follower {
    /// Reads the file. Sends nothing yet.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(options: FollowOptions) -> Result<Self, FollowError> {
        let etcd = Etcd::new(options.endpoints, options.credentials);
        let etcd = etcd.map_err(|error| FollowError::Etcd(EtcdError::System(error)))?;
        let (members, is_other_file) = of_file(&options.file);
        Ok(Self {
            etcd,
            prefix: options.prefix,
            members,
            is_other_file,
            written: None,
            file: options.file,
        })
    }

    /// Whether the file that will be replaced was written by somebody else.
    #[must_use]
    pub const fn is_other_file(&self) -> bool {
        self.is_other_file
    }

    /// Queries the registry once.
    ///
    /// # Errors
    /// The file stays as it is.
    pub fn look(&mut self) -> Result<Look, FollowError> {
        let answer = self.etcd.entries(&self.prefix)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| since.as_secs());
        let merged = self.members.merged(&answer, now)?;
        // The revision also rises by changes under other prefixes. It is written from time to time, because a later
        // start of this command compares it.
        let is_same = merged.members.is_same_list(&self.members);
        let is_recent = self.written.is_some_and(|at| at.elapsed() < REVISION_PAUSE);
        let is_same_revision = merged.members.revision() == self.members.revision();
        let is_written = !is_same || !is_recent && !is_same_revision;
        if is_written {
            replace(&self.file, &merged.members.to_text()).map_err(|source| {
                FollowError::Write {
                    file: self.file.clone(),
                    source,
                }
            })?;
            self.written = Some(Instant::now());
            self.is_other_file = false;
        }
        self.members = merged.members;
        Ok(Look {
            nodes: self.members.len(),
            revision: self.members.revision(),
            is_written,
            faults: merged.faults,
        })
    }
}

/// The list in the file, and whether the file is of somebody else.
fn of_file(file: &Path) -> (Members, bool) {
    let is_regular = std::fs::metadata(file).is_ok_and(|of| of.is_file() && of.len() <= FILE_LIMIT);
    if !is_regular {
        return (Members::default(), false);
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    match Members::read(&text) {
        Some(members) => (members, false),
        None => (Members::default(), true),
    }
}

/// Writes the file in one step, so that no reader sees half of it.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mut name = OsString::from(".");
    name.push(file.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(".new");
    let new = file.with_file_name(name);
    // All users may read it: it has no secrets, and Midspan's processes have several users.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644);
    // A link in a folder that others may write leads nowhere.
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let written = options.open(&new).and_then(|mut output| {
        output.write_all(text.as_bytes())?;
        // Otherwise a power failure could leave the name without its content.
        output.sync_all()?;
        std::fs::rename(&new, file)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("members.toml");
        replace(&file, "first").unwrap();
        replace(&file, "second").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "second");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // What cannot be replaced leaves nothing behind.
        assert!(replace(&folder.path().join("missing/members.toml"), "x").is_err());
        assert!(replace(folder.path(), "x").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_of_somebody_else_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("members.toml");
        assert_eq!(of_file(&file), (Members::default(), false));
        replace(&file, "[[node]]\nname = \"a\"\n").unwrap();
        assert_eq!(of_file(&file), (Members::default(), true));
    }
}
