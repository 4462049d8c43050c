//! The state directory, whose files are kept across restarts.
//!
//! There are files of verdicts about clients and of known paths, and one of bypassed prefixes, which the helper
//! writes and reads itself. The helper never parses the first two files: it opens them for the
//! relay, and replaces them, within limits, by the content that the relay sends.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use midspan_relay::remembered::FILE_LIMIT;
use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat, renameat, unlinkat};
use tracing::{debug, warn};

use crate::Error;
use crate::configuration::StateDirectory as Setting;

const VERDICTS: &str = "verdicts";
const NEW: &str = "verdicts.new";
const PATHS: &str = "paths";
const NEW_PATHS: &str = "paths.new";
/// The known paths of another gateway; the operator puts them here.
const OTHER_PATHS: &str = "paths.other";
const BYPASSES: &str = "bypasses";
const NEW_BYPASSES: &str = "bypasses.new";
/// A thousand prefixes of IPv6, in bytes.
const BYPASSES_LIMIT: u64 = 64 << 10;
const PIECE: usize = 64 << 10;

/// An open state directory.
#[derive(Debug)]
pub(super) struct State {
    directory: OwnedFd,
    /// Whether the last attempt to keep verdicts failed, which has been logged.
    is_failing: bool,
    /// Whether the paths of an earlier run have been read.
    has_read_paths: bool,
    /// Why the last file of another gateway could not be read, which has been logged.
    other_error: Option<String>,
}

/// What the relay sends to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Verdicts about clients.
    Verdicts,
    /// What is known of the paths to peers.
    Paths,
}

impl Kept {
    /// The file, and its name while it is written.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Verdicts => (VERDICTS, NEW),
            Self::Paths => (PATHS, NEW_PATHS),
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Verdicts => "what clients were found to take",
            Self::Paths => "what is known of paths",
        }
    }
}

impl State {
    /// Opens the directory; `None` if nothing is kept, or if the service manager's directory cannot
    /// be used, which is logged.
    ///
    /// # Errors
    /// The configured directory cannot be used.
    pub fn open(setting: &Setting) -> Result<Option<Self>, Error> {
        match setting {
            Setting::None => Ok(None),
            Setting::At(path) => match Self::make(path) {
                Ok(state) => Ok(Some(state)),
                Err(source) => Err(Error::StateDirectory {
                    path: path.clone(),
                    source,
                }),
            },
            Setting::Default => {
                let Some(path) = default_directory() else {
                    return Ok(None);
                };
                let state = Self::make(&path);
                if let Err(error) = &state {
                    warn!(
                        "nothing is kept across restarts: cannot use {}: {error}",
                        path.display()
                    );
                }
                Ok(state.ok())
            }
        }
    }

