//! What sessions leave for later ones, shared by the threads of a relay and the gate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midspan_policy::Knowledge;

/// The [`Knowledge`] of a relay. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SharedKnowledge(Arc<Mutex<Knowledge>>);

impl SharedKnowledge {
    /// For one decision: other threads wait meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Knowledge> {
        // A panic elsewhere while the lock was held does no harm: the numbers stay usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
