//! The congestion control of a leg.
//!
//! CUBIC (RFC 9438) treats every loss as congestion. On a long path, a few losses that are not
//! congestion keep CUBIC far below the path's capacity, while BBR follows the delivery rate. On
//! short or clean legs, CUBIC shares more fairly with other traffic. So a leg begins with CUBIC, unless
//! earlier sessions found the path to this peer lossy: then it begins with BBR. A leg with CUBIC changes to BBR
//! in two cases: a long leg has lost segments while there was no queue, or a short leg keeps losing many
//! segments while there is no queue. The change waits for the end of recovery (`postponed_change.rs`). No leg
//! changes back: once a socket has used BBR, Linux continues to pace this socket under every congestion
//! control. If the machine has no BBR, the leg keeps CUBIC.

use midspan_units::{Time, TimeSpan};

use crate::LegSample;
use crate::loss_test::LossTest;
use crate::pacing::has_queue;
use crate::postponed_change::PostponedChange;

/// The value of `congestion_control` that leaves the choice to the policy.
pub const AUTOMATIC: &str = "auto";
/// The kernel's name of BBR.
pub const BBR: &str = "bbr";
/// The kernel's name of CUBIC.
pub const CUBIC: &str = "cubic";

/// A leg with a shorter round trip recovers from a few losses soon enough.
pub const LONG: TimeSpan = TimeSpan::from_milliseconds(40);
/// Short legs from this round trip on are read more often at first.
const WATCHED: TimeSpan = TimeSpan::from_milliseconds(1);
/// A leg with fewer segments carries requests only.
const CARRIES: u64 = 10;

/// Why a leg has its congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// The operator or the system chose it.
    #[default]
    Configured,
    /// So far, nothing has shown that another congestion control would do better.
    Default,
    /// This machine has no BBR to change to.
    OnlyChoice,
    /// The leg is long and loses segments while there is no queue.
    LongAndLossy,
    /// The leg is short and keeps losing many segments while there is no queue.
    Lossy,
    /// Earlier sessions found the path to this peer lossy.
    Learned,
}

impl Reason {
    /// The name that is written in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Default => "default",
            Self::OnlyChoice => "only_choice",
            Self::LongAndLossy => "long_and_lossy",
            Self::Lossy => "lossy",
            Self::Learned => "learned",
        }
    }
}

/// The congestion control of a leg, and why it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Its kernel name.
    pub name: &'static str,
    /// Why it was chosen.
    pub reason: Reason,
}

/// Chooses the congestion control of one leg of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CongestionControl {
    choice: Choice,
    retransmitted: u32,
    /// For a short leg.
    test: LossTest,
    /// A change that is decided, its reason, and when it is made.
    postponed: Option<(Reason, PostponedChange)>,
}

impl CongestionControl {
    /// The choice at the start. `has_bbr`: this machine offers BBR. `is_known_lossy`: earlier
    /// sessions found the path to this peer lossy.
    #[must_use]
    pub fn new(has_bbr: bool, is_known_lossy: bool) -> Self {
        let (name, reason) = match (has_bbr, is_known_lossy) {
            (false, _) => (CUBIC, Reason::OnlyChoice),
            (true, false) => (CUBIC, Reason::Default),
            (true, true) => (BBR, Reason::Learned),
        };
        Self {
            choice: Choice { name, reason },
            retransmitted: 0,
            test: LossTest::default(),
            postponed: None,
        }
    }

    /// The present choice.
    #[must_use]
    pub const fn choice(&self) -> Choice {
        self.choice
    }

    /// Whether this session or earlier ones found the leg lossy.
    #[must_use]
    pub const fn is_lossy(&self) -> bool {
        let reason = self.choice.reason;
        let lossy = matches!(
            reason,
            Reason::LongAndLossy | Reason::Lossy | Reason::Learned
        );
        lossy || self.is_postponed()
    }

    /// Whether a change is decided that waits for the end of recovery.
    #[must_use]
    pub const fn is_postponed(&self) -> bool {
        self.postponed.is_some()
    }

