//! Sends complete IP packets (raw(7), `IP_HDRINCL`).

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use socket2::{MsgHdr, SockAddr, SockRef};

use crate::tcp;

/// Sends whole packets of one family; receives nothing.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
    mark: Option<u32>,
}

impl RawSocket {
    /// Opens a socket for packets of a family. Needs `CAP_NET_RAW` of the network namespace. Sending needs no
    /// capability, apart from that for [marks](Self::send), so the socket can be passed to a process with
    /// fewer rights.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open(family: Family) -> io::Result<OwnedFd> {
        let family = match family {
            Family::V4 => AddressFamily::INET,
            Family::V6 => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // This protocol number sets IP_HDRINCL by itself.
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
        Ok(socket)
    }

    /// As [`open`](Self::open), for fragments: sending waits while the queue of the device is full.
    ///
    /// # Errors
    /// Those of `socket(2)` and `ioctl(2)`.
    pub fn open_for_fragments(family: Family) -> io::Result<OwnedFd> {
        let socket = Self::open(family)?;
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(socket)
    }

    /// Takes over a socket made by [`open`](Self::open).
    #[must_use]
    pub const fn from_socket(socket: OwnedFd) -> Self {
        Self { socket, mark: None }
    }

    /// Sends a packet, which begins with its IP header, with a mark that chooses its route.
    /// Setting another mark than before needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// `InvalidInput` for what is no packet of this family, else those of `sendto(2)`.
    pub fn send(&mut self, packet: &[u8], mark: u32) -> io::Result<()> {
        let destination = destination(packet).ok_or(io::ErrorKind::InvalidInput)?;
        if self.mark != Some(mark) {
            tcp::set_mark(self.socket.as_fd(), mark)?;
            self.mark = Some(mark);
        }
        let address = SocketAddr::new(destination, 0);
        rustix::net::sendto(&self.socket, packet, SendFlags::empty(), &address)?;
        Ok(())
    }

    /// As [`send`](Self::send), for a socket that threads share: the mark is sent with the packet
    /// and does not change the socket. Every call needs `CAP_NET_ADMIN`. Linux 5.4 and newer.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_marked(&self, packet: &[u8], mark: u32) -> io::Result<()> {
        let destination = destination(packet).ok_or(io::ErrorKind::InvalidInput)?;
        let address = SockAddr::from(SocketAddr::new(destination, 0));
        let (parts, control) = ([IoSlice::new(packet)], mark_message(mark));
        let message = MsgHdr::new()
            .with_addr(&address)
            .with_buffers(&parts)
            .with_control(&control);
        SockRef::from(&self.socket).sendmsg(&message, 0)?;
        Ok(())
    }
}

const WORD: usize = size_of::<usize>();
/// `struct cmsghdr`: its length, its level and its type.
const CONTROL_HEADER: usize = WORD + 8;
const CONTROL: usize = (CONTROL_HEADER + 4).next_multiple_of(WORD);

/// The control message that gives a packet its mark (cmsg(3), `SO_MARK`).
fn mark_message(mark: u32) -> [u8; CONTROL] {
    let mut message = [0; CONTROL];
    message[..WORD].copy_from_slice(&(CONTROL_HEADER + 4).to_ne_bytes());
    message[WORD..WORD + 4].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    message[WORD + 4..WORD + 8].copy_from_slice(&libc::SO_MARK.to_ne_bytes());
    message[CONTROL_HEADER..CONTROL_HEADER + 4].copy_from_slice(&mark.to_ne_bytes());
    message
}

/// One of the two families of IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

fn destination(packet: &[u8]) -> Option<IpAddr> {
    Some(midspan_wire::destination(packet)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_written_as_the_c_library_writes_it() {
        // SAFETY: these functions only compute lengths.
        let (length, space) = unsafe { (libc::CMSG_LEN(4), libc::CMSG_SPACE(4)) };
        let message = mark_message(0x0b00_0000);
        assert_eq!(message.len(), space as usize);
        let expected = [
            &(length as usize).to_ne_bytes()[..],
            &libc::SOL_SOCKET.to_ne_bytes(),
            &libc::SO_MARK.to_ne_bytes(),
            &0x0b00_0000_u32.to_ne_bytes(),
        ]
        .concat();
        assert_eq!(message[..length as usize], expected);
    }

    #[test]
    fn the_destination_is_read_from_the_header() {
        let mut four = [0; 20];
        four[0] = 0x45;
        four[16..].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(destination(&four), Some("192.0.2.1".parse().unwrap()));
        let mut six = [0; 40];
        six[0] = 0x60;
        six[39] = 1;
        assert_eq!(destination(&six), Some("::1".parse().unwrap()));
        assert_eq!(destination(&six[..39]), None);
        assert_eq!(destination(&four[..19]), None);
        assert_eq!(destination(&[]), None);
    }
}
