//! Descriptors in addition to the two of each session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Limits;

/// A descriptor that counts as in use until this is dropped.
#[derive(Debug)]
pub struct Spare(Arc<Limits>);

impl Limits {
    /// Gets one descriptor in addition to those of sessions; `None` if the relay is crowded.
    pub(crate) fn take_descriptor(self: &Arc<Self>) -> Option<Spare> {
        if self.is_short_of_descriptors() || self.has_few_descriptors() {
            return None;
        }
        self.more_descriptors.fetch_add(1, Ordering::Relaxed);
        Some(Spare(Arc::clone(self)))
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.0.more_descriptors.fetch_sub(1, Ordering::Relaxed);
    }
}
