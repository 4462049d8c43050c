//! The best route by the true values at one time: perfect knowledge of the present.
//!
//! A session is compared with this route at its beginning. Perfect knowledge has seen nothing of the future either, but
//! changes its route for each session, as often as it likes.

use midspan_policy::overlay::{RouteLeg, completion_time_apart};
use midspan_units::{ByteSize, TimeSpan};

use crate::truth::Truth;

/// Completion times in seconds between one ingress and one exit; infinite if no such route works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// Of the straight route.
    pub direct: f64,
    /// Of the best route over at most one transit node.
    pub over_one: f64,
    /// Of the best route over at most two transit nodes.
    pub over_two: f64,
}

/// The completion time over these legs, without what they cost each other.
pub fn apart(legs: &[RouteLeg], size: ByteSize) -> Option<TimeSpan> {
    completion_time_apart(legs, |leg| leg.transfer_seconds(size))
}

/// A leg for one more session from one node to another one, and the seconds of the transfer over it alone.
#[derive(Clone, Copy)]
pub struct Timed {
    /// The leg.
    pub leg: RouteLeg,
    /// The seconds; `None` if nothing passes.
    pub seconds: Option<f64>,
}

impl Timed {
    fn new(truth: &Truth, now: f64, (from, to): (usize, usize), size: ByteSize) -> Option<Self> {
        let leg = truth.shared(now, from, to)?;
        let seconds = leg.transfer_seconds(size);
        Some(Self { leg, seconds })
    }

    fn round_trip(&self) -> f64 {
        self.leg.round_trip.as_seconds()
    }
}

/// The completion time over these legs in seconds.
pub fn time<const LEGS: usize>(legs: [Timed; LEGS]) -> f64 {
    let mut seconds = legs.into_iter().map(|leg| leg.seconds);
    let time = completion_time_apart(&legs.map(|leg| leg.leg), |_| seconds.next().flatten());
    time.map_or(f64::INFINITY, TimeSpan::as_seconds)
}

/// The best routes from `ingress` to `exit` over these transit nodes.
pub fn best(
    truth: &Truth,
    now: f64,
    (ingress, exit): (usize, usize),
    transit: &[usize],
    size: ByteSize,
) -> Best {
    let leg = |from, to| Timed::new(truth, now, (from, to), size);
    let direct = leg(exit, ingress).map_or(f64::INFINITY, |leg| time([leg]));
    let mut best = Best {
        direct,
        over_one: direct,
        over_two: direct,
    };
    let to_node = |node: &usize| Some((*node, leg(exit, *node)?));
    let firsts: Vec<(usize, Timed)> = transit.iter().filter_map(to_node).collect();
    let from_node = |node: &usize| Some((*node, leg(*node, ingress)?));
    let lasts: Vec<(usize, Timed)> = transit.iter().filter_map(from_node).collect();
    for (node, first) in &firsts {
        if let Some((_, last)) = lasts.iter().find(|(other, _)| other == node) {
            best.over_one = best.over_one.min(time([*first, *last]));
        }
    }
    best.over_two = best.over_one;
    for (far, first) in &firsts {
        for (near, last) in lasts.iter().filter(|(near, _)| near != far) {
            let round_trips = first.round_trip() + last.round_trip();
            // Set-up and request alone take 2.5 round trips.
            if 2.5 * round_trips >= best.over_two {
                continue;
            }
            if let Some(leg) = truth.shared(now, *far, *near)
                && 2.5 * (round_trips + leg.round_trip.as_seconds()) < best.over_two
            {
                let seconds = leg.transfer_seconds(size);
                let middle = Timed { leg, seconds };
                best.over_two = best.over_two.min(time([*first, middle, *last]));
            }
        }
    }
    best
}
