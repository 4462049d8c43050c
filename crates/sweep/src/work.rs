//! Many runs on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Calls `work` for each number below `count` on `threads` threads (at least one). Returns the results
/// in the order of the numbers, which does not depend on `threads`. After each call that succeeds,
/// `done` is called with the number, from the calling thread, in any order. After an error, no further
/// call of `work` begins.
///
/// # Errors
/// The error with the lowest number.
pub fn in_parallel<T: Send, E: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
    mut done: impl FnMut(usize),
) -> Result<Vec<T>, E> {
    in_parallel_each(count, threads, work, |index, _| {
        done(index);
        Ok(())
    })
}

/// As [`in_parallel`]. `each` gets every result as soon as it is there, from the calling thread, in
/// any order: to store it, for example.
///
/// # Errors
/// The first error of `each`; else the error of `work` with the lowest number.
pub fn in_parallel_each<T: Send, E: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
    mut each: impl FnMut(usize, &T) -> Result<(), E>,
) -> Result<Vec<T>, E> {
    let mut refused = Ok(());
    let next = AtomicUsize::new(0);
    let mut slots: Vec<Option<Result<T, E>>> = Vec::new();
    slots.resize_with(count, || None);
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..threads.clamp(1, count.max(1)) {
            let sender = sender.clone();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                // Numbers are assigned in order, so all numbers below a failed one are processed
                // too.
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let result = work(index);
                    if result.is_err() {
                        next.store(count, Ordering::Relaxed);
                    }
                    if sender.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in results {
            if let (Ok(result), Ok(())) = (&result, &refused) {
                refused = each(index, result);
                if refused.is_err() {
                    next.store(count, Ordering::Relaxed);
                }
            }
            if let Some(slot) = slots.get_mut(index) {
                *slot = Some(result);
            }
        }
    });
    refused?;
    slots.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_for_any_number_of_threads() {
        for threads in [0, 1, 3, 50] {
            let mut done = 0;
            let squares = in_parallel(20, threads, |n| Ok::<_, ()>(n * n), |_| done += 1);
            assert_eq!(squares.unwrap(), (0..20).map(|n| n * n).collect::<Vec<_>>());
            assert_eq!(done, 20);
        }
        assert_eq!(in_parallel(0, 4, Ok::<usize, ()>, |_| ()), Ok(vec![]));
    }

    #[test]
    fn the_first_error_is_returned() {
        for threads in [1, 4] {
            let result = in_parallel(
                1000,
                threads,
                |n| if n >= 5 { Err(n) } else { Ok(n) },
                |_| (),
            );
            assert_eq!(result, Err(5));
        }
    }

    #[test]
    fn a_result_that_cannot_be_stored_ends_the_work() {
        let mut stored = Vec::new();
        let result = in_parallel_each(1000, 1, Ok, |index, result: &usize| {
            assert_eq!(index, *result);
            if index == 3 {
                return Err("the disk is full");
            }
            stored.push(index);
            Ok(())
        });
        assert_eq!(result, Err("the disk is full"));
        assert_eq!(stored, [0, 1, 2]);
    }
}
