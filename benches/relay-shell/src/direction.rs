//! Relay logic that both loops share: one direction of data, and the pool of pipes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::pipe::{PipeFlags, SpliceFlags};

/// Bytes in a pipe.
const PIPE_SIZE: usize = 1 << 20;
/// Most pipes that a thread keeps.
const PIPES_PER_THREAD: usize = 16;
/// Bytes in the buffer that all sessions of a thread share.
const BUFFER_SIZE: usize = 64 << 10;
/// A wake-up that moves fewer bytes ends bulk mode.
const BULK_AT_LEAST: usize = 16 << 10;
/// Reads in one turn, so that a fast session does not delay the others.
const READS_PER_TURN: usize = 16;

/// Buffers and pipes that the sessions of one thread share.
pub struct Shared {
    pipes: Vec<Pipe>,
    buffer: Vec<u8>,
}

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// The event that a direction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Data from its inbound leg.
    Read,
    /// Room in its outbound leg.
    Write,
    /// The direction's next turn; it could continue at once.
    Turn,
    /// No event: all data and its end are forwarded.
    Nothing,
}

enum Held {
    Nothing,
    Bytes(Box<[u8]>, usize),
    InPipe(Box<Pipe>, usize),
}

/// One direction of a session.
pub struct Direction {
    held: Held,
    bulk: bool,
    ended: bool,
    /// The event that the direction waits for.
    pub waits: Waits,
}

impl Shared {
    pub fn new() -> Self {
        Self {
            pipes: Vec::new(),
            buffer: vec![0; BUFFER_SIZE],
        }
    }

    /// A pipe of full size, if the kernel provides one.
    fn take_pipe(&mut self) -> Option<Pipe> {
        if let Some(pipe) = self.pipes.pop() {
            return Some(pipe);
        }
        let (reader, writer) =
            rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        let size = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_SIZE).ok()?;
        (size >= PIPE_SIZE).then_some(Pipe { reader, writer })
    }

    fn give_back(&mut self, pipe: Pipe) {
        if self.pipes.len() < PIPES_PER_THREAD {
            self.pipes.push(pipe);
        }
    }
}

impl Direction {
    pub fn new() -> Self {
        Self {
            held: Held::Nothing,
            bulk: false,
            ended: false,
            waits: Waits::Read,
        }
    }

    /// Moves as much data as possible; sets and returns the event that the direction waits for
    /// next.
    ///
    /// `more`: the inbound leg may have more than a short read shows, for example its end.
    pub fn advance(
        &mut self,
        from: impl AsFd,
        to: impl AsFd,
        more: bool,
        shared: &mut Shared,
    ) -> io::Result<Waits> {
        let (from, to) = (from.as_fd(), to.as_fd());
        self.waits = Waits::Turn;
        for _ in 0..READS_PER_TURN {
            if !self.write_held(to, shared)? {
                self.waits = Waits::Write;
            } else if self.ended {
                // The peer may have closed already; then its reset arrives as an event of its own.
                let _ = rustix::net::shutdown(to, Shutdown::Write);
                self.waits = Waits::Nothing;
            } else if !self.read(from, to, more, shared)? {
                self.waits = Waits::Read;
            }
            if self.waits != Waits::Turn {
                break;
            }
        }
        Ok(self.waits)
    }

    /// Writes held data. Returns whether all of it is written.
    fn write_held(&mut self, to: BorrowedFd<'_>, shared: &mut Shared) -> io::Result<bool> {
        loop {
            let written = match &mut self.held {
                Held::Nothing => return Ok(true),
                Held::Bytes(bytes, start) if *start == bytes.len() => {
                    self.held = Held::Nothing;
                    return Ok(true);
                }
                Held::InPipe(_, 0) => {
                    if let Held::InPipe(pipe, _) = std::mem::replace(&mut self.held, Held::Nothing)
                    {
                        shared.give_back(*pipe);
                    }
                    return Ok(true);
                }
                Held::Bytes(bytes, start) => send(to, &bytes[*start..])?.inspect(|n| *start += n),
                Held::InPipe(pipe, count) => {
                    splice(pipe.reader.as_fd(), to, *count)?.inspect(|n| *count -= n)
                }
            };
            if written.is_none() {
                return Ok(false);
            }
        }
    }

    /// Reads once and writes as much as possible. Returns whether there may be more to read.
    fn read(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        more: bool,
        shared: &mut Shared,
    ) -> io::Result<bool> {
        if self.bulk
            && let Some(pipe) = shared.take_pipe()
        {
            let Some(count) = splice(from, pipe.writer.as_fd(), PIPE_SIZE)? else {
                shared.give_back(pipe);
                return Ok(false);
            };
            self.ended = count == 0;
            self.bulk = count >= BULK_AT_LEAST;
            self.held = Held::InPipe(Box::new(pipe), count);
            return Ok(true);
        }
        let count = match rustix::net::recv(from, &mut shared.buffer[..], RecvFlags::empty()) {
            Ok((count, _)) => count,
            Err(Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.ended = count == 0;
        self.bulk = count == BUFFER_SIZE;
        let bytes = &shared.buffer[..count];
        let written = send(to, bytes)?.unwrap_or(0);
        if written < count {
            self.held = Held::Bytes(bytes[written..].into(), 0);
        }
        Ok(more || self.ended || self.bulk || written < count)
    }
}

fn send(to: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    if bytes.is_empty() {
        return Ok(Some(0));
    }
    would_block(rustix::net::send(to, bytes, SendFlags::NOSIGNAL))
}

fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, count: usize) -> io::Result<Option<usize>> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    would_block(rustix::pipe::splice(from, None, to, None, count, flags))
}

fn would_block(result: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
