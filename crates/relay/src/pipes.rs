//! The pipes of one thread, shared by its sessions.
//!
//! A session takes a pipe for a splice and gives it back as soon as the pipe is empty. The number of pipes is
//! bounded. A pipe that does not have its full size is not used: if a user's pipes exceed
//! `fs.pipe-user-pages-soft`, the kernel silently makes pipes of 8 KiB for a process without
//! `CAP_SYS_RESOURCE` and `CAP_SYS_ADMIN`, and copying is faster than such a pipe.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use midspan_units::{Time, TimeSpan};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

use super::system;
use crate::seeded_faults::{self, Fault};

/// Bytes in the shared buffer; also the largest buffer that a session can have for itself, per
/// direction.
pub const BUFFER_SIZE: usize = 32 << 10;

/// After the kernel has refused a pipe, no pipe is requested for this time.
const PAUSE: TimeSpan = TimeSpan::from_seconds(1);

/// An empty pipe of the pool, or a pipe with the bytes of one direction.
#[derive(Debug)]
pub struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Another relay has made it, perhaps with another size, so it is closed when it is empty.
    is_taken_over: bool,
}

impl Pipe {
    /// The read end.
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// The write end.
    pub fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }
}

/// The pipes of one thread.
#[derive(Debug)]
pub struct Pipes {
    at_rest: Vec<Pipe>,
    /// All pipes, free ones and pipes in use.
    count: usize,
    limit: usize,
    size: usize,
    refused_until: Time,
}

impl Pipes {
    /// At most `limit` pipes of `size` bytes each; none exists yet.
    pub const fn new(limit: usize, size: usize) -> Self {
        Self {
            at_rest: Vec::new(),
            count: 0,
            limit,
            size,
            refused_until: Time::ZERO,
        }
    }

    /// An empty pipe of full size; `None` if there is none at present.
    pub fn take(&mut self, now: Time) -> Option<Pipe> {
        if let Some(pipe) = self.at_rest.pop() {
            return Some(pipe);
        }
        if self.count >= self.limit || now < self.refused_until {
            return None;
        }
        let pipe = make(self.size);
        match pipe {
            Some(_) => self.count += 1,
            None => self.refused_until = now + PAUSE,
        }
        pipe
    }

    /// Returns an empty pipe to the pool.
    pub fn give_back(&mut self, pipe: Pipe) {
        if seeded_faults::is(Fault::PipeLeaked) {
            return;
        }
        match pipe.is_taken_over {
            true => self.discard(pipe),
            false => self.at_rest.push(pipe),
        }
    }

    /// A pipe of another relay, with bytes of a session: its read end and its write end. It counts even beyond the
    /// limit.
    pub fn take_over(&mut self, [reader, writer]: [OwnedFd; 2]) -> Pipe {
        self.count += 1;
        Pipe {
            reader,
            writer,
            is_taken_over: true,
        }
    }

    /// Closes a pipe that is not empty; its bytes are lost.
    pub fn discard(&mut self, pipe: Pipe) {
        drop(pipe);
        self.count -= 1;
    }

    /// Closes the pipes at rest; those of sessions are lost.
    pub fn clear(&mut self) {
        self.at_rest.clear();
        self.count = 0;
    }

    /// Size of each pipe in bytes.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Pipes that exist.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Pipes that sessions use.
    pub fn in_use(&self) -> usize {
        self.count - self.at_rest.len()
    }
}

fn make(size: usize) -> Option<Pipe> {
    let (reader, writer) = system::pipe().ok()?;
    fcntl_setpipe_size(&writer, size).ok()?;
    // The size is read again, because the kernel may have made a smaller pipe.
    (fcntl_getpipe_size(&writer).ok()? >= size).then_some(Pipe {
        reader,
        writer,
        is_taken_over: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_used_again_and_bounded() {
        let mut pipes = Pipes::new(2, 64 << 10);
        let first = pipes.take(Time::ZERO).unwrap();
        let second = pipes.take(Time::ZERO).unwrap();
        assert!(pipes.take(Time::ZERO).is_none());
        assert_eq!((pipes.count(), pipes.in_use()), (2, 2));
        pipes.give_back(first);
        assert_eq!((pipes.count(), pipes.in_use()), (2, 1));
        pipes.discard(second);
        assert_eq!((pipes.count(), pipes.in_use()), (1, 0));
        assert!(pipes.take(Time::ZERO).is_some());
        assert!(pipes.take(Time::ZERO).is_some());
    }

    #[test]
    fn a_pipe_the_kernel_does_not_give_is_not_asked_for_again_at_once() {
        // No kernel makes a pipe of 4 GiB.
        let mut pipes = Pipes::new(2, 1 << 32);
        assert!(pipes.take(Time::ZERO).is_none());
        assert_eq!(pipes.count(), 0);
        assert_eq!(pipes.refused_until, Time::ZERO + PAUSE);
    }
}
