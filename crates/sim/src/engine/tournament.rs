//! A tournament among the deadlines of places: the earliest wins (Knuth, The Art of Computer
//! Programming, volume 3, §5.4.1).
//!
//! A complete binary tree in an array. Each place has a leaf with its deadline, and each inner node
//! has the earlier one of the two deadlines below it. A deadline moves back as easily as forward:
//! only the nodes above it are computed again. There is nothing to search, and the order of
//! insertion does not matter.

use std::hint::select_unpredictable;

use midspan_units::Time;

/// The end of time: the deadline of a place without an event.
pub(super) const NEVER: Time = Time::from_nanoseconds(u64::MAX);

#[derive(Debug)]
pub(super) struct Tournament {
    /// Deadlines with their places: see [`key`]. The root has index 1; the two nodes below the node
    /// `index` are `2 · index` and the next one, and are stored together. The second half are the
    /// leaves.
    pairs: Vec<[u128; 2]>,
}

impl Tournament {
    /// A tournament of `places` places, none of which has a deadline.
    pub(super) fn new(places: u32) -> Self {
        // At least two leaves, so that they form pairs.
        let leaves = places.max(2).next_power_of_two();
        let mut tournament = Self {
            pairs: vec![[0; 2]; leaves as usize],
        };
        for place in 0..leaves {
            tournament.set(place, NEVER);
        }
        tournament
    }

    /// The deadline of a place.
    #[inline]
    pub(super) fn deadline(&self, place: u32) -> Time {
        let index = self.pairs.len() + place as usize;
        time(self.pairs[index / 2][index % 2])
    }

    /// Sets the deadline of a place, or [`NEVER`].
    #[inline]
    pub(super) fn set(&mut self, place: u32, deadline: Time) {
        let mut index = self.pairs.len() + place as usize;
        let mut earliest = key(deadline, place);
        while index > 1 {
            let pair = &mut self.pairs[index / 2];
            let other = pair[1 - index % 2];
            pair[index % 2] = earliest;
            // Without a branch: the winner cannot be predicted.
            earliest = select_unpredictable(other < earliest, other, earliest);
            index /= 2;
        }
        self.pairs[0][1] = earliest;
    }

    /// The earliest deadline, and the first of the places that have it.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Takes apart what `key` put together.
    pub(super) fn earliest(&self) -> (Time, u32) {
        let key = self.pairs[0][1];
        (time(key), key as u32)
    }
}

/// Orders by deadline, and at the same deadline by place.
#[inline]
fn key(deadline: Time, place: u32) -> u128 {
    u128::from(deadline.nanoseconds()) << 64 | u128::from(place)
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // Takes apart what `key` put together.
fn time(key: u128) -> Time {
    Time::from_nanoseconds((key >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_of_the_earliest_wins(
            places in 1_u32..40,
            changes in proptest::collection::vec((0_u32..40, proptest::option::of(0_u64..20)), 0..200),
        ) {
            let mut tournament = Tournament::new(places);
            let mut model = vec![NEVER; places as usize];
            for (place, deadline) in changes {
                let place = place % places;
                let deadline = deadline.map_or(NEVER, Time::from_nanoseconds);
                tournament.set(place, deadline);
                model[place as usize] = deadline;
                let earliest = model.iter().min().copied().unwrap();
                prop_assert_eq!(tournament.deadline(place), deadline);
                let first = model.iter().position(|deadline| *deadline == earliest);
                let first = u32::try_from(first.unwrap()).unwrap();
                prop_assert_eq!(tournament.earliest(), (earliest, first));
            }
        }
    }
}
