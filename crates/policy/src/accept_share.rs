//! Which of several threads serves a new connection: the threads that share a listening socket, and
//! those that decide about the SYNs of intercepted connections.
//!
//! Threads with a socket each serve the connections that the kernel's hash gives them: one thread may
//! have a queue while another sleeps. With a shared socket, whichever thread is free accepts. But the
//! kernel wakes the same thread first each time, so sessions that last would gather there. A thread
//! with clearly more sessions than the mean of all therefore passes the connections that it accepts on to
//! another one.
//!
//! Which difference is clear depends on how long the sessions last. Where many end in each second, the
//! numbers fluctuate, a difference is soon over, and to pass a connection on and wake another thread costs more
//! than it brings. Where few end, they may be bulk transfers that have begun together, and each thread is to
//! get its share of them.
//!
//! SYNs arrive in the same way: any thread that is free reads them, often the same one. But here the
//! thread can name another one that is to accept the connection, at little cost. So a smaller
//! difference suffices.

use midspan_units::{Time, TimeSpan};

/// Sessions above the mean that are no reason to pass on an accepted connection, …
const SLACK: u64 = 2;
/// … the same where many sessions end, …
const SLACK_WITH_CHURN: u64 = 4;
/// … or one whose SYN the thread has read; …
const KEPT_SLACK: u64 = 1;
/// … and the same for both, as a part of the mean, as a divisor.
const PART: u64 = 8;

/// Many sessions of a thread end if their mean distance is at most this …
const CHURN_DISTANCE: TimeSpan = TimeSpan::from_milliseconds(10);
/// … in a period of at least this length.
const CHURN_PERIOD: TimeSpan = TimeSpan::from_milliseconds(100);

/// Whether many sessions of a thread end in each second.
#[derive(Debug, Clone, Copy, Default)]
pub struct Churn {
    /// When the present period began, and how many sessions had ended before.
    period: (Time, u64),
    /// The result of the last period.
    is_high: bool,
}

impl Churn {
    /// Until now, this many sessions have ended since the thread began.
    pub fn update(&mut self, ended: u64, now: Time) {
        let (began, before) = self.period;
        let elapsed = now.since(began);
        if elapsed < CHURN_PERIOD {
            return;
        }
        self.is_high = match ended.saturating_sub(before) {
            0 => false,
            count => elapsed / count <= CHURN_DISTANCE,
        };
        self.period = (now, ended);
    }

    const fn slack(self) -> u64 {
        match self.is_high {
            true => SLACK_WITH_CHURN,
            false => SLACK,
        }
    }
}

/// Whether a thread with this many sessions, connections that it is expected to serve included, keeps a connection
/// that it has accepted. `all` has the same numbers of each thread that shares the socket, this one included. At
/// least one of them keeps its connections at any time, because not all can have more than the mean.
#[must_use]
pub fn keeps_accepted(own: u64, all: impl IntoIterator<Item = u64>, churn: Churn) -> bool {
    is_near_mean(own, all, churn.slack())
}

/// The same for a connection whose SYN the thread has read.
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
    fn a_thread_with_more_than_the_mean_passes_connections_on() {
        let low = Churn::default();
        // The mean of 4 sessions and 0 is 2.
        assert!(keeps_accepted(4, [4, 0], low));
        assert!(!keeps_accepted(5, [5, 0], low));
        assert!(keeps_accepted(0, [5, 0], low));
        // An eighth above the mean of 1,000.
        assert!(keeps_accepted(1_125, [1_125, 875], low));
        assert!(!keeps_accepted(1_126, [1_126, 874], low));
        assert!(keeps_accepted(7, [7], low) && keeps_accepted(0, [], low));
    }

    #[test]
    fn a_difference_counts_less_where_many_sessions_end() {
        let at = |milliseconds| Time::ZERO + TimeSpan::from_milliseconds(milliseconds);
        let mut churn = Churn::default();
        churn.update(1_000, at(99));
        assert!(!keeps_accepted(5, [5, 0], churn));
        // 20 ms from one end to the next.
        churn.update(5, at(100));
        assert!(!keeps_accepted(5, [5, 0], churn));
        // 10 ms.
        churn.update(15, at(200));
        assert!(keeps_accepted(5, [5, 0], churn) && keeps_accepted(8, [8, 0], churn));
        assert!(!keeps_accepted(9, [9, 0], churn));
        // After a pause, the next period is the pause.
        churn.update(16, at(60_000));
        assert!(!keeps_accepted(5, [5, 0], churn));
        churn.update(16, at(60_100));
        assert!(!keeps_accepted(5, [5, 0], churn));
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
        fn one_thread_keeps_its_connections_at_any_time(
            all in proptest::collection::vec(any::<u64>(), 1..20),
            ended in 0_u64..1_000,
        ) {
            let mut churn = Churn::default();
            churn.update(ended, Time::ZERO + CHURN_PERIOD);
            prop_assert!(all.iter().any(|own| keeps_accepted(*own, all.iter().copied(), churn)));
            prop_assert!(all.iter().any(|own| keeps(*own, all.iter().copied())));
        }
    }
}
