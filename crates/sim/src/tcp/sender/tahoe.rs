//! Tahoe: fast retransmit, then slow start.
//!
//! Jacobson, "Congestion Avoidance and Control", 1988; ns-2's `Agent/TCP`.

use midspan_units::Time;

use super::{DUPLICATE_THRESHOLD, Sender};

impl Sender {
    pub(super) fn tahoe_duplicate(&mut self, now: Time) {
        if self.duplicates != DUPLICATE_THRESHOLD || !self.may_retransmit_fast() {
            return;
        }
        self.enter_fast_retransmit();
        self.round_threshold();
        self.cwnd = self.segment_size();
        self.next = self.unacknowledged;
        self.restart_timer(now);
    }
}
