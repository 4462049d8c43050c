//! Whether a node can be used as a next node, judged by its answers.
//!
//! A registry or a gossip could disagree with the data path. Only answers to this node itself count:
//! to hops and to exchanges of rows, on the leg that sessions use too.

use midspan_units::{Time, TimeSpan};

/// A node is suspect without an answer for this many intervals and two round trips more, …
const BEATS: u64 = 3;
/// … and down after this time more.
const DOWN: TimeSpan = TimeSpan::from_seconds(10);
/// A node that is new, or was down, is not used on its own account for this time: a node that has just
/// come up often answers quickly and loses much.
const PROBATION: TimeSpan = TimeSpan::from_seconds(30);
/// After a failed call, a node is suspect for this time, twice as long after each further one without a
/// success in between, up to this many doublings (80 s), and until it has answered again.
const PROOF: TimeSpan = TimeSpan::from_seconds(5);
const DOUBLINGS: u8 = 4;

/// The answers of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Liveness {
    heard: Option<Time>,
    /// Since when it has answered without a long pause.
    since: Option<Time>,
    /// The last failed call, and how many there were without a success in between.
    failed: Option<(Time, u8)>,
}

/// Whether a node can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It is used.
    Up,
    /// It has answered, but not for long enough.
    Probation,
    /// It has never answered.
    Unknown,
    /// A call has failed, or answers are missing.
    Suspect,
    /// It has been silent for long.
    Down,
}

impl Health {
    /// All of them, the best one first.
    pub const ALL: [Self; 5] = [
        Self::Up,
        Self::Probation,
        Self::Unknown,
        Self::Suspect,
        Self::Down,
    ];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Probation => "probation",
            Self::Unknown => "unknown",
            Self::Suspect => "suspect",
            Self::Down => "down",
        }
    }
}

/// How often a node is expected to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// The interval of the exchanges with it; `None` if there are none, as with a node that is no
    /// Midspan: its silence means nothing.
    pub interval: Option<TimeSpan>,
    /// The round trip to it, as far as it is known.
    pub round_trip: TimeSpan,
}

impl Rhythm {
    /// The longest silence of a node that is up.
    fn silence(&self) -> Option<TimeSpan> {
        Some(self.interval? * BEATS + self.round_trip * 2)
    }
}

impl Liveness {
    /// An answer of the node has arrived.
    pub fn heard(&mut self, now: Time, rhythm: Rhythm) {
        let was_long = |heard: Time| {
            let silence = rhythm.silence();
            silence.is_some_and(|silence| now.since(heard) > silence + DOWN)
        };
        if self.heard.is_none_or(was_long) {
            self.since = Some(now);
        }
        self.heard = Some(now);
    }

    /// A session was opened through it.
    pub fn succeeded(&mut self, now: Time, rhythm: Rhythm) {
        self.failed = None;
        self.heard(now, rhythm);
    }

    /// A call to it has failed.
    pub fn failed(&mut self, now: Time) {
        let count = self.failed.map_or(0, |(_, count)| count.saturating_add(1));
        self.failed = Some((now, count.min(DOUBLINGS)));
    }

    /// When it has last answered.
    #[must_use]
    pub const fn last_heard(&self) -> Option<Time> {
        self.heard
    }

