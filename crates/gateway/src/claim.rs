//! Only one process at a time: locked files, one for each name and network namespace.
//!
//! Rules and routing tables belong to a network namespace, and so do claims: the number of the
//! namespace is a part of the file's name. The lock (flock(2)) goes with the process, however that
//! ends. A file lies where only its user can write: an abstract socket name, which would need no
//! file, could be taken by any process of the machine, and would keep Midspan from starting.

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

/// Files with other endings are none of ours.
const SUFFIX: &str = ".lock";
/// Whoever only looks whether a claim is taken holds its lock for an instant.
const LOOK: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);
/// Of a process number.
const NUMBER_LIMIT: u64 = 20;

/// What a process can claim. Each claim has a name besides: that of a table or an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The nftables table of this name, and its routes and marks.
    Interception,
    /// The routing tables from this number on.
    InitialWindows,
    /// ACK thinning on the interface of this name.
    Thinning,
}

impl Kind {
    /// How the names of such claims begin.
    const fn beginning(self) -> &'static str {
        match self {
            Self::Interception => "midspan interception ",
            Self::InitialWindows => "midspan initial windows ",
            Self::Thinning => "midspan thin ",
        }
    }
}

/// Takes a name of this kind; `None` where another process has it.
///
/// # Errors
/// There is no directory that only this user can write to, or it cannot be used.
pub(crate) fn claim(kind: Kind, name: impl Display) -> io::Result<Option<Claim>> {
    take(&format!("{}{name}", kind.beginning()))
}

/// The names of this kind that processes have taken in this network namespace.
///
/// # Errors
/// The number of the network namespace cannot be read.
pub(crate) fn taken(kind: Kind) -> io::Result<Vec<String>> {
    beginning_with(kind.beginning())
}

/// The process that has a name of this kind; `None` where nobody has it or the file cannot be
/// read.
#[must_use]
pub(crate) fn holder(kind: Kind, name: &str) -> Option<u32> {
    holder_of(&format!("{}{name}", kind.beginning()))
}

/// A name that this process alone has in its network namespace, until this value goes.
#[derive(Debug)]
pub struct Claim {
    directory: OwnedFd,
    file_name: String,
    _lock: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Before the lock goes, so that it cannot be another's file. One that stays is not locked.
        let _ = rustix::fs::unlinkat(&self.directory, &self.file_name, AtFlags::empty());
    }
}

fn take(name: &str) -> io::Result<Option<Claim>> {
    let (path, directory) = own_directory()?;
    // A process of root, or one with another environment, may have its files elsewhere.
    if others(&path).any(|(_, found)| found == name) {
        return Ok(None);
    }
    claim_in(directory, file_name(name)?)
}

/// The names with this beginning that processes have taken in this network namespace, without the
/// beginning.
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

/// Removes files of processes that were killed, of all network namespaces; returns how many.
/// Files that are locked stay.
#[must_use]
pub(crate) fn remove_stale() -> usize {
    let Ok((path, directory)) = own_directory() else {
        return 0;
    };
    let remove = |name: &String| match claim_in_once(&directory, name) {
        // Removed while it is locked, so that nobody else can have taken it meanwhile.
        Ok(Try::Locked(_lock)) => rustix::fs::unlinkat(&directory, name, AtFlags::empty()).is_ok(),
        _ => false,
    };
    entries(&path).iter().filter(|name| remove(name)).count()
}

/// What became of an attempt to lock a file.
enum Try {
    Locked(File),
    /// Another process has it, perhaps to look only.
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
    // Whoever had it before may have removed the file after it was opened here.
    let now = rustix::fs::statat(directory, file_name, AtFlags::SYMLINK_NOFOLLOW);
    let opened = rustix::fs::fstat(&file)?;
    Ok(match now {
        Ok(now) if (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino) => Try::Locked(file),
        _ => Try::Gone,
    })
}

/// Where claims may lie, best first. Root's have one place whatever the environment says.
fn candidates() -> Vec<PathBuf> {
    let user = outside_user();
    let variable = |name| {
        let value = env::var(name).ok()?;
        // systemd names several directories with colons between.
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

/// The first directory that belongs to this user and that nobody else may write to; made where
/// there is none.
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

/// Claims of this network namespace in the other directories.
fn others(own: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    let prefix = file_name_prefix().unwrap_or_default();
    let paths = candidates().into_iter().filter(move |path| path != own);
    paths.flat_map(move |path| taken_in(&path, &prefix))
}

/// The claims that are held in a directory of this user or of root: their files and names.
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

/// Whether a process has locked the file. One of root's that another user cannot open counts as
/// locked.
fn is_held(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return false,
        Err(_) => return true,
    };
    let is_file = rustix::fs::fstat(&file)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
    // Shared, so that several processes may look at a time.
    is_file
        && rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockShared)
            == Err(Errno::WOULDBLOCK)
}

/// The number of this thread's network namespace, in front of all file names.
fn file_name_prefix() -> io::Result<String> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")?;
    Ok(format!("{}-", namespace.ino()))
}

fn file_name(name: &str) -> io::Result<String> {
    Ok(format!("{}{}{SUFFIX}", file_name_prefix()?, encode(name)))
}

/// What may stand in a file's name, without a way out of the directory.
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

/// This user's id on the machine, also inside a user namespace, where several users may be root.
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
                            // Nobody gives it back before all have tried.
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

    /// While others look, claims come and go, and no claim that nobody has is refused.
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
