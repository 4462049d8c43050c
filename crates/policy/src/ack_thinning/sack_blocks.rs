//! SACK blocks (RFC 2018).

/// Up to four SACK blocks (RFC 2018 §3): as many as fit into a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    /// Left and right edge of each block; only the first [`count`](Self::count) are valid.
    pub edges: [(u32, u32); 4],
    /// Number of blocks.
    pub count: u8,
}

impl SackBlocks {
    /// Offsets of the edges from the acknowledged number. An edge before that number gets an offset
    /// far larger than any window, so a block that begins there is empty or ends before it begins.
    pub(super) fn offsets(&self, number: u32) -> ([(u64, u64); 4], usize) {
        let offset = |edge: u32| u64::from(edge.wrapping_sub(number));
        let offsets = self
            .edges
            .map(|(left, right)| (offset(left), offset(right)));
        (offsets, usize::from(self.count).min(offsets.len()))
    }
}
