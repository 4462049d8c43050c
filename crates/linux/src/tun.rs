//! A network device whose packets a program reads (TUN, tuntap.txt of the kernel's documentation).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use crate::interface_request::{interface_name, interface_request};
use crate::netlink::{Netlink, NetlinkError, interface_index};

/// Largest packet of such a device in bytes.
pub const LARGEST_PACKET: u32 = 65_535;

/// Why there is no device.
#[derive(Debug, Error)]
pub enum TunError {
    /// The device cannot be made.
    #[error("cannot make a TUN device (/dev/net/tun, CAP_NET_ADMIN): {0}")]
    Make(#[from] io::Error),
    /// The device cannot be set up.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// A device, which is removed with the last copy of its descriptor. Each read of the descriptor
/// returns one complete IP packet that the kernel has sent through the device.
#[derive(Debug)]
pub struct Tun {
    /// The descriptor for reading packets.
    pub packets: OwnedFd,
    /// Index of the device.
    pub index: u32,
}

impl Tun {
    /// Makes a device in the calling thread's network namespace, with a name of the kernel's choice
    /// that begins with `prefix` (of at most 8 bytes), for packets of up to [`LARGEST_PACKET`], and
    /// sets it up. Needs `CAP_NET_ADMIN` and `/dev/net/tun`.
    ///
    /// # Errors
    /// See [`TunError`].
    pub fn make(prefix: &str) -> Result<Self, TunError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let packets = rustix::fs::open("/dev/net/tun", flags, Mode::empty());
        let packets = packets.map_err(io::Error::from)?;
        let name = attach(&packets, &format!("{prefix}%d"))?;
        // The device gets no address, and so has no packets of its own. If the file cannot be
        // written, the reader gets a few packets that are not for it.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1");
        let netlink = Netlink::open()?;
        netlink.set_mtu(&name, LARGEST_PACKET)?;
        netlink.set_up(&name)?;
        let index = interface_index(&name)?;
        Ok(Self { packets, index })
    }
}

/// Makes the device; returns its name.
fn attach(packets: &OwnedFd, pattern: &str) -> io::Result<String> {
    let mut request = interface_request(pattern)?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).unwrap_or_default();
    // SAFETY: `request` holds a terminated name (zeroed, length checked) and flags, which is what
    // TUNSETIFF reads and writes.
    let result = unsafe { libc::ioctl(packets.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(interface_name(&request))
}
