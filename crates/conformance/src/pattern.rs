//! Data that shows by itself whether a byte was lost, repeated, changed or moved.
//!
//! Each direction repeats a block of its own, of random bytes, whose length is a prime: no power
//! of two of bytes (a buffer, a page) can go missing unnoticed.

use std::sync::LazyLock;

/// Length of the block: the greatest prime below 2¹⁶.
const PERIOD: usize = 65_521;

/// Which way data flows; each has a block of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

impl Direction {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

static BLOCKS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [block(1), block(2)]);

/// The next bytes of the stream at `position`: at least one, at most up to the block's end.
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

/// Where `bytes`, which came at `position`, first differ from what was sent.
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

/// `SplitMix64` (Steele, Lea, Flood 2014), a byte of each number.
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
