//! Which of the routes to an exit gets a session, by the load of their transit nodes.

use midspan_units::Probability;

use super::Reason;
use crate::overlay::NodeName;
use crate::overlay::candidate::Candidate;
use crate::overlay::dice::Dice;
use crate::overlay::present_route::PresentRoute;

/// Up to the first load in 1/1000, sessions do not leave a node for one that is as good; from the second load on, both
/// share them.
const LITTLE: (f64, f64) = (200.0, 400.0);

/// The present route, or another one because of load, and the reason. `candidates` are in the order of their ranks.
pub(super) fn by_load<'a>(
    candidates: &[&'a Candidate],
    present: &'a PresentRoute,
    best: &'a Candidate,
    dice: &mut Dice,
) -> (&'a Candidate, Reason) {
    let mut near = present.near();
    let place = dice.place(near.len());
    let other = near.nth(place).flatten();
    let other = other.filter(|other| share_of_other(best.load, other.load).happens(dice.next()));
    let (first, reason) = match other {
        Some(other) => (other, Reason::LessLoaded),
        None => (best, Reason::Present),
    };
    if first.kept.happens(dice.next()) {
        return (first, reason);
    }
    // A node that does not keep the session gets it by no other route either.
    let mut shed = vec![first];
    let next = candidates.iter().copied().find(|candidate| {
        let is_possible =
            candidate.rank().is_some() && !shed.iter().any(|other| share_a_node(candidate, other));
        let is_kept = is_possible && candidate.kept.happens(dice.next());
        if is_possible && !is_kept {
            shed.push(candidate);
        }
        is_kept
    });
    next.map_or((first, reason), |next| (next, Reason::LessLoaded))
}

/// Whether two routes have a transit node in common.
fn share_a_node(one: &Candidate, other: &Candidate) -> bool {
    let nodes = other.route.transit();
    let is_shared = |node: &NodeName| nodes.iter().any(|other| other.is_node(node));
    one.route.transit().iter().any(is_shared)
}

/// The share of the sessions that take another route that is as good, by both loads in 1/1000. With many ingresses, no
/// node gets all new sessions at once: each gets a share that is the larger, the less it has to do. Taking the less
/// loaded one each time (Mitzenmacher 2001) makes the loads swing, because reports are some seconds old. A node with
/// little to do keeps its sessions.
fn share_of_other(present: u16, other: u16) -> Probability {
    let (present, other) = (f64::from(present), f64::from(other));
    let needed = ((present - LITTLE.0) / (LITTLE.1 - LITTLE.0)).clamp(0.0, 1.0);
    let share = needed * present / (present + other).max(1.0);
    Probability::from_f64(share).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_as_good_are_not_used_as_long_as_a_node_has_little_to_do() {
        assert_eq!(share_of_other(200, 0), Probability::ZERO);
        assert_eq!(share_of_other(400, 0), Probability::ONE);
        assert_eq!(share_of_other(800, 800).as_f64(), 0.5);
        assert!(share_of_other(800, 400).as_f64() > 0.66);
    }
}
