//! How large an oversized segment should be (Hasegawa §6.4).

use std::num::NonZeroU32;

use midspan_model::asymmetry::{
    Asymmetry, BitErrors, bit_error_ratio, oversized_segment, retransmission_ratio, segment_loss,
};
use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};

/// The MTU for which sizes are planned: that of Ethernet, into which most fragments must fit.
pub const PLANNED_MTU: u32 = 1500;
/// Bytes of data in the largest segment that fits into an IPv4 datagram.
pub const LARGEST: u32 = 65_495;
/// Sizes, in fragments, that `auto` can choose, apart from the one that k requires.
const FRAGMENTS: [u32; 3] = [3, 6, 9];
/// Largest number of fragments that k can require.
const MOST_FRAGMENTS: u32 = 44;
/// Bytes of a full packet, and of an ACK with timestamps, for computing k.
const DATA_SIZE: u32 = 1500;
const ACK_SIZE: u32 = 52;
/// Beyond the paper's factor of 4, loss of normal segments must stay below this ("the case of
/// p = 1E-3", §6.4).
const CLEAN: f64 = 1e-3;
/// The paper's factor: "MSS should not be larger than 4 times the size of a normal MSS".
const FACTOR: u32 = 4;
/// Highest ratio of retransmitted bytes to bytes of data, Eq. (7).
const MOST_RETRANSMITTED: f64 = 0.02;
/// Segments that must be in flight for a fast retransmit.
const FAST_RETRANSMIT: u64 = 4;
/// Fewer segments than this are no evidence of the loss rate, unless some were lost.
const TELLING: u32 = 20;

/// The operator's choice of segments on narrow legs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SegmentSizes {
    /// Normal segments.
    #[default]
    Off,
    /// This size, in bytes of data.
    Fixed(u32),
    /// As large as needed and as the path allows.
    Auto,
}

impl SegmentSizes {
    /// The sizes that this choice can lead to, in bytes of data, ascending; each needs a route of
    /// its own. The rates are those of the access link, as far as they are known.
    #[must_use]
    pub fn sizes(self, downstream: Option<BitRate>, upstream: Option<BitRate>) -> Vec<u32> {
        match self {
            Self::Off => Vec::new(),
            Self::Fixed(size) => vec![size.min(LARGEST)],
            Self::Auto => {
                let needed = downstream
                    .zip(upstream)
                    .and_then(|(downstream, upstream)| needed_fragments(downstream, upstream));
                let mut fragments: Vec<u32> = FRAGMENTS.into_iter().chain(needed).collect();
                fragments.retain(|count| *count > 1);
                fragments.sort_unstable();
                fragments.dedup();
                let size = |count: &u32| oversized_segment(PLANNED_MTU, *count);
                fragments.iter().filter_map(size).collect()
            }
        }
    }
}

/// ⌈k⌉, the number of normal segments that one ACK must cover, Eq. (1): a client acknowledges each
/// oversized segment.
fn needed_fragments(downstream: BitRate, upstream: BitRate) -> Option<u32> {
    let asymmetry = Asymmetry {
        downstream,
        upstream,
        data_size: DATA_SIZE,
        ack_size: ACK_SIZE,
    };
    let needed = asymmetry
        .packets_per_ack()
        .map_or(u32::MAX, NonZeroU32::get);
    Some(needed.min(MOST_FRAGMENTS))
}

/// The measurements from which a size is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// The client's own segment size, in bytes.
    pub own: u32,
    /// Rate of the access link towards the client, or the best that was measured.
    pub downstream: Option<BitRate>,
    /// Rate of the access link from the client.
    pub upstream: Option<BitRate>,
    /// The client's window, in bytes.
    pub window: ByteSize,
    /// Segments sent so far, retransmissions included.
    pub sent: u32,
    /// Segments retransmitted so far.
    pub sent_again: u32,
    /// The size of these segments, in bytes.
    pub sent_size: u32,
    /// Round-trip time.
    pub round_trip: TimeSpan,
}

impl Measured {
    /// The bit error ratio that follows by Eq. (4) from the loss of the segments sent; 0 as long as
    /// too few were sent to judge.
    fn bit_errors(&self) -> f64 {
        if self.sent < TELLING && self.sent_again == 0 {
            return 0.0;
        }
        let loss = f64::from(self.sent_again.min(self.sent)) / f64::from(self.sent.max(1));
        let loss = Probability::from_f64(loss).unwrap_or(Probability::ZERO);
        bit_error_ratio(loss, u64::from(self.sent_size.max(1)) * 8).unwrap_or(0.0)
    }

    /// Whether the path allows segments of `size` bytes.
    fn bears(&self, size: u32, errors: f64) -> bool {
        let bits = u64::from(size) * 8;
        let loss = segment_loss(errors, bits).unwrap_or(1.0);
        // Eq. (7)
        if retransmission_ratio(loss).is_none_or(|ratio| ratio > MOST_RETRANSMITTED) {
            return false;
        }
        let normal = segment_loss(errors, u64::from(self.own) * 8).unwrap_or(1.0);
        if size > FACTOR.saturating_mul(self.own) && normal >= CLEAN {
            return false;
        }
        // Eq. (6), or the client's window if that is smaller.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let congestion = BitErrors::new(errors, self.round_trip, NonZeroU32::MIN)
            .ok()
            .and_then(|errors| errors.window_bits(bits))
            .map_or(u64::MAX, |bits| (bits / 8.0) as u64);
        let window = self.window.bytes().min(congestion);
        window.div_ceil(u64::from(size.max(1))) >= FAST_RETRANSMIT
    }

    /// The best of `sizes` (ascending): the smallest that leaves the upstream uncongested, or the
    /// largest if none does, among those that the path allows. `None`: the normal size is best.
    #[must_use]
    pub fn choose(&self, sizes: &[u32]) -> Option<u32> {
        let errors = self.bit_errors();
        let needed = match self.downstream.zip(self.upstream) {
            Some((downstream, upstream)) => needed_fragments(downstream, upstream)
                .and_then(|count| oversized_segment(PLANNED_MTU, count)),
            None => None,
        };
        let mut best = None;
        for size in sizes {
            if *size <= self.own || !self.bears(*size, errors) {
                continue;
            }
            best = Some(*size);
            if needed.is_some_and(|needed| *size >= needed) {
                break;
            }
        }
        best
    }
}
