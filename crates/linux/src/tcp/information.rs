//! `TCP_INFO`: what the kernel reports of a TCP socket.

use std::io;
use std::os::fd::AsFd;

use midspan_units::{BitRate, ByteSize, TimeSpan};

use super::options::rate_from_bytes_per_second;
use super::raw;

/// More than any kernel gives: 280 bytes in Linux 6.18.
const LARGEST: usize = 512;

/// Slow-start threshold that stands for "none yet" (`TCP_INFINITE_SSTHRESH`).
const INFINITE_THRESHOLD: u32 = 0x7fff_ffff;

/// The state `TCP_CA_CWR` of `enum tcp_ca_state`. The ones behind it are Recovery (3) and Loss (4), the ones before it
/// Open (0) and Disorder (1).
const CWR: u8 = 2;

/// Reads a socket (`TCP_INFO`). About a microsecond; takes the socket's lock.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn information(socket: impl AsFd) -> io::Result<Information> {
    let mut bytes = [0; LARGEST];
    let socket = socket.as_fd();
    let length = raw::get_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    Ok(Information { bytes, length })
}

/// A `struct tcp_info` of `<linux/tcp.h>`.
///
/// The structure has only ever grown at its end, so an older kernel gives fewer bytes: what is
/// missing is `None` or 0.
#[derive(Debug, Clone, Copy)]
pub struct Information {
    bytes: [u8; LARGEST],
    length: usize,
}

impl Information {
    /// The structure from another source than `getsockopt(2)`; what is longer than any known one is
    /// cut.
    pub(crate) fn from_bytes(given: &[u8]) -> Self {
        let length = given.len().min(LARGEST);
        let mut bytes = [0; LARGEST];
        bytes[..length].copy_from_slice(&given[..length]);
        Self { bytes, length }
    }

    /// How many bytes the kernel has given: newer ones give more.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Smoothed round-trip time.
    #[must_use]
    pub fn round_trip_time(&self) -> Option<TimeSpan> {
        self.nonzero_u32(field::RTT).map(span_from_microseconds)
    }

    /// Smallest round-trip time of the last minutes (`net.ipv4.tcp_min_rtt_wlen`).
    #[must_use]
    pub fn minimum_round_trip_time(&self) -> Option<TimeSpan> {
        self.nonzero_u32(field::MIN_RTT)
            .filter(|microseconds| *microseconds != u32::MAX)
            .map(span_from_microseconds)
    }

    /// Delivery rate of the newest window.
    #[must_use]
    pub fn delivery_rate(&self) -> Option<BitRate> {
        rate_from_bytes_per_second(self.u64(field::DELIVERY_RATE))
    }

    /// Whether the sender had too little data for a higher [delivery rate](Self::delivery_rate).
    #[must_use]
    pub fn is_application_limited(&self) -> bool {
        // A bit field: its first bit is the lowest one of the byte, or the highest one.
        let first = if cfg!(target_endian = "little") {
            1
        } else {
            0x80
        };
        self.u8(field::APPLICATION_LIMITED) & first != 0
    }

