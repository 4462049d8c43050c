//! Messages with open descriptors between two processes (unix(7), `SCM_RIGHTS`).
//!
//! They use a pair of `SOCK_SEQPACKET` sockets: a message arrives completely or not at all, and
//! when one process ends, the other sees the end of the connection.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use thiserror::Error;

/// Largest message in bytes.
pub const MESSAGE_LIMIT: usize = 64 * 1024;

/// Most descriptors with one message: the kernel takes 253 (`SCM_MAX_FD`).
pub const DESCRIPTOR_LIMIT: usize = 250;

/// A message could not be passed.
#[derive(Debug, Error)]
pub enum PassingError {
    /// The message or its descriptors exceed the limits; nothing was sent.
    #[error(
        "a message of {bytes} bytes with {descriptors} descriptors is too large: at most \
         {MESSAGE_LIMIT} and {DESCRIPTOR_LIMIT}"
    )]
    TooLarge {
        /// Bytes of the message.
        bytes: usize,
        /// Number of descriptors.
        descriptors: usize,
    },
    /// An empty message would look like the end of the connection.
    #[error("an empty message cannot be sent")]
    Empty,
    /// The received message was cut off; its descriptors have been closed.
    #[error(
        "a message arrived incomplete: too long, or more descriptors than this process may open \
         (ulimit -n)"
    )]
    Truncated,
    /// The kernel refused the call.
    #[error("cannot pass a message: {0}")]
    Io(#[from] io::Error),
}

/// A received message.
#[derive(Debug)]
pub struct Message {
    /// The bytes that were sent.
    pub bytes: Vec<u8>,
    /// The received descriptors, in order; they are closed when a program is executed.
    pub descriptors: Vec<OwnedFd>,
}

/// Two connected sockets; both are closed when a program is executed.
///
/// # Errors
/// Those of `socketpair(2)`.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// A copy of the descriptor with this number, which the parent process has left open for this process. The
/// original stays open until this process ends. Programs that this process executes later inherit neither the
/// copy nor the original.
///
/// # Errors
/// `InvalidInput` for a negative number, otherwise those of `fcntl(2)`: no such descriptor is open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is not -1, and the borrow is used for two system calls only, which
    // check it; neither changes who owns the descriptor.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    Ok(rustix::io::fcntl_dupfd_cloexec(descriptor, 0)?)
}

/// Sends a message with descriptors; the caller keeps its own. Waits while the other process's
/// queue is full.
///
/// # Errors
/// See [`PassingError`]; `BrokenPipe` if the other process has closed its socket.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), PassingError> {
    send_with(socket, bytes, descriptors, SendFlags::NOSIGNAL)
}

/// Sends a message without descriptors, and does not wait.
///
/// # Errors
/// As [`send`]; `WouldBlock` while the other process's queue is full.
pub fn try_send(socket: impl AsFd, bytes: &[u8]) -> Result<(), PassingError> {
    let flags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
    send_with(socket, bytes, &[], flags)
}

fn send_with(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), PassingError> {
    if bytes.is_empty() {
        return Err(PassingError::Empty);
    }
    if bytes.len() > MESSAGE_LIMIT || descriptors.len() > DESCRIPTOR_LIMIT {
        return Err(PassingError::TooLarge {
            bytes: bytes.len(),
            descriptors: descriptors.len(),
        });
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The buffer has room for the limit, which was checked.
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(PassingError::TooLarge {
            bytes: bytes.len(),
            descriptors: descriptors.len(),
        });
    }
    loop {
        let parts = [IoSlice::new(bytes)];
        match rustix::net::sendmsg(&socket, &parts, &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

/// Receives a message; `None` if the other process has closed its socket. Waits for a message
/// unless the socket is non-blocking.
///
/// # Errors
/// See [`PassingError`]; `WouldBlock` on a non-blocking socket without a message.
pub fn receive(socket: impl AsFd) -> Result<Option<Message>, PassingError> {
    thread_local! {
        /// To zero room for the largest message each time would cost more than everything else.
        static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; MESSAGE_LIMIT]);
    }
    ROOM.with_borrow_mut(|room| receive_into(room, socket))
}

fn receive_into(room: &mut [u8], socket: impl AsFd) -> Result<Option<Message>, PassingError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(room)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(&socket, &mut parts, &mut control, flags) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            // If a process ends with unread messages, the connection is reset.
            Err(Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    };
    // Taken out first, so that every return from this function closes them.
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(PassingError::Truncated);
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    // A datagram is never longer than the room.
    let bytes = room.get(..received.bytes).unwrap_or_default().to_vec();
    Ok(Some(Message { bytes, descriptors }))
}
