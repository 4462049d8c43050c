//! The schedule: the time of each place's next event.

use midspan_units::Time;

use super::tournament::{NEVER, Tournament};

/// The next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Time,
    pub(crate) place: u32,
}

/// The future events, at most one for each place.
///
/// A deadline that moves to a later time (a retransmission timer, at each ACK) costs nothing: the
/// event stays where it is, and when its time comes, the place returns its new deadline.
///
/// Links and all other places have separate tournaments. Nearly all events belong to a few links,
/// and these events need not be compared with the distant timers of many flows.
#[derive(Debug)]
pub(crate) struct Schedule {
    links: Tournament,
    others: Tournament,
    /// Places below this are links.
    link_places: u32,
    now: Time,
}

impl Schedule {
    /// For `places` places, of which the first `link_places` are links.
    pub(crate) fn new(places: u32, link_places: u32) -> Self {
        Self {
            links: Tournament::new(link_places),
            others: Tournament::new(places.saturating_sub(link_places)),
            link_places,
            now: Time::ZERO,
        }
    }

    /// Makes sure that `place` has an event at `at` or before.
    #[inline]
    pub(crate) fn wake(&mut self, place: u32, at: Time) {
        debug_assert!(
            at >= self.now,
            "an event in the past: {at:?} at {:?}",
            self.now
        );
        let (tournament, place) = self.tournament_of(place);
        if at < tournament.deadline(place) {
            tournament.set(place, at);
        }
    }

    /// The tournament of a place, and the place's number in it.
    #[inline]
    fn tournament_of(&mut self, place: u32) -> (&mut Tournament, u32) {
        match place.checked_sub(self.link_places) {
            None => (&mut self.links, place),
            Some(other) => (&mut self.others, other),
        }
    }

    /// The next event up to `until`. It stays in the queue: call [`done`](Self::done) or
    /// [`again`](Self::again) with it before any other method.
    #[inline]
    pub(crate) fn next(&mut self, until: Time) -> Option<Event> {
        let (link, link_place) = self.links.earliest();
        let (other, other_place) = self.others.earliest();
        let (at, place) = if link <= other {
            (link, link_place)
        } else {
            (other, self.link_places + other_place)
        };
        if at > until || at == NEVER {
            return None;
        }
        debug_assert!(at >= self.now, "time goes back");
        self.now = at;
        Some(Event { at, place })
    }

    /// Whether no place has a future event.
    pub(crate) fn is_empty(&self) -> bool {
        self.links.earliest().0 == NEVER && self.others.earliest().0 == NEVER
    }

    /// The place of the event has no further event.
    #[inline]
    pub(crate) fn done(&mut self, event: Event) {
        self.again(event, NEVER);
    }

    /// The place of the event has its next one at `at`.
    #[inline]
    pub(crate) fn again(&mut self, event: Event, at: Time) {
        debug_assert!(at >= self.now, "an event in the past");
        let (tournament, place) = self.tournament_of(event.place);
        tournament.set(place, at);
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
            let mut schedule = Schedule::new(3, places[0]);
            for place in places {
                schedule.wake(place, at(5));
            }
            assert_eq!(drain(&mut schedule), [(5, 0), (5, 1), (5, 2)]);
        }
    }

    #[test]
    fn an_earlier_deadline_replaces_the_later_one() {
        let mut schedule = Schedule::new(1, 0);
        schedule.wake(0, at(9));
        schedule.wake(0, at(4));
        schedule.wake(0, at(7)); // There is one at 4 already; the place is called then.
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