    /// Rate at which the kernel paces.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<BitRate> {
        rate_from_bytes_per_second(self.u64(field::PACING_RATE))
    }

    /// Segment size towards the peer in bytes of data.
    #[must_use]
    pub fn segment_size(&self) -> u32 {
        self.u32(field::SND_MSS)
    }

    /// Congestion window in segments.
    #[must_use]
    pub fn congestion_window(&self) -> u32 {
        self.u32(field::SND_CWND)
    }

    /// Slow-start threshold in segments; `None` while in the first slow start.
    #[must_use]
    pub fn slow_start_threshold(&self) -> Option<u32> {
        self.nonzero_u32(field::SND_SSTHRESH)
            .filter(|threshold| *threshold < INFINITE_THRESHOLD)
    }

    /// The window that the peer advertises, in bytes.
    #[must_use]
    pub fn peer_window(&self) -> u32 {
        self.u32(field::SND_WND)
    }

    /// The window that this socket advertises, in bytes.
    #[must_use]
    pub fn advertised_window(&self) -> u32 {
        self.u32(field::RCV_WND)
    }

    /// Segments sent and not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> u32 {
        self.u32(field::UNACKED)
    }

    /// Of the [unacknowledged](Self::unacknowledged) segments, those that the peer has acknowledged selectively.
    #[must_use]
    pub fn selectively_acknowledged(&self) -> u32 {
        self.u32(field::SACKED)
    }

    /// Whether the sender is lowering its congestion window, or has lost everything by a time-out: the states CWR,
    /// Recovery and Loss.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.u8(field::CA_STATE) >= CWR
    }

    /// Bytes in the send buffer that were never sent.
    #[must_use]
    pub fn not_sent(&self) -> ByteSize {
        ByteSize::from_bytes(u64::from(self.u32(field::NOTSENT_BYTES)))
    }

    /// Bytes acknowledged by the peer.
    #[must_use]
    pub fn bytes_acknowledged(&self) -> ByteSize {
        ByteSize::from_bytes(self.u64(field::BYTES_ACKED))
    }

    /// Bytes received from the peer.
    #[must_use]
    pub fn bytes_received(&self) -> ByteSize {
        ByteSize::from_bytes(self.u64(field::BYTES_RECEIVED))
    }

    /// Bytes sent again.
    #[must_use]
    pub fn bytes_retransmitted(&self) -> ByteSize {
        ByteSize::from_bytes(self.u64(field::BYTES_RETRANS))
    }

    /// Segments sent again.
    #[must_use]
    pub fn segments_retransmitted(&self) -> u32 {
        self.u32(field::TOTAL_RETRANS)
    }

    /// Retransmission time-outs, a 16-bit counter (Linux 6.7).
    #[must_use]
    pub fn timeouts(&self) -> u16 {
        self.u16(field::TOTAL_RTO)
    }

    /// Consecutive retransmission time-outs since the last answer from the peer.
    #[must_use]
    pub fn timeouts_pending(&self) -> u8 {
        self.u8(field::RETRANSMITS)
    }

    /// Segments with data sent, those sent again included.
    #[must_use]
    pub fn segments_sent(&self) -> u32 {
        self.u32(field::DATA_SEGS_OUT)
    }

    /// Segments received, ACKs without data included.
    #[must_use]
    pub fn segments_received(&self) -> u32 {
        self.u32(field::SEGS_IN)
    }

    /// Segments received that contain data.
    #[must_use]
    pub fn data_segments_received(&self) -> u32 {
        self.u32(field::DATA_SEGS_IN)
    }

    /// For how long there was data to send.
    #[must_use]
    pub fn busy_time(&self) -> TimeSpan {
        self.span(field::BUSY_TIME)
    }

    /// For how long the peer's window held sending back.
    #[must_use]
    pub fn receive_window_limited_time(&self) -> TimeSpan {
        self.span(field::RWND_LIMITED)
    }

    /// For how long too small a send buffer held sending back.
    #[must_use]
    pub fn send_buffer_limited_time(&self) -> TimeSpan {
        self.span(field::SNDBUF_LIMITED)
    }

    fn field<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let bytes = self.bytes.get(..self.length)?;
        bytes.get(offset..offset + N)?.try_into().ok()
    }

    fn u8(&self, offset: usize) -> u8 {
        self.field(offset).map_or(0, u8::from_ne_bytes)
    }

    fn u16(&self, offset: usize) -> u16 {
        self.field(offset).map_or(0, u16::from_ne_bytes)
    }

    fn u32(&self, offset: usize) -> u32 {
        self.field(offset).map_or(0, u32::from_ne_bytes)
    }

    fn u64(&self, offset: usize) -> u64 {
        self.field(offset).map_or(0, u64::from_ne_bytes)
    }

    fn nonzero_u32(&self, offset: usize) -> Option<u32> {
        Some(self.u32(offset)).filter(|value| *value != 0)
    }

    fn span(&self, offset: usize) -> TimeSpan {
        TimeSpan::from_nanoseconds(self.u64(offset).saturating_mul(1_000))
    }
}

/// Offsets in `struct tcp_info` of `<linux/tcp.h>`: a stable interface, the same on every
/// architecture, named as there without `tcpi_`.
mod field {
    pub const CA_STATE: usize = 1;
    pub const RETRANSMITS: usize = 2;
    /// `delivery_rate_app_limited`, the first bit of the byte behind the two window scales.
    pub const APPLICATION_LIMITED: usize = 7;
    pub const SND_MSS: usize = 16;
    pub const UNACKED: usize = 24;
    pub const SACKED: usize = 28;
    pub const RTT: usize = 68;
    pub const SND_SSTHRESH: usize = 76;
    pub const SND_CWND: usize = 80;
    pub const TOTAL_RETRANS: usize = 100;
    pub const PACING_RATE: usize = 104;
    pub const BYTES_ACKED: usize = 120;
    pub const BYTES_RECEIVED: usize = 128;
    pub const SEGS_IN: usize = 140;
    pub const NOTSENT_BYTES: usize = 144;
    pub const MIN_RTT: usize = 148;
    pub const DATA_SEGS_IN: usize = 152;
    pub const DATA_SEGS_OUT: usize = 156;
    pub const DELIVERY_RATE: usize = 160;
    pub const BUSY_TIME: usize = 168;
    pub const RWND_LIMITED: usize = 176;
    pub const SNDBUF_LIMITED: usize = 184;
    pub const BYTES_RETRANS: usize = 208;
    /// Since Linux 5.4.
    pub const SND_WND: usize = 228;
    /// Since Linux 6.2.
    pub const RCV_WND: usize = 232;
    /// Since Linux 6.7.
    pub const TOTAL_RTO: usize = 240;
}

