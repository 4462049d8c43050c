//! The programs of Debian that the lab runs.

use std::path::PathBuf;
use std::process::Command;

use crate::LabError;

/// A program of Debian that the lab runs.
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
    /// The proxy for comparison.
    Haproxy,
}

impl Program {
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Curl => ("curl", "curl"),
            Self::Nginx => ("nginx", "nginx-light"),
            Self::Iperf3 => ("iperf3", "iperf3"),
            Self::Ping => ("ping", "iputils-ping"),
            Self::Haproxy => ("haproxy", "haproxy"),
        }
    }

    /// The name of the executable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.names().0
    }

    /// The path of the executable. If the program is missing, the error contains the package to
    /// install.
    pub fn find(self) -> Result<PathBuf, LabError> {
        let (name, package) = self.names();
        // An ordinary user's PATH often lacks the folders with servers.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path)
            .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from));
        for folder in folders {
            let file = folder.join(name);
            if file.is_file() {
                return Ok(file);
            }
        }
        Err(LabError::MissingProgram { name, package })
    }

    /// A command that runs the program, with standard input closed.
    pub fn command(self) -> Result<Command, LabError> {
        let mut command = Command::new(self.find()?);
        command.stdin(std::process::Stdio::null());
        Ok(command)
    }
}
