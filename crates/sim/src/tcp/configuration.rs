//! The configuration of senders and receivers.

use midspan_units::{BitRate, TimeSpan};

pub use super::thinning::Thinning;

/// The TCP sender's loss recovery and congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Variant {
    /// Fast retransmit, then slow start (Jacobson 1988).
    Tahoe,
    /// Fast recovery until the first new acknowledgement (RFC 5681).
    Reno,
    /// Fast recovery until all data that was in flight is acknowledged (RFC 6582).
    #[default]
    NewReno,
    /// Recovery by selective acknowledgements (RFC 6675), growth as in Reno.
    Sack,
    /// Recovery by selective acknowledgements, growth by a cubic function (RFC 9438).
    Cubic,
    /// Sending at the measured bandwidth (BBR version 1, as in Linux); recovery by the time at which
    /// segments were sent (RFC 8985).
    Bbr,
}

impl Variant {
    /// Whether it uses selective acknowledgements.
    #[must_use]
    pub const fn is_selective(self) -> bool {
        matches!(self, Self::Sack | Self::Cubic | Self::Bbr)
    }
}

/// Whether cwnd grows with each ACK, or with the bytes that it acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ByteCounting {
    /// Each ACK by at most one segment (RFC 5681).
    #[default]
    Off,
    /// The bytes acknowledged, in slow start at most this many segments for each ACK (RFC 3465: 1
    /// or 2).
    Limit(u32),
    /// The bytes acknowledged, without a limit, as Linux counts segments (since 3.15): slow start
    /// ends exactly at ssthresh, and the rest counts for congestion avoidance.
    All,
}

/// The configuration of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderConfiguration {
    /// Loss recovery and congestion control.
    pub variant: Variant,
    /// Largest amount of data in a segment, in bytes; above zero.
    pub segment_size: u32,
    /// Largest segment size in bytes that a decision may set (Hasegawa §3: oversized segments);
    /// `None`: the segment size.
    pub segment_ceiling: Option<u32>,
    /// IP and TCP headers, in bytes: added to every packet.
    pub header_size: u32,
    /// cwnd at the start, in segments; above zero.
    pub initial_window: u32,
    /// Largest number of bytes sent and not acknowledged, whatever cwnd and the receiver allow.
    pub window_limit: u64,
    /// The peer's own segment size, in bytes. If set, all data before the first acknowledgement is
    /// sent twice: as segments of `segment_size`, and each of them cut to this size (Hasegawa §6.2:
    /// duplicate start). That acknowledgement decides which size is kept.
    pub duplicate_start: Option<u32>,
    /// The window in bytes that is assumed for the peer, whatever it advertises (Hasegawa §4, item
    /// 4: TGW). `None`: the advertised window is used.
    pub assumed_window: Option<u64>,
    /// Number of bits by which the peer's advertised window is shifted, instead of the scale that
    /// the peer announced: a larger number results in a larger window (Hasegawa §3: sending ahead).
    /// `None`: the announced scale is used.
    pub window_scale: Option<u8>,
    /// Upper bound of the sending rate, headers included (`SO_MAX_PACING_RATE`): segments leave one
    /// by one, and the next one leaves no earlier than the previous one takes at this rate.
    pub pacing_rate: Option<BitRate>,
    /// Whether a SYN opens the connection; otherwise data is sent at once.
    pub handshake: bool,
    /// Set if the SYN stands for the request of an overlay hop: the round trip of the connection that the
    /// request uses. The answer comes later than after one round trip, and a lost request leaves cwnd as
    /// it is.
    pub hop_round_trip: Option<TimeSpan>,
    /// Whether two segments may follow the first two duplicate ACKs (RFC 3042).
    pub limited_transmit: bool,
    /// Whether a partly filled segment waits while data is unacknowledged (RFC 9293 §3.7.4).
    pub nagle: bool,
    /// Whether ssthresh after a loss is a share of cwnd, as in Linux, and not of the data in flight
    /// (RFC 5681). Both are equal unless something other than cwnd limited sending.
    pub threshold_from_cwnd: bool,
    /// Whether cwnd grows with ACKs or with bytes.
    pub byte_counting: ByteCounting,
    /// Whether CUBIC's slow start ends when a round trip or a train of ACKs shows that the path is
    /// full (HyStart), as in Linux.
    pub hystart: bool,
    /// Whether the sender keeps the state of every segment, as Linux does: each segment that is acknowledged or
    /// selectively acknowledged for the first time shows a round trip, unless it was sent twice; with SACK, losses
    /// are found by time (RFC 8985), and Reno and CUBIC lower cwnd in proportion to what is delivered (RFC 9937).
    /// Otherwise one segment is timed in each round trip (RFC 6298 §3), and duplicate ACKs show losses (RFC 6675).
    /// BBR always has this state.
    pub tracks_segments: bool,
    /// Whether cwnd grows only while it limits sending (RFC 9438 §4.2, RFC 7661).
    pub grow_only_when_limited: bool,
    /// Granularity of the clock that measures the round-trip time (G in RFC 6298).
    pub clock_granularity: TimeSpan,
    /// Retransmission time-out before the first measurement.
    pub initial_timeout: TimeSpan,
    /// Least retransmission time-out.
    pub minimum_timeout: TimeSpan,
    /// Greatest retransmission time-out.
    pub maximum_timeout: TimeSpan,
    /// Number of time-outs in a row after which the connection is given up (R2 of RFC 9293 §3.8.3;
    /// Linux: 15).
    pub give_up_after: u32,
}

