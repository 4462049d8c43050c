//! Random numbers from a seed: the same seed gives the same run.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is at least 1.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// True in one of this many cases.
    pub const fn is_one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
