//! Which congestion control a leg is sent with.
//!
//! CUBIC (RFC 9438) takes every loss for congestion, so that on a long path a few losses that are
//! none keep it far below what the path carries; BBR goes by the delivery rate. On short or clean
//! legs CUBIC shares more fairly with others. So a leg begins with CUBIC, and changes to BBR when
//! it is long and has lost segments though no queue had built up, or when earlier sessions with
//! the same peer found that out. It never changes back: Linux goes on pacing a socket that was
//! BBR once, whatever it is changed to.

use midspan_units::TimeSpan;

use crate::LegSample;
use crate::pacing::has_queue;

/// As an operator writes that the choice is the policy's.
pub const AUTOMATIC: &str = "auto";
/// The kernel's name of BBR.
pub const BBR: &str = "bbr";
/// The kernel's name of CUBIC.
pub const CUBIC: &str = "cubic";

/// A leg with a shorter round trip recovers from a loss soon enough.
pub const LONG: TimeSpan = TimeSpan::from_milliseconds(40);

/// Why a leg has its congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// The operator or the system chose it.
    #[default]
    Configured,
    /// Nothing has shown that another one would do better.
    Default,
    /// This machine has no BBR to change to.
    OnlyChoice,
    /// The leg is long, and loses segments though there is no queue.
    LongAndLossy,
    /// Earlier sessions with this peer found that its leg is long and lossy.
    Learned,
}

impl Reason {
    /// As it is written in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Default => "default",
            Self::OnlyChoice => "only_choice",
            Self::LongAndLossy => "long_and_lossy",
            Self::Learned => "learned",
        }
    }
}

/// What was chosen, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Its kernel name.
    pub name: &'static str,
    /// Why.
    pub reason: Reason,
}

/// Chooses for one leg of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CongestionControl {
    choice: Choice,
    retransmitted: u32,
}

impl CongestionControl {
    /// At the start: `has_bbr` says whether this machine offers BBR, `is_known_lossy` whether
    /// earlier sessions found this peer's leg long and lossy.
    #[must_use]
    pub const fn new(has_bbr: bool, is_known_lossy: bool) -> Self {
        let (name, reason) = match (has_bbr, is_known_lossy) {
            (false, _) => (CUBIC, Reason::OnlyChoice),
            (true, false) => (CUBIC, Reason::Default),
            (true, true) => (BBR, Reason::Learned),
        };
        Self {
            choice: Choice { name, reason },
            retransmitted: 0,
        }
    }

    /// What is chosen now.
    #[must_use]
    pub const fn choice(&self) -> Choice {
        self.choice
    }

    /// Whether this session has found, or was told, that its leg is long and lossy.
    #[must_use]
    pub const fn is_lossy(&self) -> bool {
        matches!(self.choice.reason, Reason::LongAndLossy | Reason::Learned)
    }

    /// A reading of the leg: the new choice, if there is one.
    pub fn handle_sample(&mut self, leg: &LegSample) -> Option<Choice> {
        let lost = leg.segments_retransmitted != self.retransmitted;
        self.retransmitted = leg.segments_retransmitted;
        let is_long = leg.minimum_round_trip_time? >= LONG;
        if self.choice.reason != Reason::Default || !is_long || !lost || has_queue(leg) {
            return None;
        }
        self.choice = Choice {
            name: BBR,
            reason: Reason::LongAndLossy,
        };
        Some(self.choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let choice = control.handle_sample(&leg(least, time, retransmitted));
            choice.map(|choice| (choice.name, choice.reason))
        };
        let lossy = Some((BBR, Reason::LongAndLossy));
        assert_eq!(changed(600, 610, 1), lossy);
        assert_eq!(changed(600, 610, 0), None);
        // A queue: the loss was congestion.
        assert_eq!(changed(600, 900, 5), None);
        assert_eq!(changed(20, 20, 5), None);
        assert_eq!(
            CongestionControl::new(true, false).handle_sample(&LegSample::default()),
            None
        );
    }

    #[test]
    fn each_loss_is_judged_once_and_the_change_is_for_good() {
        let mut control = CongestionControl::new(true, false);
        assert_eq!(control.handle_sample(&leg(600, 900, 5)), None);
        // The queue is gone, and nothing more was lost.
        assert_eq!(control.handle_sample(&leg(600, 600, 5)), None);
        assert!(control.handle_sample(&leg(600, 600, 6)).is_some());
        assert!(control.is_lossy());
        assert_eq!(control.handle_sample(&leg(600, 900, 9)), None);
        assert_eq!(control.choice().name, BBR);
    }

    #[test]
    fn what_is_known_or_missing_decides_at_the_start() {
        let learned = CongestionControl::new(true, true).choice();
        assert_eq!((learned.name, learned.reason), (BBR, Reason::Learned));
        let mut control = CongestionControl::new(false, true);
        assert_eq!(control.choice().reason, Reason::OnlyChoice);
        assert_eq!(control.handle_sample(&leg(600, 600, 3)), None);
    }
}
