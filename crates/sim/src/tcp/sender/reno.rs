//! Reno: fast retransmit and fast recovery until the first new ACK (RFC 5681 §3.2).

use midspan_units::Time;

use super::{DUPLICATE_THRESHOLD, Sender};

impl Sender {
    /// Reno and NewReno enter recovery in the same way: each further duplicate ACK means that a
    /// segment has left the network, and allows a new one.
    pub(super) fn reno_duplicate(&mut self, now: Time) {
        let segment = self.segment_size();
        if self.recovering {
            self.cwnd += segment;
        } else if self.duplicates == DUPLICATE_THRESHOLD && self.may_retransmit_fast() {
            self.enter_fast_retransmit();
            self.cwnd = self.ssthresh + u64::from(DUPLICATE_THRESHOLD) * segment;
            self.recovering = true;
            self.partial_seen = false;
            self.resend = Some(self.unacknowledged);
            self.restart_timer(now);
        }
    }

    /// A new ACK in recovery ends it. Returns whether the timer restarts.
    pub(super) fn reno_advance(&mut self) -> bool {
        self.end_recovery();
        true
    }
}
