//! `TCP_INFO` as a [`LegSample`].

use std::io;
use std::os::fd::AsFd;

use midspan_policy::{LegSample, LimitedTimes};
use midspan_units::{ByteSize, TimeSpan};

use super::options::rate_from_bytes_per_second;
use super::raw;

/// More than any kernel gives: 280 bytes in Linux 6.18.
const LARGEST: usize = 512;

/// Slow-start threshold that stands for "none yet" (`TCP_INFINITE_SSTHRESH`).
const INFINITE_THRESHOLD: u32 = 0x7fff_ffff;

/// Reads a leg (`TCP_INFO`). About a microsecond; takes the socket's lock.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn sample(socket: impl AsFd) -> io::Result<LegSample> {
    let mut buffer = [0; LARGEST];
    let length = raw::get_option(
        socket.as_fd(),
        libc::IPPROTO_TCP,
        libc::TCP_INFO,
        &mut buffer,
    )?;
    Ok(parse_information(&buffer[..length]))
}

/// How many bytes of `TCP_INFO` this kernel gives: newer ones give more.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn information_length(socket: impl AsFd) -> io::Result<usize> {
    let mut buffer = [0; LARGEST];
    let socket = socket.as_fd();
    raw::get_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut buffer)
}

/// Reads the bytes of a `struct tcp_info`, in the machine's byte order.
///
/// The structure has only ever grown at its end, so an older kernel gives fewer bytes: what is
/// missing is `None` or 0.
#[must_use]
pub fn parse_information(bytes: &[u8]) -> LegSample {
    let information = Information(bytes);
    LegSample {
        round_trip_time: information
            .nonzero_u32(field::RTT)
            .map(span_from_microseconds),
        minimum_round_trip_time: information
            .nonzero_u32(field::MIN_RTT)
            .filter(|microseconds| *microseconds != u32::MAX)
            .map(span_from_microseconds),
        delivery_rate: rate_from_bytes_per_second(information.u64(field::DELIVERY_RATE)),
        pacing_rate: rate_from_bytes_per_second(information.u64(field::PACING_RATE)),
        segment_size: information.u32(field::SND_MSS),
        congestion_window: information.u32(field::SND_CWND),
        slow_start_threshold: information
            .nonzero_u32(field::SND_SSTHRESH)
            .filter(|threshold| *threshold < INFINITE_THRESHOLD),
        peer_window: u64::from(information.u32(field::SND_WND)),
        advertised_window: u64::from(information.u32(field::RCV_WND)),
        unacknowledged: information.u32(field::UNACKED),
        not_sent: ByteSize::from_bytes(u64::from(information.u32(field::NOTSENT_BYTES))),
        bytes_acknowledged: ByteSize::from_bytes(information.u64(field::BYTES_ACKED)),
        bytes_received: ByteSize::from_bytes(information.u64(field::BYTES_RECEIVED)),
        bytes_retransmitted: ByteSize::from_bytes(information.u64(field::BYTES_RETRANS)),
        segments_retransmitted: information.u32(field::TOTAL_RETRANS),
        timeouts: information.u16(field::TOTAL_RTO),
        segments_sent: information.u32(field::DATA_SEGS_OUT),
        segments_received: information.u32(field::SEGS_IN),
        data_segments_received: information.u32(field::DATA_SEGS_IN),
        timeouts_pending: u32::from(information.u8(field::RETRANSMITS)),
        limited: LimitedTimes {
            busy: information.span(field::BUSY_TIME),
            receive_window: information.span(field::RWND_LIMITED),
            send_buffer: information.span(field::SNDBUF_LIMITED),
        },
    }
}

/// Offsets in `struct tcp_info` of `<linux/tcp.h>`: a stable interface, the same on every
/// architecture, named as there without `tcpi_`.
mod field {
    pub const RETRANSMITS: usize = 2;
    pub const SND_MSS: usize = 16;
    pub const UNACKED: usize = 24;
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

/// As many bytes of a `struct tcp_info` as the kernel gave; what is beyond reads as 0.
struct Information<'a>(&'a [u8]);

impl Information<'_> {
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..offset + N)?.try_into().ok()
    }

    fn u8(&self, offset: usize) -> u8 {
        self.bytes(offset).map_or(0, u8::from_ne_bytes)
    }

    fn u16(&self, offset: usize) -> u16 {
        self.bytes(offset).map_or(0, u16::from_ne_bytes)
    }

    fn u32(&self, offset: usize) -> u32 {
        self.bytes(offset).map_or(0, u32::from_ne_bytes)
    }

    fn u64(&self, offset: usize) -> u64 {
        self.bytes(offset).map_or(0, u64::from_ne_bytes)
    }

    fn nonzero_u32(&self, offset: usize) -> Option<u32> {
        Some(self.u32(offset)).filter(|value| *value != 0)
    }

    fn span(&self, offset: usize) -> TimeSpan {
        TimeSpan::from_nanoseconds(self.u64(offset).saturating_mul(1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn offsets_are_those_of_the_c_library() {
        use libc::tcp_info;
        let pairs = [
            (field::RETRANSMITS, offset_of!(tcp_info, tcpi_retransmits)),
            (field::SND_MSS, offset_of!(tcp_info, tcpi_snd_mss)),
            (field::UNACKED, offset_of!(tcp_info, tcpi_unacked)),
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
    fn any_length_is_read_and_nothing_is_known_of_nothing() {
        let full: Vec<u8> = (1..=LARGEST).map(|i| (i % 251) as u8).collect();
        for length in 0..full.len() {
            let _ = parse_information(&full[..length]);
        }
        assert_eq!(parse_information(&[]), LegSample::default());
        // A kernel before 5.4 ends before tcpi_snd_wnd.
        let old = parse_information(&full[..field::SND_WND]);
        assert_eq!(old.peer_window, 0);
        assert!(old.round_trip_time.is_some());
    }
}
