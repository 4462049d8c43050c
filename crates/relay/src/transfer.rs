//! Carries out a [`Direction`]'s actions on the kernel's sockets.
//!
//! Small data is read into one buffer that all sessions of a thread share, and written at once; bytes for
//! which the outbound leg has no room are kept in a buffer of their own size. Bulk data passes through a pipe
//! of the pool, or is copied in the same way if the pool has no pipe or a [`Throttle`] limits the writing.
//! The buffer and the pipe are given back before the next read.
//!
//! `SPLICE_F_MORE` and `MSG_MORE` are never set, so all data is sent at once.

mod handed;

use std::os::fd::AsFd;
use std::sync::Arc;

use midspan_explicit::http::{Side as Message, Wanted};
use midspan_policy::memory_share::PIECE;
use midspan_units::Time;
use rustix::io::Errno;

use super::direction::{Action, BULK_AT_LEAST, Direction, Method, Reading};
use super::exchange::Framed;
use super::leg_socket::LegSocket;
use super::limits::Limits;
use super::meter::Meter;
use super::pipes::{BUFFER_SIZE, Pipe, Pipes};
use super::system;
use super::throttle::{CapBy, Throttle};
use crate::seeded_faults::{self, Fault};

pub use handed::{HeldData, TakenData};

/// Resources that the sessions of one thread share.
#[derive(Debug)]
pub struct Shared {
    buffer: Box<[u8]>,
    /// Bytes to send instead of those in the buffer.
    written_anew: Vec<u8>,
    /// Whether clients must close after their answer.
    pub is_closing: bool,
    /// The pool of pipes.
    pub pipes: Pipes,
    /// How much the sessions may read.
    pub meter: Meter,
    /// Splices that became copies.
    pub pipe_shortages: u64,
}

impl Shared {
    /// Resources with this pool of pipes, under these limits.
    pub fn new(pipes: Pipes, limits: Arc<Limits>) -> Self {
        Self {
            buffer: vec![0; BUFFER_SIZE].into_boxed_slice(),
            written_anew: Vec::new(),
            is_closing: false,
            pipes,
            meter: Meter::new(limits),
            pipe_shortages: 0,
        }
    }
}

/// One of a direction's two legs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The leg from which its data comes.
    Inbound,
    /// The leg to which its data goes.
    Outbound,
}

/// The result of one turn.
#[derive(Debug, Default)]
pub struct Moved {
    /// Bytes written after a copy.
    pub copied: u64,
    /// Bytes written by splice.
    pub spliced: u64,
    /// The leg that failed, and its error.
    pub failed: Option<(Side, Errno)>,
    /// The turn ended before the work was done.
    pub unfinished: bool,
    /// The kernel was short of memory: the call has to be repeated after a moment.
    pub starved: bool,
    /// Bytes read.
    pub read: u64,
    /// When the rest may be written.
    pub resume_at: Option<Time>,
    /// There is more to read than the client's rate permits at present.
    pub is_held_back: bool,
}

/// The place of the bytes that [`Direction::held`] counts.
#[derive(Debug)]
enum Held {
    Nothing,
    /// In memory of their own. Few sessions hold bytes there, so this part is not in the session.
    Buffer(Box<HeldBuffer>),
    Pipe(Pipe),
}

#[derive(Debug)]
struct HeldBuffer {
    bytes: Box<[u8]>,
    /// The first byte that was not written.
    start: u32,
}

impl HeldBuffer {
    /// The bytes that were not written.
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.start as usize..).unwrap_or_default()
    }
}

impl Held {
    fn buffer(bytes: Box<[u8]>) -> Self {
        Self::Buffer(Box::new(HeldBuffer { bytes, start: 0 }))
    }
}

/// A direction and the bytes that it holds.
#[derive(Debug)]
pub struct Transfer {
    /// The state machine.
    pub direction: Direction,
    /// Its buffers are bounded, because memory is short.
    pub is_bounded: bool,
    /// Then a splice reads at most this many [pieces](PIECE).
    pub pieces: u8,
    /// Its outbound leg already has keep-alive.
    pub is_kept_alive: bool,
    /// A splice into its outbound leg, or a negotiation, may have swallowed an error of this leg.
    hides_failure: bool,
    held: Held,
    /// Limits of its writing, if there are any.
    throttle: Option<Box<Throttle>>,
}

