//! Memory limits of the machine, of this process's cgroups and of the kernel's TCP.
//!
//! The limits are read from files, so the helper and `midspan check` read them, never the relay.

use std::fs;
use std::path::{Component, Path, PathBuf};

use midspan_policy::memory_bounds::MemoryBounds;

/// Most parent groups and mounts that are checked, far more than there are.
const MOST: usize = 256;

/// The lowest limit of a cgroup, and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLimit {
    /// In bytes.
    pub bytes: u64,
    /// `memory.max` or `memory.limit_in_bytes`.
    pub file: PathBuf,
}

/// The present memory limits of this process.
#[must_use]
pub fn bounds() -> MemoryBounds {
    bounds_below(Path::new("/"))
}

/// The lowest limit of this process's cgroups.
#[must_use]
pub fn group_limit() -> Option<GroupLimit> {
    group_limit_below(Path::new("/"))
}

/// The same below another root directory.
pub(crate) fn bounds_below(root: &Path) -> MemoryBounds {
    MemoryBounds {
        machine: machine(root),
        group: group_limit_below(root).map(|limit| limit.bytes),
        pressure: pressure(root),
    }
}

fn machine(root: &Path) -> u64 {
    let told = fs::read_to_string(root.join("proc/meminfo")).ok();
    let line = told.as_deref().and_then(|text| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("MemTotal:"))
    });
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or_else(
        || {
            let machine = rustix::system::sysinfo();
            #[allow(clippy::useless_conversion)]
            let total = u64::from(machine.totalram);
            total.saturating_mul(machine.mem_unit.into())
        },
        |kibibytes| kibibytes.saturating_mul(1024),
    )
}

/// The second number of `tcp_mem`, which counts pages.
fn pressure(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/sys/net/ipv4/tcp_mem")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

fn group_limit_below(root: &Path) -> Option<GroupLimit> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mounts = mounts.lines().take(MOST).filter_map(Mount::read);
    mounts
        .filter_map(|mount| mount.limit(root, &groups))
        .min_by_key(|limit| limit.bytes)
}

/// A mounted hierarchy of cgroups that may limit memory.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The group that is mounted.
    of: PathBuf,
    /// The mount point.
    at: PathBuf,
    /// Whether this is version 2 of cgroups.
    is_unified: bool,
}

impl Mount {
    /// From a line of `/proc/self/mountinfo` (proc(5)).
    fn read(line: &str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (of, at) = (unescaped(mount.next()?), unescaped(mount.next()?));
        let mut kind = kind.split(' ');
        let is_unified = match kind.next()? {
            "cgroup2" => true,
            "cgroup" => {
                let mut options = kind.nth(1)?.split(',');
                options.find(|option| *option == "memory")?;
                false
            }
            _ => return None,
        };
        Some(Self {
            of: of.into(),
            at: at.into(),
            is_unified,
        })
    }

    /// The lowest limit of this process's group and the groups above it.
    fn limit(&self, root: &Path, groups: &str) -> Option<GroupLimit> {
        let group = groups.lines().find_map(|line| {
            let (number, line) = line.split_once(':')?;
            let (controllers, path) = line.split_once(':')?;
            let is_ours = match self.is_unified {
                true => number == "0" && controllers.is_empty(),
                false => controllers.split(',').any(|name| name == "memory"),
            };
            is_ours.then(|| Path::new(path))
        })?;
        // In a cgroup namespace, groups above it are not visible: "/../other".
        let below = group
            .strip_prefix(&self.of)
            .unwrap_or_else(|_| Path::new(""));
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        let below = match below.components().all(is_plain) {
            true => below,
            false => Path::new(""),
        };
        let name = match self.is_unified {
            true => "memory.max",
            false => "memory.limit_in_bytes",
        };
        below
            .ancestors()
            .take(MOST)
            .filter_map(|group| {
                let file = self.at.join(group).join(name);
                let text = fs::read_to_string(root.join(file.strip_prefix("/").ok()?)).ok()?;
                // "max", or a very large number, means no limit.
                let bytes: u64 = text.trim().parse().ok()?;
                (bytes < 1 << 60).then_some(GroupLimit { bytes, file })
            })
            .min_by_key(|limit| limit.bytes)
    }
}

