//! The connection over which a relay hands its sessions over, and the commands for it to the threads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use midspan_handover::{
    BatchWriter, FormatError, FromPredecessor, HeldState, LARGEST_MESSAGE, MOST_DESCRIPTORS,
    SessionState,
};
use midspan_linux::descriptor_passing::{
    self, DESCRIPTOR_LIMIT, MESSAGE_LIMIT, Message, PassingError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};

use super::opening::Acceptor;
use super::session::SessionParts;
use super::settings::Error;
use super::transfer::{HeldData, TakenData};

/// How long the other relay may take to answer a message with sessions. These sessions wait as long, and so do all
/// others of the thread.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(5);

const _: () = assert!(LARGEST_MESSAGE <= MESSAGE_LIMIT && MOST_DESCRIPTORS <= DESCRIPTOR_LIMIT);

/// Sessions could not be handed over or taken over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The other relay is gone.
    #[error("the other relay has ended")]
    Ended,
    /// The limit of time.
    #[error("the other relay takes longer than it may")]
    Late,
    /// The other relay has sent something else than it should.
    #[error("the other relay sent a message out of turn")]
    OutOfTurn,
    /// The other relay does not take the sessions.
    #[error("the other relay refuses: {0}")]
    Refused(String),
    /// The thread that the sessions came to has had a fault, or all sessions have come.
    #[error("this thread expects no sessions")]
    NotExpected,
    /// The other relay keeps its listeners and sessions.
    #[error("the other relay keeps its sessions")]
    Stays,
    /// There is no common version of the format.
    #[error(
        "the other relay writes the versions {0:?} of the format, and this one reads none of them"
    )]
    Versions(Vec<u32>),
    /// Descriptors are missing, or there are too many.
    #[error("{found} descriptors came with a message that needs {needed}")]
    Descriptors {
        /// The descriptors that came.
        found: usize,
        /// The descriptors that the message needs.
        needed: usize,
    },
    /// A pipe has not the bytes that it should have.
    #[error("session {id} has {found} bytes in a pipe instead of {expected}")]
    Pipe {
        /// The session's number.
        id: u64,
        /// Bytes in the pipe.
        found: u64,
        /// Bytes that should be there.
        expected: u32,
    },
    /// A thread has ended.
    #[error("a thread of the relay has ended")]
    Thread,
    /// The other relay does not listen where this one is to listen.
    #[error("the other relay has no listening socket for listener \"{0}\"")]
    NoSocket(String),
    /// A listener cannot have the sockets.
    #[error(transparent)]
    Sockets(#[from] Error),
    /// The settings of a listener cannot be read or written.
    #[error("settings of a listener cannot be read or written: {0}")]
    Listener(#[from] serde_json::Error),
    /// A message cannot be read or written.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A message cannot be passed.
    #[error(transparent)]
    Passing(#[from] PassingError),
    /// The kernel refuses a call.
    #[error("cannot hand sessions over: {0}")]
    System(#[from] io::Error),
}

impl From<rustix::io::Errno> for HandoverError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error.into())
    }
}

/// The two ends of a connection between two relays.
///
/// # Errors
/// Those of `socketpair(2)`.
pub fn handover_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    descriptor_passing::pair()
}

/// One end of the connection.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// The connection at this end.
    ///
    /// # Errors
    /// Those of `ioctl(2)`.
    pub fn new(socket: OwnedFd) -> Result<Self, HandoverError> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self(socket))
    }

    /// Readable when there is a message, or the other relay has ended.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sends a message. Several threads may do so at the same time.
    ///
    /// # Errors
    /// The other relay has ended, or does not read in time.
    pub fn send(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        until: Instant,
    ) -> Result<(), HandoverError> {
        loop {
            match descriptor_passing::send(&self.0, bytes, descriptors) {
                Ok(()) => return Ok(()),
                Err(PassingError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(PassingError::Io(error))
                    if matches!(
                        error.kind(),
                        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                    ) =>
                {
                    return Err(HandoverError::Ended);
                }
                Err(error) => return Err(error.into()),
            }
            self.wait(PollFlags::OUT, until)?;
        }
    }

    /// Receives a message.
    ///
    /// # Errors
    /// The other relay has ended, or sends nothing in time.
    pub fn receive(&self, until: Instant) -> Result<Message, HandoverError> {
        loop {
            match descriptor_passing::receive(&self.0) {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => return Err(HandoverError::Ended),
                Err(PassingError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            self.wait(PollFlags::IN, until)?;
        }
    }

    fn wait(&self, flags: PollFlags, until: Instant) -> Result<(), HandoverError> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HandoverError::Late);
        }
        // At least a millisecond.
        let left = left.max(Duration::from_millis(1));
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.0, flags)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A command to a thread: sends its listeners.
#[derive(Debug)]
pub struct SendListeners {
    /// The connection to the other relay.
    pub channel: Arc<Channel>,
    /// Gets the result.
    pub report: Sender<Result<(), HandoverError>>,
    /// The limit of time.
    pub until: Instant,
}

