//! Locks of the data that the gate's parts on several threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. No code panics while it holds such a lock, so the protected data is always consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
