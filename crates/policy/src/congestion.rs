//! The congestion control of a leg.
//!
//! CUBIC (RFC 9438) treats every loss as congestion. On a long path, a few losses that are not
//! congestion keep CUBIC far below the path's capacity, while BBR follows the delivery rate. On
//! short or clean legs, CUBIC shares more fairly with other traffic. So a leg begins with CUBIC, unless
//! earlier sessions found the path to this peer lossy: then it begins with BBR. A leg with CUBIC changes to BBR
//! in two cases: a long leg has lost segments while there was no queue, or a short leg keeps losing many
//! segments while there is no queue. No leg changes back: once a socket has used BBR, Linux continues to
//! pace this socket under every congestion control. If the machine has no BBR, the leg keeps CUBIC.

use midspan_units::TimeSpan;

use crate::LegSample;
use crate::pacing::has_queue;

/// The value of `congestion_control` that leaves the choice to the policy.
pub const AUTOMATIC: &str = "auto";
/// The kernel's name of BBR.
pub const BBR: &str = "bbr";
/// The kernel's name of CUBIC.
pub const CUBIC: &str = "cubic";

/// A leg with a shorter round trip recovers from a few losses soon enough.
pub const LONG: TimeSpan = TimeSpan::from_milliseconds(40);
/// A leg shorter than [`LONG`] counts as lossy if, since it last had a queue, at least `LOSING`
/// stretches (and at least half of all) had losses, and at least 1 in `LOST` segments was lost. The
/// overshoot of slow start touches only one or two stretches.
const LOSING: u32 = 3;
const LOST: u64 = 250;
/// Least number of acknowledged segments in a stretch.
const STRETCH: u64 = 30;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CongestionControl {
    choice: Choice,
    retransmitted: u32,
    /// For a short leg, since it last had a queue: the number of stretches, and of those with
    /// losses.
    stretches: (u32, u32),
    /// Segments acknowledged, and segments retransmitted: when the first of these stretches began
    /// (`since`), and when the newest one ended (`newest`).
    since: (u64, u32),
    newest: (u64, u32),
}

impl CongestionControl {
    /// The choice at the start. `has_bbr`: this machine offers BBR. `is_known_lossy`: earlier
    /// sessions found the path to this peer lossy.
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
            stretches: (0, 0),
            since: (0, 0),
            newest: (0, 0),
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
        matches!(
            reason,
            Reason::LongAndLossy | Reason::Lossy | Reason::Learned
        )
    }

    /// Takes a reading of the leg; returns the new choice, if it changes.
    pub fn handle_sample(&mut self, leg: &LegSample) -> Option<Choice> {
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
        self.choice = Choice { name: BBR, reason };
        Some(self.choice)
    }

    /// Whether a short leg keeps losing many segments while there is no queue.
    fn goes_on_losing(&mut self, leg: &LegSample) -> bool {
        let acknowledged = leg.bytes_acknowledged.bytes() / u64::from(leg.segment_size.max(1));
        let now = (acknowledged, leg.segments_retransmitted);
        if has_queue(leg) {
            (self.stretches, self.since, self.newest) = ((0, 0), now, now);
            return false;
        }
        if now.0 < self.newest.0.saturating_add(STRETCH) {
            return false;
        }
        let (all, losing) = &mut self.stretches;
        *all = all.saturating_add(1);
        *losing = losing.saturating_add(u32::from(now.1 != self.newest.1));
        self.newest = now;
        let lost = u64::from(now.1.wrapping_sub(self.since.1));
        *losing >= LOSING && *losing >= all.div_ceil(2) && lost * LOST >= now.0 - self.since.0
    }
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
            let choice = control.handle_sample(&leg(least, time, retransmitted));
            choice.map(|choice| (choice.name, choice.reason))
        };
        let lossy = Some((BBR, Reason::LongAndLossy));
        assert_eq!(changed(600, 610, 1), lossy);
        assert_eq!(changed(600, 610, 0), None);
        // With a queue, the loss was congestion.
        assert_eq!(changed(600, 900, 5), None);
        assert_eq!(changed(20, 20, 5), None);
        assert_eq!(
            CongestionControl::new(true, false).handle_sample(&LegSample::default()),
            None
        );
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
            control.handle_sample(&leg).map(|choice| choice.reason)
        })
    }

    #[test]
    fn a_short_leg_gets_bbr_where_it_goes_on_losing_without_a_queue() {
        let steady = [(200, 2, 5); 3];
        assert_eq!(short(&steady), Some(Reason::Lossy));
        assert_eq!(short(&steady[..2]), None);
        // Three readings of ten segments make one stretch: in fewer segments, one loss is chance.
        assert_eq!(short(&[(10, 1, 5); 8]), None);
        assert_eq!(short(&[(10, 1, 5); 9]), Some(Reason::Lossy));
        let some = [
            (200, 2, 5),
            (200, 0, 5),
            (200, 2, 5),
            (200, 0, 5),
            (200, 1, 5),
        ];
        assert_eq!(short(&some), Some(Reason::Lossy));
        // The overshoot of slow start and a loss long after; a queue in between; few losses in all.
        let mut start = vec![(200, 60, 5), (200, 20, 5)];
        start.extend([(200, 0, 5); 6]);
        start.push((200, 1, 5));
        assert_eq!(short(&start), None);
        assert_eq!(
            short(&[(200, 2, 5), (200, 2, 5), (200, 2, 9), (200, 2, 5)]),
            None
        );
        assert_eq!(short(&[(600, 2, 5); 8]), None);
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
