//! How a memory budget is shared between the directions of all sessions.
//!
//! What counts is not what buffers hold but what they may hold: a buffer that may grow is a
//! promise to a peer, which cannot be taken back once data is in it. So each direction has a
//! [reservation](DirectionMemory::reservation), and their sum stays within the budget:
//!
//! | of the budget is reserved | what follows |
//! | --- | --- |
//! | up to a quarter | the kernel tunes all buffers |
//! | more | buffers of directions that are still are made small, those of new sessions too |
//! | more than a half | a direction grows only up to a level |
//! | more than 9/16 | the level falls step by step, and rises again below; who has more comes down to it, so those that take most give first |
//! | 5/8 | nothing grows any more: the rest is for the least of new sessions |
//! | 7/8 | new sessions are shed |
//!
//! What queues may hold beyond the least of each session has a budget of its own, since the kernel
//! has one for all TCP sockets of the machine. The same shares of it have the same effect, but for
//! the last: a new session with the least buffers is not shed for it.
//!
//! A direction that moves data grows again, by the kernel's tuning, while there is room.

#[cfg(test)]
mod tests;

/// Least size of one buffer, as the kernel counts: the kernel itself takes no less than 4.5 KiB.
pub const LEAST: u64 = 5 << 10;

/// What a buffer has to start with: Linux's own start, so no peer stops that has just begun.
pub const STARTING: u64 = 128 << 10;

/// Most that the proxy itself holds of a bounded direction, between its two buffers.
pub const PIECE: u64 = 64 << 10;

/// What a session takes with empty queues: two sockets (4 KiB each) and the proxy's own memory.
pub const EACH_SESSION: u64 = 9 << 10;

/// What is set aside for a session at the least: its own, and two directions of two buffers and a
/// piece.
pub const LEAST_OF_SESSION: u64 = EACH_SESSION + 2 * 3 * LEAST;

/// How many idle sessions a budget carries before new ones are shed.
#[must_use]
pub const fn sessions_carried(budget: u64) -> u64 {
    budget / 16 * 14 / LEAST_OF_SESSION
}

/// What a session takes while its server has not answered: it may have received as much as the
/// kernel's first window allows.
pub const OPENING: u64 = 128 << 10;

/// Share of the budget that still directions may keep for the moment they wake up: a quarter.
const STILL_SHARE: u64 = 4;

/// What one direction of a session may hold, in bytes as the kernel counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectionMemory {
    /// Present limit of the inbound leg's receive queue.
    pub receive_limit: u64,
    /// Present limit of the outbound leg's send queue.
    pub send_limit: u64,
    /// What both queues, and the proxy between them, hold.
    pub held: u64,
    /// The limits do not grow by themselves.
    pub is_bounded: bool,
    /// Data has moved lately.
    pub is_active: bool,
}

impl DirectionMemory {
    /// What is set aside for it. A direction that may grow can have twice its limits before it is
    /// looked at again.
    #[must_use]
    pub fn reservation(&self) -> u64 {
        let limits = self.limits();
        let may_hold = match (self.is_bounded, self.is_active) {
            (true, _) => limits.saturating_add(PIECE.min(self.receive_limit)),
            (false, true) => limits.saturating_mul(2),
            (false, false) => limits,
        };
        may_hold.max(self.held)
    }

    const fn limits(&self) -> u64 {
        self.receive_limit.saturating_add(self.send_limit)
    }

    /// With both limits of this size.
    const fn with_limits(mut self, each: u64) -> Self {
        (self.receive_limit, self.send_limit) = (each, each);
        self.is_bounded = true;
        self
    }
}

/// What becomes of the buffers of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounding {
    /// As they are.
    Keep,
    /// The kernel tunes them, from [`STARTING`] on.
    Free,
    /// They do not grow beyond what they are.
    Freeze,
    /// Each of the two has this limit.
    Limit(u64),
}

/// The budget and its use at one moment, of all sessions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShare {
    /// Bytes that may be used.
    pub budget: u64,
    /// Bytes that queues may hold beyond the least of each session; `u64::MAX` for any number.
    pub queue_budget: u64,
    /// Sum of [`EACH_SESSION`], all reservations and what is set aside.
    pub reserved: u64,
    /// Of these: set aside for connections that are no sessions yet.
    pub aside: u64,
    /// Sessions.
    pub sessions: u64,
    /// What [`next_level`](Self::next_level) said last; at the beginning `u64::MAX`.
    pub level: u64,
}

