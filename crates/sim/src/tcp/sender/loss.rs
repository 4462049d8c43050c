//! What all variants do about a loss: when duplicate ACKs count, ssthresh, the time-out.

use midspan_units::Time;

use super::Sender;
use crate::tcp::configuration::Variant;

impl Sender {
    /// Whether duplicate ACKs may be taken for a new loss. Those that follow a go-back may have
    /// been caused by segments that were sent twice (RFC 6582 §4.1, RFC 6675 §5.1).
    pub(super) fn may_retransmit_fast(&self) -> bool {
        !self.recovering
            && self
                .recover
                .is_none_or(|recover| self.unacknowledged > recover)
    }

    /// ssthresh after a loss: half of what is under way (RFC 5681, equation 4), or CUBIC's share.
    /// Neither what fast recovery nor what limited transmit adds to the window counts.
    fn reduced_threshold(&mut self) -> u64 {
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

    /// A loss was detected by duplicate ACKs: the common part.
    pub(super) fn enter_fast_retransmit(&mut self) {
        self.counters.fast_retransmits += 1;
        self.ssthresh = self.reduced_threshold();
        self.recover = Some(self.highest);
        self.cwnd_fraction = 0;
        self.round_trip.cancel();
        self.hystart.forget();
    }

    /// The retransmission timer has run out (RFC 6298 §5.4–5.6, RFC 5681 §3.1): slow start from
    /// the first byte that is not acknowledged.
    pub(super) fn time_out(&mut self, now: Time) {
        self.counters.timeouts += 1;
        self.timeouts_in_row = match self.timeouts_in_row {
            (count, at) if at == self.unacknowledged => (count + 1, at),
            _ => (1, self.unacknowledged),
        };
        // Of a segment that times out again, the first time-out has set ssthresh.
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
            // Sent again all the same: it asks for the window.
            self.resend = Some(self.unacknowledged);
        }
        self.round_trip.cancel();
        self.round_trip.back_off();
        self.restart_timer(now);
    }
}
