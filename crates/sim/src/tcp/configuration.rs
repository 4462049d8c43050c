//! How senders and receivers are set.

use midspan_units::{BitRate, TimeSpan};

pub use super::thinning::Thinning;

/// The TCP sender's loss recovery and congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Variant {
    /// Fast retransmit, then slow start (Jacobson 1988).
    Tahoe,
    /// Fast recovery until the first new acknowledgement (RFC 5681).
    Reno,
    /// Fast recovery until all that was under way is acknowledged (RFC 6582).
    #[default]
    NewReno,
    /// Recovery by selective acknowledgements (RFC 6675), growth as in Reno.
    Sack,
    /// Recovery by selective acknowledgements, growth by a cubic function (RFC 9438).
    Cubic,
}

/// What makes cwnd grow: each ACK, or the bytes that it acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ByteCounting {
    /// Each ACK by at most one segment (RFC 5681).
    #[default]
    Off,
    /// The bytes acknowledged, in slow start at most so many segments for each ACK (RFC 3465:
    /// 1 or 2).
    Limit(u32),
    /// The bytes acknowledged, however many they are, as Linux counts segments (since 3.15); in
    /// slow start no further than ssthresh, and from there as in congestion avoidance.
    All,
}

/// How a sender is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderConfiguration {
    /// Loss recovery and congestion control.
    pub variant: Variant,
    /// Most data in a segment, in bytes; above zero.
    pub segment_size: u32,
    /// Most that a decision may raise the segment size to (Hasegawa §3: oversized segments);
    /// `None` for the segment size.
    pub segment_ceiling: Option<u32>,
    /// IP and TCP header, in bytes: added to every packet.
    pub header_size: u32,
    /// cwnd at the start, in segments; above zero.
    pub initial_window: u32,
    /// Most that may be sent and not acknowledged, in bytes, whatever cwnd and the receiver allow.
    pub window_limit: u64,
    /// The peer's own segment size, in bytes, where all that is sent before the first
    /// acknowledgement of data is sent twice: as segments of `segment_size`, and each of them cut
    /// to this (Hasegawa §6.2: duplicate start). That acknowledgement says which size is kept.
    pub duplicate_start: Option<u32>,
    /// The window that the peer is taken to have, in bytes, whatever it advertises (Hasegawa §4,
    /// item 4: TGW). `None` for what it advertises.
    pub assumed_window: Option<u64>,
    /// Bits by which to shift the window that the peer advertises, whatever the peer announced:
    /// a larger number than that reads more into it (Hasegawa §3: sending ahead). `None` for what
    /// the peer announced.
    pub window_scale: Option<u8>,
    /// Upper bound of the sending rate, headers included (`SO_MAX_PACING_RATE`): segments leave
    /// one by one, never two within the time that the first takes at this rate.
    pub pacing_rate: Option<BitRate>,
    /// Whether the connection is opened by a SYN; without, data goes at once.
    pub handshake: bool,
    /// Two segments may follow the first two duplicate ACKs (RFC 3042).
    pub limited_transmit: bool,
    /// A segment that is not full waits while data is unacknowledged (RFC 9293 §3.7.4).
    pub nagle: bool,
    /// ssthresh after a loss is a share of cwnd, as in Linux, and not of what is under way (RFC
    /// 5681): the same unless something else than cwnd held back.
    pub threshold_from_cwnd: bool,
    /// What makes cwnd grow.
    pub byte_counting: ByteCounting,
    /// CUBIC's slow start ends when a round trip or a train of ACKs says that the path is full
    /// (HyStart), as in Linux.
    pub hystart: bool,
    /// cwnd grows only while it is what holds sending back (RFC 9438 §4.2, RFC 7661).
    pub grow_only_when_limited: bool,
    /// Granularity of the clock that measures the round-trip time (G in RFC 6298).
    pub clock_granularity: TimeSpan,
    /// Retransmission time-out before the first measurement.
    pub initial_timeout: TimeSpan,
    /// Least retransmission time-out.
    pub minimum_timeout: TimeSpan,
    /// Greatest retransmission time-out.
    pub maximum_timeout: TimeSpan,
    /// Time-outs in a row after which the connection is given up (R2 of RFC 9293 §3.8.3; Linux:
    /// 15).
    pub give_up_after: u32,
}

impl Default for SenderConfiguration {
    /// NewReno as RFC 5681, 6298 and 6928 say: 1,460 bytes, ten segments at first, time-outs of
    /// at least 1 s.
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
            limited_transmit: true,
            nagle: true,
            threshold_from_cwnd: false,
            byte_counting: ByteCounting::Off,
            hystart: false,
            grow_only_when_limited: true,
            clock_granularity: TimeSpan::from_milliseconds(1),
            initial_timeout: TimeSpan::from_seconds(1),
            minimum_timeout: TimeSpan::from_seconds(1),
            maximum_timeout: TimeSpan::from_seconds(60),
            give_up_after: u32::MAX,
        }
    }
}

/// When a receiver acknowledges data that arrives in order; everything else is acknowledged at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckRule {
    /// Every segment.
    Every,
    /// Every so many segments, or when the first of them has waited so long (RFC 9293 §3.8.6.3
    /// asks for 2 and at most 500 ms).
    Delayed {
        /// Segments for each ACK; above zero.
        segments: u32,
        /// Longest wait.
        timeout: TimeSpan,
    },
    /// As 4.4BSD: the second segment in a row is acknowledged before the application has read it;
    /// and whenever reading has opened the window by two segments since it was last told, that is
    /// told at once (`tcp_output`). So each segment of twice the announced size or more is
    /// acknowledged by itself, as Hasegawa saw (§6.1, client 1).
    Bsd {
        /// Longest wait.
        timeout: TimeSpan,
    },
    /// As a policy of the policy crate decides, for each segment that arrives.
    Thinned(Thinning),
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
/// With any but [`Fixed`](Self::Fixed), the application must read for the window to grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum WindowGrowth {
    /// The whole buffer from the start.
    #[default]
    Fixed,
    /// As Linux 2.4 without window scaling (Hasegawa Fig. 12): four segments at first, two more
    /// for each data segment that arrives in order; advertised in whole multiples of the size of
    /// segments that arrive. A segment that begins inside the window is taken whole
    /// (`tcp_data_queue`).
    Linux24,
    /// As Linux today (dynamic right-sizing, DRS): so much at first, and once in each round trip
    /// twice what was read in it, and more where that grows.
    Autotuned {
        /// The first window, in bytes; Linux has 65,535.
        initial: u64,
    },
}

/// How a receiver is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverConfiguration {
    /// Room for data that has arrived and not been read, in bytes; the advertised window is what
    /// is free of it, as far as it has [grown](Self::window_growth).
    pub buffer: u64,
    /// How the advertised window grows.
    pub window_growth: WindowGrowth,
    /// When data is acknowledged.
    pub acknowledge: AckRule,
    /// Segments in order at the start of which each is acknowledged at once, where ACKs are
    /// [delayed](AckRule::Delayed) (Linux: `tcp_incr_quickack`).
    pub quick_acks: u32,
    /// Whether ACKs carry SACK blocks.
    pub selective: bool,
    /// IP and TCP header of an ACK, in bytes.
    pub header_size: u32,
    /// The segment size that the receiver announced, in bytes: the least step by which the
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
