//! `net.ipv4.tcp_early_demux`: off while connections are intercepted.
//!
//! With early demultiplexing, the kernel looks for a packet's socket before it routes the packet
//! (for IPv6 too), and does not forward a packet that has a socket. A client may use its port again
//! within a minute after its last connection to the same server, for a connection that passes
//! untouched. The server leg of the last connection may still be in TIME-WAIT, and the server's
//! packets would not be forwarded. (The client leg's socket makes room; see `port_reuse`.) Routers
//! gain by switching early demultiplexing off; see the kernel's `ip-sysctl`.

use std::fs;

const FILE: &str = "/proc/sys/net/ipv4/tcp_early_demux";

/// The parameter, with its former value.
#[derive(Debug)]
pub struct EarlyDemux {
    was_on: bool,
}

impl EarlyDemux {
    /// The parameter's name.
    pub const NAME: &str = "net.ipv4.tcp_early_demux";

    /// Reads the parameter, and changes nothing yet.
    pub fn read() -> Self {
        Self {
            was_on: Self::is_on(),
        }
    }

    /// Whether the parameter was on before this process changed it.
    pub const fn was_on(&self) -> bool {
        self.was_on
    }

    /// The parameter, which the former program of this process has changed.
    pub const fn of_former(was_on: bool) -> Self {
        Self { was_on }
    }

    /// A value for a process that does not change the parameter.
    pub const fn leave() -> Self {
        Self { was_on: false }
    }

    /// Whether the parameter is on now.
    fn is_on() -> bool {
        fs::read_to_string(FILE).is_ok_and(|text| text.trim() != "0")
    }

    /// Switches the parameter off, if it is on, as far as this process may. Returns whether it did.
    pub fn switch_off(&mut self) -> bool {
        if !Self::is_on() {
            return false;
        }
        write("0");
        let succeeded = !Self::is_on();
        self.was_on |= succeeded;
        succeeded
    }

    /// Switches the parameter on.
    pub fn switch_on() {
        write("1");
    }

    /// Restores the former value.
    pub fn restore(&self) {
        if self.was_on {
            write("1");
        }
    }
}

/// If writing fails, only connections that pass untouched can be concerned: a socket of a server
/// leg in TIME-WAIT hinders them.
fn write(value: &str) {
    let _ = fs::write(FILE, value);
}