impl Transfer {
    /// A transfer between two open legs.
    pub const fn new() -> Self {
        Self {
            direction: Direction::new(),
            is_bounded: false,
            pieces: 1,
            is_kept_alive: false,
            hides_failure: false,
            held: Held::Nothing,
            throttle: None,
        }
    }

    /// The limits of its writing; there are none before the first call.
    pub fn throttle(&mut self) -> &mut Throttle {
        self.throttle.get_or_insert_default()
    }

    /// Whether an error of its outbound leg may have been swallowed.
    pub const fn may_hide_failure(&self) -> bool {
        self.hides_failure
    }

    /// Removes a cap of the data in flight.
    pub fn lift_cap(&mut self, by: CapBy) {
        self.throttle.take_if(|throttle| throttle.lift_cap(by));
    }

    /// Removes the limit of the room for sending ahead.
    pub fn lift_room(&mut self) {
        self.throttle.take_if(|throttle| throttle.lift_room());
    }

    /// Moves as much data as possible from one leg to the other, with at most as many actions as
    /// [a turn has](Direction::actions_per_turn). The data of the last read is written even so.
    ///
    /// `last`: the other direction is complete, and both sockets will be closed after this direction. Closing
    /// sends the FIN, so the end is passed on without a `shutdown(2)`. `doubtful`: an end that is read may be
    /// a reset, and is checked ([`verify_end`]).
    ///
    /// With `framing`, only this HTTP message is moved, and no data behind it.
    pub fn advance(
        &mut self,
        [from, to]: [&LegSocket; 2],
        (last, doubtful): (bool, bool),
        mut framing: Option<(&mut Framed, Message)>,
        shared: &mut Shared,
        now: Time,
    ) -> Moved {
        let mut moved = Moved::default();
        let mut actions = 0;
        while actions < self.direction.actions_per_turn() || self.direction.held() > 0 {
            actions += 1;
            let action = self.direction.next();
            let (before, permitted) = (moved.read, shared.meter.left());
            if permitted == 0 && self.direction.is_to_read() {
                moved.is_held_back = true;
                return moved;
            }
            let result = match (action, &mut framing) {
                (Action::Read(method), Some((framed, message))) => match framed.wanted(*message) {
                    Wanted::Opaque(most) => {
                        let legs = ([from, to], doubtful, most.min(permitted));
                        let result = self.read(method, legs, shared, now, &mut moved);
                        framed.handle_passed(*message, moved.read - before);
                        result
                    }
                    Wanted::Bytes => {
                        self.look([from, to], doubtful, (framed, *message), shared, &mut moved)
                    }
                    Wanted::Nothing => {
                        if *message == Message::Request && framed.may_client_wait() {
                            match self.look_behind(from, doubtful, framed) {
                                // This is the end, which is passed on.
                                Ok(true) => continue,
                                Ok(false) => {}
                                Err(failed) => moved.failed = Some(failed),
                            }
                        }
                        return moved;
                    }
                },
                // The meaning of the server's end depends on the HTTP message.
                (Action::Finish, Some((_, Message::Answer))) => return moved,
                (Action::Read(method), None) => {
                    let legs = ([from, to], doubtful, permitted);
                    self.read(method, legs, shared, now, &mut moved)
                }
                (action, _) => match action {
                    Action::Write => match self.allowed(to, now) {
                        Ok(most) => self.write_held(to, most, shared, &mut moved),
                        Err(time) => {
                            moved.resume_at = Some(time);
                            return moved;
                        }
                    },
                    Action::Finish => {
                        // This fails only if the leg has failed before. Its error may be lost in a splice, and later
                        // the reset would look like an end in order.
                        match end_writing(to, last) {
                            Ok(()) => {
                                self.direction.handle_finished();
                                Ok(())
                            }
                            // The end of an encrypted leg is a record, for which there may be no room.
                            Err(Errno::AGAIN) => Err((Side::Outbound, Errno::NOBUFS)),
                            Err(_) => Err((Side::Outbound, error_of(to))),
                        }
                    }
                    _ => return moved,
                },
            };
            shared.meter.note_read(moved.read - before);
            match result {
                Ok(()) => {}
                Err((_, error)) if is_want_of_memory(error) => {
                    moved.starved = true;
                    return moved;
                }
                Err(failed) => {
                    moved.failed = Some(failed);
                    return moved;
                }
            }
        }
        moved.unfinished = true;
        moved
    }

