//! Descriptors that were never opened, for models without a kernel.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The numbers begin here. The kernel gives no number above `fs.nr_open`, which is at most 2³⁰ - 64 (`proc(5)`).
pub const FIRST: RawFd = 1 << 30;

/// A descriptor with a number that the kernel never gives: every call with it fails with `EBADF`, and so does its
/// close, without an effect. Only builds without debug assertions may drop it, because the standard library
/// checks there that a descriptor is open.
///
/// `None` if there are no more such numbers.
#[must_use]
pub fn descriptor(number: u32) -> Option<OwnedFd> {
    let number = FIRST.checked_add(RawFd::try_from(number).ok()?)?;
    // SAFETY: No code of this process can own this number, so nothing else is closed with it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
