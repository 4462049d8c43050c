//! Switches off a device's work for the network stack (ethtool's "offloads").

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType};

use crate::interface_request::interface_request;

/// `struct ethtool_value` of <linux/ethtool.h>.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

const SET_TRANSMIT_CHECKSUM: u32 = 0x17;
const SET_SEGMENTATION: u32 = 0x1f;

/// Makes the kernel compute checksums and split segments before the interface of the calling
/// thread's network namespace, so that a program that reads the packets sees them as on a real
/// link. Needs `CAP_NET_ADMIN`.
pub fn switch_off_offloads(interface: &str) -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    for command in [SET_TRANSMIT_CHECKSUM, SET_SEGMENTATION] {
        let mut value = Value { command, data: 0 };
        let mut request = interface_request(interface)?;
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: `request` holds a terminated name (zeroed, length checked) and a pointer to a
        // live `Value`, which is what these commands of SIOCETHTOOL read and write.
        let result =
            unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
