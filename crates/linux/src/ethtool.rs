//! Switching off what a device does for the stack (ethtool's "offloads").

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType};

/// `struct ethtool_value` of <linux/ethtool.h>.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

const SET_TRANSMIT_CHECKSUM: u32 = 0x17;
const SET_SEGMENTATION: u32 = 0x1f;

/// Lets the kernel itself compute checksums and cut segments before the interface in the calling
/// thread's network namespace, so that whoever reads the packets sees them as they would be on a
/// wire. Needs `CAP_NET_ADMIN`.
pub fn switch_off_offloads(interface: &str) -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    for command in [SET_TRANSMIT_CHECKSUM, SET_SEGMENTATION] {
        let mut value = Value { command, data: 0 };
        // SAFETY: an all-zero `ifreq` is a valid value of it (plain integers and pointers).
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if interface.len() >= request.ifr_name.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "interface name too long",
            ));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = from.cast_signed();
        }
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
