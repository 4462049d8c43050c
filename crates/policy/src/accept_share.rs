//! Which of several threads serves a new connection: the threads that share a listening socket, and
//! those that decide about the SYNs of intercepted connections.
//!
//! Threads with a socket each serve the connections that the kernel's hash gives them: one thread may
//! have a queue while another sleeps. With a shared socket, whichever thread is free accepts. But the
//! kernel wakes the same thread first each time, so sessions that last would gather there. A thread
//! with clearly more sessions than the mean of all therefore leaves connections to the others.
//!
//! SYNs arrive in the same way: any thread that is free reads them, often the same one. But here the
//! thread can name another one that is to accept the connection, at little cost. So a smaller
//! difference suffices, and a few bulk transfers that begin together use all threads.

/// Sessions above the mean that are no reason to leave a shared socket to the others, …
const SLACK: u64 = 4;
/// … or to pass on a connection whose SYN the thread has read; …
const KEPT_SLACK: u64 = 1;
/// … and the same for both, as a part of the mean, as a divisor.
const PART: u64 = 8;

/// Whether a thread with this many sessions accepts more. `all` has the sessions of each thread that
/// shares the socket, this one included. At least one of them accepts at any time, because not all can
/// have more than the mean.
#[must_use]
pub fn accepts(own: u64, all: impl IntoIterator<Item = u64>) -> bool {
    is_near_mean(own, all, SLACK)
}

/// Whether a thread with this many sessions, connections that it is expected to accept included, keeps a
/// connection whose SYN it has read. `all` has the same numbers of all threads. At least one of them
/// keeps its connections at any time.
#[must_use]
pub fn keeps(own: u64, all: impl IntoIterator<Item = u64>) -> bool {
    is_near_mean(own, all, KEPT_SLACK)
}

fn is_near_mean(own: u64, all: impl IntoIterator<Item = u64>, slack: u64) -> bool {
    let (mut sum, mut threads) = (0_u128, 0_u128);
    for sessions in all {
        sum += u128::from(sessions);
        threads += 1;
    }
    // Rounded down, so that the thread with the fewest sessions has no more than this.
    let mean = sum / threads.max(1);
    u128::from(own) <= mean + u128::from(slack).max(mean / u128::from(PART))
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

    #[test]
    fn connections_whose_syns_one_thread_reads_are_shared_evenly() {
        let mut sessions = [0_u64; 2];
        for _ in 0..16 {
            match keeps(sessions[0], sessions) {
                true => sessions[0] += 1,
                false => sessions[1] += 1,
            }
        }
        assert!(sessions[0] <= 10, "{sessions:?}");
        assert!(keeps(1_125, [1_125, 875]) && !keeps(1_126, [1_126, 874]));
    }

    proptest! {
        #[test]
        fn someone_accepts_at_any_time(all in proptest::collection::vec(any::<u64>(), 1..20)) {
            prop_assert!(all.iter().any(|own| accepts(*own, all.iter().copied())));
            prop_assert!(all.iter().any(|own| keeps(*own, all.iter().copied())));
        }
    }
}
