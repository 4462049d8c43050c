//! The common reaction of all variants to a loss: when duplicate ACKs count, ssthresh, the
//! time-out.

use midspan_units::Time;

use super::Sender;
use crate::tcp::configuration::Variant;

impl Sender {
    /// Whether duplicate ACKs may mean a new loss. Those after a go-back may come from segments
    /// that were sent twice (RFC 6582 §4.1, RFC 6675 §5.1).
    pub(super) fn may_retransmit_fast(&self) -> bool {
        !self.recovering
            && self
                .recover
                .is_none_or(|recover| self.unacknowledged > recover)
    }

    /// ssthresh after a loss: half of the data in flight (RFC 5681, equation 4), or CUBIC's share.
    /// The amounts that fast recovery and limited transmit add to the window do not count.
    pub(super) fn reduced_threshold(&mut self) -> u64 {
        let under_way = if self.recovering {
            self.ssthresh
        } else if self.configuration.threshold_from_cwnd {
            self.cwnd
        } else {
            (self.next - self.unacknowledged).min(self.cwnd)
        };
        let reduced = match self.configuration.variant {
            Variant::Cubic => self.cubic.reduce(under_way, self.segment_size()),
            _ => under_way / 2,
        };
        reduced.max(2 * self.segment_size())
    }

    /// Slow start ends at a whole number of segments, as in 4.4BSD and ns-2.
    pub(super) fn round_threshold(&mut self) {
        self.ssthresh -= self.ssthresh % self.segment_size();
    }

    /// Duplicate ACKs have shown a loss: the part that is common to all variants.
    pub(super) fn enter_fast_retransmit(&mut self) {
        self.counters.fast_retransmits += 1;
        self.ssthresh = self.reduced_threshold();
        self.recover = Some(self.highest);
        self.cwnd_fraction = 0;
        self.round_trip.cancel();
        self.hystart.forget();
    }

    /// The retransmission timer has expired (RFC 6298 §5.4–5.6, RFC 5681 §3.1): slow start from the
    /// first unacknowledged byte.
    pub(super) fn time_out(&mut self, now: Time) {
        self.counters.timeouts += 1;
        self.timeouts_in_row = match self.timeouts_in_row {
            (count, at) if at == self.unacknowledged => (count + 1, at),
            _ => (1, self.unacknowledged),
        };
        // If a segment times out again, its first time-out has set ssthresh already.
        if self.recover != Some(self.highest)
            || self.next > self.unacknowledged + self.segment_size()
        {
            self.ssthresh = self.reduced_threshold();
            self.round_threshold();
        }
        if self.configuration.variant == Variant::Cubic {
            self.cubic.time_out();
            self.hystart.forget();
        }
        self.cwnd = self.segment_size();
        self.cwnd_fraction = 0;
        self.recovering = false;
        self.recover = Some(self.highest);
        self.resend = None;
        self.duplicates = 0;
        self.after_timeout = true;
        self.next = self.unacknowledged;
        if self.window_went_back() {
            // The probe is retransmitted whatever the window: its ACK reports the window.
            self.resend = Some(self.unacknowledged);
        }
        self.round_trip.cancel();
        self.round_trip.back_off();
        self.restart_timer(now);
    }
}
