//! `net.ipv4.tcp_early_demux`: off while connections are intercepted.
//!
//! With it, the kernel looks for a packet's socket before it routes the packet (for IPv6 too),
//! and does not forward one that has a socket. So a client that uses its port again within a
//! minute after its last connection to the same server would not get through, since the socket of
//! that connection still waits. Routers gain by having it off; see the kernel's `ip-sysctl`.

use std::fs;

const FILE: &str = "/proc/sys/net/ipv4/tcp_early_demux";

/// The parameter, and what it was.
#[derive(Debug)]
pub struct EarlyDemux {
    was_on: bool,
}

impl EarlyDemux {
    /// The parameter's name.
    pub const NAME: &str = "net.ipv4.tcp_early_demux";

    /// As it is; nothing is changed yet.
    pub fn read() -> Self {
        Self {
            was_on: Self::is_on(),
        }
    }

    /// What it was before this process changed it.
    pub const fn was_on(&self) -> bool {
        self.was_on
    }

    /// Leaves it as it is.
    pub const fn leave() -> Self {
        Self { was_on: false }
    }

    /// Whether it is on.
    pub fn is_on() -> bool {
        fs::read_to_string(FILE).is_ok_and(|text| text.trim() != "0")
    }

    /// Switches it off, if it is on and as far as this process may; whether it did.
    pub fn switch_off(&mut self) -> bool {
        if !Self::is_on() {
            return false;
        }
        write("0");
        let succeeded = !Self::is_on();
        self.was_on |= succeeded;
        succeeded
    }

    /// Switches it on.
    pub fn switch_on() {
        write("1");
    }

    /// As it was.
    pub fn restore(&self) {
        if self.was_on {
            write("1");
        }
    }
}

/// Where it fails, rules make up for it.
fn write(value: &str) {
    let _ = fs::write(FILE, value);
}
