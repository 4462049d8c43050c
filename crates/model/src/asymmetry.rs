//! A narrow upstream for ACKs: how many segments each ACK must acknowledge, and the oversized
//! segment that achieves this.
//!
//! Hasegawa and Hasegawa, "A mechanism for TCP performance improvement in asymmetrical broadband
//! access environment", §2.1 and §6.4, Eqs (1)–(7); Tam, Du and Wang, "Improving TCP performance
//! over asymmetric networks", §1.3. Both take k from Balakrishnan et al.

use std::num::NonZeroU32;

use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};

use crate::pftk::{self, Conditions};
use crate::{ModelError, PacketRate, Throughput};

/// A path with a wide downstream for data and a narrow upstream for ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asymmetry {
    /// Rate towards the client.
    pub downstream: BitRate,
    /// Rate from the client.
    pub upstream: BitRate,
    /// Bytes of a data packet on the downstream link; zero counts as one.
    pub data_size: u32,
    /// Bytes of an ACK on the upstream link; zero counts as one.
    pub ack_size: u32,
}

fn rate(rate: BitRate) -> f64 {
    rate.bits_per_second() as f64
}

impl Asymmetry {
    fn data(&self) -> f64 {
        f64::from(self.data_size.max(1))
    }

    fn ack(&self) -> f64 {
        f64::from(self.ack_size.max(1))
    }

    /// k, the normalised bandwidth ratio: (BW↓/PS↓)/(BW↑/PS↑), the number of data packets that
    /// arrive downstream in the time that one ACK takes upstream. Hasegawa Eq. (1), Tam §1.3.
    #[must_use]
    pub fn k(&self) -> f64 {
        rate(self.downstream) / self.data() / (rate(self.upstream) / self.ack())
    }

    /// Whether the upstream has room for an ACK of every `packets_per_ack` segments: k ≤ N.
    ///
    /// Hasegawa prints the condition on Eq. (1) as k ≥ 1/N; the example next to it, and Tam §1.3
    /// ("if we acknowledge more often than one ACK for every 4.13 data packets, the return link
    /// will get saturated"), compute k ≤ N.
    #[must_use]
    pub fn fits(&self, packets_per_ack: NonZeroU32) -> bool {
        self.k() <= f64::from(packets_per_ack.get())
    }

    /// ppa, the smallest whole number of packets per ACK that leaves the upstream uncongested: ⌈k⌉.
    /// `None` if that exceeds 32 bits.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn packets_per_ack(&self) -> Option<NonZeroU32> {
        let needed = self.k().ceil().max(1.0);
        (needed <= f64::from(u32::MAX))
            .then(|| NonZeroU32::new(needed as u32))
            .flatten()
    }

    /// The least upstream rate, in bit/s, for one ACK for every `packets_per_ack` segments at full
    /// downstream rate. Hasegawa §2.1.
    #[must_use]
    pub fn upstream_needed(&self, packets_per_ack: NonZeroU32) -> Throughput {
        let acks = rate(self.downstream) / self.data() / f64::from(packets_per_ack.get());
        Throughput::from_f64(acks * self.ack())
    }

    /// Data packets per second whose ACKs fit into the upstream; at most the rate of the
    /// downstream.
    #[must_use]
    pub fn packet_rate(&self, packets_per_ack: NonZeroU32) -> PacketRate {
        let acks = rate(self.upstream) / 8.0 / self.ack();
        let by_acks = acks * f64::from(packets_per_ack.get());
        PacketRate::from_f64(by_acks.min(rate(self.downstream) / 8.0 / self.data()))
    }
}

/// Throughput of a download of `size` bytes whose ACKs have `ack_bytes` in all and fill an upstream
/// of rate `upstream`. Hasegawa §6.1; `None` if there are no ACKs.
#[must_use]
pub fn upstream_bound(
    size: ByteSize,
    ack_bytes: ByteSize,
    upstream: BitRate,
) -> Option<Throughput> {
    let share = size.bytes() as f64 / ack_bytes.bytes() as f64;
    (ack_bytes.bytes() > 0).then(|| Throughput::from_f64(share * rate(upstream)))
}

/// p = 1 − (1 − e)^L, loss of a segment of `bits` bits under a bit error ratio `e`. Hasegawa Eq.
/// (4). 0 without errors, 1 if every bit is wrong.
///
/// # Errors
/// [`ModelError::OutOfRange`] if `bit_error_ratio` is not in 0…1.
pub fn segment_loss(bit_error_ratio: f64, bits: u64) -> Result<f64, ModelError> {
    check_ratio(bit_error_ratio)?;
    if bit_error_ratio >= 1.0 {
        return Ok(if bits == 0 { 0.0 } else { 1.0 });
    }
    let bits = bits as f64;
    Ok((-libm::expm1(bits * libm::log1p(-bit_error_ratio))).clamp(0.0, 1.0))
}

