//! The memory budget: how much of the machine's memory all sessions together may use.
//!
//! The budget counts the kernel's memory in the queues of both sockets, which is read from time to time
//! (`SO_MEMINFO`), the bytes that the relay holds in its pipes and buffers, a fixed amount for each session,
//! and an amount for connections that are being opened. [`midspan_policy::memory_share`] decides each
//! session's share of the budget.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use midspan_policy::memory_share::{EACH_SESSION, MemoryShare, reservation_of_window};
use midspan_units::ByteSize;

/// The budget, and how much of it is used.
#[derive(Debug)]
pub struct Budget {
    /// `u64::MAX` for no limit.
    limit: AtomicU64,
    /// The limit of queues alone.
    queues: AtomicU64,
    used: AtomicU64,
    reserved: AtomicU64,
    sessions: AtomicU64,
    /// The part of the reserved bytes that is set aside for connections without a session.
    aside: AtomicU64,
    /// The part of the used bytes that belongs to connections that are being opened.
    opening: AtomicU64,
    level: AtomicU64,
    was_short: AtomicBool,
}

impl Budget {
    pub fn new(limit: Option<ByteSize>, queues: Option<ByteSize>) -> Self {
        let budget = Self {
            limit: AtomicU64::new(u64::MAX),
            queues: AtomicU64::new(u64::MAX),
            aside: AtomicU64::new(0),
            used: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            opening: AtomicU64::new(0),
            level: AtomicU64::new(u64::MAX),
            was_short: AtomicBool::new(false),
        };
        budget.change(limit, queues);
        budget
    }

    pub fn change(&self, limit: Option<ByteSize>, queues: Option<ByteSize>) {
        let bytes = |limit: Option<ByteSize>| limit.map_or(u64::MAX, ByteSize::bytes);
        self.limit.store(bytes(limit), Ordering::Relaxed);
        self.queues.store(bytes(queues), Ordering::Relaxed);
    }

    /// The limit in bytes; `None` for no limit.
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// Bytes in use at the last measurement.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that sockets may come to use without another decision.
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Counts a new session.
    pub fn begin_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        self.change_use(0, EACH_SESSION);
        self.change_reserved(0, EACH_SESSION);
    }

    /// Counts the end of a session.
    pub fn end_session(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        self.change_use(EACH_SESSION, 0);
        self.change_reserved(EACH_SESSION, 0);
    }

    /// Replaces `old` used bytes by `new` ones.
    pub fn change_use(&self, old: u64, new: u64) {
        change(&self.used, old, new);
    }

    /// Replaces `old` reserved bytes by `new` ones.
    pub fn change_reserved(&self, old: u64, new: u64) {
        change(&self.reserved, old, new);
    }

    /// Changes the bytes that are set aside for connections without a session.
    pub fn change_aside(&self, old: u64, new: u64) {
        change(&self.aside, old, new);
        self.change_reserved(old, new);
    }

    /// The bytes that queues may come to use beyond the least of each session, and their limit.
    pub fn queues(&self) -> Option<(u64, u64)> {
        let share = self.share()?;
        (share.queue_budget != u64::MAX).then(|| (share.queues(), share.queue_budget))
    }

    /// Changes the used bytes of connections that are being opened.
    pub fn change_opening(&self, old: u64, new: u64) {
        change(&self.opening, old, new);
    }

    /// Whether another connection that needs this many bytes may be opened.
    pub fn has_room_to_open(&self, bytes: u64) -> bool {
        let opening = self.opening.load(Ordering::Relaxed);
        self.share()
            .is_none_or(|share| share.has_room_to_open(opening, bytes))
    }

    /// Reserves what a receive window of this many bytes of data may come to hold, and returns the reserved bytes.
    /// `None` if memory would become short.
    pub fn reserve_window(&self, bytes: u64) -> Option<u64> {
        let reservation = reservation_of_window(bytes);
        let share = self.share();
        // Another thread may reserve at the same time: only one of two gets the last room.
        let reserve = |reserved: u64| {
            let share = share.map(|share| MemoryShare { reserved, ..share });
            let has_room = share.is_none_or(|share| share.has_room_for_window(bytes));
            has_room.then(|| reserved.saturating_add(reservation))
        };
        let order = Ordering::Relaxed;
        let result = self.reserved.fetch_update(order, order, reserve);
        result.is_ok().then_some(reservation)
    }

    /// Whether there is no room for new sessions.
    pub fn is_full(&self) -> bool {
        self.share()
            .is_some_and(|share| !share.has_room_for_session())
    }

    /// Whether so much is reserved that buffers are bounded.
    pub fn is_short(&self) -> bool {
        self.share().is_some_and(|share| share.is_short())
    }

    /// Whether so much is reserved that sessions are measured often.
    pub fn is_watched(&self) -> bool {
        self.share().is_some_and(|share| share.is_watched())
    }

    /// Whether the budget has become short since any thread last called this.
    pub fn has_become_short(&self) -> bool {
        let is_short = self.is_short();
        is_short != self.was_short.load(Ordering::Relaxed)
            && !self.was_short.swap(is_short, Ordering::Relaxed)
            && is_short
    }

    /// The input for decisions; `None` without a budget.
    pub fn share(&self) -> Option<MemoryShare> {
        Some(MemoryShare {
            budget: self.limit()?,
            queue_budget: self.queues.load(Ordering::Relaxed),
            reserved: self.reserved(),
            aside: self.aside.load(Ordering::Relaxed),
            sessions: self.sessions.load(Ordering::Relaxed),
            level: self.level.load(Ordering::Relaxed),
        })
    }

    /// Moves the level of the shares; called from time to time while the budget is short.
    pub fn move_level(&self) {
        if let Some(share) = self.share() {
            self.level.store(share.next_level(), Ordering::Relaxed);
        }
    }
}

fn change(sum: &AtomicU64, old: u64, new: u64) {
    match new.checked_sub(old) {
        Some(0) => 0,
        Some(more) => sum.fetch_add(more, Ordering::Relaxed),
        None => sum.fetch_sub(old - new, Ordering::Relaxed),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_come_back_to_nothing_and_each_shortage_is_told_once() {
        let budget = Budget::new(Some(ByteSize::from_bytes(16 << 20)), None);
        for _ in 0..4 {
            budget.begin_session();
        }
        assert!(!budget.is_short() && !budget.has_become_short());
        budget.change_reserved(0, 9 << 20);
        assert!(budget.is_watched());
        assert!(budget.has_become_short() && !budget.has_become_short());
        assert!(!budget.is_full());
        budget.change_reserved(9 << 20, 14 << 20);
        assert!(budget.is_full() && !budget.has_become_short());
        budget.change(None, None);
        assert!(!budget.is_short() && !budget.is_full());
        budget.change_reserved(14 << 20, 0);
        for _ in 0..4 {
            budget.end_session();
        }
        assert_eq!((budget.used(), budget.reserved()), (0, 0));
    }
}
