//! Signals as something to wait for.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Receives SIGTERM, SIGINT and SIGHUP. Without it they would end the process and leave its
/// routes behind.
pub(super) struct Signals(UnixStream);

impl Signals {
    /// Catches the signals from here on.
    pub fn catch() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self(reader))
    }

    /// Takes the signals that have come; returns how many.
    pub fn take(&self) -> usize {
        let mut bytes = [0; 16];
        (&self.0).read(&mut bytes).unwrap_or(0)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
