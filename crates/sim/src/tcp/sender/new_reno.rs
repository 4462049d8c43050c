//! NewReno: fast recovery continues after partial ACKs (RFC 6582).

use super::Sender;

impl Sender {
    /// A new ACK in recovery. Returns whether the timer restarts.
    pub(super) fn new_reno_advance(&mut self, acknowledged: u64) -> bool {
        if self
            .recover
            .is_none_or(|recover| self.unacknowledged >= recover)
        {
            // A full ACK; the second choice of §3.2, step 3.
            self.end_recovery();
            return true;
        }
        // A partial ACK: the next segment was lost too. The window shrinks by the data that has
        // left it, and opens by the segment that is sent.
        let segment = self.segment_size();
        self.cwnd = self.cwnd.saturating_sub(acknowledged).max(segment);
        if acknowledged >= segment {
            self.cwnd += segment;
        }
        self.resend = Some(self.unacknowledged);
        // "Impatient" (§4): only the first partial ACK restarts the timer.
        !std::mem::replace(&mut self.partial_seen, true)
    }
}
