//! How cwnd opens: slow start and congestion avoidance (RFC 5681 §3.1, RFC 3465).

use midspan_units::Time;

use super::Sender;
use crate::tcp::configuration::{ByteCounting, Variant};

impl Sender {
    /// Whether cwnd limits sending. In slow start, half of cwnd is enough, so that an ACK for two
    /// segments does not stop its growth (as in Linux).
    pub(super) fn is_cwnd_limited(&self) -> bool {
        let under_way = self.next - self.unacknowledged;
        if self.cwnd < self.ssthresh {
            2 * under_way > self.cwnd
        } else {
            under_way + self.segment_size() > self.cwnd
        }
    }

    /// Recovery has ended. The ACK that ends it also opens the window, as in 4.4BSD and ns-2.
    pub(super) fn end_recovery(&mut self) {
        self.recovering = false;
        self.cwnd = self.ssthresh;
        self.cwnd_fraction = 0;
        if self.configuration.variant != Variant::Cubic {
            self.avoid_congestion(self.segment_size());
        }
    }

    /// `acknowledged` bytes were newly acknowledged, outside recovery.
    #[inline]
    pub(super) fn grow(&mut self, now: Time, acknowledged: u64) {
        let acknowledged = if self.cwnd < self.ssthresh {
            self.slow_start(acknowledged)
        } else {
            acknowledged
        };
        if acknowledged > 0 {
            self.after_timeout = false;
            if self.configuration.variant == Variant::Cubic {
                let round_trip = self.round_trip.smoothed().unwrap_or_default();
                self.cwnd = self.cubic.grow(
                    now,
                    round_trip,
                    acknowledged,
                    self.cwnd,
                    self.segment_size(),
                );
            } else {
                self.avoid_congestion(acknowledged);
            }
        }
    }

    /// Ends slow start if HyStart detects that the path is full.
    pub(super) fn end_slow_start(&mut self, now: Time) {
        if self.configuration.variant != Variant::Cubic || self.cwnd >= self.ssthresh {
            return;
        }
        let window = self.cwnd / self.segment_size();
        let is_paced = self.configuration.pacing_rate.is_some();
        let path = (self.round_trip.least(), is_paced);
        let number = self.unacknowledged;
        let hystart = &mut self.hystart;
        if hystart.handle_acknowledged(now, number, self.next, window, path) {
            self.ssthresh = self.cwnd;
        }
    }

    /// Grows cwnd in slow start; returns the acknowledged bytes that are left for congestion
    /// avoidance.
    fn slow_start(&mut self, acknowledged: u64) -> u64 {
        let segment = self.segment_size();
        let most = match self.configuration.byte_counting {
            ByteCounting::Off => segment,
            ByteCounting::Limit(_) if self.after_timeout => segment,
            ByteCounting::Limit(segments) => segment * u64::from(segments),
            ByteCounting::All => self.ssthresh - self.cwnd,
        };
        let counted = acknowledged.min(most);
        self.cwnd += counted;
        match self.configuration.byte_counting {
            ByteCounting::All => acknowledged - counted,
            ByteCounting::Off | ByteCounting::Limit(_) => 0,
        }
    }

    /// One segment for each acknowledged cwnd. The remainder of each division is kept, so that
    /// rounding errors never add up.
    fn avoid_congestion(&mut self, acknowledged: u64) {
        let segment = self.segment_size();
        let counted = match self.configuration.byte_counting {
            ByteCounting::Off => segment,
            ByteCounting::Limit(_) | ByteCounting::All => acknowledged,
        };
        let work = segment * counted + self.cwnd_fraction;
        self.cwnd_fraction = work % self.cwnd;
        self.cwnd += work / self.cwnd;
    }
}