impl MemoryShare {
    /// So much is reserved that buffers are bounded.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.exceeds(4)
    }

    /// So much that sessions are to be measured often.
    #[must_use]
    pub const fn is_watched(&self) -> bool {
        self.exceeds(8)
    }

    /// What queues may come to hold beyond the least of each session.
    #[must_use]
    pub const fn queues(&self) -> u64 {
        let least = self.sessions.saturating_mul(LEAST_OF_SESSION);
        self.reserved
            .saturating_sub(self.aside)
            .saturating_sub(least)
    }

    /// Whether one more session has its least.
    #[must_use]
    pub const fn has_room_for_session(&self) -> bool {
        self.reserved.saturating_add(LEAST_OF_SESSION) <= self.sixteenths(14)
    }

    /// Whether a connection that is being opened may take so much, where all of these together have
    /// taken `opening`. They have an eighth of the budget, so that those who open connections and
    /// never go on do not take the room of sessions.
    #[must_use]
    pub const fn has_room_to_open(&self, opening: u64, bytes: u64) -> bool {
        opening.saturating_add(bytes) <= self.sixteenths(2)
            && self.reserved.saturating_add(bytes) <= self.sixteenths(14)
    }

    /// Limit of each buffer of a direction that is still. A power of two, so that it seldom
    /// changes with the number of sessions.
    #[must_use]
    pub fn still_limit(&self) -> u64 {
        // Two directions of two buffers and a piece.
        let budget = self.budget.min(self.queue_budget);
        let each = budget / STILL_SHARE / self.sessions.max(1) / 6;
        match each {
            ..=LEAST => LEAST,
            STARTING.. => STARTING,
            _ => (1 << each.ilog2()).max(LEAST),
        }
    }

    /// The level from now on: asked for from time to time while the budget is short.
    #[must_use]
    pub fn next_level(&self) -> u64 {
        let lowest = match self.reserved > self.sixteenths(14) {
            true => 3 * LEAST,
            false => 2 * STARTING + PIECE,
        };
        // It begins low: what has been given is not given back while data is in it.
        let first = self.least_sixteenths(1) / 2;
        let level = match self.is_short() {
            true if self.is_pressed() => self.level.min(first) / 4 * 3,
            true if self.level == u64::MAX || !self.is_watched() => {
                first.max(self.level.min(self.least_sixteenths(2)))
            }
            true => (self.level / 8 * 9).min(self.least_sixteenths(2)),
            false => first,
        };
        level.max(lowest)
    }

    /// What becomes of a direction that has just been measured, whose reservation counts already.
    #[must_use]
    pub fn bound(&self, direction: &DirectionMemory) -> Bounding {
        match direction.is_active {
            true => self.bound_active(direction),
            false => self.bound_still(direction),
        }
    }

    fn bound_still(&self, direction: &DirectionMemory) -> Bounding {
        let limit = self.still_limit();
        let is_small = direction.is_bounded && is_within(direction, limit);
        if !self.is_short() || is_small {
            return Bounding::Keep;
        }
        let lower = direction.receive_limit.min(direction.send_limit).min(limit);
        Bounding::Limit(lower.max(LEAST))
    }

    fn bound_active(&self, direction: &DirectionMemory) -> Bounding {
        let own = direction.reservation();
        if self.is_watched() && own > self.level {
            let each = self.level.saturating_sub(PIECE) / 2;
            let each = each.max(self.level / 3).max(LEAST);
            if !is_within(direction, each / 4 * 5) {
                return Bounding::Limit(each);
            }
        }
        if !direction.is_bounded {
            return match self.is_watched() {
                true => Bounding::Freeze,
                false => Bounding::Keep,
            };
        }
        let free = DirectionMemory {
            receive_limit: direction.receive_limit.max(STARTING),
            send_limit: direction.send_limit.max(STARTING),
            is_bounded: false,
            ..*direction
        };
        let freed = free.reservation();
        if self.fits(own, freed, 4) {
            return Bounding::Free;
        }
        // Given free, it might jump to many times its size before it is looked at again.
        let most = direction.receive_limit.max(direction.send_limit);
        let each = most.saturating_mul(2).max(STARTING);
        let grown = direction.with_limits(each).reservation();
        if grown <= self.level && self.fits(own, grown, 10) {
            return Bounding::Limit(each);
        }
        let started = direction.with_limits(STARTING).reservation();
        let is_less = direction.receive_limit < STARTING || direction.send_limit < STARTING;
        // What is above is for the least of new sessions, so that a burst of them is not shed.
        if is_less && started <= self.level && self.fits(own, started, 10) {
            return Bounding::Limit(STARTING);
        }
        Bounding::Keep
    }

    /// So much that those above the level give.
    const fn is_pressed(&self) -> bool {
        self.exceeds(9)
    }

    /// More than so many sixteenths of either budget are reserved.
    const fn exceeds(&self, sixteenths: u64) -> bool {
        self.reserved > self.sixteenths(sixteenths)
            || self.queues() > self.queue_budget / 16 * sixteenths
    }

    /// Whether a direction that has reserved `own` may reserve `new`, and no more than so many
    /// sixteenths of either budget are reserved then.
    fn fits(&self, own: u64, new: u64, sixteenths: u64) -> bool {
        let changed = |all: u64| all.saturating_sub(own).saturating_add(new);
        changed(self.reserved) <= self.sixteenths(sixteenths)
            && changed(self.queues()) <= self.queue_budget / 16 * sixteenths
    }

    /// Of the lesser budget.
    fn least_sixteenths(&self, count: u64) -> u64 {
        self.budget.min(self.queue_budget) / 16 * count
    }

    const fn sixteenths(&self, count: u64) -> u64 {
        self.budget / 16 * count
    }
}

const fn is_within(direction: &DirectionMemory, each: u64) -> bool {
    direction.receive_limit <= each && direction.send_limit <= each
}