    /// The outbound leg failed: drops the held bytes.
    pub fn abandon(&mut self, shared: &mut Shared) {
        self.direction.handle_outbound_failed();
        if let Held::Pipe(pipe) = std::mem::replace(&mut self.held, Held::Nothing) {
            shared.pipes.discard(pipe);
        }
    }

    /// Holds bytes that are to be written before any others.
    pub fn hold(&mut self, bytes: Vec<u8>) {
        self.hides_failure = true;
        if !bytes.is_empty() {
            self.direction.handle_replaced(small(bytes.len()));
            self.held = Held::buffer(bytes.into_boxed_slice());
        }
    }

    /// Reads once, at most `most` bytes; copied bytes are also written at once.
    fn read(
        &mut self,
        method: Method,
        (legs, doubtful, most): ([&LegSocket; 2], bool, u64),
        shared: &mut Shared,
        now: Time,
        moved: &mut Moved,
    ) -> Result<(), (Side, Errno)> {
        // Data that is written in pieces would occupy a pipe for a long time.
        let is_plain = !legs.iter().any(|leg| leg.is_encrypted());
        let may_splice = is_plain && self.throttle.is_none() && most >= BULK_AT_LEAST.into();
        if method == Method::Splice && may_splice {
            if let Some(pipe) = shared.pipes.take(now) {
                return self.fill(pipe, legs[0], most, shared, moved);
            }
            shared.pipe_shortages += 1;
        }
        self.copy(legs, doubtful, most, shared, moved)
    }

    /// Reads once into the shared buffer and writes the bytes at once.
    fn copy(
        &mut self,
        [from, to]: [&LegSocket; 2],
        doubtful: bool,
        most: u64,
        shared: &mut Shared,
        moved: &mut Moved,
    ) -> Result<(), (Side, Errno)> {
        let most = at_most(BUFFER_SIZE, most);
        let read = receive(from, &mut shared.buffer[..most], doubtful);
        let Some(count) = self.note_read(Method::Copy, read, most)? else {
            return Ok(());
        };
        if from.is_decided() {
            self.direction.handle_readable();
        }
        moved.read += count as u64;
        self.write_read(to, &shared.buffer[..count], moved)
    }

    /// Reads once into the shared buffer, and writes the bytes that result from parsing the
    /// message.
    fn look(
        &mut self,
        [from, to]: [&LegSocket; 2],
        doubtful: bool,
        (framed, message): (&mut Framed, Message),
        shared: &mut Shared,
        moved: &mut Moved,
    ) -> Result<(), (Side, Errno)> {
        let most = framed.piece(message);
        let read = receive(from, &mut shared.buffer[..most], doubtful);
        let Some(count) = self.note_read(Method::Copy, read, most)? else {
            return Ok(());
        };
        if from.is_decided() {
            self.direction.handle_readable();
        }
        moved.read += count as u64;
        let bytes = &shared.buffer[..count];
        if framed.take_in(message, bytes, &mut shared.written_anew) {
            return self.write_read(to, bytes, moved);
        }
        self.direction
            .handle_replaced(small(shared.written_anew.len()));
        match shared.written_anew.is_empty() {
            true => Ok(()),
            false => self.write_read(to, &shared.written_anew, moved),
        }
    }