    fn make(path: &Path) -> io::Result<Self> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self {
            directory: open(path, flags, Mode::empty())?,
            is_failing: false,
            has_read_paths: false,
            other_error: None,
        })
    }

    /// The file of an earlier run, open for reading; `None` if there is none, or if it is not a
    /// regular file.
    pub fn verdicts(&self) -> Option<OwnedFd> {
        self.open_or_warn(VERDICTS)
    }

    /// Files of known paths that have not been read, open for reading: that of an earlier run, and that of another
    /// gateway, which is removed.
    pub fn new_paths(&mut self) -> Vec<OwnedFd> {
        let of_before = match std::mem::replace(&mut self.has_read_paths, true) {
            true => None,
            false => self.open_or_warn(PATHS),
        };
        let (other, error) = match self.open_file(OTHER_PATHS) {
            Ok(other) => (other, None),
            Err(error) => (None, Some(error)),
        };
        if other.is_some() {
            self.remove(OTHER_PATHS);
        }
        if error != self.other_error {
            if let Some(error) = &error {
                warn!("{error}");
            }
            self.other_error = error;
        }
        of_before.into_iter().chain(other).collect()
    }

    fn open_or_warn(&self, name: &str) -> Option<OwnedFd> {
        self.open_file(name).unwrap_or_else(|error| {
            warn!("{error}");
            None
        })
    }

    /// A file, open for reading; `None` if there is none, and a sentence if it cannot be read.
    fn open_file(&self, name: &str) -> Result<Option<OwnedFd>, String> {
        // Follows no link, and does not wait for a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let unreadable =
            |why: &str| format!("the file {name} in the state directory is not read: {why}");
        match openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) if size(&file).is_some() => Ok(Some(file)),
            Ok(_) => Err(unreadable("it is no regular file, or too large")),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(unreadable(&error.to_string())),
        }
    }

    fn remove(&self, name: &str) {
        let _ = unlinkat(&self.directory, name, rustix::fs::AtFlags::empty());
    }

    /// Replaces a file by the content that the relay has sent, in one step.
    pub fn keep(&mut self, kept: Kept, content: OwnedFd) {
        let (name, new) = kept.names();
        let result = self.replace(content, name, new);
        if let Err(error) = &result {
            let what = kept.what();
            match self.is_failing {
                false => warn!("{what} cannot be kept: {error}"),
                true => debug!("{what} cannot be kept: {error}"),
            }
            self.remove(new);
        }
        self.is_failing = result.is_err();
    }

    /// Whether the last content could not be written.
    pub const fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// The file of bypassed prefixes.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn bypasses(&self) -> io::Result<KeptBypasses> {
        let directory = self.directory.try_clone()?;
        Ok(KeptBypasses {
            directory,
            changes: AtomicU64::new(0),
            done: Arc::default(),
        })
    }

    fn replace(&self, content: OwnedFd, name: &str, new: &str) -> io::Result<()> {
        // The network can reach the relay, so its message is checked.
        let size = size(&content).ok_or(ErrorKind::InvalidData)?;
        let content = File::from(content);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(openat(&self.directory, new, flags, mode)?);
        let mut piece = vec![0; PIECE];
        let mut place = 0;
        while place < size {
            let read = content.read_at(&mut piece, place as u64)?;
            let piece = piece.get(..read.min(size - place)).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            file.write_all(piece)?;
            place += piece.len();
        }
        // The file is not synchronised: a slow disk must not block the helper, and if a power
        // failure damages the file, this only costs new probes.
        drop(file);
        renameat(&self.directory, new, &self.directory, name)?;
        Ok(())
    }
}

/// How long a command waits until the disk has what it has changed.
const DISK_LIMIT: Duration = Duration::from_secs(1);

/// The file of bypassed prefixes, one per line. A power failure leaves what was kept last, or what was kept before it.
#[derive(Debug)]
pub(super) struct KeptBypasses {
    directory: OwnedFd,
    /// The number of the last change.
    changes: AtomicU64,
    /// The number of the last change that a thread has carried out.
    done: Arc<Mutex<u64>>,
}

impl KeptBypasses {
    /// The lines of an earlier run; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is not Midspan's.
    pub fn read(&self) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.directory, BYPASSES, flags, Mode::empty()) {
            Ok(file) => file,
            Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        size(&file).ok_or(ErrorKind::InvalidData)?;
        let mut text = String::new();
        File::from(file)
            .take(BYPASSES_LIMIT)
            .read_to_string(&mut text)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Stores these lines; without any, removes the file. Returns when the disk has them.
    ///
    /// # Errors
    /// Those of the file system. `TimedOut` if the disk is slow: the lines are stored later.
    pub fn keep(&self, lines: &[String]) -> io::Result<()> {
        let number = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        let (directory, done) = (self.directory.try_clone()?, Arc::clone(&self.done));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let (report, result) = channel();
        // A disk that hangs must not hang the helper.
        std::thread::Builder::new()
            .name("bypasses".to_owned())
            .spawn(move || {
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                // A later change may have been faster.
                let stored = match number > *done {
                    true => store_bypasses(&directory, &text),
                    false => Ok(()),
                };
                *done = number.max(*done);
                // The command may no longer wait.
                let _ = report.send(stored);
            })?;
        let late = || io::Error::new(ErrorKind::TimedOut, "the disk is slow, it is written later");
        result
            .recv_timeout(DISK_LIMIT)
            .unwrap_or_else(|_| Err(late()))
    }
}

