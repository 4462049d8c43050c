//! Whether this machine has IPv6, and why not.

use std::fmt::{self, Display};
use std::fs;
use std::net::{Ipv6Addr, SocketAddrV6};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

/// Switches IPv6 off at the loopback interface.
const LOOPBACK_PARAMETER: &str = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";

/// Why there is no IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// There are no sockets of this family.
    Sockets,
    /// It is switched off, at least at the loopback interface.
    SwitchedOff,
    /// The loopback interface is down, or has lost its address.
    LoopbackAddress,
}

impl Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sockets => "the kernel makes no sockets of IPv6 (ipv6.disable=1)",
            Self::SwitchedOff => {
                "it is switched off (net.ipv6.conf.all.disable_ipv6 or \
                 net.ipv6.conf.lo.disable_ipv6 is 1)"
            }
            Self::LoopbackAddress => {
                "the interface lo does not have the address ::1 (ip link set lo up)"
            }
        })
    }
}

/// Why a program in the network namespace of the calling thread can have no IPv6 connections
/// brought to it; `None` where it can.
#[must_use]
pub fn missing() -> Option<Missing> {
    let socket = match rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, None) {
        Ok(socket) => socket,
        Err(Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT) => return Some(Missing::Sockets),
        // Something else is wrong, as with too many open files: others will tell.
        Err(_) => return None,
    };
    let any_port = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0);
    match rustix::net::bind(&socket, &any_port) {
        Err(Errno::ADDRNOTAVAIL) if is_switched_off() => Some(Missing::SwitchedOff),
        Err(Errno::ADDRNOTAVAIL) => Some(Missing::LoopbackAddress),
        _ => None,
    }
}

/// Whether IPv6 is switched off at the loopback interface, so that it takes no routes.
#[must_use]
pub fn is_switched_off() -> bool {
    fs::read_to_string(LOOPBACK_PARAMETER).is_ok_and(|value| value.trim() != "0")
}
