//! Identifications, which distinguish the fragments of one packet from those of another.

use std::collections::BTreeMap;
use std::net::IpAddr;

use midspan_units::{Time, TimeSpan};

/// How long a receiver keeps fragments of an incomplete packet (Linux: `ipfrag_time`).
const KEPT: TimeSpan = TimeSpan::from_seconds(30);
/// Number of identifications in IPv4 (RFC 791).
const FOUR: u64 = 1 << 16;
/// Number of identifications in IPv6 (RFC 8200).
const SIX: u64 = 1 << 32;
/// Number of parts in which the 30 s are counted.
const PARTS: usize = 6;

/// Source and destination addresses of packets; the protocol is always TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
}

/// Assigns identifications that no other packet of the pair has had within 30 s.
///
/// They are assigned in ascending order, so they repeat only after all have been used. The number
/// used in the last 30 s is counted in parts of 5 s, rounded up.
#[derive(Debug)]
pub struct Identifications {
    limit: usize,
    seed: u64,
    pairs: BTreeMap<Pair, Used>,
}

#[derive(Debug, Clone, Copy)]
struct Used {
    next: u64,
    /// When the newest part began.
    part_since: Time,
    /// Identifications used in each part, the newest part first.
    parts: [u64; PARTS + 1],
}

impl Used {
    fn move_to(&mut self, now: Time) {
        let part = KEPT.nanoseconds() / PARTS as u64;
        let passed = now.since(self.part_since).nanoseconds() / part;
        if passed == 0 {
            return;
        }
        let shift = usize::try_from(passed).unwrap_or(usize::MAX).min(PARTS + 1);
        self.parts.rotate_right(shift % (PARTS + 1));
        for part in &mut self.parts[..shift] {
            *part = 0;
        }
        self.part_since += TimeSpan::from_nanoseconds(passed * part);
    }

    fn is_unused(&self) -> bool {
        self.parts.iter().all(|count| *count == 0)
    }
}

impl Identifications {
    /// Stores at most `limit` pairs of addresses.
    #[must_use]
    pub const fn new(limit: usize, seed: u64) -> Self {
        Self {
            limit,
            seed,
            pairs: BTreeMap::new(),
        }
    }

    /// An identification for a packet; `None` if all of the pair's have been used within 30 s, or
    /// too many pairs are stored.
    pub fn next(&mut self, now: Time, pair: Pair) -> Option<u32> {
        if !self.pairs.contains_key(&pair) {
            if self.pairs.len() >= self.limit {
                self.forget(now);
            }
            if self.pairs.len() >= self.limit {
                return None;
            }
        }
        let seed = self.seed;
        let used = self.pairs.entry(pair).or_insert_with(|| Used {
            next: start(seed, pair),
            part_since: now,
            parts: [0; PARTS + 1],
        });
        used.move_to(now);
        let all = if pair.destination.is_ipv4() {
            FOUR
        } else {
            SIX
        };
        if used.parts.iter().sum::<u64>() >= all {
            return None;
        }
        used.parts[0] += 1;
        let number = used.next % all;
        used.next = used.next.wrapping_add(1);
        u32::try_from(number).ok()
    }

    /// Number of stored pairs.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    fn forget(&mut self, now: Time) {
        self.pairs.retain(|_, used| {
            used.move_to(now);
            !used.is_unused()
        });
    }
}

/// The first identification of a pair: it cannot be guessed from that of another pair.
fn start(seed: u64, pair: Pair) -> u64 {
    let bits = |address| match address {
        IpAddr::V4(four) => u128::from(four.to_bits()),
        IpAddr::V6(six) => six.to_bits(),
    };
    let mut state = seed;
    for word in [bits(pair.source), bits(pair.destination)] {
        #[allow(clippy::cast_possible_truncation)]
        for half in [word as u64, (word >> 64) as u64] {
            // SplitMix64's finaliser.
            state = (state ^ half).wrapping_add(0x9e37_79b9_7f4a_7c15);
            state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            state ^= state >> 31;
        }
    }
    state
}
