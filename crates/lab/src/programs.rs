//! The programs that the lab runs.

use std::path::PathBuf;
use std::process::Command;

use crate::LabError;

/// A program that the lab runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The client for downloads and uploads.
    Curl,
    /// The web server.
    Nginx,
    /// Bulk transfers.
    Iperf3,
    /// A measurement of round trips with a clock that is not the emulator's.
    Ping,
    /// A proxy for comparison.
    Haproxy,
    /// Another one, which is no package of Debian.
    Pepsal,
    /// Runs a program in namespaces of its own.
    Unshare,
}

impl Program {
    /// The executable, and its package of Debian.
    const fn names(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Curl => ("curl", Some("curl")),
            Self::Nginx => ("nginx", Some("nginx-light")),
            Self::Iperf3 => ("iperf3", Some("iperf3")),
            Self::Ping => ("ping", Some("iputils-ping")),
            Self::Haproxy => ("haproxy", Some("haproxy")),
            Self::Pepsal => ("pepsal", None),
            Self::Unshare => ("unshare", Some("util-linux")),
        }
    }

    /// The name of the executable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.names().0
    }

    /// The path of the executable. If the program is missing, the error contains the package to
    /// install, or the place of its source.
    pub fn find(self) -> Result<PathBuf, LabError> {
        let (name, package) = self.names();
        // An ordinary user's PATH often lacks the folders with servers.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(
            ["/usr/local/sbin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from),
        );
        for folder in folders {
            let file = folder.join(name);
            if file.is_file() {
                return Ok(file);
            }
        }
        let remedy = package.map_or_else(
            || "it is no package of Debian; docs/lab.md describes how to build it".to_owned(),
            |package| format!("apt-get install {package}"),
        );
        Err(LabError::MissingProgram { name, remedy })
    }

    /// A command that runs the program, with standard input closed.
    pub fn command(self) -> Result<Command, LabError> {
        let mut command = Command::new(self.find()?);
        command.stdin(std::process::Stdio::null());
        Ok(command)
    }

    /// The option that makes the program print its version. `PEPsal` has none.
    const fn version_option(self) -> Option<&'static str> {
        match self {
            Self::Curl | Self::Iperf3 | Self::Unshare => Some("--version"),
            Self::Nginx | Self::Haproxy => Some("-v"),
            Self::Ping => Some("-V"),
            Self::Pepsal => None,
        }
    }

    /// Name and version as the program prints them, such as "curl 7.88.1"; only the name if it prints
    /// none. `None` if the program is missing.
    #[must_use]
    pub fn version(self) -> Option<String> {
        let mut command = self.command().ok()?;
        let Some(option) = self.version_option() else {
            return Some(self.name().to_owned());
        };
        let output = command.arg(option).output().ok()?;
        // nginx prints it on standard error.
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find(|line| !line.trim().is_empty());
        let version = line.map_or(self.name(), first_words);
        Some(version.to_owned())
    }
}

/// A line without remarks in brackets or behind a dash, and with at most 80 characters.
fn first_words(line: &str) -> &str {
    let line = line.split(" (").next().unwrap_or(line);
    let line = line.split(" - ").next().unwrap_or(line).trim();
    let end = line.char_indices().nth(80).map_or(line.len(), |(at, _)| at);
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::first_words;

    #[test]
    fn a_version_is_the_beginning_of_a_line() {
        for (line, expected) in [
            (
                "curl 7.88.1 (x86_64-pc-linux-gnu) libcurl/7.88.1",
                "curl 7.88.1",
            ),
            ("nginx version: nginx/1.22.1", "nginx version: nginx/1.22.1"),
            (
                "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/",
                "HAProxy version 2.6.12-1+deb12u4 2026/10/17",
            ),
        ] {
            assert_eq!(first_words(line), expected);
        }
        assert_eq!(first_words(&"é".repeat(200)).chars().count(), 80);
    }
}
