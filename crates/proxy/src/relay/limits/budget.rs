//! The memory budget: what all sessions together may take of the machine's memory.
//!
//! Counted is the kernel's memory in the queues of both sockets, as it is read from time to time
//! (`SO_MEMINFO`), the bytes in pipes, and a fixed sum for each session. Beyond an
//! eighth of the budget receive windows stop growing. Beyond half of it
//! a direction that has more than its share waiting to be sent stops reading, so that its sender
//! stops; the other half is for what senders may still send into windows that they have been
//! given. Beyond three quarters new sessions are shed.

use std::sync::atomic::{AtomicU64, Ordering};

use midspan_units::ByteSize;

/// What a session takes with empty queues: two sockets (4 KB each) and the relay's own memory.
pub const EACH_SESSION: u64 = 9 << 10;

/// Share of a direction, where it would be less: below it, stopping saves nothing.
const LEAST_SHARE: u64 = 32 << 10;

/// Least window: no session is to starve.
const LEAST_WINDOW: ByteSize = ByteSize::from_bytes(64 << 10);

/// The budget and what is used of it.
#[derive(Debug)]
pub struct Budget {
    /// `u64::MAX` for none.
    limit: AtomicU64,
    used: AtomicU64,
    sessions: AtomicU64,
}

impl Budget {
    pub fn new(limit: Option<ByteSize>) -> Self {
        let budget = Self {
            limit: AtomicU64::new(u64::MAX),
            used: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
        };
        budget.change(limit);
        budget
    }

    pub fn change(&self, limit: Option<ByteSize>) {
        let limit = limit.map_or(u64::MAX, ByteSize::bytes);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes that are allowed; `None` for any number.
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// Bytes that are used, as they were read last.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// One session more.
    pub fn begin_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        self.change_use(0, EACH_SESSION);
    }

    /// One session less.
    pub fn end_session(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        self.change_use(EACH_SESSION, 0);
    }

    /// What used `old` bytes uses `new`.
    pub fn change_use(&self, old: u64, new: u64) {
        match new.checked_sub(old) {
            Some(more) => self.used.fetch_add(more, Ordering::Relaxed),
            None => self.used.fetch_sub(old - new, Ordering::Relaxed),
        };
    }

    /// No room for new sessions.
    pub fn is_short(&self) -> bool {
        self.limit()
            .is_some_and(|limit| self.used() >= limit / 4 * 3)
    }

    /// So much is used that sessions are to be read often.
    pub fn is_watched(&self) -> bool {
        self.limit().is_some_and(|limit| self.used() >= limit / 8)
    }

    /// What windows are not to grow beyond, so that what comes after a direction has stopped
    /// reading has its place; `None` while little is used.
    pub fn window_clamp(&self) -> Option<ByteSize> {
        let limit = self.limit().filter(|_| self.is_watched())?;
        let sessions = self.sessions.load(Ordering::Relaxed).max(1);
        Some(ByteSize::from_bytes(limit / 8 / sessions).max(LEAST_WINDOW))
    }

    /// The most that a direction may have waiting in its outbound leg and still read; `None` while
    /// there is room for all.
    pub fn share(&self) -> Option<u64> {
        let half = self.limit()? / 2;
        if self.used() < half {
            return None;
        }
        let directions = self.sessions.load(Ordering::Relaxed).max(1) * 2;
        Some((half / directions).max(LEAST_SHARE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_shrink_with_the_sessions_and_new_ones_are_shed_later() {
        let budget = Budget::new(Some(ByteSize::from_bytes(8 << 20)));
        for _ in 0..4 {
            budget.begin_session();
        }
        assert_eq!(budget.share(), None);
        budget.change_use(0, 4 << 20);
        assert_eq!(
            (budget.share(), budget.is_short()),
            (Some(512 << 10), false)
        );
        budget.change_use(4 << 20, 6 << 20);
        assert!(budget.is_short());
        budget.change(None);
        assert_eq!((budget.share(), budget.is_short()), (None, false));
        budget.change_use(6 << 20, 0);
        for _ in 0..4 {
            budget.end_session();
        }
        assert_eq!(budget.used(), 0);
    }
}
