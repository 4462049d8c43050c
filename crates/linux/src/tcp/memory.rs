//! Kernel memory of a socket's queues.

use std::io;
use std::os::fd::AsFd;

use midspan_units::ByteSize;

use super::raw;

/// `SO_MEMINFO` of `<asm-generic/socket.h>`; the number is the same on all but SPARC and PA-RISC.
const SO_MEMINFO: libc::c_int = 55;
/// Numbers in the answer, and places of those that are read (`<linux/sock_diag.h>`).
const COUNT: usize = 9;
const RECEIVE_ALLOCATED: usize = 0;
const SEND_QUEUED: usize = 5;
const BACKLOG: usize = 7;

/// Keeps the receive window from growing beyond `limit` (`TCP_WINDOW_CLAMP`), or, with `None`,
/// lets it grow again. A window that has been advertised is not taken back.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_window_clamp(socket: impl AsFd, limit: Option<ByteSize>) -> io::Result<()> {
    /// `tcp_adv_win_scale` and the buffer decide.
    const NONE: i32 = i32::MAX;
    let limit = limit.map_or(NONE, |limit| i32::try_from(limit.bytes()).unwrap_or(NONE));
    raw::set_option(
        socket.as_fd(),
        libc::IPPROTO_TCP,
        libc::TCP_WINDOW_CLAMP,
        &limit.to_ne_bytes(),
    )
}

/// What a socket's queues take of the kernel's memory, overhead included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketMemory {
    /// Received and not yet read.
    pub receive: ByteSize,
    /// Written and not yet acknowledged.
    pub send: ByteSize,
}

/// Reads it (`SO_MEMINFO`, Linux 4.12). Takes no lock of the socket.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn memory(socket: impl AsFd) -> io::Result<SocketMemory> {
    let mut buffer = [0; COUNT * 4];
    let length = raw::get_option(socket.as_fd(), libc::SOL_SOCKET, SO_MEMINFO, &mut buffer)?;
    let number = |place: usize| {
        let bytes = buffer[..length].get(place * 4..place * 4 + 4);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        u64::from(bytes.map_or(0, u32::from_ne_bytes))
    };
    Ok(SocketMemory {
        receive: ByteSize::from_bytes(number(RECEIVE_ALLOCATED) + number(BACKLOG)),
        send: ByteSize::from_bytes(number(SEND_QUEUED)),
    })
}
