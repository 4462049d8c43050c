//! Begins and ends leaving pairs of networks alone, in the rules in force.

use std::time::{Duration, Instant};

use midspan_linux::nftables;

use super::{Interception, InterceptionError, LeftAlone, Pair};

impl Interception {
    /// New connections between these pairs, too, pass untouched for `time` from now on.
    ///
    /// # Errors
    /// The rules could not be changed; the next [`refresh`](Self::refresh) tries again.
    pub fn leave_alone(&mut self, pairs: &[Pair], time: Duration) -> Result<(), InterceptionError> {
        let now = Instant::now();
        self.plan.left_alone.add(pairs, now, time);
        let mut additions = (self.plan.left_alone).additions(pairs, &self.plan.numbers.table, now);
        additions.push_str(&self.express_lane.flush(&self.plan));
        // The sets may be full, or another program may have removed the table.
        if self.taking && nftables::apply(&additions).is_ok() {
            return Ok(());
        }
        self.put_rules()
    }

    /// New connections between these pairs are intercepted again.
    ///
    /// # Errors
    /// The rules could not be changed; the next [`refresh`](Self::refresh) tries again.
    pub fn end_leaving_alone(&mut self, pairs: &[Pair]) -> Result<(), InterceptionError> {
        if pairs.is_empty() {
            return Ok(());
        }
        self.plan.left_alone.remove(pairs);
        let removals = LeftAlone::removals(pairs, &self.plan.numbers.table);
        if self.taking && nftables::apply(&removals).is_ok() {
            return Ok(());
        }
        self.put_rules()
    }
}
