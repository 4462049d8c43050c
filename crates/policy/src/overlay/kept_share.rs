//! The share of new sessions that a busy transit node keeps, so that many ingresses do not leave it at once.
//!
//! Each ingress has such a share for each transit node, and changes it with each report of the node's load L:
//! `share += share · (T − L)/T · t/30 s`, where t is the time since the report before and T the target of 80 %. A new
//! session that the node would get stays with this probability; otherwise, it takes the next route. So the load
//! of an overloaded node falls to the target, not to zero.
//!
//! A load near 100 % may stand for any multiple of the capacity of the node. So with a smoothed load of 95 % or more, the share
//! falls by t/10 s, whatever the load.
//!
//! Why it does not swing: let D be the load that the node would have if it kept all sessions, so that L = share · D. Near
//! the balance, a deviation of the share decays as exp(−t/30 s), whatever D is. Reports are about 3 s old, a tenth of
//! this time; an integral controller like this one is stable up to a delay of π/2 · 30 s = 47 s. A threshold
//! instead of a share moves all sessions of all ingresses at once.

use std::cmp::Ordering;

use midspan_units::{Probability, Time, TimeSpan};

/// The load in 1/1000 to which the shares lead.
const TARGET: f64 = 800.0;
/// How quickly a share follows, in seconds.
const FOLLOWS: f64 = 30.0;
/// From this load on, and how quickly a share follows then, in seconds.
const FULL: u16 = 950;
const FOLLOWS_FULL: f64 = 10.0;
/// The least share. A share of zero could not rise again.
const LEAST: f64 = 0.02;
/// The longest time that one report counts for.
const LONGEST: TimeSpan = TimeSpan::from_seconds(10);

/// The share of new sessions that one transit node keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeptShare {
    /// 0.02…1.
    share: f64,
    /// When the newest report arrived.
    reported: Option<Time>,
}

impl Default for KeptShare {
    /// All sessions.
    fn default() -> Self {
        Self {
            share: 1.0,
            reported: None,
        }
    }
}

impl KeptShare {
    /// The node has reported its load in 1/1000; `smoothed` is its [smoothed load](super::load::NodeLoad::smoothed).
    pub fn note(&mut self, now: Time, load: u16, smoothed: u16) {
        let before = self.reported.replace(now).unwrap_or(now);
        let elapsed = now.since(before).min(LONGEST).as_seconds();
        let change = match smoothed >= FULL {
            true => -elapsed / FOLLOWS_FULL,
            false => (TARGET - f64::from(load)) / TARGET * elapsed / FOLLOWS,
        };
        self.share = (self.share * (1.0 + change).max(0.0)).clamp(LEAST, 1.0);
    }

    /// The probability with which a new session stays.
    pub fn probability(&self) -> Probability {
        Probability::from_f64(self.share).unwrap_or(Probability::ONE)
    }

    /// Which of two shares is smaller.
    pub fn cmp_share(&self, other: &Self) -> Ordering {
        self.share.total_cmp(&other.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::load::NodeLoad;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    /// A node with this offered load, 1 is full. It reports every 2 s the load of 2 s before. Returns its loads.
    fn loads(offered: f64, reports: u64) -> Vec<f64> {
        let (mut share, mut loads) = (KeptShare::default(), vec![0.0_f64, 0.0]);
        let mut of_node = NodeLoad::default();
        for report in 0..reports {
            let seen = loads[loads.len() - 2].min(1.0) * 1_000.0;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let (now, seen) = (at(report * 2), seen as u16);
            of_node.note(now, seen);
            share.note(now, seen, of_node.smoothed());
            loads.push(share.probability().as_f64() * offered);
        }
        loads
    }

    #[test]
    fn a_node_below_the_target_keeps_all_sessions() {
        assert!(loads(0.8, 300).iter().skip(2).all(|load| *load >= 0.79));
        assert!(loads(0.3, 300).iter().skip(2).all(|load| *load >= 0.3));
    }

    #[test]
    fn the_load_of_an_overloaded_node_settles_at_the_target_without_swings() {
        for offered in [0.85, 0.9, 1.2, 2.0, 5.0] {
            let loads = loads(offered, 600);
            let settled = &loads[300..];
            assert!(
                settled.iter().all(|load| (0.78..0.82).contains(load)),
                "{offered}"
            );
            // On the path to it, the load never falls far below the target: least after a sudden load of 500 %.
            assert!(
                loads.iter().skip(2).all(|load| *load > 0.5),
                "{offered} {loads:?}"
            );
            let full = loads.iter().filter(|load| **load > 0.95).count();
            assert!(full < 30, "{offered} {full}");
        }
    }

    #[test]
    fn a_share_rises_again_after_the_load_has_gone() {
        let mut share = KeptShare::default();
        for report in 0..1_000 {
            share.note(at(report * 2), 1_000, 1_000);
        }
        assert!(share.probability().as_f64() < 0.03);
        // From 0.02 to 1 in ln(50) · 30 s = 117 s, if the node is idle.
        for report in 1_000..1_062 {
            share.note(at(report * 2), 0, 0);
        }
        assert!(share.probability() == Probability::ONE);
    }

    proptest! {
        #[test]
        fn a_share_is_never_zero(reports in proptest::collection::vec((0_u64..1_000, 0_u16..=1_000), 0..200)) {
            let (mut share, mut now) = (KeptShare::default(), 0);
            for (later, load) in reports {
                now += later;
                share.note(at(now), load, load);
                prop_assert!((0.02..=1.0).contains(&share.probability().as_f64()));
            }
        }
    }
}