    /// Whether further losses of this leg, which is short, may change the choice. On a leg of less than a
    /// millisecond, recovery takes no time worth a reading.
    #[must_use]
    pub fn watches(&self, leg: &LegSample) -> bool {
        let least = leg.minimum_round_trip_time;
        let is_short = least.is_some_and(|least| (WATCHED..LONG).contains(&least));
        let carries = acknowledged(leg) + u64::from(leg.unacknowledged) >= CARRIES;
        is_short && carries && self.choice.reason == Reason::Default
    }

    /// Takes a reading of the leg; returns the new choice, if it changes.
    pub fn handle_sample(&mut self, now: Time, leg: &LegSample) -> Option<Choice> {
        if let Some((reason, change)) = self.postponed {
            return change.is_due(now, leg).then(|| self.change(reason));
        }
        let is_long = leg.minimum_round_trip_time? >= LONG;
        let reason = match is_long {
            true => Reason::LongAndLossy,
            false => Reason::Lossy,
        };
        let loses = match is_long {
            true => leg.segments_retransmitted != self.retransmitted && !has_queue(leg),
            false => self.goes_on_losing(leg),
        };
        self.retransmitted = leg.segments_retransmitted;
        if self.choice.reason != Reason::Default || !loses {
            return None;
        }
        let postponed = PostponedChange::begin(now, leg);
        self.postponed = postponed.map(|change| (reason, change));
        (!self.is_postponed()).then(|| self.change(reason))
    }

    /// Changes to BBR.
    fn change(&mut self, reason: Reason) -> Choice {
        self.postponed = None;
        self.choice = Choice { name: BBR, reason };
        self.choice
    }

    /// Whether a short leg keeps losing many segments while there is no queue.
    fn goes_on_losing(&mut self, leg: &LegSample) -> bool {
        let now = (acknowledged(leg), leg.segments_retransmitted);
        let window = leg.congestion_window;
        self.test.handle_reading(now, window, has_queue(leg))
    }
}

