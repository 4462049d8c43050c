//! Claims: locked files. In one network namespace, only one process at a time can claim a name.
//!
//! Rules and routing tables belong to a network namespace. Claims do too: the number of the namespace is a
//! part of the file's name. The kernel releases the lock (flock(2)) when the process ends, however it ends.
//! The file is in a directory to which only its user can write. An abstract socket name would need no file,
//! but any process of the machine could bind it and keep Midspan from starting.

use std::env;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use midspan_linux::user_map::UserMap;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Files with other endings do not belong to Midspan.
const SUFFIX: &str = ".lock";
/// A process that only looks whether a name is claimed holds the lock for an instant. An attempt to
/// claim waits this long for the lock.
const LOOK: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);
/// The longest process number that is read from a file, in bytes.
const NUMBER_LIMIT: u64 = 20;

/// What a process can claim. Each claim also has a name: the name of a table or of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The nftables table of this name, and its routes and marks.
    Interception,
    /// The routing tables from this number upwards.
    InitialWindows,
    /// ACK thinning on the interface of this name.
    Thinning,
}

impl Kind {
    /// How the names of claims of this kind begin.
    const fn beginning(self) -> &'static str {
        match self {
            Self::Interception => "midspan interception ",
            Self::InitialWindows => "midspan initial windows ",
            Self::Thinning => "midspan thin ",
        }
    }
}

/// Claims a name of this kind; `None` if another process has it.
///
/// # Errors
/// There is no directory that only this user can write to, or it cannot be used.
pub(crate) fn claim(kind: Kind, name: impl Display) -> io::Result<Option<Claim>> {
    take(&format!("{}{name}", kind.beginning()))
}

/// The names of this kind that processes have claimed in this network namespace.
///
/// # Errors
/// The number of the network namespace cannot be read.
pub(crate) fn taken(kind: Kind) -> io::Result<Vec<String>> {
    beginning_with(kind.beginning())
}

/// The number of the process that has claimed `name` of this kind. `None` if no process has claimed it, or if
/// this number cannot be read from the claim's file.
#[must_use]
pub(crate) fn holder(kind: Kind, name: &str) -> Option<u32> {
    holder_of(&format!("{}{name}", kind.beginning()))
}

/// A name that this process alone has in its network namespace, until this value is dropped.
#[derive(Debug)]
pub struct Claim {
    directory: OwnedFd,
    file_name: String,
    _lock: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The file is removed before the lock is released; afterwards it could be the file of
        // another process. If the removal fails, the remaining file is not locked.
        let _ = rustix::fs::unlinkat(&self.directory, &self.file_name, AtFlags::empty());
    }
}

fn take(name: &str) -> io::Result<Option<Claim>> {
    let (path, directory) = own_directory()?;
    // A process of root, or a process with another environment, may have its files elsewhere.
    if others(&path).any(|(_, found)| found == name) {
        return Ok(None);
    }
    claim_in(directory, file_name(name)?)
}

/// The names that begin with `beginning` and that processes have claimed in this network namespace,
/// without the beginning.
fn beginning_with(beginning: &str) -> io::Result<Vec<String>> {
    let prefix = file_name_prefix()?;
    let all = candidates()
        .into_iter()
        .flat_map(|path| taken_in(&path, &prefix));
    Ok(all
        .filter_map(|(_, name)| Some(name.strip_prefix(beginning)?.to_owned()))
        .collect())
}

fn holder_of(name: &str) -> Option<u32> {
    let prefix = file_name_prefix().ok()?;
    let mut all = candidates()
        .into_iter()
        .flat_map(|path| taken_in(&path, &prefix));
    let (file, _) = all.find(|(_, found)| found == name)?;
    let mut text = String::new();
    File::open(file)
        .ok()?
        .take(NUMBER_LIMIT)
        .read_to_string(&mut text)
        .ok()?;
    text.trim().parse().ok()
}

/// Removes lock files of processes that were killed, of all network namespaces; returns their
/// number. Locked files stay.
#[must_use]
pub(crate) fn remove_stale() -> usize {
    let Ok((path, directory)) = own_directory() else {
        return 0;
    };
    let remove = |name: &String| match claim_in_once(&directory, name) {
        // The file is removed while it is locked, so that no other process can claim it meanwhile.
        Ok(Try::Locked(_lock)) => rustix::fs::unlinkat(&directory, name, AtFlags::empty()).is_ok(),
        _ => false,
    };
    entries(&path).iter().filter(|name| remove(name)).count()
}

