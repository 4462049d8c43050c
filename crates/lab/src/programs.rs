//! The programs that the lab runs.

use std::path::PathBuf;
use std::process::Command;

use crate::LabError;

/// A program that the lab runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}