/// A path of `mountinfo`, in which spaces and the like are octal numbers.
fn unescaped(path: &str) -> String {
    let mut parts = path.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match (code, part.get(3..)) {
            (Some(code), Some(rest)) if code.is_ascii() => {
                plain.push(char::from(code));
                plain.push_str(rest);
            }
            _ => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with files, some of which are `proc`'s.
    fn machine_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let always = [
            (
                "proc/meminfo",
                "MemTotal:        1003520 kB\nMemFree: 5 kB\n",
            ),
            ("proc/sys/net/ipv4/tcp_mem", "11000\t15360\t22000\n"),
        ];
        for (name, content) in always.iter().chain(files) {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        root
    }

    const UNIFIED: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
    const HYBRID: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        34 31 0:31 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn without_a_group_the_machine_and_tcp_are_known() {
        let root = machine_with(&[]);
        let found = bounds_below(root.path());
        let page = rustix::param::page_size() as u64;
        assert_eq!(found.machine, 1_003_520 * 1024);
        assert_eq!((found.group, found.pressure), (None, Some(15_360 * page)));
    }

    #[test]
    fn the_tightest_of_our_group_and_its_ancestors_counts() {
        let root = machine_with(&[
            ("proc/self/cgroup", "0::/system.slice/midspan.service\n"),
            ("proc/self/mountinfo", UNIFIED),
            (
                "sys/fs/cgroup/system.slice/midspan.service/memory.max",
                "536870912\n",
            ),
            ("sys/fs/cgroup/system.slice/memory.max", "268435456\n"),
            ("sys/fs/cgroup/other.slice/memory.max", "1048576\n"),
        ]);
        let limit = group_limit_below(root.path()).unwrap();
        assert_eq!(limit.bytes, 256 << 20);
        assert_eq!(
            limit.file,
            Path::new("/sys/fs/cgroup/system.slice/memory.max")
        );
        assert_eq!(bounds_below(root.path()).budget().0, 192 << 20);
        let file = "sys/fs/cgroup/system.slice/memory.max";
        fs::write(root.path().join(file), "max\n").unwrap();
        assert_eq!(group_limit_below(root.path()).unwrap().bytes, 512 << 20);
    }

    #[test]
    fn version_1_beside_version_2() {
        let files = [
            ("proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/\n0::/\n"),
            ("proc/self/mountinfo", HYBRID),
            // The kernel's text if no limit is set.
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ];
        let root = machine_with(&files);
        assert_eq!(group_limit_below(root.path()), None);
        let file = root
            .path()
            .join("sys/fs/cgroup/memory/box/memory.limit_in_bytes");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "134217728\n").unwrap();
        assert_eq!(group_limit_below(root.path()).unwrap().bytes, 128 << 20);
    }

    #[test]
    fn in_a_container_only_the_group_that_is_mounted_is_seen() {
        // The host's group is mounted; in a cgroup namespace its name is unknown.
        for (group, of) in [
            ("0::/docker/7c", "/docker/7c"),
            ("0::/", "/"),
            ("0::/../7c", "/../7c"),
            ("0::/../../elsewhere", "/"),
            ("0::/docker/7c", "/docker/9d"),
        ] {
            let mount = format!("31 23 0:28 {of} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
            let root = machine_with(&[
                ("proc/self/cgroup", group),
                ("proc/self/mountinfo", &mount),
                ("sys/fs/cgroup/memory.max", "67108864"),
                ("sys/memory.max", "1"),
                ("memory.max", "1"),
            ]);
            let limit = group_limit_below(root.path()).map(|limit| limit.bytes);
            assert_eq!(limit, Some(64 << 20), "{group} {of}");
        }
    }

    #[test]
    fn nonsense_is_no_limit() {
        for (group, mounts, limit) in [
            ("", UNIFIED, "1"),
            ("0:", UNIFIED, "1"),
            ("0::/", "31 23 - cgroup2\n - cgroup\n31 23 0:28 / - x", "1"),
            ("0::/", UNIFIED, "-1"),
            ("0::/", UNIFIED, "99999999999999999999999"),
            ("0::/", UNIFIED, ""),
        ] {
            let root = machine_with(&[
                ("proc/self/cgroup", group),
                ("proc/self/mountinfo", mounts),
                ("sys/fs/cgroup/memory.max", limit),
            ]);
            assert_eq!(
                group_limit_below(root.path()),
                None,
                "{group} {mounts} {limit}"
            );
        }
        assert_eq!(unescaped("/a\\040b\\"), "/a b\\");
        assert_eq!(unescaped("/a\\999"), "/a\\999");
    }
}