    /// Checks whether the client has sent data behind its request, without reading the data;
    /// returns whether this is its end.
    fn look_behind(
        &mut self,
        from: &LegSocket,
        doubtful: bool,
        framed: &mut Framed,
    ) -> Result<bool, (Side, Errno)> {
        let mut read = from.peek();
        if doubtful {
            read = verify_end(read, from);
        }
        match read {
            Ok(0) => {
                self.direction.handle_read(Method::Copy, Reading::End);
                return Ok(true);
            }
            Ok(_) => framed.handle_client_waits(),
            Err(Errno::AGAIN) => self.direction.handle_read(Method::Copy, Reading::Blocked),
            Err(Errno::INTR) => {}
            Err(error) if is_want_of_memory(error) => {}
            Err(error) => return Err((Side::Inbound, error)),
        }
        Ok(false)
    }

    /// Writes the bytes that have just been read, and keeps those for which there is no room.
    fn write_read(
        &mut self,
        to: &LegSocket,
        bytes: &[u8],
        moved: &mut Moved,
    ) -> Result<(), (Side, Errno)> {
        let count = bytes.len();
        let written = match &mut self.throttle {
            Some(throttle) => {
                throttle.handle_read(small(count));
                0
            }
            None => match to.send(bytes) {
                Ok(written) => written,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                // The bytes have been read and must not be lost.
                Err(error) if is_want_of_memory(error) => 0,
                Err(error) => return Err((Side::Outbound, error)),
            },
        };
        moved.copied += written as u64;
        self.direction.handle_written(small(written), false);
        if seeded_faults::is(Fault::ByteLost) && written + 1 < count {
            self.direction.handle_written(1, false);
            self.held = Held::buffer(bytes[written + 1..].into());
            return Ok(());
        }
        if written < count {
            // Writing the rest shows whether there is room.
            self.held = Held::buffer(bytes[written..].into());
        }
        Ok(())
    }

    /// How many of the held bytes may be written now, or when to check again.
    fn allowed(&mut self, to: &LegSocket, now: Time) -> Result<usize, Time> {
        let held = self.direction.held();
        let Some(throttle) = &mut self.throttle else {
            return Ok(held as usize);
        };
        // If the socket cannot be queried, it has failed, and the write reports that.
        let in_flight = || system::unacknowledged_bytes(to).unwrap_or(0);
        let allowed = throttle.allow(now, held, in_flight)?;
        Ok(allowed as usize)
    }

    /// Splices once into an empty pipe.
    fn fill(
        &mut self,
        pipe: Pipe,
        from: &LegSocket,
        most: u64,
        shared: &mut Shared,
        moved: &mut Moved,
    ) -> Result<(), (Side, Errno)> {
        let most = match self.is_bounded {
            true => most.min(PIECE * u64::from(self.pieces)),
            false => most,
        };
        let size = at_most(shared.pipes.size(), most);
        let read = system::splice(from.as_fd(), pipe.writer(), size);
        if read == Ok(0) {
            shared.pipes.give_back(pipe);
            self.direction.handle_splice_exhausted();
            return Ok(());
        }
        match self.note_read(Method::Splice, read, size) {
            Ok(Some(count)) => {
                moved.read += count as u64;
                self.held = Held::Pipe(pipe);
                Ok(())
            }
            nothing => {
                shared.pipes.give_back(pipe);
                nothing.map(|_| ())
            }
        }
    }

    /// Reports the result of a read to the direction; returns the bytes, if there are any.
    fn note_read(
        &mut self,
        method: Method,
        read: rustix::io::Result<usize>,
        most: usize,
    ) -> Result<Option<usize>, (Side, Errno)> {
        let reading = match read {
            Ok(0) => Reading::End,
            Ok(count) => Reading::Bytes {
                count: small(count),
                full: count >= most,
            },
            Err(Errno::AGAIN) => Reading::Blocked,
            Err(Errno::INTR) => return Ok(None),
            Err(error) => return Err((Side::Inbound, error)),
        };
        self.direction.handle_read(method, reading);
        Ok(read.ok().filter(|count| *count > 0))
    }

