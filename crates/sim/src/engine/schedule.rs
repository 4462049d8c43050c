//! Which place has its event when.

use midspan_units::Time;

use super::heap::Heap;

/// The next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Time,
    pub(crate) place: u32,
}

/// The events ahead, at most one for each place.
///
/// A deadline that moves back (a retransmission timer, at each ACK) costs nothing: the entry
/// stays where it is, and when its time comes the place is asked for its deadline again. Only a
/// deadline that moves forward makes a new entry; the old one is then void, and dropped when it
/// comes up. So the queue holds little more than one entry for each place.
///
/// Links and everything else have a queue each: nearly all events are those of a few links, and
/// need not pass the timers of many flows that lie far ahead.
#[derive(Debug)]
pub(crate) struct Schedule {
    links: Heap,
    others: Heap,
    /// Places below this are links.
    link_places: u32,
    /// Of each place, when its valid entry is; the end of time where it has none.
    entries: Vec<Time>,
    now: Time,
}

const NEVER: Time = Time::from_nanoseconds(u64::MAX);

impl Schedule {
    /// For so many places, of which the first `link_places` are links.
    pub(crate) fn new(places: usize, link_places: usize) -> Self {
        Self {
            links: Heap::default(),
            others: Heap::default(),
            link_places: u32::try_from(link_places).unwrap_or(u32::MAX),
            entries: vec![NEVER; places],
            now: Time::ZERO,
        }
    }

    /// Makes sure that `place` has an event at `at` or before.
    pub(crate) fn wake(&mut self, place: u32, at: Time) {
        debug_assert!(
            at >= self.now,
            "an event in the past: {at:?} at {:?}",
            self.now
        );
        let entry = &mut self.entries[place as usize];
        if at < *entry {
            *entry = at;
            self.heap_of(place).push(key(at, place));
        }
    }

    #[inline]
    fn heap_of(&mut self, place: u32) -> &mut Heap {
        if place < self.link_places {
            &mut self.links
        } else {
            &mut self.others
        }
    }

    /// The next event up to `until`, which stays on top: finish it with [`done`](Self::done) or
    /// [`again`](Self::again) before the next call of anything else.
    pub(crate) fn next(&mut self, until: Time) -> Option<Event> {
        loop {
            let link = self.links.smallest();
            let other = self.others.smallest();
            let event = event(link.min(other));
            // An empty queue has its end at the end of time.
            if event.at > until || event.at == NEVER {
                return None;
            }
            if self.entries[event.place as usize] == event.at {
                debug_assert!(event.at >= self.now, "time goes back");
                self.now = event.at;
                return Some(event);
            }
            self.heap_of(event.place).pop();
        }
    }

    /// Whether no place has an event ahead.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| *entry == NEVER)
    }

    /// The place of the event on top has none ahead.
    pub(crate) fn done(&mut self, event: Event) {
        self.entries[event.place as usize] = NEVER;
        self.heap_of(event.place).pop();
    }

    /// The place of the event on top has its next one at `at`.
    pub(crate) fn again(&mut self, event: Event, at: Time) {
        debug_assert!(at >= self.now, "an event in the past");
        self.entries[event.place as usize] = at;
        self.heap_of(event.place)
            .replace_smallest(key(at, event.place));
    }
}

fn key(at: Time, place: u32) -> u128 {
    u128::from(at.nanoseconds()) << 32 | u128::from(place)
}

#[allow(clippy::cast_possible_truncation)] // Takes apart what `key` put together.
fn event(key: u128) -> Event {
    Event {
        at: Time::from_nanoseconds((key >> 32) as u64),
        place: key as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanoseconds: u64) -> Time {
        Time::from_nanoseconds(nanoseconds)
    }

    fn drain(schedule: &mut Schedule) -> Vec<(u64, u32)> {
        let mut events = Vec::new();
        while let Some(event) = schedule.next(at(1000)) {
            events.push((event.at.nanoseconds(), event.place));
            schedule.done(event);
        }
        events
    }

    #[test]
    fn ties_go_by_place_whatever_the_order_of_insertion() {
        for places in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut schedule = Schedule::new(3, places[0] as usize);
            for place in places {
                schedule.wake(place, at(5));
            }
            assert_eq!(drain(&mut schedule), [(5, 0), (5, 1), (5, 2)]);
        }
    }

    #[test]
    fn an_earlier_deadline_voids_the_later_entry() {
        let mut schedule = Schedule::new(1, 0);
        schedule.wake(0, at(9));
        schedule.wake(0, at(4));
        schedule.wake(0, at(7)); // There is one at 4: asked then.
        assert_eq!(drain(&mut schedule), [(4, 0)]);
    }

    #[test]
    fn nothing_comes_after_the_end() {
        let mut schedule = Schedule::new(2, 1);
        schedule.wake(0, at(10));
        schedule.wake(1, at(11));
        let event = schedule.next(at(10)).unwrap();
        schedule.again(event, at(12));
        assert_eq!(schedule.next(at(10)), None);
        assert_eq!(schedule.next(at(11)).map(|event| event.place), Some(1));
    }
}
