//! Changes to the results of a connection's handshake (`TCP_REPAIR` of <linux/tcp.h>), and to the
//! fragmentation of its packets (ip(7)).
//!
//! `TCP_REPAIR_OPTIONS` was made for checkpointing. It sets the peer's segment size and window scale of a
//! live socket as long as nothing has been sent; after the first byte the kernel returns `EPERM`. Data that
//! was already received does not matter.
//!
//! While a socket is in repair, the kernel replaces its `SO_REUSEADDR`, and clears this option when the
//! socket leaves repair. The functions here set the option again: otherwise no listener could bind to the
//! socket's address and port as long as the socket exists, or is in TIME_WAIT.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt;

use super::raw;

/// Option kinds of RFC 9293 §3.2 and RFC 7323 §2.2, as `TCP_REPAIR_OPTIONS` names them.
const SEGMENT_SIZE: u32 = 2;
const WINDOW_SCALE: u32 = 3;

/// `TCP_REPAIR_OFF_NO_WP`: leave without sending a window probe (Linux 4.20).
const LEAVE_SILENTLY: i32 = -1;
/// `TCP_REPAIR_OFF`: leave with a window probe.
const LEAVE: i32 = 0;
const ENTER: i32 = 1;

/// `IP_PMTUDISC_OMIT` and `IP_PMTUDISC_WANT` of ip(7).
const OMIT: i32 = 5;
const WANT: i32 = 1;

/// Largest window scale (RFC 7323 §2.3).
pub const LARGEST_WINDOW_SCALE: u8 = 14;

/// The results of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Largest segment in bytes of data without options: the peer's MSS, or what the route has
    /// room for, if that is less.
    pub segment_size: u32,
    /// Largest packet of the route at present (`IP_MTU`), in bytes; `None` if unknown.
    pub path_mtu: Option<u32>,
    /// Scale of the windows that the peer advertises.
    pub peer_window_scale: u8,
    /// Scale of the windows that this socket advertises.
    pub own_window_scale: u8,
    /// Every segment carries timestamps (12 bytes of options).
    pub timestamps: bool,
}

/// Bytes that timestamps take in every segment (RFC 7323, appendix A).
const TIMESTAMPS_LENGTH: u32 = 12;

/// Offsets and bits in `struct tcp_info`, as in the [`information`](super::information) module.
const OPTIONS: usize = 5;
const WINDOW_SCALES: usize = 6;
const SEND_SEGMENT_SIZE: usize = 16;
const HAS_TIMESTAMPS: u8 = 1;

/// Reads the results of the handshake. The socket must be connected.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn agreed(socket: impl AsFd) -> io::Result<Agreed> {
    let socket = socket.as_fd();
    let mut information = [0; SEND_SEGMENT_SIZE + 4];
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    let length = raw::get_option(socket, level, name, &mut information)?;
    if length < information.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let timestamps = information[OPTIONS] & HAS_TIMESTAMPS != 0;
    let scales = information[WINDOW_SCALES];
    // Two fields of four bits; which comes first follows the machine's byte order.
    let (low, high) = (scales & 0xf, scales >> 4);
    let (peer_window_scale, own_window_scale) = match cfg!(target_endian = "little") {
        true => (low, high),
        false => (high, low),
    };
    let size = &information[SEND_SEGMENT_SIZE..];
    let size = u32::from_ne_bytes([size[0], size[1], size[2], size[3]]);
    Ok(Agreed {
        segment_size: size + if timestamps { TIMESTAMPS_LENGTH } else { 0 },
        path_mtu: path_mtu(socket).ok(),
        peer_window_scale,
        own_window_scale,
        timestamps,
    })
}

/// Largest packet that the route to the peer takes at present (`IP_MTU`), in bytes.
///
/// # Errors
/// Those of `getsockopt(2)`; the socket must be connected over IPv4.
pub fn path_mtu(socket: impl AsFd) -> io::Result<u32> {
    let mut value = [0; 4];
    raw::get_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU, &mut value)?;
    Ok(u32::from_ne_bytes(value))
}

/// New values for the results of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repair {
    /// The peer's MSS in bytes: the upper limit of sent segments, 1 to 65,495. Below it, the
    /// route's MTU sets their size.
    pub segment_ceiling: Option<u16>,
    /// Scales of the windows of the peer and of our own, each at most
    /// [`LARGEST_WINDOW_SCALE`]. Our own must be the one that was agreed on.
    pub window_scales: Option<(u8, u8)>,
    /// The window of the peer in bytes that holds until its next ACK. Without it, a new scale has no
    /// effect before that ACK (`TCP_REPAIR_WINDOW`, Linux 4.8).
    pub window: Option<u32>,
}

/// Words of `struct tcp_repair_window`: `snd_wl1`, `snd_wnd`, `max_window`, `rcv_wnd`, `rcv_wup`.
const WINDOW_WORDS: usize = 5;
const SEND_WINDOW: usize = 1;
const LARGEST_WINDOW: usize = 2;

