//! Reports of sessions in the order of their numbers, for `/sessions`.
//!
//! A thread makes a list in slices between two turns of its loop, so that no data waits for the whole list.
//! First it looks at all places of its table for the smallest numbers; then it reports these sessions. A
//! session that ends before its report is missing in the list; a session that begins meanwhile may be
//! missing.

use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tokio::sync::mpsc::Sender;

use super::inquiry::Listed;
use super::{Cost, Question, SessionReport};

/// After how many places that are only looked at the time of a slice is checked; it is also checked after
/// each report, which takes about 5 µs.
const PLACES_PER_CHECK: usize = 64;

/// What to do next for a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Look at this place of the table, and call [`Listings::consider`] if it has a session.
    Look(usize),
    /// Report the session with this number, if it is still at this place.
    Report {
        /// The number.
        id: u64,
        /// The place.
        place: usize,
    },
    /// The list is complete.
    Done,
}

/// The lists of a thread.
#[derive(Debug, Default)]
pub struct Listings {
    /// The questions, and who asked. The first is being answered.
    waiting: VecDeque<(Question, Sender<Listed>)>,
    /// The next place to look at.
    place: usize,
    /// The smallest numbers so far, each with its place.
    smallest: BinaryHeap<(u64, usize)>,
    /// The sessions that are not reported yet, the largest number first; `None` while the thread looks.
    unreported: Option<Vec<(u64, usize)>>,
    reports: Vec<SessionReport>,
    cost: Cost,
}

impl Listings {
    /// Requests a list.
    pub fn ask(&mut self, question: Question, reply: Sender<Listed>) {
        self.waiting.push_back((question, reply));
    }

    /// Whether a list is being made.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next step, for a table with this many places.
    pub fn next(&mut self, places: usize) -> Step {
        if self.unreported.is_none() {
            if self.place < places {
                self.place += 1;
                return Step::Look(self.place - 1);
            }
            let mut sorted = std::mem::take(&mut self.smallest).into_sorted_vec();
            sorted.reverse();
            self.unreported = Some(sorted);
        }
        match self.unreported.as_mut().and_then(Vec::pop) {
            Some((id, place)) => Step::Report { id, place },
            None => Step::Done,
        }
    }

    /// Whether to check the time of the slice after this step.
    pub const fn is_check_due(step: Step) -> bool {
        match step {
            Step::Look(place) => place % PLACES_PER_CHECK == PLACES_PER_CHECK - 1,
            Step::Report { .. } | Step::Done => true,
        }
    }

    /// There is a session with this number at a place.
    pub fn consider(&mut self, id: u64, place: usize) {
        let Some((question, _)) = self.waiting.front() else {
            return;
        };
        let is_full = self.smallest.len() >= question.bound();
        let is_larger = (self.smallest.peek()).is_some_and(|(largest, _)| id > *largest);
        if id <= question.after || (is_full && is_larger) {
            return;
        }
        self.smallest.push((id, place));
        if is_full {
            self.smallest.pop();
        }
    }

    /// Adds a report.
    pub fn add(&mut self, report: SessionReport) {
        self.reports.push(report);
    }

    /// Ends a slice that took this long. The list is sent if it `is_whole`.
    pub fn end_slice(&mut self, took: Duration, is_whole: bool) {
        self.cost.add(took);
        let Some((_, reply)) = self.waiting.front() else {
            return;
        };
        if is_whole {
            // The process that asked may no longer wait.
            let _ = reply.try_send((std::mem::take(&mut self.reports), self.cost));
        }
        if is_whole || reply.is_closed() {
            self.waiting.pop_front();
            *self = Self {
                waiting: std::mem::take(&mut self.waiting),
                ..Self::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::sync::mpsc::channel;

    /// The numbers that would be reported, from a table with these numbers, in slices of `steps` steps.
    fn reported(table: &[Option<u64>], question: Question, steps: usize) -> Vec<u64> {
        let mut listings = Listings::default();
        let (reply, mut replies) = channel(1);
        listings.ask(question, reply);
        let mut numbers = Vec::new();
        let mut slices = 0;
        while listings.is_busy() {
            let mut is_whole = false;
            for _ in 0..steps {
                match listings.next(table.len()) {
                    Step::Look(place) => {
                        if let Some(id) = table[place] {
                            listings.consider(id, place);
                        }
                    }
                    Step::Report { id, place } => {
                        assert_eq!(table[place], Some(id));
                        numbers.push(id);
                    }
                    Step::Done => {
                        is_whole = true;
                        break;
                    }
                }
            }
            slices += 1;
            listings.end_slice(Duration::from_micros(1), is_whole);
        }
        let (_, cost) = replies.try_recv().unwrap();
        assert_eq!(cost.slices, slices);
        numbers
    }

    proptest! {
        #[test]
        fn the_smallest_numbers_come_in_order(
            numbers in prop::collection::btree_set(1_u64..500, 0..80),
            holes in prop::collection::vec(any::<bool>(), 80),
            after in 0_u64..500,
            limit in 0_usize..90,
            steps in 1_usize..20,
        ) {
            let mut table = Vec::new();
            // In an order that is not that of the numbers.
            for (number, hole) in numbers.iter().rev().zip(holes) {
                table.extend(hole.then_some(None));
                table.push(Some(*number));
            }
            let question = Question { after, limit };
            let expected: Vec<u64> = numbers
                .into_iter()
                .filter(|number| *number > after)
                .take(limit.max(1))
                .collect();
            prop_assert_eq!(reported(&table, question, steps), expected);
        }
    }

    #[test]
    fn a_list_for_which_nobody_waits_ends() {
        let mut listings = Listings::default();
        let (gone, replies) = channel(1);
        let (reply, mut other) = channel(1);
        listings.ask(Question::one(1), gone);
        listings.ask(Question::one(7), reply);
        drop(replies);
        assert_eq!(listings.next(3), Step::Look(0));
        listings.consider(1, 0);
        listings.end_slice(Duration::ZERO, false);
        // The next one begins from the start.
        assert_eq!(listings.next(1), Step::Look(0));
        listings.consider(3, 0);
        assert_eq!(listings.next(1), Step::Done);
        listings.end_slice(Duration::ZERO, true);
        assert!(!listings.is_busy());
        assert!(other.try_recv().unwrap().0.is_empty());
    }
}