/// e, the bit error ratio at which a segment of `bits` bits is lost with probability `loss`: the
/// inverse of Eq. (4). `None` for a segment of 0 bits.
#[must_use]
pub fn bit_error_ratio(loss: Probability, bits: u64) -> Option<f64> {
    if bits == 0 {
        return None;
    }
    if loss == Probability::ONE {
        return Some(1.0);
    }
    Some(-libm::expm1(libm::log1p(-loss.as_f64()) / bits as f64))
}

/// Random bit errors on the access link, and their effect on TCP: Hasegawa §6.4.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BitErrors {
    ratio: f64,
    round_trip: TimeSpan,
    packets_per_ack: NonZeroU32,
}

fn check_ratio(bit_error_ratio: f64) -> Result<(), ModelError> {
    if (0.0..=1.0).contains(&bit_error_ratio) {
        Ok(())
    } else {
        Err(ModelError::OutOfRange {
            what: "a bit error ratio",
            low: "0",
            high: "1",
        })
    }
}

impl BitErrors {
    /// A model with bit error ratio e, round-trip delay, and N segments per ACK.
    ///
    /// # Errors
    /// [`ModelError::OutOfRange`] if `ratio` is not in 0…1.
    pub fn new(
        ratio: f64,
        round_trip: TimeSpan,
        packets_per_ack: NonZeroU32,
    ) -> Result<Self, ModelError> {
        check_ratio(ratio)?;
        Ok(Self {
            ratio,
            round_trip,
            packets_per_ack,
        })
    }

    fn loss(&self, bits: u64) -> f64 {
        segment_loss(self.ratio, bits).unwrap_or(1.0)
    }

    /// B_b = B_p·L, Eqs (2) and (5), in bit/s for segments of `bits` bits; p is exact, not eL.
    /// `None` if loss sets no limit.
    #[must_use]
    pub fn throughput(&self, bits: u64) -> Option<Throughput> {
        let conditions = Conditions {
            round_trip: self.round_trip.as_seconds(),
            loss: self.loss(bits),
            time_out: 0.0,
            packets_per_ack: f64::from(self.packets_per_ack.get()),
            growth: f64::from(self.packets_per_ack.get()),
        };
        let rate = pftk::square_root(&conditions)?.packets_per_second();
        Some(Throughput::from_f64(rate * bits as f64))
    }

    /// cwnd_p = √(8/(3Np)), Eq. (3), the window, in segments of `bits` bits, at which a loss is
    /// noticed; `None` without loss.
    #[must_use]
    pub fn window_segments(&self, bits: u64) -> Option<f64> {
        let loss = self.loss(bits);
        (loss > 0.0).then(|| (8.0 / (3.0 * f64::from(self.packets_per_ack.get()) * loss)).sqrt())
    }

    /// cwnd_b = cwnd_p·L, Eq. (6): the same window in bits.
    #[must_use]
    pub fn window_bits(&self, bits: u64) -> Option<f64> {
        Some(self.window_segments(bits)? * bits as f64)
    }

    /// r = p/(1 − p), Eq. (7), bytes retransmitted per byte of user data; `None` if every segment
    /// is lost.
    #[must_use]
    pub fn retransmission_ratio(&self, bits: u64) -> Option<f64> {
        retransmission_ratio(self.loss(bits))
    }
}

/// r = p/(1 − p), Eq. (7); `None` for p outside 0…1 or p = 1.
#[must_use]
pub fn retransmission_ratio(loss: f64) -> Option<f64> {
    (0.0..1.0)
        .contains(&loss)
        .then(|| loss / (1.0 - loss))
        .filter(|ratio| ratio.is_finite())
}

/// Largest number of fragments of an oversized segment: "MSS should not be larger than 4 times the
/// size of a normal MSS" (§6.4).
pub const MOST_FRAGMENTS: u32 = 4;

/// Segments that must be in flight for a fast retransmit: the lost one and three more.
const FAST_RETRANSMIT: f64 = 4.0;

/// Bytes of an IPv4 header, and of a TCP header without options.
const HEADER: u32 = 20;

/// Data bytes of an oversized segment that leaves as `fragments` IPv4 fragments for a path MTU of
/// `mtu`: each fragment except the last carries a multiple of 8 bytes, and the TCP header is part
/// of them. 3 fragments of 1,500 bytes give Hasegawa's 4,420. `None` if `mtu` or `fragments` leaves
/// no room, or the datagram would exceed 65,535 bytes.
#[must_use]
pub fn oversized_segment(mtu: u32, fragments: u32) -> Option<u32> {
    let full = mtu.checked_sub(HEADER)?;
    let part = match fragments {
        0 => return None,
        1 => full,
        _ => full / 8 * 8,
    };
    let last = full;
    let payload = part
        .checked_mul(fragments.checked_sub(1)?)?
        .checked_add(last)?;
    let segment = payload.checked_sub(HEADER)?;
    let datagram = payload.checked_add(HEADER)?;
    (segment > 0 && datagram <= 65_535).then_some(segment)
}

