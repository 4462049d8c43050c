//! Sets of bytes as ranges: data that arrived out of order, or that was selectively acknowledged.

/// Disjoint ranges of sequence numbers with gaps between them, in ascending order.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges(Vec<Range>);

/// From `start` up to, not including, `end`; never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Range {
    pub(super) const fn length(self) -> u64 {
        self.end - self.start
    }
}

impl Ranges {
    pub(super) fn as_slice(&self) -> &[Range] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The end of the last range.
    pub(super) fn highest(&self) -> Option<u64> {
        self.0.last().map(|range| range.end)
    }

    /// The range that contains a byte.
    pub(super) fn find(&self, sequence: u64) -> Option<Range> {
        let after = self.0.partition_point(|range| range.end <= sequence);
        let range = self.0.get(after).copied()?;
        (range.start <= sequence).then_some(range)
    }

    /// Adds the range from `start` up to `end`. Returns whether any of it was new.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return false;
        }
        // Ranges that it touches are merged with it.
        let first = self.0.partition_point(|range| range.end < start);
        let last = self.0.partition_point(|range| range.start <= end);
        let Some(touched) = self
            .0
            .get(first..last)
            .filter(|touched| !touched.is_empty())
        else {
            self.0.insert(first, Range { start, end });
            return true;
        };
        if let [only] = touched
            && only.start <= start
            && end <= only.end
        {
            return false;
        }
        let merged = Range {
            start: touched
                .first()
                .map_or(start, |range| range.start.min(start)),
            end: touched.last().map_or(end, |range| range.end.max(end)),
        };
        self.0.drain(first + 1..last);
        if let Some(range) = self.0.get_mut(first) {
            *range = merged;
        }
        true
    }

    /// Removes everything below `sequence`.
    pub(super) fn remove_below(&mut self, sequence: u64) {
        let gone = self.0.partition_point(|range| range.end <= sequence);
        self.0.drain(..gone);
        if let Some(first) = self.0.first_mut() {
            first.start = first.start.max(sequence);
        }
    }

    /// Removes everything below `sequence`, and the range that continues there without a gap.
    /// Returns the end of that range.
    pub(super) fn take_from(&mut self, sequence: u64) -> u64 {
        self.remove_below(sequence);
        let end = self
            .0
            .first()
            .filter(|range| range.start <= sequence)
            .map_or(sequence, |range| range.end);
        self.remove_below(end);
        end
    }

    pub(super) fn check_invariants(&self) {
        debug_assert!(self.0.iter().all(|range| range.start < range.end));
        debug_assert!(
            self.0.windows(2).all(|pair| pair[0].end < pair[1].start),
            "ranges are in order and apart: {:?}",
            self.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_are_a_set_of_bytes(
            inserts in proptest::collection::vec((0u64..200, 0u64..30), 1..40),
            floor in 0u64..220,
            cut in 0u64..220,
        ) {
            let mut ranges = Ranges::default();
            let mut bytes = BTreeSet::new();
            for (start, length) in inserts {
                let new = (start..start + length).filter(|byte| bytes.insert(*byte)).count() > 0;
                prop_assert_eq!(ranges.insert(start, start + length), new);
                ranges.check_invariants();
            }
            ranges.remove_below(cut);
            bytes.retain(|byte| *byte >= cut);
            let floor = floor.max(cut);
            ranges.check_invariants();
            let held: BTreeSet<u64> =
                ranges.as_slice().iter().flat_map(|range| range.start..range.end).collect();
            prop_assert_eq!(&held, &bytes);
            for byte in 0..230 {
                prop_assert_eq!(ranges.find(byte).is_some(), bytes.contains(&byte));
            }
            let next = (floor..).find(|byte| !bytes.contains(byte)).unwrap();
            prop_assert_eq!(ranges.take_from(floor), next);
            bytes.retain(|byte| *byte >= next);
            ranges.check_invariants();
            prop_assert_eq!(ranges.as_slice().first().map(|range| range.start), bytes.first().copied());
        }
    }
}
