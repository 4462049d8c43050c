//! Processors that are not put aside while a run lasts.
//!
//! A virtual processor with nothing to do halts, and its host gives the real one to others; once a
//! frame is due, tens of milliseconds may pass until it is back. A processor that always has something
//! to do comes back at once as long as the host is not short of them. So one thread for each
//! does nothing, behind all others (`SCHED_IDLE`). It gives way at every turn, since a kernel
//! that preempts lazily would leave it running until the next tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use midspan_linux::scheduling;
use rustix::thread::CpuSet;

/// While this lives, the processors do not halt.
#[derive(Debug, Default)]
pub struct Awake {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Begins; without effect where threads cannot be had.
    #[must_use]
    pub fn begin() -> Self {
        let mut this = Self::default();
        let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        for processor in (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)) {
            let ends = Arc::clone(&this.ends);
            let thread = std::thread::Builder::new().name(format!("awake {processor}"));
            let thread = thread.spawn(move || {
                let mut only = CpuSet::new();
                only.set(processor);
                // Where it would be in others' way, it does not run.
                if scheduling::run_last().is_err()
                    || rustix::thread::sched_setaffinity(None, &only).is_err()
                {
                    return;
                }
                while !ends.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
            this.threads.extend(thread);
        }
        this
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends() {
        let awake = Awake::begin();
        assert!(!awake.threads.is_empty());
        std::thread::sleep(std::time::Duration::from_millis(5));
        drop(awake);
    }
}
