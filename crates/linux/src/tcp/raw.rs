//! The system calls that have no safe wrapper elsewhere.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads the option into `buffer`; the length that the kernel wrote comes back.
pub(crate) fn get_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(buffer.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the descriptor is open while it is borrowed; `buffer` is writable for `length`
    // bytes and `length` is a local variable, so the kernel writes only memory that is ours.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(length)
        .unwrap_or(usize::MAX)
        .min(buffer.len()))
}

/// Sets the option to `value`, in the machine's byte order.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the descriptor is open while it is borrowed; `value` is readable for `length` bytes
    // and the kernel copies it before the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `SIOCOUTQ` of `tcp(7)`: bytes in the send queue.
pub(super) fn output_queue(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed; SIOCOUTQ (the same number as TIOCOUTQ)
    // writes one int, to a local variable.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}
