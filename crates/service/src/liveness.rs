//! Whether threads and processes make progress: one rule for all code that watches over others.
//!
//! A watched thread or process counts its turns. Either it is woken from outside, or it wakes by itself. It
//! is *late* if it made no turn for a second although it was woken, and *stuck* if it made none for the
//! limit. If a watcher finds a thread stuck, it makes two more checks before it acts.
//!
//! When the watcher itself did not run, for example on a machine that swaps, in a frozen cgroup, or after
//! `kill -STOP` of all processes, the watched thread probably did not run either, and is not at fault. A gap
//! between two checks therefore counts as one pause at most, or sets the counted time to zero ([`Absence`]).
//!
//! Pure: the caller passes the time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Without a sign of life for this long, new traffic passes the process, which sends several signs of
/// life in this time.
pub const PASS_AFTER: Duration = Duration::from_millis(600);
/// After this time without a turn, a thread is late.
const LATE_AFTER: Duration = Duration::from_secs(1);
/// If a check is later than planned by this much, the watcher itself did not run.
const AWAY: Duration = Duration::from_millis(500);

/// Number of pauses between finding a thread stuck and acting.
const LAST_PAUSES: u32 = 2;

/// What happens to the counted time if the watcher itself did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It starts again at zero: for decisions that end sessions.
    Restarts,
    /// It grows by one pause: for decisions that cost little and must not wait for a busy watcher.
    Pauses,
}

/// Only stuck threads of this time count together.
const REPLACEMENT_TIME: Duration = Duration::from_secs(600);
/// A fault that recurs more often lies not in single connections, but perhaps in the state of the process.
const MOST_OF_A_PROCESS: usize = 2;
/// A thread that is stuck more often after all, because no other process takes over, may keep every processor busy.
const MOST_REPLACEMENTS: usize = 5;

/// What happens to a stuck thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Another thread replaces it.
    Replace,
    /// The same, and a new process takes over.
    Renew,
    /// Its process ends.
    End,
}

/// The threads that were stuck.
#[derive(Debug, Clone, Default)]
pub struct StuckThreads(VecDeque<Instant>);

impl StuckThreads {
    /// A thread is stuck. From the third one in ten minutes on, a new process takes over; with the sixth one, the
    /// process ends.
    pub fn remedy(&mut self, now: Instant) -> Remedy {
        let is_old = |then: &Instant| now.saturating_duration_since(*then) >= REPLACEMENT_TIME;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        let before = self.0.len();
        if before >= MOST_REPLACEMENTS {
            return Remedy::End;
        }
        self.0.push_back(now);
        match before < MOST_OF_A_PROCESS {
            true => Remedy::Replace,
            false => Remedy::Renew,
        }
    }
}

/// Watches over one thread or process.
#[derive(Debug, Clone)]
pub struct Watch {
    limit: Duration,
    pause: Duration,
    absence: Absence,
    last_look: Instant,
    turns: u64,
    is_woken: bool,
    still: Duration,
    /// Whether the last check found it stuck.
    is_stuck: bool,
    must_end: bool,
}

impl Watch {
    /// A watch of a thread that is woken from outside: only time after
    /// [`note_woken`](Self::note_woken) counts. The watcher plans a check every `pause`.
    pub fn of_woken(now: Instant, pause: Duration, limit: Duration) -> Self {
        Self {
            limit,
            pause,
            absence: Absence::Restarts,
            last_look: now,
            turns: 0,
            is_woken: false,
            still: Duration::ZERO,
            is_stuck: false,
            must_end: false,
        }
    }

    /// A watch of a thread or process that wakes by itself.
    pub fn of_beating(now: Instant, pause: Duration, limit: Duration, absence: Absence) -> Self {
        Self {
            absence,
            is_woken: true,
            ..Self::of_woken(now, pause, limit)
        }
    }

