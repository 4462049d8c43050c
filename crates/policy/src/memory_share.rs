//! How a memory budget is shared between the directions of all sessions.
//!
//! A buffer counts with the bytes that it may come to hold, not with those that it holds, because a window
//! that was offered to a peer cannot be taken back once data is in it. So each direction has a
//! [reservation](DirectionMemory::reservation), and the sum of all is kept within the budget:
//!
//! | reserved part of the budget | consequence |
//! | --- | --- |
//! | up to a quarter | the kernel tunes all buffers |
//! | more | buffers of idle directions are made small, those of new sessions too |
//! | more than a half | a direction grows only up to a level, and directions above the level come down to it; the level rises step by step |
//! | more than 9/16 | the level falls step by step, so the largest directions come down first |
//! | 5/8 | no direction grows any more: the rest is for the minimum of new sessions |
//! | 7/8 | new sessions are shed |
//!
//! Queues have a second budget for the bytes beyond the minimum of each session, because the kernel
//! has one for all TCP sockets of the machine. The same shares of it have the same consequences,
//! except the last one: a new session with the least buffers is not shed because of it.
//!
//! A direction that moves data grows again while there is room: by the kernel's tuning if the result stays
//! within a quarter of the budget, otherwise by doubling its limits.

#[cfg(test)]
mod tests;

/// Least size of one buffer in bytes, as the kernel counts: the kernel itself takes at least 4.5
/// KiB.
pub const LEAST: u64 = 5 << 10;

/// Size of a buffer at the start, in bytes: Linux's own, so that no peer has to stop at once.
pub const STARTING: u64 = 128 << 10;

/// The proxy itself holds one or more pieces of this size between a bounded direction's two buffers, in bytes.
pub const PIECE: u64 = 64 << 10;

/// The part of the receive buffer that these pieces may take, as a divisor, …
const PIECES_PART: u64 = 8;
/// … and how many there are at most.
const MOST_PIECES: u64 = 16;

/// How many [pieces](PIECE) the proxy itself may hold between the two buffers of a bounded direction, if the receive
/// buffer has this limit, in bytes: from 1 to 16. Reads of many pieces cost less CPU time per byte.
#[must_use]
pub fn pieces(receive_limit: u64) -> u8 {
    let pieces = (receive_limit / PIECES_PART / PIECE).clamp(1, MOST_PIECES);
    u8::try_from(pieces).unwrap_or(1)
}

/// Bytes of these pieces; no more than the receive buffer has.
fn held_between(receive_limit: u64) -> u64 {
    (PIECE * u64::from(pieces(receive_limit))).min(receive_limit)
}

/// Bytes for a session with empty queues: two sockets (4 KiB each) and the proxy's own memory.
pub const EACH_SESSION: u64 = 9 << 10;

/// Bytes reserved for a session at least: its own, and two directions of two buffers and a piece
/// each.
pub const LEAST_OF_SESSION: u64 = EACH_SESSION + 2 * 3 * LEAST;

/// How many idle sessions a budget (bytes) carries before new ones are shed.
#[must_use]
pub const fn sessions_carried(budget: u64) -> u64 {
    budget / 16 * 14 / LEAST_OF_SESSION
}

/// Bytes for a session whose server has not answered yet: it may have received as much as the
/// kernel's first window allows.
pub const OPENING: u64 = 128 << 10;

/// Bytes to reserve for a new connection that offers a receive window of `bytes` of data. The kernel counts a
/// buffer twice as large, and the direction may come to reserve twice that.
#[must_use]
pub const fn reservation_of_window(bytes: u64) -> u64 {
    bytes.saturating_mul(4)
}

/// Share of the budget that idle directions may keep for the moment they wake up: a quarter.
const STILL_SHARE: u64 = 4;

/// The memory of one direction of a session, in bytes as the kernel counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectionMemory {
    /// Present limit of the inbound leg's receive queue.
    pub receive_limit: u64,
    /// Present limit of the outbound leg's send queue.
    pub send_limit: u64,
    /// The bytes in both queues and in the proxy between them.
    pub held: u64,
    /// The limits do not grow by themselves.
    pub is_bounded: bool,
    /// Data has moved recently.
    pub is_active: bool,
}

impl DirectionMemory {
    /// Bytes reserved for it. A direction that may grow can reach twice its limits before it is
    /// measured again.
    #[must_use]
    pub fn reservation(&self) -> u64 {
        let limits = self.limits();
        let may_hold = match (self.is_bounded, self.is_active) {
            (true, _) => limits.saturating_add(held_between(self.receive_limit)),
            (false, true) => limits.saturating_mul(2),
            (false, false) => limits,
        };
        may_hold.max(self.held)
    }

    const fn limits(&self) -> u64 {
        self.receive_limit.saturating_add(self.send_limit)
    }

