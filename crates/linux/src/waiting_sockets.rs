//! The sockets of intercepted connections that wait out their last minute (TIME-WAIT).
//!
//! With `net.ipv4.tcp_early_demux` the kernel does not forward a packet that belongs to a socket,
//! not even to one that waits; so before the parameter is restored, ours end. They are found and
//! ended by sock_diag(7) (<linux/inet_diag.h>, RFC 9293 §3.3.2 for the state).

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::nfnetlink::{Received, attributes, messages};

/// `SOCK_DIAG_BY_FAMILY` and `SOCK_DESTROY` of <linux/sock_diag.h>.
const LIST: u16 = 20;
const DESTROY: u16 = 21;
/// `NLM_F_REQUEST`, with `NLM_F_DUMP`.
const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// `AF_INET`, `AF_INET6`.
const FAMILIES: [u8; 2] = [2, 10];
const TCP: u8 = 6;
/// Bit of the state TIME-WAIT (`TCP_TIME_WAIT` of <net/tcp_states.h>).
const TIME_WAIT: u32 = 1 << 6;
/// `struct inet_diag_sockid`.
const IDENTITY: usize = 48;
/// The rest of `struct inet_diag_msg` behind it.
const NUMBERS: usize = 20;
/// `INET_DIAG_MARK`.
const MARK: u16 = 15;

/// The kernel's identification of a socket.
type Identity = [u8; IDENTITY];

/// Ends the waiting TCP sockets that have a mark in `mask`; how many were found. Kernels without
/// `CONFIG_INET_DIAG_DESTROY` leave them as they are.
///
/// # Errors
/// Those of netlink(7).
pub fn end(mask: u32) -> io::Result<usize> {
    let lists = open()?;
    // What is answered to these is an error, and is not read.
    let endings = open()?;
    let mut found = 0;
    for family in FAMILIES {
        let waiting = list(&lists, family, mask)?;
        found += waiting.len();
        for identity in &waiting {
            send(&endings, &message(DESTROY, REQUEST, family, identity))?;
        }
    }
    Ok(found)
}

fn open() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

fn list(socket: &OwnedFd, family: u8, mask: u32) -> io::Result<Vec<Identity>> {
    send(
        socket,
        &message(LIST, REQUEST | DUMP, family, &[0; IDENTITY]),
    )?;
    let mut buffer = vec![0; 1 << 16];
    let mut found = Vec::new();
    loop {
        let count = match rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((count, _)) => count,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for received in messages(buffer.get(..count).unwrap_or_default()) {
            match received {
                Received::Message(DONE, _) => return Ok(found),
                Received::Message(LIST, content) => found.extend(ours(content, mask)),
                // A kernel without `inet_diag` answers with an error, and sends no end of the list.
                Received::Answer(code) if code != 0 => {
                    return Err(io::Error::from_raw_os_error(-code));
                }
                Received::Message(..) | Received::Answer(_) => {}
            }
        }
    }
}

/// The socket of one message, if it has a mark of ours.
fn ours(content: &[u8], mask: u32) -> Option<Identity> {
    let (identity, rest) = content.split_first_chunk::<IDENTITY>()?;
    let (_, mark) = attributes(rest.get(NUMBERS..)?).find(|(kind, _)| *kind == MARK)?;
    let mark = u32::from_ne_bytes(mark.try_into().ok()?);
    (mark & mask != 0).then_some(*identity)
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn message(kind: u16, flags: u16, family: u8, identity: &Identity) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, TCP, 0, 0]);
    bytes.extend(TIME_WAIT.to_ne_bytes());
    bytes.extend(identity);
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

fn send(socket: &OwnedFd, message: &[u8]) -> io::Result<()> {
    loop {
        match rustix::net::send(socket, message, SendFlags::empty()) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_ours_by_its_mark() {
        let mut content = vec![7; IDENTITY];
        content.extend([0; NUMBERS]);
        content.extend([8, 0]);
        content.extend(MARK.to_ne_bytes());
        content.extend(0x0102_0000_u32.to_ne_bytes());
        assert_eq!(ours(&content, 0x00ff_0000), Some([7; IDENTITY]));
        assert_eq!(ours(&content, 0x0000_ff00), None);
        for length in 0..content.len() {
            assert_eq!(ours(&content[..length], 0x00ff_0000), None);
        }
    }
}