    /// Writes held bytes once, at most `most`. When nothing is left, frees the buffer or the pipe.
    fn write_held(
        &mut self,
        to: &LegSocket,
        most: usize,
        shared: &mut Shared,
        moved: &mut Moved,
    ) -> Result<(), (Side, Errno)> {
        if seeded_faults::is(Fault::LastPipeDropped) && self.direction.is_end_ahead() {
            return self.lose_held(shared);
        }
        let written = match &self.held {
            Held::Buffer(buffer) => {
                let rest = buffer.rest();
                to.send(rest.get(..most).unwrap_or(rest))
            }
            Held::Pipe(pipe) => {
                self.hides_failure = true;
                system::splice(pipe.reader(), to.as_fd(), most)
            }
            Held::Nothing => Ok(0),
        };
        let written = match written {
            // The kernel never returns 0 here. Waiting after it might never end, so it is treated
            // as an error.
            Ok(0) => return Err((Side::Outbound, Errno::IO)),
            Ok(written) => written,
            Err(Errno::AGAIN) => {
                self.direction.handle_written(0, true);
                return Ok(());
            }
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err((Side::Outbound, error)),
        };
        self.direction.handle_written(small(written), false);
        self.throttle
            .take_if(|throttle| throttle.handle_written(small(written)));
        match &mut self.held {
            Held::Buffer(buffer) => {
                buffer.start += small(written);
                moved.copied += written as u64;
            }
            _ => moved.spliced += written as u64,
        }
        if self.direction.held() == 0
            && let Held::Pipe(pipe) = std::mem::replace(&mut self.held, Held::Nothing)
        {
            shared.pipes.give_back(pipe);
        }
        Ok(())
    }
}

/// A deliberate fault, for tests.
impl Transfer {
    fn lose_held(&mut self, shared: &mut Shared) -> Result<(), (Side, Errno)> {
        self.direction.handle_written(self.direction.held(), false);
        if let Held::Pipe(pipe) = std::mem::replace(&mut self.held, Held::Nothing) {
            shared.pipes.discard(pipe);
        }
        Ok(())
    }
}

/// Ends writing. Where both sockets will be closed (`last`), the kernel sends the FIN of a plain leg.
fn end_writing(to: &LegSocket, last: bool) -> rustix::io::Result<()> {
    match last && !to.is_encrypted() {
        true => Ok(()),
        false => to.end_writing(),
    }
}

/// Reads once. `doubtful`: an end that is read may be a reset ([`verify_end`]).
fn receive(from: &LegSocket, buffer: &mut [u8], doubtful: bool) -> rustix::io::Result<usize> {
    let read = from.receive(buffer);
    match doubtful {
        true => verify_end(read, from),
        false => read,
    }
}

/// Returns an error instead of an end if the end is in truth a reset.
///
/// If a socket is reset during a splice into it, the splice returns the number of bytes before the reset and
/// swallows the error (`splice_to_socket` of Linux). From then on, reading this socket returns 0, as after a
/// FIN. But after a reset the socket has no peer, and after a FIN it has one. A negotiation ignores errors, too.
fn verify_end(read: rustix::io::Result<usize>, from: &LegSocket) -> rustix::io::Result<usize> {
    if read != Ok(0) || system::peer_address(from).is_ok_and(|peer| peer.is_some()) {
        return read;
    }
    Err(error_of(from))
}

/// The error of a socket that has been reset; the error is EPIPE if the FIN arrived before the reset.
fn error_of(socket: &LegSocket) -> Errno {
    match system::socket_error(socket) {
        Ok(Err(error)) => error,
        _ => Errno::CONNRESET,
    }
}

/// The kernel is short of memory at present; the leg has not failed.
const fn is_want_of_memory(error: Errno) -> bool {
    matches!(error, Errno::NOMEM | Errno::NOBUFS)
}

/// The smaller of `size` and `most`.
fn at_most(size: usize, most: u64) -> usize {
    usize::try_from(most).map_or(size, |most| size.min(most))
}

/// The byte count of one system call fits in 32 bits, because buffers and pipes are smaller.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
