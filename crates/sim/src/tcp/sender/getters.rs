//! The getters of a sender.

use midspan_units::TimeSpan;

use super::{Phase, Sender, SenderCounters};
use crate::tcp::configuration::SenderConfiguration;

impl Sender {
    /// Its configuration.
    #[must_use]
    pub const fn configuration(&self) -> &SenderConfiguration {
        &self.configuration
    }

    /// Its counters.
    #[must_use]
    pub const fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// cwnd in bytes.
    #[must_use]
    pub const fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// ssthresh in bytes; `None` before the first loss.
    #[must_use]
    pub const fn ssthresh(&self) -> Option<u64> {
        if self.ssthresh == u64::MAX {
            None
        } else {
            Some(self.ssthresh)
        }
    }

    /// SND.UNA: all bytes before this have been acknowledged.
    #[must_use]
    pub const fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// The first byte that was never sent.
    #[must_use]
    pub const fn highest(&self) -> u64 {
        self.highest
    }

    /// The end of the data that the application has written.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Whether the handshake is complete, or none was configured.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// The smoothed round-trip time, once measured.
    #[must_use]
    pub fn round_trip_time(&self) -> Option<TimeSpan> {
        self.round_trip.smoothed()
    }

    /// The shortest measured round-trip time.
    #[must_use]
    pub const fn least_round_trip_time(&self) -> Option<TimeSpan> {
        self.round_trip.least()
    }

    /// The present retransmission time-out, with its doublings.
    #[must_use]
    pub fn retransmission_timeout(&self) -> TimeSpan {
        self.round_trip.timeout()
    }

    /// Time-outs in a row since data was last newly acknowledged.
    pub(super) const fn timeouts_pending(&self) -> u32 {
        match self.timeouts_in_row {
            (count, at) if at == self.unacknowledged => count,
            _ => 0,
        }
    }
}
