//! Packet sockets with a receive ring shared with the kernel (packet(7), `TPACKET_V2`).
//!
//! The ring stands in for a large socket buffer, which an ordinary user may not have. Version 2
//! hands over each packet at once; version 3 waits for a block to fill.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketFlags, SocketType};

use socket2::{SockFilter, SockRef};

use crate::netlink::interface_index;

/// One slot holds a frame of at most this size with its header.
const SLOT: usize = 2048;
/// A block is what the kernel allocates in one piece.
const BLOCK: usize = 1 << 16;
const PACKET_VERSION_2: u32 = 1;
/// Where the `sockaddr_ll` of a frame begins in its slot: behind the header, aligned to 16 bytes.
const LINK_ADDRESS: usize = 32;

/// `struct tpacket2_hdr` of <linux/if_packet.h>.
#[repr(C)]
struct Header {
    status: u32,
    length: u32,
    captured: u32,
    mac: u16,
    net: u16,
    seconds: u32,
    nanoseconds: u32,
    vlan: [u16; 2],
    padding: [u8; 4],
}

/// `struct tpacket_req`.
#[repr(C)]
struct RingRequest {
    block_size: u32,
    block_count: u32,
    frame_size: u32,
    frame_count: u32,
}

/// `struct tpacket_stats`.
#[repr(C)]
#[derive(Default)]
struct Statistics {
    packets: u32,
    drops: u32,
}

/// Which frames a socket sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Those that arrive at the interface.
    Incoming,
    /// Those that arrive and those that leave.
    Both,
}

/// A packet socket on one interface: Ethernet frames as they arrive there, frames sent out there.
pub struct PacketSocket {
    socket: OwnedFd,
    ring: NonNull<u8>,
    slots: usize,
    next: usize,
}

// SAFETY: the ring is owned by this value alone (the kernel's side of it is reached through
// atomics), so it may move to another thread with it.
unsafe impl Send for PacketSocket {}

/// A frame that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The frame from its Ethernet header on.
    pub frame: &'a [u8],
    /// When the kernel took it from the device, on the real-time clock, since 1970.
    pub at: Duration,
    /// Its length on the wire; above `frame.len()` if it was cut.
    pub length: usize,
    /// Where its network layer begins in `frame`; 0 on interfaces without a link layer.
    pub network: usize,
    /// This machine sent it.
    pub is_outgoing: bool,
}

impl PacketSocket {
    /// Opens a socket on `interface` in the calling thread's network namespace with a ring for
    /// `slots` frames (rounded up to whole blocks of 32). Needs `CAP_NET_RAW`.
    pub fn open(interface: &str, slots: usize, sight: Sight) -> io::Result<Self> {
        Self::open_filtered(interface, slots, sight, &[])
    }

    /// As [`open`](Self::open), for the frames that `filter` accepts (classic BPF; none: all).
    pub fn open_filtered(
        interface: &str,
        slots: usize,
        sight: Sight,
        filter: &[SockFilter],
    ) -> io::Result<Self> {
        let index = interface_index(interface).map_err(io::Error::other)?;
        // No protocol yet: nothing arrives before the ring stands and the socket is bound.
        let socket = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None::<Protocol>,
        )?;
        if !filter.is_empty() {
            SockRef::from(&socket).attach_filter(filter)?;
        }
        set_option(&socket, libc::PACKET_VERSION, &PACKET_VERSION_2)?;
        let incoming = u32::from(sight == Sight::Incoming);
        set_option(&socket, libc::PACKET_IGNORE_OUTGOING, &incoming)?;
        // Straight to the driver: a veth has no queue worth asking.
        set_option(&socket, libc::PACKET_QDISC_BYPASS, &1u32)?;
        let blocks = slots.div_ceil(BLOCK / SLOT).clamp(1, 4096);
        let slots = blocks * (BLOCK / SLOT);
        let number = |value: usize| u32::try_from(value).map_err(io::Error::other);
        let request = RingRequest {
            block_size: number(BLOCK)?,
            block_count: number(blocks)?,
            frame_size: number(SLOT)?,
            frame_count: number(slots)?,
        };
        set_option(&socket, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice overlaps nothing;
        // its length is that of the ring just requested.
        let ring = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                blocks * BLOCK,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &socket,
                0,
            )
        }?;
        let this = Self {
            socket,
            ring: NonNull::new(ring.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            slots,
            next: 0,
        };
        // A fork copies each entry of the page table of such a mapping: with the rings of an
        // emulated network, tens of milliseconds in which frames wait.
        // SAFETY: the advice is for exactly the mapping just made, and changes this process's
        // view of it in nothing.
        unsafe { rustix::mm::madvise(ring, blocks * BLOCK, Advice::LinuxDontFork) }?;
        this.bind(index)?;
        Ok(this)
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: an all-zero `sockaddr_ll` is a valid value of it (integers only).
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = i32::try_from(index).map_err(io::Error::other)?;
        // SAFETY: the pointer and length describe the live `address`.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Hands the next waiting frame to `take`; `None` if none waits. The frame is in the ring
    /// only while `take` runs.
    pub fn receive<T>(&mut self, take: impl FnOnce(Received<'_>) -> T) -> Option<T> {
        // SAFETY: `next` is below `slots`, so the slot lies within the mapping; slots are aligned
        // to 2048 bytes, so the header is aligned.
        let slot = unsafe { self.ring.add(self.next * SLOT) };
        let header = slot.cast::<Header>();
        // SAFETY: the status word is valid for the life of the mapping and both sides use it
        // atomically.
        let status = unsafe { AtomicU32::from_ptr(&raw mut (*header.as_ptr()).status) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: with TP_STATUS_USER seen (acquire) the slot is ours until it is given back; the
        // kernel does not write to it meanwhile. The length is clamped to the slot. The address is
        // where packet_mmap's layout has it, aligned as the slot and LINK_ADDRESS are.
        let received = unsafe {
            let header = header.as_ref();
            let start = usize::from(header.mac).min(SLOT);
            let captured = (header.captured as usize).min(SLOT - start);
            let address = slot.add(LINK_ADDRESS).cast::<libc::sockaddr_ll>().as_ref();
            Received {
                network: usize::from(header.net.saturating_sub(header.mac)).min(captured),
                is_outgoing: address.sll_pkttype == libc::PACKET_OUTGOING,
                frame: std::slice::from_raw_parts(slot.as_ptr().add(start), captured),
                at: Duration::new(u64::from(header.seconds), header.nanoseconds),
                length: header.length as usize,
            }
        };
        let result = take(received);
        status.store(0, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
        Some(result)
    }

    /// Sends a frame out of the interface.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.socket, frame, SendFlags::empty())?;
        Ok(())
    }

    /// The error that waits on the socket, such as `ENETDOWN` after the interface went down; the call
    /// removes this error. While an error waits, `poll` returns at once.
    ///
    /// # Errors
    /// The system call failed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(&self.socket).take_error()
    }

    /// Frames that found the ring full since the last call.
    pub fn take_drops(&self) -> io::Result<u32> {
        let mut statistics = Statistics::default();
        let mut length = size_of::<Statistics>() as u32;
        // SAFETY: pointer and length describe the live `statistics`, which has the layout that
        // PACKET_STATISTICS writes for version 2.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(statistics.drops)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `open`, and nothing borrows from it any more.
        let _ =
            unsafe { rustix::mm::munmap(self.ring.as_ptr().cast::<c_void>(), self.slots * SLOT) };
    }
}

fn set_option<T>(socket: &OwnedFd, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe the live `value`; every caller passes the type that
    // the option reads (packet(7)).
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