    /// The same direction with both limits of this size.
    const fn with_limits(mut self, each: u64) -> Self {
        (self.receive_limit, self.send_limit) = (each, each);
        self.is_bounded = true;
        self
    }
}

/// The change of the buffers of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounding {
    /// They stay as they are.
    Keep,
    /// The kernel tunes them, from [`STARTING`] on.
    Free,
    /// They stay at their present size and no longer grow.
    Freeze,
    /// Each of the two gets this limit, in bytes.
    Limit(u64),
}

/// The budget and its use at one moment, of all sessions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShare {
    /// Bytes that may be used.
    pub budget: u64,
    /// Bytes that queues may hold beyond the minimum of each session; `u64::MAX`: no limit.
    pub queue_budget: u64,
    /// Sum of [`EACH_SESSION`] for each session, all reservations, and `aside`.
    pub reserved: u64,
    /// The part of `reserved` for connections that are not sessions yet.
    pub aside: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// The last result of [`next_level`](Self::next_level); at the beginning `u64::MAX`.
    pub level: u64,
}

impl MemoryShare {
    /// Whether so much is reserved that buffers are bounded.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.exceeds(4)
    }

    /// Whether so much is reserved that sessions must be measured often.
    #[must_use]
    pub const fn is_watched(&self) -> bool {
        self.exceeds(8)
    }

    /// Bytes that queues may come to hold beyond the minimum of each session.
    #[must_use]
    pub const fn queues(&self) -> u64 {
        let least = self.sessions.saturating_mul(LEAST_OF_SESSION);
        self.reserved
            .saturating_sub(self.aside)
            .saturating_sub(least)
    }

    /// Whether the minimum of one more session fits.
    #[must_use]
    pub const fn has_room_for_session(&self) -> bool {
        self.reserved.saturating_add(LEAST_OF_SESSION) <= self.sixteenths(14)
    }

    /// Whether a connection that is being opened may take `bytes`, if all of these connections
    /// together have taken `opening`. They may take an eighth of the budget, so that clients that
    /// open connections and send nothing further do not take the room of sessions.
    #[must_use]
    pub const fn has_room_to_open(&self, opening: u64, bytes: u64) -> bool {
        opening.saturating_add(bytes) <= self.sixteenths(2)
            && self.reserved.saturating_add(bytes) <= self.sixteenths(14)
    }

    /// Whether memory would not become short if a new connection offered a receive window of `bytes` of
    /// data.
    #[must_use]
    pub fn has_room_for_window(&self, bytes: u64) -> bool {
        self.fits(0, reservation_of_window(bytes), 4)
    }

    /// Limit of each buffer of an idle direction. It is a power of two, so that it seldom changes
    /// with the number of sessions.
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

    /// The level from now on, in bytes; called from time to time while the budget is short.
    #[must_use]
    pub fn next_level(&self) -> u64 {
        let lowest = match self.reserved > self.sixteenths(14) {
            true => 3 * LEAST,
            false => 2 * STARTING + PIECE,
        };
        // It begins low: what a direction was given cannot be taken back while data is in it.
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

    /// The change for a direction that was just measured; `reserved` contains its reservation
    /// already.
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
            let each = self.level.saturating_sub(held_between(self.level / 2)) / 2;
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
        // With `Free`, the direction might grow to many times its size before it is measured again.
        let most = direction.receive_limit.max(direction.send_limit);
        let each = most.saturating_mul(2).max(STARTING);
        let grown = direction.with_limits(each).reservation();
        if grown <= self.level && self.fits(own, grown, 10) {
            return Bounding::Limit(each);
        }
        let started = direction.with_limits(STARTING).reservation();
        let is_less = direction.receive_limit < STARTING || direction.send_limit < STARTING;
        // The rest is for the minimum of new sessions, so that a burst of them is not shed.
        if is_less && started <= self.level && self.fits(own, started, 10) {
            return Bounding::Limit(STARTING);
        }
        Bounding::Keep
    }

    /// Whether so much is reserved that the level falls.
    const fn is_pressed(&self) -> bool {
        self.exceeds(9)
    }

    /// Whether more than `sixteenths`/16 of either budget is reserved.
    const fn exceeds(&self, sixteenths: u64) -> bool {
        self.reserved > self.sixteenths(sixteenths)
            || self.queues() > self.queue_budget / 16 * sixteenths
    }

    /// Whether a direction that has reserved `own` bytes may reserve `new` bytes, without more than
    /// `sixteenths`/16 of either budget being reserved then.
    fn fits(&self, own: u64, new: u64, sixteenths: u64) -> bool {
        let changed = |all: u64| all.saturating_sub(own).saturating_add(new);
        changed(self.reserved) <= self.sixteenths(sixteenths)
            && changed(self.queues()) <= self.queue_budget / 16 * sixteenths
    }

    /// `count`/16 of the lower budget.
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
