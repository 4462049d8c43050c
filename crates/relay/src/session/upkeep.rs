//! The data that a session records for time-outs and the memory budget.

use midspan_policy::Leg;
use midspan_units::{Time, TimeSpan};

/// Number of sweeps without movement after which a direction counts as still.
const STILL_AFTER: u8 = 2;

/// Nanoseconds of a tenth of a second.
const TENTH: u64 = 100_000_000;

/// The data that a session records for time-outs and the memory budget.
#[derive(Debug, Clone, Copy, Default)]
pub struct Upkeep {
    /// When it last moved data, in tenths of a second.
    moved_at: u32,
    /// When its policy gets the next sample, if there is something to measure.
    pub sample_due: Time,
    /// Unacknowledged bytes when the session last seemed idle.
    undelivered: u32,
    /// KiB of kernel memory at the last measurement.
    pub measured: u32,
    /// Bytes moved since the last measurement; not zero if there was any event.
    pub unmeasured: u32,
    /// KiB that its buffers may come to hold.
    pub reserved: u32,
    /// For each direction, sweeps since it last moved data; the direction to the server first.
    still: [u8; 2],
    /// The number of the limit with which it was checked last: until the next limit, no check is necessary before it
    /// has an event or has been still for longer. 0: it was not checked.
    pub checked_with: u8,
    /// Whether both directions were still at the last measurement.
    pub is_still: bool,
}

impl Upkeep {
    /// Of a session that begins: no direction has moved data.
    pub fn new(now: Time) -> Self {
        Self {
            moved_at: tenths(now),
            still: [STILL_AFTER; 2],
            ..Self::default()
        }
    }

    /// There was an event, perhaps without data.
    pub fn note_event(&mut self) {
        self.unmeasured = self.unmeasured.max(1);
    }

    /// The session has moved this many bytes.
    pub fn note_moved(&mut self, bytes: u64, now: Time) {
        if bytes > 0 {
            self.moved_at = tenths(now);
            let moved = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.unmeasured = self.unmeasured.saturating_add(moved);
        }
    }

    /// The direction from this leg has moved data.
    pub const fn note_active(&mut self, from: Leg) {
        self.still[from as usize] = 0;
    }

    /// Whether the direction from this leg has moved data recently.
    pub const fn is_active(&self, from: Leg) -> bool {
        self.still[from as usize] < STILL_AFTER
    }

    /// Counts another sweep, in which nothing has moved since the last one unless movement was
    /// recorded. Returns whether a direction is still from now on.
    pub fn grow_still(&mut self) -> bool {
        let mut is_new = false;
        for still in &mut self.still {
            *still = still.saturating_add(1);
            is_new |= *still == STILL_AFTER;
        }
        is_new
    }

    /// When the session last moved data.
    pub const fn moved_at(&self) -> Time {
        Time::from_nanoseconds(self.moved_at as u64 * TENTH)
    }

    /// The time at which the session will have been still for `timeout`.
    pub fn still_after(&self, timeout: TimeSpan) -> Time {
        self.moved_at() + timeout
    }

    /// The session has moved nothing for its time-out, and its peers have not acknowledged this
    /// many bytes. Returns whether the peers have not acknowledged anything either; otherwise the
    /// session counts as moving now.
    pub fn is_idle(&mut self, undelivered: u64, now: Time) -> bool {
        let undelivered = u32::try_from(undelivered).unwrap_or(u32::MAX);
        if undelivered == 0 || undelivered == self.undelivered {
            return true;
        }
        self.undelivered = undelivered;
        self.moved_at = tenths(now);
        false
    }
}

/// Tenths of seconds since the relay's start, rounded up: enough for 13 years.
fn tenths(now: Time) -> u32 {
    u32::try_from(now.nanoseconds().div_ceil(TENTH)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    #[test]
    fn bytes_that_peers_acknowledge_count_as_movement() {
        let mut upkeep = Upkeep::new(at(50));
        let second = TimeSpan::from_seconds(1);
        assert_eq!(upkeep.still_after(second), at(1100));
        // 900 bytes wait for the peers, then 500; then no more are acknowledged.
        assert!(!upkeep.is_idle(900, at(1100)));
        assert!(!upkeep.is_idle(500, at(2100)));
        assert_eq!(upkeep.still_after(second), at(3100));
        assert!(upkeep.is_idle(500, at(3100)));
        assert!(upkeep.is_idle(0, at(3100)));
    }

    #[test]
    fn a_direction_is_still_after_two_sweeps() {
        let mut upkeep = Upkeep::new(at(0));
        assert!(!upkeep.is_active(Leg::Client) && !upkeep.is_active(Leg::Server));
        upkeep.note_active(Leg::Server);
        assert!(!upkeep.grow_still());
        assert!(upkeep.is_active(Leg::Server));
        assert!(upkeep.grow_still());
        assert!(!upkeep.is_active(Leg::Server));
        assert!(!upkeep.grow_still());
    }
}
