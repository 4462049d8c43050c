//! The deadlines of one thread: at most one per session, so their number is bounded by that of
//! the sessions.

use std::collections::BTreeSet;

use midspan_units::Time;

use super::table::Key;

/// Deadlines in order.
#[derive(Debug, Default)]
pub struct Timers {
    deadlines: BTreeSet<(Time, Key)>,
}

impl Timers {
    /// Sets, moves or (with `None`) cancels the deadline of a session, whose present deadline is
    /// in `current`.
    pub fn set(&mut self, key: Key, current: &mut Option<Time>, deadline: Option<Time>) {
        if *current == deadline {
            return;
        }
        if let Some(old) = *current {
            self.deadlines.remove(&(old, key));
        }
        if let Some(new) = deadline {
            self.deadlines.insert((new, key));
        }
        *current = deadline;
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// Removes and returns one session whose deadline has passed.
    pub fn pop_due(&mut self, now: Time) -> Option<Key> {
        let (time, key) = *self.deadlines.first()?;
        if time > now {
            return None;
        }
        self.deadlines.pop_first();
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_can_be_moved_and_cancelled() {
        let at = Time::from_nanoseconds;
        let keys = [1, 2, 3].map(Key::from_number);
        let mut current = [None; 3];
        let mut timers = Timers::default();
        for ((key, current), time) in keys.iter().zip(&mut current).zip([30, 10, 20]) {
            timers.set(*key, current, Some(at(time)));
        }
        timers.set(keys[1], &mut current[1], Some(at(40)));
        timers.set(keys[2], &mut current[2], None);
        assert_eq!(timers.next(), Some(at(30)));
        assert_eq!(timers.pop_due(at(29)), None);
        assert_eq!(timers.pop_due(at(100)), Some(keys[0]));
        assert_eq!(timers.pop_due(at(100)), Some(keys[1]));
        assert_eq!(timers.next(), None);
    }
}
