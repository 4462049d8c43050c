//! Messages with open descriptors between two processes (unix(7), `SCM_RIGHTS`).
//!
//! Over a pair of `SOCK_SEQPACKET` sockets: a message arrives whole or not at all, and the end of
//! the other process is seen as the end of the connection.

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
    /// The message or its descriptors are beyond the limits; nothing was sent.
    #[error(
        "a message of {bytes} bytes with {descriptors} descriptors is too large: at most \
         {MESSAGE_LIMIT} and {DESCRIPTOR_LIMIT}"
    )]
    TooLarge {
        /// Bytes of the message.
        bytes: usize,
        /// Descriptors with it.
        descriptors: usize,
    },
    /// A message is empty, which would look like the end of the connection.
    #[error("an empty message cannot be sent")]
    Empty,
    /// What arrived was cut off; its descriptors are closed again.
    #[error(
        "a message arrived incomplete: too long, or more descriptors than this process may open \
         (ulimit -n)"
    )]
    Truncated,
    /// The kernel refused.
    #[error("cannot pass a message: {0}")]
    Io(#[from] io::Error),
}

/// What arrived.
#[derive(Debug)]
pub struct Message {
    /// The bytes that were sent.
    pub bytes: Vec<u8>,
    /// The descriptors that came along, in their order; closed when a program is run.
    pub descriptors: Vec<OwnedFd>,
}

/// Two connected sockets; both are closed when a program is run.
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

/// A copy of the descriptor with this number, which whoever started this process has left open
/// for it; neither is handed on to programs run later. The original stays open until the process
/// ends.
///
/// # Errors
/// `InvalidInput` for a negative number, else those of `fcntl(2)`: no such descriptor is open.
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

/// Sends a message with descriptors; the caller keeps its own. Waits while the other side's queue
/// is full.
///
/// # Errors
/// See [`PassingError`]; `BrokenPipe` where the other side is gone.
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
/// As [`send`]; `WouldBlock` while the other side's queue is full.
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
    // The space is for the limit, which was checked.
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

/// Receives a message; `None` when the other side is gone. Waits for it unless the socket is
/// non-blocking.
///
/// # Errors
/// See [`PassingError`]; `WouldBlock` on a non-blocking socket without a message.
pub fn receive(socket: impl AsFd) -> Result<Option<Message>, PassingError> {
    let mut bytes = vec![0; MESSAGE_LIMIT];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(&socket, &mut parts, &mut control, flags) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            // A process that dies with messages unread resets the connection.
            Err(Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    };
    // Taken out first, so that they are closed on every way out of here.
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
    bytes.truncate(received.bytes);
    Ok(Some(Message { bytes, descriptors }))
}
