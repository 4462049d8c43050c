//! Programs that a case needs, and the Debian packages that contain them.

use std::path::{Path, PathBuf};

/// The folders in which scripts look for programs: those of Debian's packages.
pub(crate) const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A program or a file that a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needed {
    /// The name of a program, or the path of a file. One part of a path may be `*`: any name.
    pub what: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
}

impl Needed {
    /// A program or file, and its package.
    #[must_use]
    pub const fn new(what: &'static str, package: &'static str) -> Self {
        Self { what, package }
    }

    /// Whether it is installed.
    #[must_use]
    pub fn is_there(&self) -> bool {
        if self.what.starts_with('/') {
            return matches(Path::new("/"), self.what.split('/').skip(1));
        }
        std::env::split_paths(PATH).any(|folder: PathBuf| folder.join(self.what).is_file())
    }
}

/// Whether a file with these parts of a path exists below a folder.
fn matches<'a>(folder: &Path, mut parts: impl Iterator<Item = &'a str> + Clone) -> bool {
    match parts.next() {
        None => folder.exists(),
        Some("*") => std::fs::read_dir(folder).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| matches(&entry.path(), parts.clone()))
        }),
        Some(part) => matches(&folder.join(part), parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_files_are_found() {
        for (what, expected) in [
            ("bash", true),
            ("/bin/bash", true),
            ("/*/bash", true),
            ("/proc/*/status", true),
            ("no-such-program", false),
            ("/bin/no-such-program", false),
            ("/*/no-such-program", false),
        ] {
            assert_eq!(Needed::new(what, "").is_there(), expected, "{what}");
        }
    }
}
