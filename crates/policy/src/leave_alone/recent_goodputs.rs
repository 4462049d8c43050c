//! The goodputs of the newest flows of one kind.

use std::collections::VecDeque;

use super::flows_by_size::median;

/// Goodputs in bit/s, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecentGoodputs {
    goodputs: VecDeque<u64>,
}

impl RecentGoodputs {
    /// Adds one, and forgets the oldest ones beyond `most`.
    pub(crate) fn note(&mut self, goodput: u64, most: usize) {
        while self.goodputs.len() >= most {
            self.goodputs.pop_front();
        }
        self.goodputs.push_back(goodput);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.goodputs.len()
    }

    /// The median; of an even number, the lower one of the two in the middle.
    pub(crate) fn median(&self) -> Option<u64> {
        median(self.goodputs.iter().copied())
    }
}
