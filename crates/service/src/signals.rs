//! Signals as something to wait for.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Receives SIGTERM, SIGINT and SIGHUP. Without it they would end the process and leave its
/// routes behind.
pub struct Signals {
    end: UnixStream,
    reload: UnixStream,
}

impl Signals {
    /// Catches the signals from here on, and those that have waited since the former program of this process.
    pub fn catch() -> io::Result<Self> {
        let signals = Self {
            end: catch(&[SIGTERM, SIGINT])?,
            reload: catch(&[SIGHUP])?,
        };
        midspan_linux::signals::receive()?;
        Ok(signals)
    }

    /// Readable when a signal to end has come.
    pub fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Readable when a signal to reload has come.
    pub fn reload(&self) -> BorrowedFd<'_> {
        self.reload.as_fd()
    }

    /// Whether a signal to end has come that was not taken.
    pub fn is_to_end(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.end, PollFlags::IN)];
        let at_once = Timespec::default();
        poll(&mut descriptors, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Takes the signals to end that have come; whether there was one.
    pub fn take_end(&self) -> bool {
        take(&self.end)
    }

    /// Takes the signals to reload that have come; whether there was one.
    pub fn take_reload(&self) -> bool {
        take(&self.reload)
    }
}

fn catch(signals: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in signals {
        pipe::register(*signal, writer.try_clone()?)?;
    }
    Ok(reader)
}

fn take(mut stream: &UnixStream) -> bool {
    stream.read(&mut [0; 64]).is_ok_and(|count| count > 0)
}
