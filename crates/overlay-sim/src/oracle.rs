//! The best route by the true values at one time.
//!
//! A session is compared with the oracle at its beginning. The oracle has seen nothing of the future either, but
//! changes its route for each session.

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

/// The best routes from `ingress` to `exit` over these transit nodes.
pub fn best(
    truth: &Truth,
    now: f64,
    (ingress, exit): (usize, usize),
    transit: &[usize],
    size: ByteSize,
) -> Best {
    let time = |legs: &[RouteLeg]| apart(legs, size).map_or(f64::INFINITY, TimeSpan::as_seconds);
    let seconds = |leg: &RouteLeg| leg.round_trip.as_seconds();
    let direct = truth.shared(now, exit, ingress);
    let direct = direct.map_or(f64::INFINITY, |leg| time(&[leg]));
    let mut best = Best {
        direct,
        over_one: direct,
        over_two: direct,
    };
    let ends: Vec<(usize, RouteLeg, RouteLeg)> = transit
        .iter()
        .filter_map(|node| {
            let first = truth.shared(now, exit, *node)?;
            Some((*node, first, truth.shared(now, *node, ingress)?))
        })
        .collect();
    for (_, first, last) in &ends {
        best.over_one = best.over_one.min(time(&[*first, *last]));
    }
    best.over_two = best.over_two.min(best.over_one);
    let from_exit = transit
        .iter()
        .filter_map(|node| Some((*node, truth.shared(now, exit, *node)?)));
    let from_exit: Vec<(usize, RouteLeg)> = from_exit.collect();
    let to_ingress = transit
        .iter()
        .filter_map(|node| Some((*node, truth.shared(now, *node, ingress)?)));
    let to_ingress: Vec<(usize, RouteLeg)> = to_ingress.collect();
    for (far, first) in &from_exit {
        for (near, last) in to_ingress.iter().filter(|(near, _)| near != far) {
            // Set-up and request alone take 2.5 round trips.
            if 2.5 * (seconds(first) + seconds(last)) >= best.over_two {
                continue;
            }
            if let Some(middle) = truth.shared(now, *far, *near)
                && 2.5 * (seconds(first) + seconds(&middle) + seconds(last)) < best.over_two
            {
                best.over_two = best.over_two.min(time(&[*first, middle, *last]));
            }
        }
    }
    best
}
