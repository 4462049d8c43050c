//! Hearing of changes to routes and rules (rtnetlink(7), multicast groups).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use socket2::{SockFilter, SockRef};

/// `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV4_RULE`, `RTNLGRP_IPV6_ROUTE`, `RTNLGRP_IPV6_RULE` as bits.
const GROUPS: u32 = group(7) | group(8) | group(11) | group(19);

const fn group(number: u32) -> u32 {
    1 << (number - 1)
}

/// Where `rtm_table` and `rtm_type` stand in a notification (<linux/rtnetlink.h>).
const TABLE: u32 = 16 + 4;
pub(crate) const TYPE: u32 = 16 + 7;

/// A filter for notifications (classic BPF) that leaves out those of routes with one of these values
/// in the byte at a place of their header.
pub(crate) fn event_filter(place: u32, values: &[u8]) -> Vec<SockFilter> {
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    /// `RTM_NEWROUTE`, `RTM_DELROUTE`.
    const ROUTES: [u16; 2] = [24, 25];
    let op = SockFilter::new;
    // Filters read numbers in the network's byte order, netlink writes them in the machine's.
    let [new, gone] = ROUTES.map(|kind| u32::from(u16::from_be_bytes(kind.to_ne_bytes())));
    let count = u8::try_from(values.len()).unwrap_or(u8::MAX);
    let mut filter = vec![
        op(LOAD_HALF, 0, 0, 4),
        op(JUMP_EQUAL, 1, 0, new),
        // To the end: it is of something else.
        op(JUMP_EQUAL, 0, count + 1, gone),
        op(LOAD_BYTE, 0, 0, place),
    ];
    for (value, left) in values.iter().zip((1..=count).rev()) {
        filter.push(op(JUMP_EQUAL, left, 0, u32::from(*value)));
    }
    filter.extend([op(RETURN, 0, 0, u32::MAX), op(RETURN, 0, 0, 0)]);
    filter
}

/// A socket that becomes readable when routes or rules change. What changed is not read: the
/// caller reads the tables themselves, which is right even where a notification was lost.
pub struct RouteWatch(OwnedFd);

impl RouteWatch {
    /// Opens one in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Those of netlink sockets.
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

    /// As [`open`](Self::open), but not for changes of routes in the tables `main` and `local`, of
    /// which a router may have many each second.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_beside_main() -> io::Result<Self> {
        let watch = Self::open()?;
        // A table that is not one byte's number reads as `RT_TABLE_COMPAT`.
        let filter = event_filter(TABLE, &[254, 255]);
        SockRef::from(&watch.0).attach_filter(&filter)?;
        Ok(watch)
    }

    /// Readable after a change.
    #[must_use]
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// Whether a filter lets the notification of a change pass.
    fn passes(filter: &[SockFilter], kind: u16, table: u8, route: u8) -> bool {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        SockRef::from(&receiver).attach_filter(filter).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let mut message = [0; 40];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message[TABLE as usize] = table;
        message[TYPE as usize] = route;
        // A datagram that its receiver filters out is no error.
        let _ = sender.send(&message);
        receiver.recv(&mut [0; 64]).is_ok()
    }

    #[test]
    fn routes_of_some_tables_or_types_are_left_out() {
        let by_table = event_filter(TABLE, &[254, 255]);
        let by_type = event_filter(TYPE, &[1]);
        for kind in [24, 25] {
            assert!(!passes(&by_table, kind, 254, 1) && !passes(&by_table, kind, 255, 2));
            assert!(passes(&by_table, kind, 252, 1) && passes(&by_table, kind, 100, 2));
            assert!(!passes(&by_type, kind, 254, 1) && passes(&by_type, kind, 254, 2));
        }
        // An address, a rule.
        for kind in [20, 21, 32, 33] {
            assert!(passes(&by_table, kind, 254, 1) && passes(&by_type, kind, 254, 1));
        }
    }
}
