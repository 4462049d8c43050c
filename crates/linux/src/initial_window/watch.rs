//! Hearing of changes to routes and rules (rtnetlink(7), multicast groups).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

/// `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV4_RULE`, `RTNLGRP_IPV6_ROUTE`, `RTNLGRP_IPV6_RULE` as bits.
const GROUPS: u32 = group(7) | group(8) | group(11) | group(19);

const fn group(number: u32) -> u32 {
    1 << (number - 1)
}

/// A socket that becomes readable when routes or rules change. What changed is not read: whoever
/// is woken looks at the tables themselves, which is right even where a notification was lost.
pub(crate) struct Watch(OwnedFd);

impl Watch {
    pub fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            // NETLINK_ROUTE is protocol 0, the default.
            None,
        )?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self(socket))
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Reads all notifications away, at most as many as a storm of route changes brings.
    pub fn forget(&self) {
        let mut buffer = [0_u8; 64];
        for _ in 0..100_000 {
            match rustix::net::recv(&self.0, &mut buffer, RecvFlags::TRUNC) {
                Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::NOBUFS) => {}
                Err(_) => return,
            }
        }
    }
}
