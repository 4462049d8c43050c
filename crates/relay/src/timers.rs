//! The deadlines of one thread: at most one per session, so their number is bounded by that of
//! the sessions.
//!
//! The deadlines are a binary heap in one vector. A second vector has the position in the heap for each slot of the
//! sessions' table, so a deadline can be moved or cancelled without a search. A deadline costs 20 bytes; in a
//! `BTreeSet` with the time once more in the session, it cost 53.

use midspan_units::Time;

use super::table::Key;

/// The position of a slot without a deadline.
const NOWHERE: u32 = u32::MAX;

/// Deadlines in order.
#[derive(Debug, Default)]
pub struct Timers {
    /// A binary heap: no deadline is before that of its parent, which is at half its position.
    heap: Vec<(Time, Key)>,
    /// By slot of the table: the position of its deadline in the heap.
    positions: Vec<u32>,
}

impl Timers {
    /// Sets, moves or (with `None`) cancels the deadline of a session.
    pub fn set(&mut self, key: Key, deadline: Option<Time>) {
        match (self.position(key), deadline) {
            (None, None) => {}
            (Some(position), None) if self.heap[position].1 == key => self.remove(position),
            // The deadline of a later session in the same slot.
            (Some(_), None) => {}
            (Some(position), Some(time)) => {
                self.heap[position] = (time, key);
                self.settle(position);
            }
            (None, Some(time)) => {
                let slot = key.slot();
                if self.positions.len() <= slot {
                    self.positions.resize(slot + 1, NOWHERE);
                }
                let position = self.heap.len();
                self.heap.push((time, key));
                self.settle(position);
            }
        }
    }

    /// The deadline of a session.
    pub fn get(&self, key: Key) -> Option<Time> {
        let (time, owner) = self.heap[self.position(key)?];
        (owner == key).then_some(time)
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Time> {
        self.heap.first().map(|(time, _)| *time)
    }

    /// Removes and returns one session whose deadline has passed.
    pub fn pop_due(&mut self, now: Time) -> Option<Key> {
        let (time, key) = *self.heap.first()?;
        if time > now {
            return None;
        }
        self.remove(0);
        Some(key)
    }

    /// The position of the deadline of this key's slot.
    fn position(&self, key: Key) -> Option<usize> {
        let position = *self.positions.get(key.slot())?;
        (position != NOWHERE).then_some(position as usize)
    }

    fn remove(&mut self, position: usize) {
        let (_, key) = self.heap.swap_remove(position);
        self.positions[key.slot()] = NOWHERE;
        if position < self.heap.len() {
            self.settle(position);
        }
    }

    /// Moves the deadline at this position to where it belongs: all others are in order.
    fn settle(&mut self, mut position: usize) {
        let moved = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent] <= moved {
                break;
            }
            self.put(position, self.heap[parent]);
            position = parent;
        }
        loop {
            let children = 2 * position + 1..(2 * position + 3).min(self.heap.len());
            let Some(first) = children.min_by_key(|child| self.heap[*child]) else {
                break;
            };
            if moved <= self.heap[first] {
                break;
            }
            self.put(position, self.heap[first]);
            position = first;
        }
        self.put(position, moved);
    }

    #[allow(clippy::cast_possible_truncation)]
    fn put(&mut self, position: usize, deadline: (Time, Key)) {
        self.heap[position] = deadline;
        // Below 2³¹, as the slots of a table are.
        self.positions[deadline.1.slot()] = position as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn deadlines_come_in_order_and_can_be_moved_and_cancelled() {
        let at = Time::from_nanoseconds;
        let keys = [1, 2, 3].map(Key::from_number);
        let mut timers = Timers::default();
        for (key, time) in keys.iter().zip([30, 10, 20]) {
            timers.set(*key, Some(at(time)));
        }
        timers.set(keys[1], Some(at(40)));
        timers.set(keys[2], None);
        assert_eq!(timers.get(keys[1]), Some(at(40)));
        assert_eq!(timers.get(keys[2]), None);
        assert_eq!(timers.next(), Some(at(30)));
        assert_eq!(timers.pop_due(at(29)), None);
        assert_eq!(timers.pop_due(at(100)), Some(keys[0]));
        assert_eq!(timers.pop_due(at(100)), Some(keys[1]));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_later_session_in_the_same_slot_keeps_its_deadline() {
        let at = Time::from_nanoseconds;
        let [former, later] = [5, (1 << 31) + 5].map(Key::from_number);
        assert_eq!(former.slot(), later.slot());
        let mut timers = Timers::default();
        timers.set(former, Some(at(10)));
        timers.set(later, Some(at(20)));
        assert_eq!(timers.get(former), None);
        timers.set(former, None);
        assert_eq!(timers.get(later), Some(at(20)));
        assert_eq!(timers.pop_due(at(20)), Some(later));
        assert_eq!(timers.next(), None);
    }

    proptest! {
        /// Like a sorted list of all deadlines.
        #[test]
        fn however_deadlines_are_set_the_earliest_comes_first(
            steps in prop::collection::vec((0_u64..12, prop::option::of(0_u64..50)), 0..200),
        ) {
            let mut timers = Timers::default();
            let mut model: BTreeMap<Key, Time> = BTreeMap::new();
            for (key, time) in steps {
                let key = Key::from_number(key);
                let time = time.map(Time::from_nanoseconds);
                timers.set(key, time);
                match time {
                    Some(time) => model.insert(key, time),
                    None => model.remove(&key),
                };
                prop_assert_eq!(timers.get(key), time);
                prop_assert_eq!(timers.next(), model.values().min().copied());
                let now = Time::from_nanoseconds(10);
                if let Some(due) = timers.pop_due(now) {
                    let time = model.remove(&due);
                    prop_assert!(time.is_some_and(|time| time <= now));
                    prop_assert!(model.values().all(|other| Some(*other) >= time));
                }
            }
        }
    }
}
