//! The properties of a link that may change, how they change over time, and the position of a link
//! in its schedule.

use midspan_units::{BitRate, Probability, Time, TimeSpan};

/// The properties of a direction that may change over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// Rate at which packets are sent; `None` for no limit.
    pub rate: Option<BitRate>,
    /// Propagation delay.
    pub delay: TimeSpan,
    /// Probability that a packet is lost; independent for each packet.
    pub loss: Probability,
}

/// How a direction changes over time, for example by hand-overs or fading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// The changes, in order of time.
    pub steps: Vec<Step>,
    /// Start again from the first step after this time; it must be later than the last step.
    pub repeat: Option<TimeSpan>,
}

/// One change. `None`: no change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// The time since the start of the run (or of the repetition).
    pub at: TimeSpan,
    /// The new rate.
    pub rate: Option<BitRate>,
    /// The new propagation delay. Packets never overtake each other.
    pub delay: Option<TimeSpan>,
    /// The new probability of loss.
    pub loss: Option<Probability>,
}

/// A shorter repetition is certainly a mistake, and would only cost time.
const SHORTEST_REPETITION: TimeSpan = TimeSpan::from_milliseconds(1);

/// An error in a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Two steps are not in order of time.
    #[error(
        "step {number} of the schedule is at {at}, before the step at {before}: put the steps in \
         order of time"
    )]
    OutOfOrder {
        /// Number of the step, counted from 1.
        number: usize,
        /// Its time.
        at: TimeSpan,
        /// The time of the step before it.
        before: TimeSpan,
    },
    /// The repetition begins before the last step.
    #[error(
        "the schedule repeats after {repeat}, but its last step is at {last}: repeat later than \
         that"
    )]
    RepeatsTooEarly {
        /// When the schedule repeats.
        repeat: TimeSpan,
        /// The time of its last step.
        last: TimeSpan,
    },
    /// The schedule repeats too often.
    #[error(
        "the schedule repeats after {repeat}: the shortest repetition is {SHORTEST_REPETITION}"
    )]
    RepeatsTooOften {
        /// When the schedule repeats.
        repeat: TimeSpan,
    },
}

impl Schedule {
    /// Checks that the steps are in order, and that the repetition begins after the last step and
    /// 1 ms after the start at the earliest.
    ///
    /// Two steps may have the same time: the later one in the list takes precedence.
    ///
    /// # Errors
    /// The first error that is found.
    pub fn check(&self) -> Result<(), ScheduleError> {
        for (index, pair) in self.steps.windows(2).enumerate() {
            if pair[1].at < pair[0].at {
                return Err(ScheduleError::OutOfOrder {
                    number: index + 2,
                    at: pair[1].at,
                    before: pair[0].at,
                });
            }
        }
        let (Some(repeat), Some(last)) = (self.repeat, self.steps.last()) else {
            return Ok(());
        };
        if repeat <= last.at {
            return Err(ScheduleError::RepeatsTooEarly {
                repeat,
                last: last.at,
            });
        }
        if repeat < SHORTEST_REPETITION {
            return Err(ScheduleError::RepeatsTooOften { repeat });
        }
        Ok(())
    }
}

impl State {
    /// The state after a step.
    fn after(self, step: &Step) -> Self {
        Self {
            rate: step.rate.or(self.rate),
            delay: step.delay.unwrap_or(self.delay),
            loss: step.loss.unwrap_or(self.loss),
        }
    }
}

impl Schedule {
    /// The state at this time after the start of the run, if it is `start` before the first step.
    #[must_use]
    pub fn state_at(&self, start: State, time: TimeSpan) -> State {
        let (mut state, mut time) = (start, time);
        if let Some(repeat) = self.repeat.filter(|repeat| time >= *repeat) {
            // Each repetition ends in the same state as the one before it.
            state = self.steps.iter().fold(state, State::after);
            let over = time.nanoseconds() % repeat.nanoseconds().max(1);
            time = TimeSpan::from_nanoseconds(over);
        }
        let steps = self.steps.iter().take_while(|step| step.at <= time);
        steps.fold(state, State::after)
    }
}

/// Runs through a schedule, one step after the other.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    steps: Vec<Step>,
    repeat: Option<TimeSpan>,
    next: usize,
    /// When the current repetition began.
    repetition: Time,
}

impl Timeline {
    pub(crate) fn new(schedule: Schedule) -> Result<Self, ScheduleError> {
        schedule.check()?;
        Ok(Self {
            steps: schedule.steps,
            repeat: schedule.repeat,
            next: 0,
            repetition: Time::ZERO,
        })
    }

    /// When the next step is due.
    pub(crate) fn next_change(&self) -> Option<Time> {
        self.steps
            .get(self.next)
            .map(|step| self.repetition + step.at)
    }

    /// Removes the next step, if it is due by `now`.
    pub(crate) fn take(&mut self, now: Time) -> Option<(Time, Step)> {
        let at = self.next_change().filter(|at| *at <= now)?;
        let step = *self.steps.get(self.next)?;
        self.next += 1;
        if self.next == self.steps.len()
            && let Some(repeat) = self.repeat
        {
            let repetition = self.repetition + repeat;
            // At the end of time, where addition saturates, there is no further repetition.
            if repetition.since(self.repetition) == repeat {
                self.repetition = repetition;
                self.next = 0;
            }
        }
        Some((at, step))
    }

