//! The knowledge of this node about its overlay, shared by the threads of a relay.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midspan_policy::overlay::{KnownOverlay, Overlay};

/// The overlay of a relay: its members, and what is known of them. Clones share both.
#[derive(Debug, Clone)]
pub struct SharedOverlay(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    members: Mutex<Option<Arc<Overlay>>>,
    known: Mutex<KnownOverlay>,
}

impl Default for SharedOverlay {
    /// Without members; nothing is known. Which sessions explore differs from run to run.
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0);
        Self(Arc::new(Inner {
            members: Mutex::new(None),
            known: Mutex::new(KnownOverlay::new(seed)),
        }))
    }
}

impl SharedOverlay {
    /// Sets the members; `None` if this relay is part of no overlay.
    pub fn set_members(&self, overlay: Option<Overlay>) {
        let members = &self.0.members;
        *members.lock().unwrap_or_else(PoisonError::into_inner) = overlay.map(Arc::new);
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> Option<Arc<Overlay>> {
        let members = self.0.members.lock();
        members.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known. Other threads wait while the caller has it.
    pub fn known(&self) -> MutexGuard<'_, KnownOverlay> {
        // A panic elsewhere while the lock was held does no harm: the numbers stay usable.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
