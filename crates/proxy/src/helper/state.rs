//! The state directory, whose files are kept across restarts.
//!
//! There is one file of verdicts about clients, and one of bypassed prefixes, which the helper
//! writes and reads itself. The helper never parses the first file: it opens the file for the
//! relay, and replaces it, within limits, by the content that the relay sends.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use midspan_relay::remembered::FILE_LIMIT;
use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat, renameat, unlinkat};
use tracing::{debug, warn};

use crate::Error;
use crate::configuration::StateDirectory as Setting;

const VERDICTS: &str = "verdicts";
const NEW: &str = "verdicts.new";
const BYPASSES: &str = "bypasses";
const NEW_BYPASSES: &str = "bypasses.new";
/// A thousand prefixes of IPv6, in bytes.
const BYPASSES_LIMIT: u64 = 64 << 10;
const PIECE: usize = 64 << 10;

/// An open state directory.
#[derive(Debug)]
pub(super) struct State {
    directory: OwnedFd,
    /// Whether the last attempt failed, which has been logged.
    is_failing: bool,
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
        })
    }

    /// The file of an earlier run, open for reading; `None` if there is none, or if it is not a
    /// regular file.
    pub fn verdicts(&self) -> Option<OwnedFd> {
        // Follows no link, and does not wait for a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&self.directory, VERDICTS, flags, Mode::empty()) {
            Ok(file) if size(&file).is_some() => Some(file),
            Ok(_) => {
                warn!("what clients were found to take is not read: it is no file of our own");
                None
            }
            Err(rustix::io::Errno::NOENT) => None,
            Err(error) => {
                warn!("what clients were found to take cannot be read: {error}");
                None
            }
        }
    }

    /// Replaces the file by the content that the relay has sent, in one step.
    pub fn keep(&mut self, content: OwnedFd) {
        let result = self.replace(content);
        if let Err(error) = &result {
            match self.is_failing {
                false => warn!("what clients were found to take cannot be kept: {error}"),
                true => debug!("what clients were found to take cannot be kept: {error}"),
            }
            let _ = unlinkat(&self.directory, NEW, rustix::fs::AtFlags::empty());
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
        Ok(KeptBypasses { directory })
    }

    fn replace(&self, content: OwnedFd) -> io::Result<()> {
        // The network can reach the relay, so its message is checked.
        let size = size(&content).ok_or(ErrorKind::InvalidData)?;
        let content = File::from(content);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(openat(&self.directory, NEW, flags, mode)?);
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
        renameat(&self.directory, NEW, &self.directory, VERDICTS)?;
        Ok(())
    }
}

/// The file of bypassed prefixes, one per line.
#[derive(Debug)]
pub(super) struct KeptBypasses {
    directory: OwnedFd,
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

    /// Stores these lines; without any, removes the file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn keep(&self, lines: &[String]) -> io::Result<()> {
        if lines.is_empty() {
            return match unlinkat(&self.directory, BYPASSES, rustix::fs::AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
                Err(error) => Err(error.into()),
            };
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(openat(&self.directory, NEW_BYPASSES, flags, mode)?);
        file.write_all((lines.join("\n") + "\n").as_bytes())?;
        drop(file);
        renameat(&self.directory, NEW_BYPASSES, &self.directory, BYPASSES)?;
        Ok(())
    }
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
        state.keep(memory(&content));
        let mut read = Vec::new();
        let mut file = File::from(state.verdicts().unwrap());
        file.read_to_end(&mut read).unwrap();
        assert!(read == content);
        // A file that is being read does not change; a pipe or a file that is too large is not
        // accepted.
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        state.keep(pipe);
        let giant = File::from(memory(b""));
        giant.set_len(FILE_LIMIT as u64 + 1).unwrap();
        state.keep(giant.into());
        assert!(fs::read(path.join(VERDICTS)).unwrap() == content);
        assert!(!path.join(NEW).exists());
        state.keep(memory(b"new"));
        assert_eq!(fs::read(path.join(VERDICTS)).unwrap(), b"new");
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