fn store_bypasses(directory: &OwnedFd, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return match unlinkat(directory, BYPASSES, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = File::from(openat(directory, NEW_BYPASSES, flags, mode)?);
    file.write_all(text.as_bytes())?;
    // Otherwise, after a power failure, the file may have its name and not its content.
    file.sync_data()?;
    renameat(directory, NEW_BYPASSES, directory, BYPASSES)?;
    Ok(())
}

/// The size of a regular file that is not too large; `None` for anything else.
fn size(file: &OwnedFd) -> Option<usize> {
    let status = fstat(file).ok()?;
    let size = usize::try_from(status.st_size).ok()?;
    let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    (is_file && size <= FILE_LIMIT).then_some(size)
}

/// systemd's state directory; the variable may contain several directories, separated by colons.
fn default_directory() -> Option<PathBuf> {
    let value = std::env::var("STATE_DIRECTORY").ok()?;
    let first = value.split(':').next()?;
    first.starts_with('/').then(|| PathBuf::from(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    fn memory(bytes: &[u8]) -> OwnedFd {
        let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(bytes).unwrap();
        file.into()
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_only_by_a_file_within_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let mut state = State::open(&Setting::At(path.clone())).unwrap().unwrap();
        assert!(state.verdicts().is_none());
        let content = vec![b'x'; 3 * PIECE + 17];
        state.keep(Kept::Verdicts, memory(&content));
        let mut read = Vec::new();
        let mut file = File::from(state.verdicts().unwrap());
        file.read_to_end(&mut read).unwrap();
        assert!(read == content);
        // A file that is being read does not change; a pipe or a file that is too large is not
        // accepted.
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        state.keep(Kept::Verdicts, pipe);
        let giant = File::from(memory(b""));
        giant.set_len(FILE_LIMIT as u64 + 1).unwrap();
        state.keep(Kept::Verdicts, giant.into());
        assert!(fs::read(path.join(VERDICTS)).unwrap() == content);
        assert!(!path.join(NEW).exists());
        state.keep(Kept::Verdicts, memory(b"new"));
        assert_eq!(fs::read(path.join(VERDICTS)).unwrap(), b"new");
    }

    #[test]
    fn paths_of_before_are_read_once_and_those_of_others_when_they_come() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let mut first = State::open(&Setting::At(path.clone())).unwrap().unwrap();
        assert!(first.new_paths().is_empty());
        first.keep(Kept::Paths, memory(b"paths"));
        assert!(first.verdicts().is_none());
        let mut next = State::open(&Setting::At(path.clone())).unwrap().unwrap();
        fs::write(path.join(OTHER_PATHS), b"other").unwrap();
        let read = |file: OwnedFd| io::read_to_string(File::from(file)).unwrap();
        let texts: Vec<String> = next.new_paths().into_iter().map(read).collect();
        assert_eq!(texts, ["paths", "other"]);
        assert!(next.new_paths().is_empty());
        assert!(!path.join(OTHER_PATHS).exists());
        fs::write(path.join(OTHER_PATHS), b"again").unwrap();
        assert_eq!(next.new_paths().len(), 1);
        std::os::unix::fs::symlink("/etc/hostname", path.join(OTHER_PATHS)).unwrap();
        assert!(next.new_paths().is_empty());
    }

    #[test]
    fn bypasses_are_kept_until_there_are_none() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&Setting::At(directory.path().to_owned()));
        let kept = state.unwrap().unwrap().bypasses().unwrap();
        assert!(kept.read().unwrap().is_empty());
        kept.keep(&[]).unwrap();
        let lines = ["10.0.0.0/8".to_owned(), "::/0".to_owned()];
        kept.keep(&lines).unwrap();
        assert_eq!(kept.read().unwrap(), lines);
        kept.keep(&lines[..1]).unwrap();
        assert_eq!(kept.read().unwrap(), lines[..1]);
        kept.keep(&[]).unwrap();
        assert!(kept.read().unwrap().is_empty());
        std::os::unix::fs::symlink("/etc/hostname", directory.path().join(BYPASSES)).unwrap();
        assert!(kept.read().is_err());
    }

    #[test]
    fn links_pipes_and_giants_are_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&Setting::At(directory.path().to_owned()));
        let state = state.unwrap().unwrap();
        let path = directory.path().join(VERDICTS);
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(state.verdicts().is_none());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(state.verdicts().is_none());
        fs::remove_dir(&path).unwrap();
        let file = File::create(&path).unwrap();
        file.set_len(FILE_LIMIT as u64 + 1).unwrap();
        assert!(state.verdicts().is_none());
        file.set_len(FILE_LIMIT as u64).unwrap();
        assert!(state.verdicts().is_some());
    }

    #[test]
    fn a_directory_that_cannot_be_had_is_an_error() {
        let result = State::open(&Setting::At("/nowhere/at/all".into()));
        assert!(matches!(result, Err(Error::StateDirectory { .. })));
        assert!(State::open(&Setting::None).unwrap().is_none());
    }
}