/// The result of an attempt to lock a file.
enum Try {
    Locked(File),
    /// Another process holds the lock, perhaps only to look.
    Busy,
    /// The file was removed meanwhile.
    Gone,
}

fn claim_in(directory: OwnedFd, file_name: String) -> io::Result<Option<Claim>> {
    let start = Instant::now();
    loop {
        match claim_in_once(&directory, &file_name)? {
            Try::Locked(mut file) => {
                file.set_len(0)?;
                file.rewind()?;
                writeln!(file, "{}", std::process::id())?;
                return Ok(Some(Claim {
                    directory,
                    file_name,
                    _lock: file,
                }));
            }
            Try::Busy if start.elapsed() >= LOOK => return Ok(None),
            Try::Busy => std::thread::sleep(PAUSE),
            Try::Gone => {}
        }
    }
}

fn claim_in_once(directory: &OwnedFd, file_name: &str) -> io::Result<Try> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = File::from(rustix::fs::openat(directory, file_name, flags, mode)?);
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(Try::Busy),
        Err(error) => return Err(error.into()),
    }
    // The process that held the lock before may have removed the file after this process opened it.
    let now = rustix::fs::statat(directory, file_name, AtFlags::SYMLINK_NOFOLLOW);
    let opened = rustix::fs::fstat(&file)?;
    Ok(match now {
        Ok(now) if (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino) => Try::Locked(file),
        _ => Try::Gone,
    })
}

/// The directories where claims may be, best first. For root, the first directory does not depend
/// on the environment.
fn candidates() -> Vec<PathBuf> {
    let user = outside_user();
    let variable = |name| {
        let value = env::var(name).ok()?;
        // systemd lists several directories, separated by colons.
        let first = PathBuf::from(value.split(':').next()?);
        first.is_absolute().then_some(first)
    };
    let mut all = vec![
        PathBuf::from("/run/midspan"),
        format!("/run/midspan-{user}").into(),
        format!("/run/user/{user}/midspan").into(),
    ];
    all.extend(variable("XDG_RUNTIME_DIR").map(|path| path.join("midspan")));
    all.extend(variable("RUNTIME_DIRECTORY"));
    all.push(env::temp_dir().join(format!("midspan-{user}")));
    let mut seen = Vec::new();
    all.retain(|path| {
        let is_new = !seen.contains(path);
        seen.push(path.clone());
        is_new
    });
    all
}

/// The first directory that belongs to this user and to which no other user may write. A missing
/// directory is made.
fn own_directory() -> io::Result<(PathBuf, OwnedFd)> {
    let mut errors = Vec::new();
    for path in candidates() {
        match open_own(&path) {
            Ok(directory) => return Ok((path, directory)),
            Err(error) => errors.push(format!("{}: {error}", path.display())),
        }
    }
    Err(io::Error::new(
        ErrorKind::PermissionDenied,
        format!(
            "no directory for lock files that this user alone can write to (set \
             RuntimeDirectory=midspan in the unit, or XDG_RUNTIME_DIR): {}",
            errors.join("; ")
        ),
    ))
}

fn open_own(path: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    let status = rustix::fs::fstat(&directory)?;
    let is_own = status.st_uid == geteuid().as_raw();
    if !is_own || status.st_mode & 0o022 != 0 {
        let message = "another user may write to it";
        return Err(io::Error::new(ErrorKind::PermissionDenied, message));
    }
    // A directory in a read-only mount (ProtectSystem=strict) is of no use.
    rustix::fs::accessat(
        &directory,
        ".",
        rustix::fs::Access::WRITE_OK,
        AtFlags::empty(),
    )?;
    Ok(directory)
}

/// The names that are claimed in this network namespace, from the other directories.
fn others(own: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    let prefix = file_name_prefix().unwrap_or_default();
    let paths = candidates().into_iter().filter(move |path| path != own);
    paths.flat_map(move |path| taken_in(&path, &prefix))
}

/// The held claims in a directory that belongs to this user or to root: their files and names.
fn taken_in(directory: &Path, prefix: &str) -> Vec<(PathBuf, String)> {
    let trusted = fs::symlink_metadata(directory).is_ok_and(|status| {
        let is_known = [0, geteuid().as_raw()].contains(&status.uid());
        is_known && status.is_dir() && status.mode() & 0o022 == 0
    });
    if !trusted {
        return Vec::new();
    }
    let names = entries(directory).into_iter();
    names
        .filter_map(|file_name| {
            let name = file_name.strip_prefix(prefix)?.strip_suffix(SUFFIX)?;
            let path = directory.join(&file_name);
            is_held(&path).then(|| (path, decode(name)))
        })
        .collect()
}