/// A command to a thread: accepts nothing more, and hands its sessions over, in parts.
#[derive(Debug)]
pub struct HandOver {
    /// The connection to the other relay.
    pub channel: Arc<Channel>,
    /// The answer to each message with sessions. The sender is gone when the other relay has ended.
    pub answers: Receiver<Answer>,
    /// Gets the number of sessions that the other relay has.
    pub report: Sender<u64>,
    /// The limit of time.
    pub until: Instant,
}

/// The other relay's answer to a message with sessions.
#[derive(Debug)]
pub enum Answer {
    /// It handles these sessions.
    Taken,
    /// It does not handle them, for this reason.
    NotTaken(String),
}

/// A command to a thread: gets ready for the sessions of another relay.
pub struct TakeOver {
    /// The places of the listeners of these sessions by their names.
    pub places: BTreeMap<ListenerName, usize>,
    /// The acceptor at each place, without a socket.
    pub acceptors: BTreeMap<usize, Acceptor>,
}

/// A thread of the other relay, and the index by which the sessions of this thread name a listener.
pub type ListenerName = (u32, u32);

/// A session of another relay.
#[derive(Debug)]
pub struct Taken {
    /// Its state.
    pub state: SessionState,
    /// The sockets towards the client and towards the server.
    pub sockets: [OwnedFd; 2],
    /// The bytes that it holds towards the server, and towards the client.
    pub held: [TakenData; 2],
    /// The place of its listener in the list.
    pub listener: usize,
}

/// Sessions for one message.
#[derive(Debug)]
pub struct Parcel<'a> {
    writer: BatchWriter,
    descriptors: Vec<BorrowedFd<'a>>,
    copied: Vec<&'a [u8]>,
}

impl<'a> Parcel<'a> {
    /// A message of the thread with this number.
    pub fn new(thread: u32) -> Self {
        Self {
            writer: BatchWriter::new(thread),
            descriptors: Vec::new(),
            copied: Vec::new(),
        }
    }

    /// Adds a session; returns whether there was room for it.
    ///
    /// # Errors
    /// The session is not possible.
    pub fn push(
        &mut self,
        state: &SessionState,
        parts: &SessionParts<'a>,
    ) -> Result<bool, HandoverError> {
        if !self.writer.push(state)? {
            return Ok(false);
        }
        self.descriptors.extend(parts.sockets);
        for held in &parts.held {
            match held {
                HeldData::Nothing => {}
                HeldData::Copied(bytes) => self.copied.push(*bytes),
                HeldData::Piped(pipe) => self.descriptors.extend([pipe.reader(), pipe.writer()]),
            }
        }
        Ok(true)
    }

    /// Sends the message, if it has any session.
    ///
    /// # Errors
    /// As [`Channel::send`], and those of a file in memory.
    pub fn send(self, channel: &Channel, until: Instant) -> Result<(), HandoverError> {
        if self.writer.sessions() == 0 {
            return Ok(());
        }
        let memory = match self.copied.is_empty() {
            true => None,
            false => Some(in_memory(&self.copied)?),
        };
        let memory = memory.iter().map(AsFd::as_fd);
        let descriptors: Vec<BorrowedFd<'_>> = memory.chain(self.descriptors).collect();
        channel.send(&self.writer.finish(), &descriptors, until)
    }
}

/// A file in memory with these bytes.
fn in_memory(parts: &[&[u8]]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("midspan-sessions", MemfdFlags::CLOEXEC)?);
    for part in parts {
        file.write_all(part)?;
    }
    file.rewind()?;
    Ok(file.into())
}