/// Changes the results of the handshake. Needs `CAP_NET_ADMIN` of the network namespace.
///
/// # Errors
/// `PermissionDenied` without the capability, or after a byte has been sent; otherwise those of
/// `setsockopt(2)`. Values that could not be changed stay as they were.
pub fn repair(socket: impl AsFd, repair: Repair) -> io::Result<()> {
    let socket = socket.as_fd();
    let size = repair
        .segment_ceiling
        .map(|size| (SEGMENT_SIZE, u32::from(size)));
    let scales = repair.window_scales.map(|(peer, own)| {
        let value = (u32::from(own) << 16) | u32::from(peer);
        (WINDOW_SCALE, value)
    });
    let mut options = Vec::new();
    for (kind, value) in [size, scales].into_iter().flatten() {
        // `struct tcp_repair_opt`: two words.
        options.extend_from_slice(&kind.to_ne_bytes());
        options.extend_from_slice(&value.to_ne_bytes());
    }
    if options.is_empty() && repair.window.is_none() {
        return Ok(());
    }
    repairing(socket, LEAVE_SILENTLY, || {
        // Fails before anything is changed if the kernel has no such option.
        let window = repair.window.map(|window| with_peer_window(socket, window));
        let window = window.transpose()?;
        let level = libc::IPPROTO_TCP;
        if !options.is_empty() {
            raw::set_option(socket, level, libc::TCP_REPAIR_OPTIONS, &options)?;
        }
        match window {
            Some(window) => raw::set_option(socket, level, libc::TCP_REPAIR_WINDOW, &window),
            None => Ok(()),
        }
    })
}

/// Acts on a socket that is in repair: nothing is sent meanwhile.
fn repairing(
    socket: BorrowedFd<'_>,
    leave: i32,
    act: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let reuses_address = sockopt::socket_reuseaddr(socket)?;
    set(socket, libc::TCP_REPAIR, ENTER)?;
    let result = act();
    set(socket, libc::TCP_REPAIR, leave)?;
    sockopt::set_socket_reuseaddr(socket, reuses_address)?;
    result
}

/// The socket's windows, with this one for the peer. The other values stay as they were read: an ACK
/// may advance them before they are written, and the next ACK does so again.
fn with_peer_window(socket: BorrowedFd<'_>, window: u32) -> io::Result<[u8; WINDOW_WORDS * 4]> {
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW);
    let mut values = [0; WINDOW_WORDS * 4];
    if raw::get_option(socket, level, name, &mut values)? < values.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    for word in [SEND_WINDOW, LARGEST_WINDOW] {
        values[4 * word..4 * (word + 1)].copy_from_slice(&window.to_ne_bytes());
    }
    Ok(values)
}

/// Makes the kernel look up the socket's route at once, after [`set_mark`](super::set_mark).
///
/// The size of segments follows the route of the last sent packet. So the data that is written next
/// would still be split at the old size: all of it, if nothing is in flight. This function sends a
/// window probe over the new route: an empty segment that the peer answers with an ACK. Needs
/// `CAP_NET_ADMIN` of the network namespace.
///
/// # Errors
/// `PermissionDenied` without the capability; otherwise those of `setsockopt(2)`.
pub fn route_again(socket: impl AsFd) -> io::Result<()> {
    repairing(socket.as_fd(), LEAVE, || Ok(()))
}

/// Whether IP may fragment the socket's packets at the device's MTU, even if routers report a
/// smaller one (`IP_PMTUDISC_OMIT`), or discovers the path MTU (`IP_PMTUDISC_WANT`, the default).
/// IPv4.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_fragmenting(socket: impl AsFd, may_fragment: bool) -> io::Result<()> {
    let value = if may_fragment { OMIT } else { WANT };
    let name = libc::IP_MTU_DISCOVER;
    raw::set_option(socket.as_fd(), libc::IPPROTO_IP, name, &value.to_ne_bytes())
}

/// Whether segments that are not full wait for more data, at most 200 ms (`TCP_CORK` of tcp(7)).
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_cork(socket: impl AsFd, cork: bool) -> io::Result<()> {
    set(socket.as_fd(), libc::TCP_CORK, i32::from(cork))
}

/// Whether small segments are sent at once (`TCP_NODELAY`) or wait while others are in flight
/// (Nagle's algorithm, RFC 896). Setting it sends waiting data.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_no_delay(socket: impl AsFd, no_delay: bool) -> io::Result<()> {
    set(socket.as_fd(), libc::TCP_NODELAY, i32::from(no_delay))
}

fn set(socket: BorrowedFd<'_>, name: libc::c_int, value: i32) -> io::Result<()> {
    raw::set_option(socket, libc::IPPROTO_TCP, name, &value.to_ne_bytes())
}
