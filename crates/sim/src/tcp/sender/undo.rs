//! What a spurious time-out gives back.

/// cwnd and ssthresh before a time-out, in bytes, in case it was spurious (Linux: `tcp_init_undo`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Windows {
    pub(super) cwnd: u64,
    pub(super) ssthresh: u64,
}
