//! Which of the threads that share a listening socket accept from it.
//!
//! Threads with a socket each serve the connections that the kernel's hash gives them: one thread may
//! have a queue while another sleeps. With a shared socket, whichever thread is free accepts. But the
//! kernel wakes the same thread first each time, so sessions that last would gather there. A thread
//! with clearly more sessions than the mean of all therefore leaves connections to the others.

/// Sessions above the mean that are no reason to stop, …
const SLACK: u64 = 4;
/// … and the same as a part of the mean, as a divisor.
const PART: u64 = 8;

/// Whether a thread with this many sessions accepts more. `all` has the sessions of each thread that
/// shares the socket, this one included. At least one of them accepts at any time, because not all can
/// have more than the mean.
#[must_use]
pub fn accepts(own: u64, all: impl IntoIterator<Item = u64>) -> bool {
    let (mut sum, mut threads) = (0_u128, 0_u128);
    for sessions in all {
        sum += u128::from(sessions);
        threads += 1;
    }
    // Rounded down, so that the thread with the fewest sessions has no more than this.
    let mean = sum / threads.max(1);
    u128::from(own) <= mean + u128::from(SLACK).max(mean / u128::from(PART))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thread_with_more_than_the_mean_leaves_connections_to_the_others() {
        // The mean of 8 sessions and 0 is 4.
        assert!(accepts(8, [8, 0]));
        assert!(!accepts(9, [9, 0]));
        assert!(accepts(0, [9, 0]));
        // An eighth above the mean of 1,000.
        assert!(accepts(1_125, [1_125, 875]));
        assert!(!accepts(1_126, [1_126, 874]));
        assert!(accepts(7, [7]) && accepts(0, []));
    }

    proptest! {
        #[test]
        fn someone_accepts_at_any_time(all in proptest::collection::vec(any::<u64>(), 1..20)) {
            prop_assert!(all.iter().any(|own| accepts(*own, all.iter().copied())));
        }
    }
}