impl Default for SenderConfiguration {
    /// NewReno as in RFC 5681, RFC 6298 and RFC 6928: 1,460 bytes, an initial window of ten
    /// segments, time-outs of at least 1 s.
    fn default() -> Self {
        Self {
            variant: Variant::NewReno,
            segment_size: 1460,
            segment_ceiling: None,
            header_size: 40,
            initial_window: 10,
            window_limit: u64::MAX,
            duplicate_start: None,
            assumed_window: None,
            window_scale: None,
            pacing_rate: None,
            handshake: true,
            hop_round_trip: None,
            limited_transmit: true,
            nagle: true,
            threshold_from_cwnd: false,
            byte_counting: ByteCounting::Off,
            hystart: false,
            tracks_segments: false,
            grow_only_when_limited: true,
            clock_granularity: TimeSpan::from_milliseconds(1),
            initial_timeout: TimeSpan::from_seconds(1),
            minimum_timeout: TimeSpan::from_seconds(1),
            maximum_timeout: TimeSpan::from_seconds(60),
            give_up_after: u32::MAX,
        }
    }
}

/// When a receiver acknowledges data that arrives in order. All other segments are acknowledged at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckRule {
    /// Every segment.
    Every,
    /// Every `segments` segments, or when the first of them has waited for `timeout` (RFC 9293
    /// §3.8.6.3 recommends 2 segments and at most 500 ms).
    Delayed {
        /// Segments for each ACK; above zero.
        segments: u32,
        /// Longest wait.
        timeout: TimeSpan,
    },
    /// As in 4.4BSD: the second segment in a row is acknowledged before the application has read
    /// it. When reading has opened the window by two segments since it was last announced, it is
    /// announced at once (`tcp_output`). So each segment of twice the announced size or more gets
    /// its own ACK, as Hasegawa observed (§6.1, client 1).
    Bsd {
        /// Longest wait.
        timeout: TimeSpan,
    },
    /// As a policy of the policy crate decides, for each segment that arrives.
    Thinned(Thinning),
    /// As [`Delayed`](Self::Delayed); and a policy decides which of these ACKs leave the host, as
    /// `midspan thin` does. The policy sees the headers of ACKs, and not the segments.
    DelayedAndThinned {
        /// Segments for each ACK that the host makes; above zero.
        segments: u32,
        /// Longest wait for that many segments.
        timeout: TimeSpan,
        /// The policy.
        thinning: Thinning,
    },
}

impl Default for AckRule {
    fn default() -> Self {
        Self::Delayed {
            segments: 2,
            timeout: TimeSpan::from_milliseconds(100),
        }
    }
}

/// How the advertised window grows towards the whole buffer.
///
/// In all variants except [`Fixed`](Self::Fixed), the window grows only if the application reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum WindowGrowth {
    /// The whole buffer from the start.
    #[default]
    Fixed,
    /// As in Linux 2.4 without window scaling (Hasegawa Fig. 12): four segments at first, two more
    /// for each data segment that arrives in order. The advertised window is a multiple of the size
    /// of arriving segments. A segment that begins inside the window is accepted whole
    /// (`tcp_data_queue`).
    Linux24,
    /// As in Linux today (dynamic right-sizing, DRS): `initial` at first; then, once in each round
    /// trip, twice the data read in it, and more if that amount grows.
    Autotuned {
        /// The first window, in bytes; Linux has 65,535.
        initial: u64,
    },
}

/// The configuration of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverConfiguration {
    /// Room for data that has arrived and was not read, in bytes. The advertised window is its free
    /// part, as far as the window has [grown](Self::window_growth).
    pub buffer: u64,
    /// How the advertised window grows.
    pub window_growth: WindowGrowth,
    /// When data is acknowledged.
    pub acknowledge: AckRule,
    /// Number of segments in order, at the start, that are acknowledged at once even if ACKs are
    /// [delayed](AckRule::Delayed) (Linux: `tcp_incr_quickack`).
    pub quick_acks: u32,
    /// Whether ACKs carry SACK blocks.
    pub selective: bool,
    /// IP and TCP headers of an ACK, in bytes.
    pub header_size: u32,
    /// The segment size that the receiver announced, in bytes: the smallest step by which the
    /// window opens.
    pub segment_size: u32,
}

impl Default for ReceiverConfiguration {
    fn default() -> Self {
        Self {
            buffer: 1 << 40,
            window_growth: WindowGrowth::default(),
            acknowledge: AckRule::default(),
            quick_acks: 0,
            selective: true,
            header_size: 40,
            segment_size: 1460,
        }
    }
}