/// The segment that §6.4 recommends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvisedSegment {
    /// Data bytes of a segment.
    pub segment: u32,
    /// Number of IPv4 fragments in which it leaves; 1 is a normal segment.
    pub fragments: u32,
}

/// The largest segment of at most [`MOST_FRAGMENTS`] fragments with which the window still holds
/// enough segments for a fast retransmit, so that one ACK covers as much data as possible.
///
/// The window is the smaller of the receiver's `window` and, with `errors`, cwnd_b of Eq. (6). A
/// partly filled segment counts: of 17,520 bytes (Windows 2000, §6.4), three full segments of 4,420
/// and 4,260 bytes of a fourth make the four that a fast retransmit needs. If not even two
/// fragments are possible, the result is the normal segment. `None` if `mtu` leaves no room for
/// one.
#[must_use]
pub fn advised_segment(
    mtu: u32,
    window: ByteSize,
    errors: Option<&BitErrors>,
) -> Option<AdvisedSegment> {
    let normal = AdvisedSegment {
        segment: oversized_segment(mtu, 1)?,
        fragments: 1,
    };
    let enough = |segment: u32| {
        let bits = u64::from(segment) * 8;
        let congestion = errors.and_then(|errors| errors.window_bits(bits));
        let window = window.bytes() as f64;
        let least = congestion.map_or(window, |bits| window.min(bits / 8.0));
        (least / f64::from(segment)).ceil() >= FAST_RETRANSMIT
    };
    let oversized = (2..=MOST_FRAGMENTS).rev().find_map(|fragments| {
        let segment = oversized_segment(mtu, fragments)?;
        enough(segment).then_some(AdvisedSegment { segment, fragments })
    });
    Some(oversized.unwrap_or(normal))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

    #[test]
    fn oversized_segments_fill_their_fragments() {
        assert_eq!(oversized_segment(1500, 1), Some(1460));
        assert_eq!(oversized_segment(1500, 2), Some(2940));
        assert_eq!(oversized_segment(1500, 3), Some(4420));
        // A path MTU whose payload is not a multiple of 8.
        assert_eq!(oversized_segment(576, 3), Some(552 * 2 + 556 - 20));
        assert_eq!(oversized_segment(1500, 0), None);
        assert_eq!(oversized_segment(40, 1), None);
        assert_eq!(oversized_segment(9000, 8), None);
    }

    #[test]
    fn small_windows_and_errors_advise_smaller_segments() {
        let advised = |window: u64, ratio: Option<f64>| {
            let errors = ratio
                .map(|ratio| BitErrors::new(ratio, TimeSpan::from_milliseconds(500), TWO).unwrap());
            advised_segment(1500, ByteSize::from_bytes(window), errors.as_ref())
                .unwrap()
                .fragments
        };
        assert_eq!(advised(65_535, None), 4);
        assert_eq!(advised(17_520, None), 3);
        assert_eq!(advised(9_000, None), 2);
        assert_eq!(advised(4_000, None), 1);
        assert_eq!(advised(65_535, Some(1e-9)), 4);
        assert_eq!(advised(65_535, Some(5e-6)), 2);
        assert_eq!(advised(65_535, Some(1e-4)), 1);
    }

    #[test]
    fn throughput_grows_with_the_root_of_the_segment() {
        let errors = BitErrors::new(1e-9, TimeSpan::from_milliseconds(500), TWO).unwrap();
        let at = |bits| errors.throughput(bits).unwrap().bits_per_second();
        let ratio = at(4420 * 8) / at(1460 * 8);
        assert!((ratio - (4420.0f64 / 1460.0).sqrt()).abs() < 1e-4);
    }

    #[test]
    fn degenerate_errors_have_answers() {
        let errors = |ratio| BitErrors::new(ratio, TimeSpan::ZERO, TWO);
        assert!(errors(-1.0).is_err() && errors(f64::NAN).is_err() && errors(1.1).is_err());
        let none = errors(0.0).unwrap();
        assert_eq!(none.throughput(8000), None);
        assert_eq!(none.window_bits(8000), None);
        assert_eq!(none.retransmission_ratio(8000), Some(0.0));
        let all = errors(1.0).unwrap();
        assert_eq!(all.throughput(8000), Some(Throughput::ZERO));
        assert_eq!(all.retransmission_ratio(8000), None);
        assert_eq!(segment_loss(1.0, 0), Ok(0.0));
        assert_eq!(bit_error_ratio(Probability::ONE, 8), Some(1.0));
        assert_eq!(bit_error_ratio(Probability::ZERO, 0), None);
    }
}