/// Segments that the peer has acknowledged.
fn acknowledged(leg: &LegSample) -> u64 {
    leg.bytes_acknowledged.bytes() / u64::from(leg.segment_size.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::ByteSize;

    fn leg(least: u64, time: u64, retransmitted: u32) -> LegSample {
        LegSample {
            minimum_round_trip_time: Some(TimeSpan::from_milliseconds(least)),
            round_trip_time: Some(TimeSpan::from_milliseconds(time)),
            segments_retransmitted: retransmitted,
            ..LegSample::default()
        }
    }

    #[test]
    fn bbr_is_for_long_legs_that_lose_without_a_queue() {
        let changed = |least, time, retransmitted| {
            let mut control = CongestionControl::new(true, false);
            assert_eq!(control.choice().name, CUBIC);
            let choice = control.handle_sample(Time::ZERO, &leg(least, time, retransmitted));
            choice.map(|choice| (choice.name, choice.reason))
        };
        let lossy = Some((BBR, Reason::LongAndLossy));
        assert_eq!(changed(600, 610, 1), lossy);
        assert_eq!(changed(600, 610, 0), None);
        // With a queue, the loss was congestion.
        assert_eq!(changed(600, 900, 5), None);
        assert_eq!(changed(20, 20, 5), None);
        assert_eq!(
            CongestionControl::new(true, false).handle_sample(Time::ZERO, &LegSample::default()),
            None
        );
    }

    #[test]
    fn a_change_waits_for_the_end_of_recovery_but_not_for_long() {
        let leg = |is_recovering| LegSample {
            is_recovering,
            ..leg(600, 610, 1)
        };
        let at = |milliseconds| Time::ZERO + TimeSpan::from_milliseconds(milliseconds);
        let mut control = CongestionControl::new(true, false);
        assert_eq!(control.handle_sample(at(0), &leg(true)), None);
        // The decision is made, even if the session ends now.
        assert!(control.is_postponed() && control.is_lossy());
        assert_eq!(control.choice().name, CUBIC);
        let mut stays = control;
        assert_eq!(control.handle_sample(at(100), &leg(true)), None);
        // Nothing more is lost, and a queue has built up.
        let over = LegSample {
            round_trip_time: Some(TimeSpan::from_milliseconds(900)),
            ..leg(false)
        };
        let choice = control.handle_sample(at(200), &over).unwrap();
        assert_eq!((choice.name, choice.reason), (BBR, Reason::LongAndLossy));
        assert!(!control.is_postponed());
        assert_eq!(control.handle_sample(at(300), &over), None);
        // Recovery does not end within two round trips.
        assert_eq!(stays.handle_sample(at(1_219), &leg(true)), None);
        assert_eq!(stays.handle_sample(at(1_220), &leg(true)), Some(choice));
    }

    /// The reason for which a short leg changes to BBR, if it does. Each reading has: segments
    /// delivered, segments lost (both since the reading before), and the round-trip time in ms.
    fn short(readings: &[(u64, u32, u64)]) -> Option<Reason> {
        let mut control = CongestionControl::new(true, false);
        let (mut delivered, mut lost) = (0, 0);
        readings.iter().find_map(|(more, again, time)| {
            delivered += more;
            lost += again;
            let leg = LegSample {
                segment_size: 1000,
                bytes_acknowledged: ByteSize::from_bytes(delivered * 1000),
                ..leg(4, *time, lost)
            };
            control
                .handle_sample(Time::ZERO, &leg)
                .map(|choice| choice.reason)
        })
    }

    #[test]
    fn a_short_leg_gets_bbr_where_it_goes_on_losing_without_a_queue() {
        let steady = [(70, 1, 5); 3];
        assert_eq!(short(&steady), Some(Reason::Lossy));
        assert_eq!(short(&steady[..2]), None);
        // A queue in between hides losses, and does not undo what was seen.
        let hidden = [(70, 1, 5), (70, 1, 5), (70, 9, 9), (70, 9, 9)];
        assert_eq!(short(&hidden), None);
        assert_eq!(
            short(&[&hidden[..], &[(70, 1, 5)]].concat()),
            Some(Reason::Lossy)
        );
    }

    #[test]
    fn short_legs_that_carry_data_are_watched_until_they_change() {
        let leg = |least, acknowledged: u64| LegSample {
            segment_size: 1000,
            bytes_acknowledged: ByteSize::from_bytes(acknowledged * 1000),
            ..leg(least, least, 0)
        };
        let control = CongestionControl::new(true, false);
        let watched = |least, acknowledged| control.watches(&leg(least, acknowledged));
        assert!(watched(1, 10) && watched(39, 10));
        assert!(!watched(0, 10) && !watched(40, 10) && !watched(4, 9));
        assert!(!CongestionControl::new(true, true).watches(&leg(4, 10)));
        assert!(!CongestionControl::new(false, false).watches(&leg(4, 10)));
    }

    #[test]
    fn each_loss_is_judged_once_and_the_change_is_for_good() {
        let mut control = CongestionControl::new(true, false);
        assert_eq!(control.handle_sample(Time::ZERO, &leg(600, 900, 5)), None);
        // The queue is gone, and nothing more was lost.
        assert_eq!(control.handle_sample(Time::ZERO, &leg(600, 600, 5)), None);
        assert!(
            control
                .handle_sample(Time::ZERO, &leg(600, 600, 6))
                .is_some()
        );
        assert!(control.is_lossy());
        assert_eq!(control.handle_sample(Time::ZERO, &leg(600, 900, 9)), None);
        assert_eq!(control.choice().name, BBR);
    }

    #[test]
    fn what_is_known_or_missing_decides_at_the_start() {
        let learned = CongestionControl::new(true, true).choice();
        assert_eq!((learned.name, learned.reason), (BBR, Reason::Learned));
        let mut control = CongestionControl::new(false, true);
        assert_eq!(control.choice().reason, Reason::OnlyChoice);
        assert_eq!(control.handle_sample(Time::ZERO, &leg(600, 600, 3)), None);
    }
}
