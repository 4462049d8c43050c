//! A sender's state as a real socket's `TCP_INFO` would show it.

use midspan_policy::LegSample;
use midspan_units::{BitRate, ByteSize, Time};

use super::Sender;
use super::bbr::LossState;

impl Sender {
    /// A reading of this sender, like a policy's reading of a real socket. The values of the other
    /// direction (our own window, bytes received) have their defaults. The delivery rate is that of
    /// the last segment whose round trip was measured.
    #[must_use]
    pub fn sample(&self, now: Time) -> LegSample {
        let segment = self.segment_size();
        let segments = |bytes: u64| u32::try_from(bytes / segment).unwrap_or(u32::MAX);
        LegSample {
            round_trip_time: self.round_trip_time(),
            minimum_round_trip_time: self.least_round_trip_time(),
            delivery_rate: self.delivery_rate(),
            pacing_rate: self.pacing_rate(),
            segment_size: self.configuration.segment_size,
            congestion_window: segments(self.cwnd),
            slow_start_threshold: self.ssthresh().map(segments),
            peer_window: self.peer_edge.saturating_sub(self.unacknowledged),
            unacknowledged: segments(self.highest - self.unacknowledged + segment - 1),
            selectively_acknowledged: segments(self.scoreboard.arrived()),
            is_recovering: self.is_recovering(),
            not_sent: ByteSize::from_bytes(self.written - self.highest),
            bytes_acknowledged: ByteSize::from_bytes(self.unacknowledged),
            bytes_retransmitted: ByteSize::from_bytes(self.counters.bytes_retransmitted),
            segments_retransmitted: u32::try_from(self.counters.retransmissions)
                .unwrap_or(u32::MAX),
            timeouts: u16::try_from(self.counters.timeouts).unwrap_or(u16::MAX),
            segments_sent: u32::try_from(self.counters.segments).unwrap_or(u32::MAX),
            timeouts_pending: self.timeouts_pending(),
            limited: self.limited_times(now),
            ..LegSample::default()
        }
    }

    /// Whether lost segments are being sent again, after a time-out too.
    fn is_recovering(&self) -> bool {
        match &self.tracker {
            Some(tracker) if self.uses_rack => tracker.recovery.state != LossState::Open,
            _ => self.recovering || self.next < self.highest,
        }
    }

    fn delivery_rate(&self) -> Option<BitRate> {
        if !self.uses_rack {
            return self.round_trip.delivery_rate();
        }
        let (segments, span) = self.tracker.as_ref()?.rate.newest()?;
        BitRate::from_transfer(segments.saturating_mul(self.segment_size()), span)
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        if !self.is_bbr() {
            return self.configuration.pacing_rate;
        }
        let bbr = self.tracker.as_ref()?.bbr.as_ref()?;
        BitRate::from_bits_per_second(bbr.pacing_rate().saturating_mul(8))
    }
}