/// The sessions of a message. `listener` finds the place of a listener in the list by its name in the other relay.
///
/// # Errors
/// The message has no sessions, descriptors are missing, the file in memory cannot be read, or a pipe has other bytes
/// than it should have.
pub fn unpack(
    message: Message,
    listener: impl Fn(ListenerName) -> Option<usize>,
) -> Result<Vec<Taken>, HandoverError> {
    let Message { bytes, descriptors } = message;
    let FromPredecessor::Sessions(batch) = FromPredecessor::decode(&bytes)? else {
        return Err(HandoverError::OutOfTurn);
    };
    let thread = batch.thread;
    let (found, needed) = (descriptors.len(), batch.descriptors());
    let missing = || HandoverError::Descriptors { found, needed };
    if found != needed {
        return Err(missing());
    }
    let mut descriptors = descriptors.into_iter();
    let mut memory = match batch.copied() {
        0 => None,
        _ => Some(File::from(descriptors.next().ok_or_else(missing)?)),
    };
    let mut next = || descriptors.next().ok_or_else(missing);
    let mut sessions = Vec::with_capacity(batch.sessions.len());
    for state in batch.sessions {
        let sockets = [next()?, next()?];
        let id = state.record.id;
        let mut held = [TakenData::Nothing, TakenData::Nothing];
        let transfers = [&state.to_server, &state.to_client];
        for (place, transfer) in held.iter_mut().zip(transfers) {
            *place = match transfer.held {
                HeldState::Nothing => TakenData::Nothing,
                HeldState::Copied(count) => {
                    let mut bytes = vec![0; count as usize];
                    let memory = memory.as_mut().ok_or_else(missing)?;
                    memory.read_exact(&mut bytes)?;
                    TakenData::Copied(bytes.into_boxed_slice())
                }
                HeldState::Piped(expected) => {
                    let ends = [next()?, next()?];
                    let found = rustix::io::ioctl_fionread(&ends[0])?;
                    if found != u64::from(expected) {
                        return Err(HandoverError::Pipe {
                            id,
                            found,
                            expected,
                        });
                    }
                    TakenData::Piped(ends)
                }
            };
        }
        sessions.push(Taken {
            listener: listener((thread, state.listener)).ok_or(HandoverError::OutOfTurn)?,
            state,
            sockets,
            held,
        });
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    fn state(id: u64, held: [HeldState; 2]) -> SessionState {
        let text = format!(
            r#"{{"listener":3,"phase":"Relaying","to_server":{{}},"to_client":{{}},
                "record":{{"id":{id},"client":"192.0.2.1:1","server":"192.0.2.2:2"}}}}"#
        );
        let mut state: SessionState = serde_json::from_str(&text).unwrap();
        [state.to_server.held, state.to_client.held] = held;
        state
    }

    /// Sends this session, whose parts are as announced or not, and takes it in.
    fn exchange(
        state: &SessionState,
        parts: &SessionParts<'_>,
    ) -> Result<Vec<Taken>, HandoverError> {
        let (here, there) = handover_pair().unwrap();
        let [here, there] = [here, there].map(|end| Channel::new(end).unwrap());
        let mut parcel = Parcel::new(0);
        assert!(parcel.push(state, parts).unwrap());
        parcel.send(&here, soon()).unwrap();
        let message = there.receive(soon()).unwrap();
        unpack(message, |(_, index)| Some(index as usize))
    }

    #[test]
    fn parts_arrive_in_their_order() {
        let (one, other) = handover_pair().unwrap();
        let held = [HeldState::Copied(3), HeldState::Copied(4)];
        let parts = SessionParts {
            sockets: [one.as_fd(), other.as_fd()],
            held: [HeldData::Copied(b"one"), HeldData::Copied(b"four")],
        };
        let taken = exchange(&state(5, held), &parts).unwrap();
        let [
            Taken {
                held: [TakenData::Copied(first), TakenData::Copied(second)],
                listener: 3,
                ..
            },
        ] = &taken[..]
        else {
            panic!("{taken:?}");
        };
        assert_eq!((&**first, &**second), (&b"one"[..], &b"four"[..]));
        // The first socket is that of the client.
        rustix::io::write(&taken[0].sockets[0], b"c").unwrap();
        let mut byte = [0];
        rustix::io::read(&other, &mut byte).unwrap();
        assert_eq!(&byte, b"c");
    }

    #[test]
    fn missing_bytes_are_noticed() {
        let (one, other) = handover_pair().unwrap();
        let parts = SessionParts {
            sockets: [one.as_fd(), other.as_fd()],
            held: [HeldData::Copied(b"one"), HeldData::Nothing],
        };
        let held = [HeldState::Copied(4), HeldState::Nothing];
        let error = exchange(&state(5, held), &parts).unwrap_err();
        assert!(matches!(error, HandoverError::System(_)), "{error}");
        let held = [HeldState::Nothing; 2];
        let error = exchange(&state(5, held), &parts).unwrap_err();
        let expected = matches!(
            error,
            HandoverError::Descriptors {
                found: 3,
                needed: 2
            }
        );
        assert!(expected, "{error}");
    }

    #[test]
    fn a_relay_that_does_not_answer_is_not_waited_for() {
        let (here, there) = handover_pair().unwrap();
        let here = Channel::new(here).unwrap();
        let until = Instant::now() + Duration::from_millis(20);
        assert!(matches!(here.receive(until), Err(HandoverError::Late)));
        let large = vec![b'x'; LARGEST_MESSAGE];
        let error = (0..100).find_map(|_| here.send(&large, &[], until).err());
        assert!(matches!(error, Some(HandoverError::Late)), "{error:?}");
        drop(there);
        assert!(matches!(here.receive(soon()), Err(HandoverError::Ended)));
        assert!(matches!(
            here.send(b"x", &[], soon()),
            Err(HandoverError::Ended)
        ));
    }
}
