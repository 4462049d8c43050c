//! The changes that a policy may make to a live socket.

use midspan_policy::LegDecision;

use super::Sender;
use super::cubic::Cubic;

impl Sender {
    /// Carries out a decision, as the proxy does on a real socket: pacing rate, segment size (at
    /// most the ceiling of the configuration), in-flight cap (at least a segment; the window limit
    /// still holds), and slow start again. The send buffer belongs to the application.
    pub fn handle_decision(&mut self, decision: &LegDecision) {
        if let Some(rate) = decision.pacing_rate {
            self.configuration.pacing_rate = Some(rate);
        }
        if let Some(size) = decision.segment_size {
            let size = u32::try_from(size.bytes()).unwrap_or(u32::MAX);
            self.configuration.segment_size = size.clamp(1, self.segment_ceiling());
            // Windows are in bytes and stay the same; they hold at least this many segments.
            let segment = self.segment_size();
            self.cwnd = self.cwnd.max(segment);
            self.ssthresh = self.ssthresh.max(2 * segment);
            self.flight_limit = self.flight_limit.max(segment);
        }
        if decision.slow_start_again {
            self.ssthresh = u64::MAX;
            self.cubic = Cubic::default();
        }
        if let Some(cap) = decision.in_flight_cap {
            let limit = self.configuration.window_limit.min(cap.bytes());
            self.flight_limit = limit.max(self.segment_size());
        }
        self.check_invariants();
    }

    /// The largest segment size that a decision may set.
    fn segment_ceiling(&self) -> u32 {
        // `new` has set it.
        let ceiling = self.configuration.segment_ceiling;
        ceiling.unwrap_or(self.configuration.segment_size).max(1)
    }
}
