//! Data in which every lost, repeated, changed or moved byte is visible.
//!
//! Each direction repeats its own block of random bytes. The block's length is a prime, so a
//! missing piece whose length is a power of two (a buffer, a page) is always noticed.

use std::sync::LazyLock;

/// Length of the block: the greatest prime below 2¹⁶.
const PERIOD: usize = 65_521;

/// The direction in which data flows; each direction has a block of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

impl Direction {
    /// The opposite direction.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

static BLOCKS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [block(1), block(2)]);

/// The next bytes of the stream at `position`: at least one, at most to the block's end.
#[must_use]
pub fn bytes_at(direction: Direction, position: u64) -> &'static [u8] {
    let block = match direction {
        Direction::ToServer => &BLOCKS[0],
        Direction::ToClient => &BLOCKS[1],
    };
    #[allow(clippy::cast_possible_truncation)]
    let start = (position % PERIOD as u64) as usize;
    &block[start..]
}

/// The position of the first byte in `bytes`, received at `position`, that differs from the sent
/// byte.
#[must_use]
pub fn first_difference(direction: Direction, position: u64, bytes: &[u8]) -> Option<u64> {
    let mut done = 0;
    while done < bytes.len() {
        let here = position + done as u64;
        let expected = bytes_at(direction, here);
        let length = expected.len().min(bytes.len() - done);
        let (expected, got) = (&expected[..length], &bytes[done..done + length]);
        if expected != got {
            let offset = expected.iter().zip(got).take_while(|(a, b)| a == b).count();
            return Some(here + offset as u64);
        }
        done += length;
    }
    None
}

/// Pseudo-random bytes: one byte of each number of `SplitMix64` (Steele, Lea, Flood 2014).
fn block(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()[0]
    };
    (0..PERIOD).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(direction: Direction, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            bytes.extend_from_slice(bytes_at(direction, bytes.len() as u64));
        }
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn what_was_sent_is_right_wherever_it_is_cut() {
        let bytes = stream(Direction::ToServer, 3 * PERIOD);
        for start in [0, 1, PERIOD - 1, PERIOD, PERIOD + 1, 2 * PERIOD + 7] {
            let rest = &bytes[start..];
            assert_eq!(
                first_difference(Direction::ToServer, start as u64, rest),
                None
            );
        }
    }

    #[test]
    fn losses_changes_and_the_other_direction_show() {
        let mut bytes = stream(Direction::ToClient, 200_000);
        assert!(first_difference(Direction::ToServer, 0, &bytes[..100]).is_some());
        for lost in [1, 512, 4096, 8192, 65_536] {
            let seen = first_difference(Direction::ToClient, 1000, &bytes[1000 + lost..]);
            assert!(seen.is_some_and(|at| at < 1100), "{lost}: {seen:?}");
        }
        bytes[150_000] ^= 1;
        assert_eq!(
            first_difference(Direction::ToClient, 0, &bytes),
            Some(150_000)
        );
    }
}
