//! Whether this machine has IPv6, and the reason if it has not.

use std::fmt::{self, Display};
use std::fs;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

/// The parameter that switches IPv6 off at the loopback interface.
const LOOPBACK_PARAMETER: &str = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";

/// Why there is no IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// There are no sockets of this family.
    Sockets,
    /// IPv6 is switched off, at least at the loopback interface.
    SwitchedOff,
}

impl Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sockets => "the kernel makes no sockets of IPv6 (ipv6.disable=1)",
            Self::SwitchedOff => {
                "it is switched off (net.ipv6.conf.all.disable_ipv6 or \
                 net.ipv6.conf.lo.disable_ipv6 is 1)"
            }
        })
    }
}

/// Why IPv6 connections cannot be led to a program in the calling thread's network namespace;
/// `None` if they can.
#[must_use]
pub fn missing() -> Option<Missing> {
    match rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, None) {
        Err(Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT) => Some(Missing::Sockets),
        // Other errors, for example too many open files, are reported where they matter.
        _ => is_switched_off().then_some(Missing::SwitchedOff),
    }
}

/// Whether IPv6 is switched off at the loopback interface, so that it takes no routes.
#[must_use]
pub fn is_switched_off() -> bool {
    fs::read_to_string(LOOPBACK_PARAMETER).is_ok_and(|value| value.trim() != "0")
}
