//! Which files a process can reach (landlock(7)), if the kernel has Landlock (since Linux 5.13): a
//! second protection in addition to the list of system calls.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope,
};

/// Contains everything that this version of the crate `landlock` can forbid; the kernel's part of it holds.
const NEWEST: ABI = ABI::V10;
/// The newest version without rules for named sockets.
const WITHOUT_SOCKETS: ABI = ABI::V7;

/// Places that the system's resolver reads.
const RESOLVER: &[&str] = &[
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/run/systemd/resolve",
    "/run/nscd",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/run/connman",
    "/var/lib/sss",
    "/var/db",
    "/var/cache/nscd",
    "/proc/sys/net",
    "/proc/net",
    "/proc/self",
    "/sys/devices/system/cpu",
    "/dev/urandom",
    "/dev/null",
];
/// Files that may be links into any directory that belongs to the program that writes them.
const LINKS: &[&str] = &["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"];

/// How far the kernel restricts access to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landlock {
    /// Completely.
    Full,
    /// As far as this older kernel can.
    Partial,
    /// The kernel has no Landlock, or a filter of the parent process forbids it.
    Absent,
}

/// Permits no file, no signal to other processes, no abstract UNIX socket.
pub(super) fn reach_none() -> Landlock {
    outcome(restrict(NEWEST, &[]))
}

/// Permits the files that the system's resolver reads.
pub(super) fn reach_what_the_resolver_reads() -> Landlock {
    let links = LINKS.iter().filter_map(|path| fs::canonicalize(path).ok());
    let links = links.filter_map(|path| path.parent().map(Path::to_owned));
    // A link into the root directory is ignored, because it would permit the whole file system.
    let links = links.filter(|path| path.parent().is_some());
    let paths: Vec<PathBuf> = RESOLVER.iter().map(PathBuf::from).chain(links).collect();
    outcome(restrict(WITHOUT_SOCKETS, &paths))
}

fn restrict(abi: ABI, readable: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?;
    for path in readable {
        // A file that does not exist needs no rule.
        let Ok(place) = PathFd::new(path) else {
            continue;
        };
        let access = match path.is_dir() {
            true => AccessFs::ReadFile | AccessFs::ReadDir,
            false => AccessFs::ReadFile.into(),
        };
        rules = rules.add_rule(PathBeneath::new(place, access))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

fn outcome(result: Result<RulesetStatus, RulesetError>) -> Landlock {
    match result {
        Ok(RulesetStatus::FullyEnforced) => Landlock::Full,
        Ok(RulesetStatus::PartiallyEnforced) => Landlock::Partial,
        // An error: for example, a filter of the service manager forbids these calls.
        Ok(_) | Err(_) => Landlock::Absent,
    }
}
