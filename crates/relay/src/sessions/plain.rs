//! Sessions that are relayed without any mechanism: their policies get no samples, and decide nothing.
//!
//! These are connections that were accepted although the policy lets them pass untouched, or although such a
//! connection may have caused a fault. They are few, so their sessions need no mark of their own.

use std::collections::BTreeSet;

use midspan_policy::{Policy, SessionId};
use midspan_units::TimeSpan;

use crate::session::Session;

/// The plain sessions of one thread, by their number.
#[derive(Debug, Default)]
pub struct PlainSessions(BTreeSet<u64>);

impl PlainSessions {
    /// The session with this number is plain.
    pub fn begin(&mut self, id: u64) {
        self.0.insert(id);
    }

    /// Whether a session is plain.
    pub fn include(&self, session: &Session) -> bool {
        self.0.contains(&session.id())
    }

    /// A session has ended; returns whether it was plain.
    pub fn end(&mut self, id: u64) -> bool {
        self.0.remove(&id)
    }

    /// How often the policy of a session gets samples; `None`: never.
    pub fn sampling_interval(&self, session: &Session, policy: &dyn Policy) -> Option<TimeSpan> {
        match self.include(session) {
            true => None,
            false => policy.sampling_interval(SessionId(session.id())),
        }
    }
}