    /// The watcher plans a check at another interval from now on.
    pub const fn set_pause(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Sets another limit.
    pub const fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// When the next check is due.
    pub fn next(&self) -> Instant {
        self.last_look + self.pause
    }

    /// Checks the number of turns. A thread that wakes by itself always counts as woken.
    pub fn look(&mut self, now: Instant, turns: u64) {
        let gap = now.saturating_duration_since(self.last_look);
        self.last_look = now;
        if turns != self.turns {
            self.turns = turns;
            self.still = Duration::ZERO;
        } else if gap > self.pause + AWAY && self.absence == Absence::Restarts {
            self.still = Duration::ZERO;
        } else if self.is_woken {
            self.still += gap.min(self.pause);
        }
        let is_stuck = self.still >= self.limit;
        // For a moment a thread may be found stuck and then continue.
        let is_over = self.still >= self.limit + LAST_PAUSES * self.pause;
        self.must_end = is_over && self.is_stuck;
        self.is_stuck = is_stuck;
    }

    /// Checks a thread that waits for events, and none has arrived: it is well, whether or not it has made a turn.
    pub const fn look_at_waiting(&mut self, now: Instant, turns: u64) {
        self.last_look = now;
        self.turns = turns;
        self.still = Duration::ZERO;
        self.is_stuck = false;
        self.must_end = false;
    }

    /// The thread has been woken after the last check.
    pub const fn note_woken(&mut self) {
        self.is_woken = true;
    }

    /// The counted time without a turn.
    pub const fn still(&self) -> Duration {
        self.still
    }

    /// Whether there was no turn for the limit.
    pub const fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Whether it was found stuck, and still was after two more pauses.
    pub const fn must_end(&self) -> bool {
        self.must_end
    }

    /// Whether it has made no turn for a second, or is stuck.
    pub fn is_late(&self) -> bool {
        self.still >= LATE_AFTER || self.is_stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(150);
    const LIMIT: Duration = Duration::from_secs(3);

    /// A watch in virtual time.
    struct Scene {
        watch: Watch,
        now: Instant,
        turns: u64,
    }

    impl Scene {
        fn new(watch: impl FnOnce(Instant) -> Watch) -> Self {
            let now = Instant::now();
            let watch = watch(now);
            Self {
                watch,
                now,
                turns: 0,
            }
        }

        fn beating(absence: Absence) -> Self {
            Self::new(|now| Watch::of_beating(now, PAUSE, LIMIT, absence))
        }

        fn look_after(&mut self, time: Duration) {
            self.now += time;
            self.watch.look(self.now, self.turns);
        }

        /// Makes checks on time, without a turn, until the thread must end; returns how long that
        /// took.
        fn time_to_end(&mut self) -> Duration {
            let start = self.now;
            while !self.watch.must_end() {
                self.look_after(PAUSE);
                assert!(self.now - start < 10 * LIMIT);
            }
            self.now - start
        }
    }

    #[test]
    fn whoever_makes_no_turn_for_the_limit_must_end_soon_after() {
        let mut scene = Scene::beating(Absence::Restarts);
        let time = scene.time_to_end();
        assert_eq!(time, LIMIT + 2 * PAUSE);
        // A turn at the last moment is in time.
        scene.turns += 1;
        scene.look_after(PAUSE);
        assert!(!scene.watch.is_stuck() && !scene.watch.must_end());
        assert_eq!(scene.watch.still(), Duration::ZERO);
    }

    #[test]
    fn a_new_process_takes_over_with_the_third_stuck_thread_in_ten_minutes() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut stuck = StuckThreads::default();
        let remedies = |stuck: &mut StuckThreads, times: &[u64]| -> Vec<Remedy> {
            times.iter().map(|time| stuck.remedy(at(*time))).collect()
        };
        use Remedy::{End, Renew, Replace};
        assert_eq!(
            remedies(&mut stuck, &[0, 300, 599, 600, 899, 1100]),
            [Replace, Replace, Renew, Renew, Renew, Renew]
        );
        // The fifth and the sixth in ten minutes.
        assert_eq!(remedies(&mut stuck, &[1190, 1195]), [Renew, End]);
        assert_eq!(remedies(&mut stuck, &[1900]), [Replace]);
        // One each five minutes has no end.
        let mut stuck = StuckThreads::default();
        assert!((0..1000).all(|number| stuck.remedy(at(300 * number)) == Replace));
        assert!(stuck.0.len() <= MOST_REPLACEMENTS);
    }

    #[test]
    fn late_comes_before_stuck() {
        let mut scene = Scene::beating(Absence::Restarts);
        for _ in 0..6 {
            scene.look_after(PAUSE);
            assert!(!scene.watch.is_late());
        }
        scene.look_after(PAUSE);
        assert!(scene.watch.is_late() && !scene.watch.is_stuck());
        assert_eq!(scene.watch.still(), Duration::from_millis(1050));
        scene.time_to_end();
        assert!(scene.watch.is_late() && scene.watch.is_stuck());
    }

    #[test]
    fn the_absence_of_the_watcher_never_counts() {
        for away in [Duration::from_secs(1), Duration::from_secs(5), 100 * LIMIT] {
            let mut scene = Scene::beating(Absence::Restarts);
            for _ in 0..100 {
                // Almost stuck; then both are stopped.
                for _ in 0..18 {
                    scene.look_after(PAUSE);
                }
                scene.look_after(away);
                assert!(!scene.watch.is_stuck(), "{away:?}");
                assert_eq!(scene.watch.still(), Duration::ZERO);
            }
            // The time starts again at zero.
            assert!(scene.time_to_end() >= LIMIT);
        }
    }

    #[test]
    fn a_stop_between_the_two_looks_is_an_absence_too() {
        let mut scene = Scene::beating(Absence::Restarts);
        while !scene.watch.is_stuck() {
            scene.look_after(PAUSE);
        }
        scene.look_after(Duration::from_secs(5));
        assert!(!scene.watch.must_end() && !scene.watch.is_stuck());
    }

    #[test]
    fn a_watcher_that_is_busy_passes_all_the_same() {
        let mut scene = Scene::beating(Absence::Pauses);
        let mut looks = 0;
        while !scene.watch.is_stuck() {
            scene.look_after(Duration::from_secs(1));
            looks += 1;
        }
        // One pause for each check.
        assert_eq!(looks, 20);
    }

    #[test]
    fn whoever_sleeps_and_was_not_woken_is_well() {
        let mut scene = Scene::new(|now| Watch::of_woken(now, PAUSE, LIMIT));
        for _ in 0..100 {
            scene.look_after(PAUSE);
        }
        assert_eq!(scene.watch.still(), Duration::ZERO);
        scene.watch.note_woken();
        assert!(scene.time_to_end() >= LIMIT);
    }

    #[test]
    fn whoever_waits_for_events_is_well() {
        let mut scene = Scene::beating(Absence::Restarts);
        while !scene.watch.is_stuck() {
            scene.look_after(PAUSE);
        }
        scene.watch.look_at_waiting(scene.now, scene.turns);
        assert!(!scene.watch.is_stuck() && !scene.watch.is_late());
        // The time starts again at zero.
        assert_eq!(scene.time_to_end(), LIMIT + 2 * PAUSE);
    }

    #[test]
    fn looks_that_come_early_count_what_has_passed() {
        let mut scene = Scene::beating(Absence::Restarts);
        for _ in 0..2_999 {
            scene.look_after(Duration::from_millis(1));
        }
        assert!(!scene.watch.is_stuck());
        scene.look_after(Duration::from_millis(1));
        assert!(scene.watch.is_stuck() && !scene.watch.must_end());
    }
}
