//! Debian's releases, and the mirror from which they come.

use std::fs;

use crate::error::Error;

/// A release of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Release {
    /// Debian 12 with Linux 6.1.
    Bookworm,
    /// Debian 13 with Linux 6.12.
    Trixie,
}

impl Release {
    /// The name in sources of packages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    /// The sources of its packages in the format of `sources.list`: this machine's own mirrors of
    /// Debian, with the other release's name.
    pub fn sources(self) -> Result<String, Error> {
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let own = codename(&system).unwrap_or_else(|| "unknown".to_owned());
        let found: Vec<String> = [
            "/etc/apt/sources.list.d/debian.sources",
            "/etc/apt/sources.list",
        ]
        .into_iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .flat_map(|text| sources(&text, &own, self.name()))
        .collect();
        if found.is_empty() {
            return Err(Error::NoMirror(own));
        }
        Ok(found.join("\n") + "\n")
    }
}

/// The value of `VERSION_CODENAME` in `/etc/os-release`.
fn codename(system: &str) -> Option<String> {
    let value = system
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(value.trim_matches('"').to_owned())
}

/// Converts a file with apt's package sources, in either of apt's two formats, to lines of `sources.list`.
/// There is one line for each mirror address and each suite of Debian's release `own`. Each line has the name
/// of the release `wanted` in place of `own`, and the component `main`.
fn sources(text: &str, own: &str, wanted: &str) -> Vec<String> {
    let line = |address: &str, suite: &str| {
        let renamed = suite.replacen(own, wanted, 1);
        suite
            .starts_with(own)
            .then(|| format!("deb {address} {renamed} main"))
    };
    let one_line = text.lines().filter_map(|source| {
        let mut words = source.strip_prefix("deb ")?.split_whitespace().peekable();
        if words.peek()?.starts_with('[') {
            words.by_ref().find(|word| word.ends_with(']'))?;
        }
        line(words.next()?, words.next()?)
    });
    // Paragraphs of `Key: value`.
    let paragraphs = text.split("\n\n").flat_map(|paragraph| {
        let value = |key: &str| {
            paragraph
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
                .unwrap_or_default()
                .split_whitespace()
        };
        value("URIs")
            .flat_map(|address| value("Suites").filter_map(move |suite| line(address, suite)))
            .collect::<Vec<_>>()
    });
    one_line.chain(paragraphs).collect()
}

#[cfg(test)]
mod tests {
    use super::{codename, sources};

    #[test]
    fn mirrors_of_both_formats_are_found() {
        let lines = "deb-src http://a.example/debian bookworm main\n\
                     deb [signed-by=/a b=c] http://a.example/debian bookworm main contrib\n\
                     deb http://b.example/x stable main\n";
        assert_eq!(
            sources(lines, "bookworm", "trixie"),
            ["deb http://a.example/debian trixie main"]
        );
        let paragraphs = "Types: deb\n# URIs: http://old.example\nURIs: http://a.example/debian\n\
                          Suites: bookworm bookworm-updates\nComponents: main\n\n\
                          Types: deb\nURIs: http://a.example/security\nSuites: bookworm-security\n";
        assert_eq!(
            sources(paragraphs, "bookworm", "bookworm"),
            [
                "deb http://a.example/debian bookworm main",
                "deb http://a.example/debian bookworm-updates main",
                "deb http://a.example/security bookworm-security main",
            ]
        );
    }

    #[test]
    fn a_foreign_mirror_is_not_used() {
        assert!(sources("deb http://a.example nodistro main", "bookworm", "trixie").is_empty());
        assert_eq!(
            codename("ID=debian\nVERSION_CODENAME=trixie\n").as_deref(),
            Some("trixie")
        );
        assert_eq!(codename(""), None);
    }
}
