//! Lists of TCP sockets, and single ones of them, by sock_diag(7) (<linux/inet_diag.h>).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::nfnetlink::{Received, messages};

/// `SOCK_DIAG_BY_FAMILY` and `SOCK_DESTROY` of <linux/sock_diag.h>.
const LIST: u16 = 20;
pub const DESTROY: u16 = 21;
/// `NLM_F_REQUEST`, with `NLM_F_DUMP`.
pub const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// `AF_INET`, `AF_INET6`.
pub const FAMILIES: [u8; 2] = [2, 10];
const TCP: u8 = 6;
/// Bytes of `struct inet_diag_sockid`.
pub const IDENTITY: usize = 48;
/// Bytes of the rest of `struct inet_diag_msg` behind it.
pub const NUMBERS: usize = 20;
/// Bytes of one answer; the kernel sends at most 32 KiB at once.
const ANSWER: usize = 1 << 16;
/// More than the bytes of one socket with its `struct tcp_info`.
const ONE: usize = 4_096;

/// The kernel's identification of a socket.
pub type Identity = [u8; IDENTITY];

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// `AF_INET` or `AF_INET6`.
    pub family: u8,
    /// The states, as bits (`TCPF_…` of <net/tcp_states.h>).
    pub states: u32,
    /// The attributes, as bits (`1 << (INET_DIAG_… - 1)`).
    pub attributes: u8,
}

/// A socket for questions in the calling thread's network namespace.
pub fn open() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

/// Passes each socket of a list to `take`: its identification, and what follows it.
pub fn list(
    socket: impl AsFd,
    question: Question,
    mut take: impl FnMut(&Identity, &[u8]),
) -> io::Result<()> {
    let socket = socket.as_fd();
    send(
        socket,
        &message(LIST, REQUEST | DUMP, question, &[0; IDENTITY]),
    )?;
    let mut buffer = vec![0; ANSWER];
    loop {
        for received in messages(receive(socket, &mut buffer)?) {
            match received {
                Received::Message(DONE, _) => return Ok(()),
                Received::Message(LIST, content) => {
                    if let Some((identity, rest)) = content.split_first_chunk::<IDENTITY>() {
                        take(identity, rest);
                    }
                }
                // A kernel without `inet_diag` answers with an error, and sends no end of the list.
                Received::Answer(code) if code != 0 => {
                    return Err(io::Error::from_raw_os_error(-code));
                }
                Received::Message(..) | Received::Answer(_) => {}
            }
        }
    }
}

/// Passes the message about one socket to `read`, from the end of the identification on. `None` if the socket
/// is gone.
pub fn find<T>(
    socket: impl AsFd,
    question: Question,
    identity: &Identity,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let socket = socket.as_fd();
    send(socket, &message(LIST, REQUEST, question, identity))?;
    let mut buffer = [0; ONE];
    match messages(receive(socket, &mut buffer)?).next() {
        Some(Received::Message(LIST, content)) => Ok(content.get(IDENTITY..).and_then(read)),
        Some(Received::Answer(code)) if code == -Errno::NOENT.raw_os_error() => Ok(None),
        Some(Received::Answer(code)) => Err(io::Error::from_raw_os_error(-code)),
        Some(Received::Message(..)) | None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn receive<'b>(socket: BorrowedFd<'_>, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    let count = loop {
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((count, _)) => break count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    Ok(buffer.get(..count).unwrap_or_default())
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
pub fn message(kind: u16, flags: u16, question: Question, identity: &Identity) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([question.family, TCP, question.attributes, 0]);
    bytes.extend(question.states.to_ne_bytes());
    bytes.extend(identity);
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// Sends a message.
pub fn send(socket: impl AsFd, message: &[u8]) -> io::Result<()> {
    let socket = socket.as_fd();
    loop {
        match rustix::net::send(socket, message, SendFlags::empty()) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