    /// Skips the whole repetitions until `now`, for a link on which nothing happens before `now`.
    ///
    /// Each repetition ends in the same state as the one before it, so skipping all repetitions
    /// except the first makes no difference.
    pub(crate) fn skip_repetitions(&mut self, now: Time) {
        if self.next == 0
            && self.repetition > Time::ZERO
            && let Some(repeat) = self.repeat
        {
            let whole = now.since(self.repetition).nanoseconds() / repeat.nanoseconds().max(1);
            self.repetition += repeat * whole;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(steps: &[u64], repeat: Option<u64>) -> Schedule {
        Schedule {
            steps: steps
                .iter()
                .map(|at| Step {
                    at: TimeSpan::from_milliseconds(*at),
                    ..Step::default()
                })
                .collect(),
            repeat: repeat.map(TimeSpan::from_milliseconds),
        }
    }

    fn times(timeline: &mut Timeline, until: u64) -> Vec<u64> {
        let until = Time::from_nanoseconds(until * 1_000_000);
        std::iter::from_fn(|| timeline.take(until))
            .map(|(at, _)| at.nanoseconds() / 1_000_000)
            .collect()
    }

    #[test]
    fn steps_come_once_without_a_repetition() {
        let mut timeline = Timeline::new(schedule(&[0, 10, 10, 30], None)).unwrap();
        assert_eq!(times(&mut timeline, 9), [0]);
        assert_eq!(times(&mut timeline, 10), [10, 10]);
        assert_eq!(times(&mut timeline, 1000), [30]);
        assert_eq!(timeline.next_change(), None);
    }

    #[test]
    fn steps_come_again_after_the_repetition() {
        let mut timeline = Timeline::new(schedule(&[5, 20], Some(50))).unwrap();
        assert_eq!(times(&mut timeline, 125), [5, 20, 55, 70, 105, 120]);
        assert_eq!(
            timeline.next_change(),
            Some(Time::from_nanoseconds(155_000_000))
        );
    }

    #[test]
    fn whole_repetitions_are_skipped_only_after_the_first() {
        let mut timeline = Timeline::new(schedule(&[5, 20], Some(50))).unwrap();
        let late = Time::from_nanoseconds(1_010_000_000);
        timeline.skip_repetitions(late);
        assert_eq!(times(&mut timeline, 20), [5, 20]);
        timeline.skip_repetitions(late);
        assert_eq!(times(&mut timeline, 1010), [1005]);
        timeline.skip_repetitions(late);
        assert_eq!(times(&mut timeline, 1060), [1020, 1055]);
    }

    #[test]
    fn the_state_at_a_time_is_that_of_the_steps_before() {
        let ms = TimeSpan::from_milliseconds;
        let start = State {
            delay: ms(1),
            ..State::default()
        };
        let mut schedule = schedule(&[5, 20], Some(50));
        schedule.steps[0].delay = Some(ms(7));
        schedule.steps[1].loss = Some(Probability::ONE);
        let of = |schedule: &Schedule, time| {
            let state = schedule.state_at(start, ms(time));
            (state.delay, state.loss == Probability::ONE)
        };
        let at = |time| of(&schedule, time);
        assert_eq!(at(4), (ms(1), false));
        assert_eq!(at(5), (ms(7), false));
        assert_eq!(at(49), (ms(7), true));
        // What no step changes stays over the repetition.
        assert_eq!(at(50), (ms(7), true));
        assert_eq!(at(1_000_006), (ms(7), true));
        let once = Schedule {
            repeat: None,
            ..schedule.clone()
        };
        assert_eq!(of(&once, 1_000_000), (ms(7), true));
    }

    #[test]
    fn the_end_of_time_ends_the_schedule() {
        let end = Time::from_nanoseconds(u64::MAX);
        let mut timeline = Timeline::new(schedule(&[0, 5], Some(50))).unwrap();
        let mut taken = 0;
        loop {
            timeline.skip_repetitions(end);
            if timeline.take(end).is_none() {
                break;
            }
            taken += 1;
            assert!(taken < 10, "the schedule does not end");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let error =
            |steps: &[u64], repeat| schedule(steps, repeat).check().unwrap_err().to_string();
        assert_eq!(
            error(&[10, 30, 20], None),
            "step 3 of the schedule is at 20 ms, before the step at 30 ms: put the steps in order \
             of time"
        );
        assert_eq!(
            error(&[10, 30], Some(30)),
            "the schedule repeats after 30 ms, but its last step is at 30 ms: repeat later than \
             that"
        );
        let mut often = schedule(&[0], None);
        often.repeat = Some(TimeSpan::from_nanoseconds(1));
        assert_eq!(
            often.check().unwrap_err().to_string(),
            "the schedule repeats after 1 ns: the shortest repetition is 1 ms"
        );
        assert_eq!(schedule(&[], Some(0)).check(), Ok(()));
    }
}
