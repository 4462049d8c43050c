//! Threads that keep the processors busy while a run lasts.
//!
//! A virtual processor without work halts, and the host gives the real processor to others. When a
//! frame is due, tens of milliseconds may pass until the virtual processor runs again. A processor
//! that always has work returns at once, unless the host is short of processors. For this reason, one
//! thread for each processor runs without pause at the lowest priority (`SCHED_IDLE`). The thread
//! yields in each iteration, because a kernel with lazy preemption would otherwise leave it running
//! until the next tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use midspan_linux::{processors, scheduling};

/// While this lives, the processors do not halt.
#[derive(Debug, Default)]
pub struct Awake {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts the threads. If a thread cannot be started, its processor may halt.
    #[must_use]
    pub fn begin() -> Self {
        let mut this = Self::default();
        for processor in processors::allowed() {
            let ends = Arc::clone(&this.ends);
            let thread = std::thread::Builder::new().name(format!("awake {processor}"));
            let thread = thread.spawn(move || {
                // If the thread cannot get the lowest priority, it would delay others, so it ends.
                if scheduling::run_last().is_err() || processors::run_only_on(processor).is_err() {
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