fn span_from_microseconds(microseconds: u32) -> TimeSpan {
    TimeSpan::from_nanoseconds(u64::from(microseconds) * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn offsets_are_those_of_the_c_library() {
        use libc::tcp_info;
        let pairs = [
            (field::CA_STATE, offset_of!(tcp_info, tcpi_ca_state)),
            (field::RETRANSMITS, offset_of!(tcp_info, tcpi_retransmits)),
            (field::SND_MSS, offset_of!(tcp_info, tcpi_snd_mss)),
            (field::UNACKED, offset_of!(tcp_info, tcpi_unacked)),
            (field::SACKED, offset_of!(tcp_info, tcpi_sacked)),
            (field::RTT, offset_of!(tcp_info, tcpi_rtt)),
            (field::SND_SSTHRESH, offset_of!(tcp_info, tcpi_snd_ssthresh)),
            (field::SND_CWND, offset_of!(tcp_info, tcpi_snd_cwnd)),
            (
                field::TOTAL_RETRANS,
                offset_of!(tcp_info, tcpi_total_retrans),
            ),
            (field::PACING_RATE, offset_of!(tcp_info, tcpi_pacing_rate)),
            (field::BYTES_ACKED, offset_of!(tcp_info, tcpi_bytes_acked)),
            (
                field::BYTES_RECEIVED,
                offset_of!(tcp_info, tcpi_bytes_received),
            ),
            (
                field::NOTSENT_BYTES,
                offset_of!(tcp_info, tcpi_notsent_bytes),
            ),
            (field::MIN_RTT, offset_of!(tcp_info, tcpi_min_rtt)),
            (field::SEGS_IN, offset_of!(tcp_info, tcpi_segs_in)),
            (field::DATA_SEGS_IN, offset_of!(tcp_info, tcpi_data_segs_in)),
            (
                field::DATA_SEGS_OUT,
                offset_of!(tcp_info, tcpi_data_segs_out),
            ),
            (
                field::DELIVERY_RATE,
                offset_of!(tcp_info, tcpi_delivery_rate),
            ),
            (field::BUSY_TIME, offset_of!(tcp_info, tcpi_busy_time)),
            (field::RWND_LIMITED, offset_of!(tcp_info, tcpi_rwnd_limited)),
            (
                field::SNDBUF_LIMITED,
                offset_of!(tcp_info, tcpi_sndbuf_limited),
            ),
            (
                field::BYTES_RETRANS,
                offset_of!(tcp_info, tcpi_bytes_retrans),
            ),
            (field::SND_WND, offset_of!(tcp_info, tcpi_snd_wnd)),
            (field::RCV_WND, offset_of!(tcp_info, tcpi_rcv_wnd)),
            (field::TOTAL_RTO, offset_of!(tcp_info, tcpi_total_rto)),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn a_sender_recovers_in_the_states_cwr_recovery_and_loss() {
        let of = |state| Information::from_bytes(&[1, state]).is_recovering();
        assert_eq!([0, 1, 2, 3, 4].map(of), [false, false, true, true, true]);
        assert!(!Information::from_bytes(&[1]).is_recovering());
    }

    #[test]
    fn fields_beyond_the_end_are_empty() {
        let of = |length| Information {
            bytes: std::array::from_fn(|i| (i % 250 + 1) as u8),
            length,
        };
        let nothing = of(0);
        assert_eq!(nothing.round_trip_time(), None);
        assert_eq!(nothing.segments_sent(), 0);
        assert_eq!(nothing.busy_time(), TimeSpan::ZERO);
        // A kernel before 5.4 ends before tcpi_snd_wnd.
        let old = of(field::SND_WND);
        assert_eq!(old.peer_window(), 0);
        assert!(old.round_trip_time().is_some());
        assert_ne!(of(field::SND_WND + 4).peer_window(), 0);
    }
}