/// The lock files in a directory.
fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(SUFFIX))
        .collect()
}

/// Whether a process has locked the file. A file that cannot be opened, such as root's for another
/// user, counts as locked.
fn is_held(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return false,
        Err(_) => return true,
    };
    let is_file = rustix::fs::fstat(&file)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
    // A shared lock, so that several processes may look at the same time.
    is_file
        && rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockShared)
            == Err(Errno::WOULDBLOCK)
}

/// The number of this thread's network namespace, with which all file names begin.
fn file_name_prefix() -> io::Result<String> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")?;
    Ok(format!("{}-", namespace.ino()))
}

fn file_name(name: &str) -> io::Result<String> {
    Ok(format!("{}{}{SUFFIX}", file_name_prefix()?, encode(name)))
}

/// Encodes a name so that it can be a file name that does not lead out of the directory.
pub(crate) fn encode(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            b' ' => "-".to_owned(),
            _ => format!("%{byte:02x}"),
        })
        .collect()
}

pub(crate) fn decode(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'-', _) => bytes.push(b' '),
            (b'%', [high, low, behind @ ..]) => {
                let digits = [*high, *low];
                let text = str::from_utf8(&digits).unwrap_or_default();
                bytes.extend(u8::from_str_radix(text, 16));
                rest = behind;
            }
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// This user's id outside all user namespaces. Inside a user namespace, several users may be root.
fn outside_user() -> u32 {
    let user = geteuid().as_raw();
    UserMap::read().outside(user).unwrap_or(user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn name(what: &str) -> String {
        format!("midspan test/{what} {}", std::process::id())
    }

    #[test]
    fn a_claim_is_seen_while_it_lasts() {
        let name = name("a.b%");
        assert!(beginning_with(&name).unwrap().is_empty());
        let held = take(&name).unwrap().unwrap();
        assert!(take(&name).unwrap().is_none());
        assert_eq!(beginning_with(&name).unwrap(), [""]);
        assert_eq!(holder_of(&name), Some(std::process::id()));
        drop(held);
        assert!(beginning_with(&name).unwrap().is_empty());
        assert_eq!(holder_of(&name), None);
        take(&name).unwrap().unwrap();
    }

    #[test]
    fn of_many_at_once_one_has_it() {
        let name = name("many");
        for _ in 0..20 {
            let barrier = Barrier::new(8);
            let count = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            let held = take(&name).unwrap();
                            // No thread releases the claim before all threads have tried.
                            barrier.wait();
                            held.is_some()
                        })
                    })
                    .collect();
                let results = threads.into_iter().map(|thread| thread.join().unwrap());
                results.filter(|is_held| *is_held).count()
            });
            assert_eq!(count, 1);
        }
    }

    /// Claims come and go while other threads look. A name that no process has can always be
    /// claimed.
    #[test]
    fn looking_takes_nothing() {
        let name = name("look");
        let end = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !end.load(std::sync::atomic::Ordering::Relaxed) {
                        beginning_with(&name).unwrap();
                    }
                });
            }
            for _ in 0..300 {
                assert!(take(&name).unwrap().is_some());
            }
            end.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn a_file_without_a_lock_is_no_claim() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let own = open_own(path).unwrap();
        fs::write(path.join("7-old.lock"), "1\n").unwrap();
        assert!(taken_in(path, "7-").is_empty());
        let held = claim_in(own, "7-old.lock".to_owned()).unwrap().unwrap();
        let found: Vec<_> = taken_in(path, "7-").into_iter().map(|(_, n)| n).collect();
        assert_eq!(found, ["old"]);
        assert!(taken_in(path, "8-").is_empty());
        drop(held);
        assert!(!path.join("7-old.lock").exists());
    }

    #[test]
    fn links_and_directories_of_others_are_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let target = path.join("target");
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, path.join("7-a.lock")).unwrap();
        let own = open_own(path).unwrap();
        assert!(claim_in(own, "7-a.lock".to_owned()).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        let linked = path.join("linked");
        std::os::unix::fs::symlink(path, &linked).unwrap();
        assert!(open_own(&linked).is_err());
        use std::os::unix::fs::PermissionsExt;
        let open = path.join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(open_own(&open).is_err());
        assert!(taken_in(&open, "").is_empty());
    }

    #[test]
    fn names_become_file_names_and_back() {
        for name in ["midspan thin wan0.7", "a/../b", "%-%", "ü"] {
            let encoded = encode(name);
            assert!(!encoded.contains(['/', '.']), "{encoded}");
            assert_eq!(decode(&encoded), name, "{encoded}");
        }
    }
}
