//! What SACK blocks have reported to the sender so far.

use super::sack_blocks::SackBlocks;

/// Most blocks that are remembered. A window that has lost more segments than this has the rest thinned less.
const MOST: usize = 32;
/// An offset from the acknowledged number that is at least this large is that of a number before it.
const BEFORE: u64 = 1 << 31;

/// The SACK blocks of ACKs that have left. A sender remembers them (RFC 6675 §4), so a later ACK need not repeat them. An
/// ACK has room for three blocks with timestamps: at the fourth gap of a window, it leaves the oldest one out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportedBlocks {
    /// First byte of each block and the byte after its last one, in order and apart from each other.
    blocks: Vec<(u32, u32)>,
}

impl ReportedBlocks {
    /// An ACK with this number and these blocks has left.
    pub fn handle_sent(&mut self, number: u32, blocks: &SackBlocks) {
        let (sent, count) = blocks.offsets(number);
        let sent = sent.get(..count).unwrap_or_default();
        let is_behind = |(start, end): &&(u64, u64)| start < end && *end < BEFORE;
        let mut all = self.offsets(number);
        all.extend(sent.iter().filter(is_behind));
        all.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (start, end) in all {
            match joined.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => joined.push((start, end)),
            }
        }
        let surplus = joined.len().saturating_sub(MOST);
        // Offsets are below 2³¹.
        #[allow(clippy::cast_possible_truncation)]
        let edge = |offset: u64| number.wrapping_add(offset as u32);
        let newest = joined.into_iter().skip(surplus);
        self.blocks = newest
            .map(|(start, end)| (edge(start), edge(end)))
            .collect();
    }

    /// The blocks as offsets from this acknowledged number, without what the number covers.
    pub fn offsets(&self, number: u32) -> Vec<(u64, u64)> {
        let offset = |edge: u32| u64::from(edge.wrapping_sub(number));
        let blocks = self.blocks.iter().map(|(start, end)| {
            let (start, end) = (offset(*start), offset(*end));
            (if start < BEFORE { start } else { 0 }, end)
        });
        blocks
            .filter(|(start, end)| start < end && *end < BEFORE)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(all: &[(u32, u32)]) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        for (place, block) in blocks.edges.iter_mut().zip(all) {
            *place = *block;
            blocks.count += 1;
        }
        blocks
    }

    #[test]
    fn blocks_grow_together_and_end_with_the_number() {
        // The numbers wrap around.
        let base = u32::MAX - 99;
        let edge = |offset: u32| base.wrapping_add(offset);
        let mut reported = ReportedBlocks::default();
        reported.handle_sent(
            base,
            &blocks(&[(edge(300), edge(400)), (edge(100), edge(200))]),
        );
        assert_eq!(reported.offsets(base), [(100, 200), (300, 400)]);
        reported.handle_sent(
            base,
            &blocks(&[(edge(150), edge(300)), (edge(500), edge(600))]),
        );
        assert_eq!(reported.offsets(base), [(100, 400), (500, 600)]);
        // A segment that came twice (RFC 2883), and an empty block.
        reported.handle_sent(
            base,
            &blocks(&[(edge(0).wrapping_sub(50), base), (edge(9), edge(9))]),
        );
        assert_eq!(reported.offsets(base), [(100, 400), (500, 600)]);
        // The number covers a part.
        assert_eq!(reported.offsets(edge(250)), [(0, 150), (250, 350)]);
        reported.handle_sent(edge(400), &SackBlocks::default());
        assert_eq!(reported.offsets(edge(400)), [(100, 200)]);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut reported = ReportedBlocks::default();
        for place in 0..1000 {
            reported.handle_sent(0, &blocks(&[(10 * place + 1, 10 * place + 2)]));
        }
        assert_eq!(reported.offsets(0).len(), MOST);
        assert_eq!(reported.offsets(0).last(), Some(&(9991, 9992)));
    }
}