    /// Whether it can be used.
    #[must_use]
    pub fn health(&self, now: Time, rhythm: Rhythm) -> Health {
        let Some(heard) = self.heard else {
            return match self.failed {
                Some(_) => Health::Down,
                None => Health::Unknown,
            };
        };
        let silent = now.since(heard);
        if let Some(silence) = rhythm.silence() {
            if silent > silence + DOWN {
                return Health::Down;
            }
            if silent > silence {
                return Health::Suspect;
            }
        }
        if let Some((failed, count)) = self.failed {
            let proof = PROOF * (1_u64 << count.min(DOUBLINGS));
            // Without exchanges, only another call can show that it is back.
            let is_heard = rhythm.interval.is_none() || heard > failed;
            if now < failed + proof || !is_heard {
                return Health::Suspect;
            }
        }
        match self.since {
            Some(since) if now.since(since) >= PROBATION => Health::Up,
            _ => Health::Probation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RHYTHM: Rhythm = Rhythm {
        interval: Some(TimeSpan::from_seconds(2)),
        round_trip: TimeSpan::from_milliseconds(500),
    };

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    /// It answers every two seconds in this time.
    fn heard(liveness: &mut Liveness, times: std::ops::RangeInclusive<u64>) {
        for second in times.step_by(2) {
            liveness.heard(at(second), RHYTHM);
        }
    }

    #[test]
    fn a_new_node_is_on_probation_and_a_silent_one_goes_down() {
        let mut node = Liveness::default();
        assert_eq!(node.health(at(0), RHYTHM), Health::Unknown);
        heard(&mut node, 0..=40);
        assert_eq!(node.health(at(40), RHYTHM), Health::Up);
        // Three intervals and two round trips: 7 s.
        assert_eq!(node.health(at(47), RHYTHM), Health::Up);
        assert_eq!(node.health(at(48), RHYTHM), Health::Suspect);
        assert_eq!(node.health(at(58), RHYTHM), Health::Down);
        // Back after a short silence: at once. After a long one: probation.
        let mut short = node;
        short.heard(at(50), RHYTHM);
        assert_eq!(short.health(at(50), RHYTHM), Health::Up);
        heard(&mut node, 60..=88);
        assert_eq!(node.health(at(89), RHYTHM), Health::Probation);
        heard(&mut node, 90..=90);
        assert_eq!(node.health(at(90), RHYTHM), Health::Up);
    }

    #[test]
    fn a_failed_call_makes_a_node_suspect_at_once() {
        let mut node = Liveness::default();
        heard(&mut node, 0..=60);
        node.failed(at(60));
        assert_eq!(node.health(at(60), RHYTHM), Health::Suspect);
        heard(&mut node, 62..=64);
        assert_eq!(node.health(at(64), RHYTHM), Health::Suspect);
        heard(&mut node, 66..=66);
        assert_eq!(node.health(at(66), RHYTHM), Health::Up);
        // Each further failure takes twice as long to disprove.
        node.failed(at(66));
        heard(&mut node, 68..=74);
        assert_eq!(node.health(at(74), RHYTHM), Health::Suspect);
        heard(&mut node, 76..=76);
        assert_eq!(node.health(at(76), RHYTHM), Health::Up);
        node.succeeded(at(76), RHYTHM);
        node.failed(at(77));
        heard(&mut node, 78..=82);
        assert_eq!(node.health(at(82), RHYTHM), Health::Up);
    }

    #[test]
    fn silence_of_a_node_without_exchanges_means_nothing() {
        let silent = Rhythm {
            interval: None,
            ..RHYTHM
        };
        let mut node = Liveness::default();
        node.succeeded(at(0), silent);
        assert_eq!(node.health(at(100_000), silent), Health::Up);
        node.failed(at(100_000));
        assert_eq!(node.health(at(100_004), silent), Health::Suspect);
        assert_eq!(node.health(at(100_005), silent), Health::Up);
        let mut never = Liveness::default();
        never.failed(at(0));
        assert_eq!(never.health(at(1_000), silent), Health::Down);
    }

    proptest! {
        #[test]
        fn a_node_that_is_not_heard_is_never_up(
            steps in proptest::collection::vec((0_u64..9, 0_u8..4), 0..80),
        ) {
            let (mut now, mut node, mut last) = (0, Liveness::default(), None);
            for (later, what) in steps {
                now += later;
                match what {
                    0 => node.failed(at(now)),
                    1 => node.succeeded(at(now), RHYTHM),
                    _ => node.heard(at(now), RHYTHM),
                }
                last = match what {
                    0 => last,
                    _ => Some(now),
                };
                if what == 0 {
                    prop_assert!(node.health(at(now), RHYTHM) > Health::Probation);
                }
                let later = node.health(at(now + 30), RHYTHM);
                prop_assert!(later > Health::Probation, "{:?} {:?}", last, later);
            }
        }
    }
}
