//! Settings of the allocator.

/// From now on, memory of few bytes that is given back is joined with its neighbours at once.
///
/// Otherwise glibc collects such pieces, and joins all of them at one time: after 400,000 sessions have ended, this takes a
/// thread 19 ms (`mallopt(3)`, `M_MXFAST`). Other allocators do nothing of the kind.
#[cfg(target_env = "gnu")]
pub fn join_pieces_at_once() {
    // SAFETY: `mallopt` takes two numbers and a lock of the allocator.
    unsafe { libc::mallopt(libc::M_MXFAST, 0) };
}

/// From now on, memory of few bytes that is given back is joined with its neighbours at once.
#[cfg(not(target_env = "gnu"))]
pub const fn join_pieces_at_once() {}
