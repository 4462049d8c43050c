//! Random numbers: each direction of each link has its own stream, all from one seed.

/// The generator of a stream: PCG XSL RR 128/64 (O'Neill, "PCG: A Family of Simple Fast
/// Space-Efficient Statistically Good Algorithms for Random Number Generation", 2014), whose
/// values are the same on every machine and in every release.
pub type Stream = rand_pcg::Pcg64;

/// One of the two directions of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the link's first end, the client's side, to its second.
    Up,
    /// From the link's second end to its first.
    Down,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }

    /// The name, as in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// The stream of random numbers for one direction of the link named `link`.
///
/// The same `seed`, name and direction give the same numbers on every machine. Streams that differ
/// in any of the three are unrelated, so adding a link to a path changes no other link. If a link
/// needs a second stream, for something other than loss, use another name ("satellite/jitter").
///
/// The algorithm: FNV-1a (64 bits) over the seed's 8 bytes in little-endian order, the bytes of the
/// name, a zero byte, and `up` or `down`. SplitMix64, with that hash as its state, generates four
/// words w₀…w₃. The generator starts with state w₀·2⁶⁴ + w₁ and stream w₂·2⁶⁴ + w₃.
#[must_use]
pub fn stream(seed: u64, link: &str, direction: Direction) -> Stream {
    let mut hash = Fnv1a::new();
    hash.add(&seed.to_le_bytes());
    hash.add(link.as_bytes());
    hash.add(&[0]);
    hash.add(direction.name().as_bytes());
    let mut words = SplitMix64(hash.0);
    let mut wide = || u128::from(words.next()) << 64 | u128::from(words.next());
    let state = wide();
    Stream::new(state, wide())
}

/// A draw from the open interval (0, 1): 53 random bits and a half.
#[must_use]
pub fn uniform(stream: &mut Stream) -> f64 {
    use rand_pcg::rand_core::Rng;
    #[allow(clippy::cast_precision_loss)] // 53 bits fit.
    let bits = (stream.next_u64() >> 11) as f64;
    (bits + 0.5) / 9_007_199_254_740_992.0
}

/// The random streams of one direction of a link: one for each purpose.
#[derive(Debug, Clone, Copy)]
pub struct Streams<'a> {
    /// The seed of the run.
    pub seed: u64,
    /// The name of the link.
    pub link: &'a str,
    /// The direction.
    pub direction: Direction,
}

impl Streams<'_> {
    /// The stream of one purpose. The losses have the empty one; any other starts with a slash
    /// ("/jitter"), so that it never equals that of another link.
    #[must_use]
    pub fn stream(&self, purpose: &str) -> Stream {
        let name = format!("{}{purpose}", self.link);
        stream(self.seed, &name, self.direction)
    }

    /// Where the IP identifications of packets that the link fragments start. Links on one path
    /// start at different ones, so that the fragments of different packets do not mix.
    #[must_use]
    pub(crate) fn identification(&self) -> u16 {
        use rand_pcg::rand_core::Rng;
        let [low, high, ..] = self.stream("/fragments").next_u64().to_le_bytes();
        u16::from_le_bytes([low, high])
    }
}

/// FNV-1a, 64 bits (RFC 9923).
pub(crate) struct Fnv1a(pub(crate) u64);

impl Fnv1a {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::rand_core::Rng;

    #[test]
    fn fnv1a_and_splitmix64_match_their_published_values() {
        let mut hash = Fnv1a::new();
        hash.add(b"foobar");
        assert_eq!(hash.0, 0x8594_4171_f739_67e8);
        let mut words = SplitMix64(1_234_567);
        assert_eq!(words.next(), 6_457_827_717_110_365_317);
        assert_eq!(words.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn pcg_matches_the_reference_implementation() {
        // The first values of `pcg64` in the demo of the C reference implementation.
        let mut stream = Stream::new(42, 54);
        assert_eq!(stream.next_u64(), 0x86b1_da1d_7206_2b68);
        assert_eq!(stream.next_u64(), 0x1304_aa46_c985_3d39);
    }

    #[test]
    fn the_first_numbers_of_a_stream_never_change() {
        // Computed by an independent program from the description of `stream`.
        let first = |seed, link, direction| {
            let mut stream = stream(seed, link, direction);
            [stream.next_u64(), stream.next_u64(), stream.next_u64()]
        };
        assert_eq!(
            first(1, "satellite", Direction::Up),
            [
                0xd60b_89b5_c82f_6d66,
                0xc17e_d084_4303_ad9f,
                0xeebb_1ae6_7e45_53c1
            ]
        );
        assert_eq!(
            first(1, "satellite", Direction::Down),
            [
                0xaf55_b796_109c_7b26,
                0x5665_f177_a7b2_08e3,
                0x55a9_c0a5_5d45_9b24
            ]
        );
        assert_eq!(
            first(2, "satellite", Direction::Up),
            [
                0xf68f_8346_6c06_fa43,
                0xdb1f_bdca_3359_d4dc,
                0xdd48_4985_d6c9_b28c
            ]
        );
        assert_eq!(
            first(1, "", Direction::Up),
            [
                0xc2c5_6324_cba2_ebef,
                0x9f40_fc30_a386_84c9,
                0xf5ba_8eb3_c699_edaf
            ]
        );
    }
}
