//! This program again, as a process that works for the helper.

use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};

use midspan_linux::{descriptor_passing, process};

use crate::Error;

/// The process; it is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    child: Child,
    /// Its standard input is the other end.
    pub connection: OwnedFd,
}

impl OwnProcess {
    /// Starts the process; `action` describes the action in an error.
    pub fn start(arguments: &[String], action: &'static str) -> Result<Self, Error> {
        let (connection, theirs) =
            descriptor_passing::pair().map_err(Error::system("open a socket pair"))?;
        let child = process::this_program(arguments, theirs)
            .spawn()
            .map_err(Error::system(action))?;
        Ok(Self { child, connection })
    }

    /// How the process has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
