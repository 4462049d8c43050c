//! Descriptors in addition to the two of each session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Limits;

/// Descriptors that count as in use until this is dropped.
#[derive(Debug)]
pub struct Spare {
    limits: Arc<Limits>,
    count: u64,
}

impl Limits {
    /// Gets one descriptor in addition to those of sessions; `None` if the relay is crowded.
    pub(crate) fn take_descriptor(self: &Arc<Self>) -> Option<Spare> {
        if self.is_short_of_descriptors() || self.has_few_descriptors() {
            return None;
        }
        Some(self.count_descriptors(1))
    }

    /// Counts descriptors that are in use, and belong to no session.
    pub(crate) fn count_descriptors(self: &Arc<Self>, count: u64) -> Spare {
        self.more_descriptors.fetch_add(count, Ordering::Relaxed);
        Spare {
            limits: Arc::clone(self),
            count,
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let used = &self.limits.more_descriptors;
        used.fetch_sub(self.count, Ordering::Relaxed);
    }
}
