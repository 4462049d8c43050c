//! Hearing of changes to nftables (nfnetlink's multicast group).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::nfnetlink::Socket;

/// `NFNLGRP_NFTABLES`, as a bit.
const GROUP: u32 = 1 << (7 - 1);

/// A socket that becomes readable when any ruleset changes. What changed is not read.
pub struct RulesetWatch(Socket);

impl RulesetWatch {
    /// Opens one in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Those of netlink sockets.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(GROUP)?;
        socket.set_nonblocking()?;
        Ok(Self(socket))
    }

    /// Readable after a change.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Reads all notifications away; `true` if there was one.
    pub fn forget(&self) -> bool {
        let mut buffer = [0; 64];
        let mut any = false;
        for _ in 0..100_000 {
            match self.0.receive(&mut buffer) {
                Ok(_) => any = true,
                // More came than the socket holds: something has changed for certain.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(_) => break,
            }
        }
        any
    }
}
