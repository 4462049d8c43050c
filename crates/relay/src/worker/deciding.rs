//! What the policy sees of live sessions, and what becomes of its decisions.

use super::Worker;
use crate::table::Key;

impl Worker {
    /// Shows a session to its policy and carries out what that decides.
    pub(super) fn sample(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let Some(acceptor) = self.acceptors.get_mut(usize::from(session.listener)) else {
            return;
        };
        session.active = false;
        session.upkeep.sampled_at = self.now;
        if let Ok(sample) = session.sample() {
            let decision = acceptor.policy.sample(self.now, &sample);
            self.counters.samples.add(1);
            let refused = session.carry_out(&decision, &sample);
            self.counters.option_errors.add(refused);
        }
    }
}
