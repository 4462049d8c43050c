//! Kernel memory of a socket's queues, and its bounds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use midspan_units::ByteSize;

use super::raw;

/// `SO_MEMINFO` of `<asm-generic/socket.h>`; the number is the same except on SPARC and PA-RISC.
const SO_MEMINFO: libc::c_int = 55;
/// `SO_BUF_LOCK` (Linux 5.14) of the same header, and its bits (`<linux/socket.h>`).
const SO_BUF_LOCK: libc::c_int = 72;
const SEND_LOCK: u32 = 1;
const RECEIVE_LOCK: u32 = 2;
/// Numbers in the answer, and places of those that are read (`<linux/sock_diag.h>`).
const COUNT: usize = 9;
const RECEIVE_ALLOCATED: usize = 0;
const RECEIVE_LIMIT: usize = 1;
const SEND_LIMIT: usize = 3;
const SEND_QUEUED: usize = 5;
const BACKLOG: usize = 7;

/// Kernel memory of a socket's queues, with overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketMemory {
    /// Received and not yet read.
    pub receive: ByteSize,
    /// Written and not yet acknowledged.
    pub send: ByteSize,
    /// Limit of data that is received and not yet read.
    pub receive_limit: ByteSize,
    /// Limit of data that is written and not yet acknowledged.
    pub send_limit: ByteSize,
}

/// Reads the memory (`SO_MEMINFO`, Linux 4.12). Takes no lock of the socket.
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
        receive_limit: ByteSize::from_bytes(number(RECEIVE_LIMIT)),
        send_limit: ByteSize::from_bytes(number(SEND_LIMIT)),
    })
}

/// Limits the data that is received and not yet read, in bytes as the kernel counts them, with overhead
/// (`SO_RCVBUF`, which the kernel doubles; this function halves `limit` first). From then on, the kernel no
/// longer tunes the limit. Data that is already in the queue stays. If the window that was offered before is
/// larger than the new limit, the kernel drops the data beyond the limit, and the peer sends it again.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn limit_receive_queue(socket: impl AsFd, limit: ByteSize) -> io::Result<()> {
    let socket = socket.as_fd();
    super::set_receive_buffer(socket, half(limit))?;
    // Without this the window stays as small as a smaller buffer had made it: Linux (6.10) notes
    // a clamp whenever it learns the overhead of packets, and never raises that with the buffer.
    raw::set_option(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_WINDOW_CLAMP,
        &i32::MAX.to_ne_bytes(),
    )
}

/// Limits the data that is written and not yet acknowledged, in the same way (`SO_SNDBUF`).
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn limit_send_queue(socket: impl AsFd, limit: ByteSize) -> io::Result<()> {
    super::set_send_buffer(socket, half(limit))
}

/// Whether the kernel leaves the limits of a socket's queues as they are, instead of tuning them
/// (`SO_BUF_LOCK`, Linux 5.14).
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn lock_queue_limits(socket: impl AsFd, receive: bool, send: bool) -> io::Result<()> {
    let bits = if receive { RECEIVE_LOCK } else { 0 } | if send { SEND_LOCK } else { 0 };
    raw::set_option(
        socket.as_fd(),
        libc::SOL_SOCKET,
        SO_BUF_LOCK,
        &bits.to_ne_bytes(),
    )
}

/// Lets the kernel tune the receive buffer again, after [`set_receive_buffer`](super::set_receive_buffer)
/// has fixed it (`SO_BUF_LOCK`, Linux 5.14). The send buffer stays as it is.
///
/// # Errors
/// Those of `getsockopt(2)` and `setsockopt(2)`; `ENOPROTOOPT` before Linux 5.14.
pub fn unlock_receive_queue(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    let lock = queue_locks(socket)? & !RECEIVE_LOCK;
    raw::set_option(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &lock.to_ne_bytes())
}

/// Lets a socket that has not connected yet offer a receive window of `window` bytes of data from its first
/// ACK on (since Linux 6.10), or as much as `net.core.rmem_max` allows without `CAP_NET_ADMIN` of the
/// initial user namespace. The kernel continues to tune the buffer.
///
/// # Errors
/// Those of `setsockopt(2)`; `ENOPROTOOPT` before Linux 5.14, where the buffer then keeps this size.
pub fn open_receive_window(socket: impl AsFd, window: ByteSize) -> io::Result<()> {
    let socket = socket.as_fd();
    // The kernel doubles the size, and offers half of the result.
    super::set_receive_buffer(socket, window)?;
    // With a fixed buffer, the window scale would not leave room for a larger window later.
    unlock_receive_queue(socket)
}

fn queue_locks(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bits = [0; 4];
    raw::get_option(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &mut bits)?;
    Ok(u32::from_ne_bytes(bits))
}

const fn half(limit: ByteSize) -> ByteSize {
    ByteSize::from_bytes(limit.bytes() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    #[test]
    fn an_open_window_is_still_tuned_by_the_kernel() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let before = memory(&socket).unwrap().receive_limit.bytes();
        let window = ByteSize::from_bytes(100_000);
        match open_receive_window(&socket, window) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                return println!("skipped: this kernel has no SO_BUF_LOCK");
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(
            memory(&socket).unwrap().receive_limit.bytes(),
            200_000,
            "{before} before"
        );
        assert_eq!(queue_locks(socket.as_fd()).unwrap(), 0);
    }

    #[test]
    fn limits_are_as_set_and_can_be_given_back_to_the_kernel() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let limit = ByteSize::from_bytes(40 << 10);
        limit_receive_queue(&socket, limit).unwrap();
        limit_send_queue(&socket, limit).unwrap();
        let now = memory(&socket).unwrap();
        assert_eq!((now.receive_limit, now.send_limit), (limit, limit));
        lock_queue_limits(&socket, false, true).unwrap();
        assert_eq!(queue_locks(socket.as_fd()).unwrap(), SEND_LOCK);
        assert_eq!(memory(&socket).unwrap(), now);
        lock_queue_limits(&socket, true, true).unwrap();
        unlock_receive_queue(&socket).unwrap();
        assert_eq!(queue_locks(socket.as_fd()).unwrap(), SEND_LOCK);
    }
}
