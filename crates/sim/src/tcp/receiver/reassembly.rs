//! Data that arrived out of order.

use crate::packet::{SelectiveBlock, SelectiveBlocks};
use crate::tcp::ranges::Ranges;

/// The data beyond a gap, and which parts of it arrived last.
#[derive(Debug, Clone, Default)]
pub(super) struct Reassembly {
    ranges: Ranges,
    /// One byte of each of the ranges that were reported last, newest first (RFC 2018 §4).
    newest: [Option<u64>; SelectiveBlocks::LIMIT],
}

impl Reassembly {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Stores the data from `start` up to `end`. Returns whether any of it is new.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> bool {
        let new = self.ranges.insert(start, end);
        let range = self.ranges.find(start);
        let apart =
            |byte: &u64| range.is_none_or(|range| *byte < range.start || range.end <= *byte);
        let [first, second, third] = self.newest.map(|byte| byte.filter(apart));
        let mut older = [first, second, third].into_iter().flatten();
        self.newest = [Some(start), older.next(), older.next()];
        new
    }

    /// Everything before `sequence` has arrived: returns the end of the data that follows without a
    /// gap.
    pub(super) fn take_from(&mut self, sequence: u64) -> u64 {
        if self.ranges.is_empty() {
            return sequence;
        }
        let next = self.ranges.take_from(sequence);
        if self.ranges.is_empty() {
            self.newest = [None; SelectiveBlocks::LIMIT];
        }
        next
    }

    /// The SACK blocks of an ACK of `number`.
    pub(super) fn blocks(&self, number: u64) -> SelectiveBlocks {
        let mut blocks = SelectiveBlocks::default();
        for byte in self.newest.iter().flatten() {
            let Some(range) = self.ranges.find(*byte) else {
                continue;
            };
            let offset = |sequence: u64| u32::try_from(sequence - number);
            if let (Ok(start), Ok(end)) = (offset(range.start), offset(range.end)) {
                blocks.push(SelectiveBlock { start, end });
            }
        }
        blocks
    }

    pub(super) fn check_invariants(&self, next: u64, edge: u64) {
        self.ranges.check_invariants();
        let ranges = self.ranges.as_slice();
        debug_assert!(ranges.first().is_none_or(|range| range.start > next));
        debug_assert!(self.ranges.highest().is_none_or(|end| end <= edge));
    }
}
