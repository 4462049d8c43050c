//! Threads of the relay that make no progress, as the relay and the helper name them.

use std::fmt;
use std::time::Duration;

use midspan_service::liveness::Watch;
use serde::{Deserialize, Serialize};

/// A watched thread of the relay, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadName(pub usize);

impl fmt::Display for ThreadName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "relay {}", self.0)
    }
}

/// A thread that is late or stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LateThread {
    pub thread: ThreadName,
    /// Milliseconds since its last turn.
    pub still_milliseconds: u64,
    pub is_stuck: bool,
}

impl fmt::Display for LateThread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, how) = (self.thread, if self.is_stuck { "stuck" } else { "late" });
        let time = Duration::from_millis(self.still_milliseconds).as_secs_f64();
        write!(formatter, "thread {name} is {how}: no turn for {time:.1} s")
    }
}

impl LateThread {
    /// The thread that is watched, if it is late or stuck.
    pub fn of(thread: ThreadName, watch: &Watch) -> Option<Self> {
        watch.is_late().then(|| Self {
            thread,
            still_milliseconds: u64::try_from(watch.still().as_millis()).unwrap_or(u64::MAX),
            is_stuck: watch.is_stuck(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_service::liveness::Absence;
    use std::time::Instant;

    #[test]
    fn a_late_thread_has_a_name_and_a_time() {
        let pause = Duration::from_millis(350);
        let mut now = Instant::now();
        let limit = Duration::from_secs(3);
        let mut watch = Watch::of_beating(now, pause, limit, Absence::Restarts);
        let mut look = |times| {
            for _ in 0..times {
                now += pause;
                watch.look(now, 0);
            }
            LateThread::of(ThreadName(0), &watch)
        };
        assert_eq!(look(2), None);
        let late = look(1).unwrap();
        assert!(!late.is_stuck && late.still_milliseconds == 1050);
        assert_eq!(
            late.to_string(),
            "thread relay 0 is late: no turn for 1.1 s"
        );
        let stuck = look(6).unwrap();
        assert!(stuck.is_stuck);
        let name = ThreadName(2);
        assert_eq!(
            LateThread {
                thread: name,
                ..stuck
            }
            .to_string(),
            "thread relay 2 is stuck: no turn for 3.1 s"
        );
    }
}
