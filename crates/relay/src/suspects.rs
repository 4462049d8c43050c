//! The [suspects](midspan_policy::suspects) of all threads: of panics, and of threads that were stuck.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midspan_policy::Request;
use midspan_policy::suspects::{Suspects, Treatment};
use midspan_units::Time;

/// Pairs of a client's host and a server whose connections may have caused a fault, for all threads.
#[derive(Debug, Clone, Default)]
pub struct SharedSuspects(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Usually there is no pair, and then no new connection needs the lock.
    has_any: AtomicBool,
    suspects: Mutex<Suspects>,
}

impl SharedSuspects {
    /// A thread has panicked, or is stuck, while it handled this connection, which was relayed plainly if
    /// `is_plain`: the pair's new connections are not split for a while.
    pub fn note(&self, now: Time, request: &Request, is_plain: bool) {
        let time = self.lock().note(now, request, is_plain);
        self.0.has_any.store(true, Ordering::Release);
        tracing::warn!(
            "new connections from {} to {} are not split for {time}: a thread has failed while it handled \
             such a connection",
            request.client.ip(),
            request.server
        );
    }

    /// What happens to a new connection.
    #[must_use]
    pub fn treatment(&self, now: Time, request: &Request) -> Treatment {
        match self.0.has_any.load(Ordering::Acquire) {
            true => self.lock().treatment(now, request),
            false => Treatment::Usual,
        }
    }

    /// Whether a new connection is not to be split.
    #[must_use]
    pub fn includes(&self, now: Time, request: &Request) -> bool {
        self.treatment(now, request) != Treatment::Usual
    }

    fn lock(&self) -> MutexGuard<'_, Suspects> {
        let suspects = &self.0.suspects;
        suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
