//! The processors on which threads may run (`sched_setaffinity(2)`).

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors on which the calling thread may run, in ascending order. Empty if the kernel has more
/// processors than `CpuSet` has places.
#[must_use]
pub fn allowed() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let all = 0..CpuSet::MAX_CPU;
    all.filter(|processor| allowed.is_set(*processor)).collect()
}

/// Lets the calling thread run on this processor only.
///
/// # Errors
/// Those of `sched_setaffinity(2)`: the machine has no such processor, or the process may not use it.
pub fn run_only_on(processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(sched_setaffinity(None, &only)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_is_put() {
        let before = allowed();
        let last = *before.last().unwrap();
        let inside = std::thread::spawn(move || {
            run_only_on(last).unwrap();
            allowed()
        });
        assert_eq!(inside.join().unwrap(), [last]);
        // Other threads are not changed.
        assert_eq!(allowed(), before);
        assert!(run_only_on(usize::MAX).is_err());
    }
}
