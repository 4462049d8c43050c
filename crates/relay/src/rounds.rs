//! Passes through a table in rounds, so that a long table delays nothing else of its thread; pure.
//!
//! A pass looks at each place of the table once. It begins when there is something to look at, and takes as
//! many rounds as the length of the table requires. After a pass, no round is due until another one is
//! requested by [`Rounds::wish`] or [`Rounds::wake_at`]: a thread whose sessions are idle is not woken.

use midspan_units::{Time, TimeSpan};

/// When the next round is due, and where its pass is.
#[derive(Debug, Default)]
pub struct Rounds {
    next: Option<Time>,
    /// Whether something has appeared that the present pass may have gone by.
    is_wished: bool,
    /// The next place of the table, and how many this pass has left.
    place: usize,
    left: usize,
}

impl Rounds {
    /// When the next round is due.
    pub const fn next(&self) -> Option<Time> {
        self.next
    }

    /// Whether a round is due.
    pub fn is_due(&self, now: Time) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// There is something to look at in a place of the table. A round is due at `at`, or earlier if
    /// it was due before.
    pub fn wish(&mut self, at: Time) {
        self.is_wished = true;
        self.wake_at(at);
    }

    /// A round is due at `at`, or earlier if it was due before, even if there is nothing to look at.
    pub fn wake_at(&mut self, at: Time) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Whether each place was looked at.
    pub const fn is_pass_over(&self) -> bool {
        self.left == 0
    }

    /// Begins a round, and a pass if there is something to look at and the last pass is over.
    pub fn begin(&mut self, places: usize) {
        self.next = None;
        if self.is_pass_over() && self.is_wished {
            self.begin_pass(places);
        }
    }

    /// Looks at all places from here on.
    pub const fn begin_pass(&mut self, places: usize) {
        self.is_wished = false;
        self.left = places;
    }

    /// The next place of the pass, in a table with this many places; `None` if the pass is over.
    pub const fn next_place(&mut self, places: usize) -> Option<usize> {
        if self.left == 0 || places == 0 {
            self.left = 0;
            return None;
        }
        self.left -= 1;
        let place = if self.place < places { self.place } else { 0 };
        self.place = place + 1;
        Some(place)
    }

    /// Ends a round. The next one comes after `interval` if there is something left to look at.
    pub fn end(&mut self, now: Time, interval: TimeSpan) {
        if !self.is_pass_over() || self.is_wished {
            self.wake_at(now + interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: TimeSpan = TimeSpan::from_milliseconds(200);
    const AT_ONCE: usize = 4096;

    /// Makes rounds until none is due any more; returns how often each place was looked at, and the
    /// number of rounds. `meanwhile` is called after each round.
    fn run(
        rounds: &mut Rounds,
        places: usize,
        mut meanwhile: impl FnMut(&mut Rounds, u32),
    ) -> (Vec<u32>, u32) {
        let mut looks = vec![0; places];
        let mut count = 0;
        while let Some(now) = rounds.next()
            && count < 100
        {
            assert!(rounds.is_due(now));
            rounds.begin(places);
            for _ in 0..AT_ONCE {
                let Some(place) = rounds.next_place(places) else {
                    break;
                };
                looks[place] += 1;
            }
            count += 1;
            rounds.end(now, INTERVAL);
            meanwhile(rounds, count);
        }
        (looks, count)
    }

    #[test]
    fn a_table_of_any_length_is_looked_at_once_and_then_left_alone() {
        for (places, expected) in [(0, 1), (1, 1), (4096, 1), (4097, 2), (10_000, 3)] {
            let mut rounds = Rounds::default();
            for turn in 0..3 {
                rounds.wish(Time::ZERO);
                let (looks, count) = run(&mut rounds, places, |_, _| {});
                assert!(looks.iter().all(|looks| *looks == 1), "{places}, {turn}");
                assert_eq!(count, expected, "{places} places");
                assert_eq!(rounds.next(), None);
            }
        }
    }

    #[test]
    fn what_appears_during_a_pass_is_seen_by_the_next_one() {
        let mut rounds = Rounds::default();
        rounds.wish(Time::ZERO);
        let (looks, count) = run(&mut rounds, 10_000, |rounds, count| {
            if count == 2 {
                rounds.wish(Time::ZERO + INTERVAL * 3);
            }
        });
        assert!(looks.iter().all(|looks| *looks == 2));
        assert_eq!(count, 6);
    }

    #[test]
    fn a_round_without_a_wish_looks_at_nothing() {
        let mut rounds = Rounds::default();
        rounds.wake_at(Time::ZERO + INTERVAL);
        assert!(!rounds.is_due(Time::ZERO));
        let (looks, count) = run(&mut rounds, 100, |_, _| {});
        assert_eq!((looks, count), (vec![0; 100], 1));
    }

    #[test]
    fn a_table_that_shrinks_meanwhile_ends_the_pass() {
        let mut rounds = Rounds::default();
        rounds.begin_pass(10_000);
        for _ in 0..5000 {
            assert!(rounds.next_place(10_000).is_some());
        }
        assert_eq!(rounds.next_place(10), Some(0));
        assert_eq!(rounds.next_place(0), None);
        assert!(rounds.is_pass_over());
    }
}
