//! Numbers that look random, from a seed that the caller passes: the same seed gives the same
//! decisions.

use ipnet::IpNet;

/// Steps of SplitMix64 (Steele, Lea, Flood, 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of numbers that look random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dice(u64);

impl Dice {
    /// The sequence of this seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence that depends on the seed, and on this pair of prefixes.
    pub(super) fn of_pair(seed: u64, (client, servers): (IpNet, IpNet)) -> Self {
        let mut dice = Self(seed);
        for net in [client, servers] {
            let bits = match net {
                IpNet::V4(four) => u128::from(four.addr().to_bits()),
                IpNet::V6(six) => six.addr().to_bits(),
            };
            // Both halves; the casts cut the other one off.
            #[allow(clippy::cast_possible_truncation)]
            for half in [bits as u64, (bits >> 64) as u64] {
                dice.0 = dice.next() ^ half;
            }
        }
        dice
    }

    /// The next number.
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A place in a list of this length; 0 for an empty one.
    pub(super) fn place(&mut self, length: usize) -> usize {
        place(self.next(), length)
    }
}

/// A place in a list of this length, by a number that looks random; 0 for an empty one.
pub(super) fn place(number: u64, length: usize) -> usize {
    usize::try_from((u128::from(number) * length as u128) >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_evenly_and_the_same_seed_repeats_them() {
        let mut counts = [0; 5];
        let (mut one, mut same) = (Dice::new(7), Dice::new(7));
        for _ in 0..5_000 {
            let place = one.place(5);
            assert_eq!(place, same.place(5));
            counts[place] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1_100).contains(count)),
            "{counts:?}"
        );
        assert_eq!(one.place(0), 0);
    }

    #[test]
    fn pairs_differ() {
        let pair = |client: &str, server: &str| {
            let pair = (client.parse().unwrap(), server.parse().unwrap());
            Dice::of_pair(1, pair).next()
        };
        let one = pair("192.0.2.1/32", "198.51.100.0/24");
        assert_eq!(one, pair("192.0.2.1/32", "198.51.100.0/24"));
        assert_ne!(one, pair("192.0.2.2/32", "198.51.100.0/24"));
        assert_ne!(one, pair("192.0.2.1/32", "198.51.101.0/24"));
    }
}
