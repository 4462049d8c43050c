//! Where to put proxies on a path.
//!
//! Maki §IV: isolate the lossy network; without one, split where the round trips are equal. Here,
//! every placement is computed, and all are ranked.

use std::cmp::Ordering;

use midspan_units::ByteSize;

use crate::leg::{Leg, Transport};
use crate::overlay::{self, Analysis, ChainedLeg, Outcome};
use crate::path::{Path, Section};
use crate::{ModelError, Throughput};

/// The TCPs and buffers of a path, independent of the places of its proxies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    /// TCP of every leg.
    pub transport: Transport,
    /// RB of a proxy and of the receiving host.
    pub receive_buffer: ByteSize,
    /// SB of a proxy.
    pub send_buffer: ByteSize,
    /// Whether the send buffer also bounds the data in flight, as in a real TCP; the paper's
    /// analysis leaves that out.
    pub send_buffer_bounds_window: bool,
    /// How the interaction of the legs is computed.
    pub analysis: Analysis,
}

impl Setup {
    /// The legs of `sections` with these TCPs and buffers.
    #[must_use]
    pub fn chain(&self, sections: &[Section]) -> Vec<ChainedLeg> {
        sections
            .iter()
            .map(|section| ChainedLeg {
                leg: self.leg(*section),
                waiting: self.send_buffer,
            })
            .collect()
    }

    fn leg(&self, section: Section) -> Leg {
        Leg {
            section,
            transport: self.transport,
            receive_buffer: self.receive_buffer,
            send_buffer: self.send_buffer_bounds_window.then_some(self.send_buffer),
        }
    }

    /// End-to-end throughput with proxies at `positions` (see [`Path::split`]).
    ///
    /// # Errors
    /// [`ModelError::Positions`] if a position is no place of the path.
    pub fn evaluate(&self, path: &Path, positions: &[usize]) -> Result<Outcome, ModelError> {
        overlay::analyse(&self.chain(&path.split(positions)?), &self.analysis)
    }
}

/// Proxies at certain places, and the resulting throughput.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The positions of the proxies, ascending; position *i* is after hop *i*, counted from 1.
    pub positions: Vec<usize>,
    /// The chain's throughput, and its limit.
    pub outcome: Outcome,
}

/// Placements, the best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// The best placements; those with equal throughput in the order of their positions.
    pub placements: Vec<Placement>,
    /// Number of placements that were computed.
    pub examined: usize,
    /// Whether these are all possible placements. If not, the search began at the placement with
    /// the fastest slowest leg ([`fastest_slowest_leg`]) and moved one proxy at a time.
    pub exhaustive: bool,
}

/// Largest number of placements that [`rank`] computes.
pub const MOST_EXAMINED: usize = 4096;

/// Ranks the placements of `proxies` proxies on `path`, and keeps the `keep` best ones.
///
/// Computes all placements if there are at most [`MOST_EXAMINED`]: for one or two proxies, on all paths of up
/// to 92 hops. Otherwise, a search begins at [`fastest_slowest_leg`] ([`Ranking::exhaustive`]).
///
/// # Errors
/// [`ModelError::Proxies`] if the path has fewer places.
pub fn rank(
    path: &Path,
    setup: &Setup,
    proxies: usize,
    keep: usize,
) -> Result<Ranking, ModelError> {
    check(path.places(), proxies)?;
    let (start, _) = fastest_slowest_leg(path, setup, proxies)?;
    rank_by(path.places(), start, keep, |positions| {
        setup.evaluate(path, positions)
    })
}

/// Like [`rank`], for `places` places and as many proxies as `start` has positions. `evaluate`
/// computes each placement. If there are too many, the search begins at `start`.
///
/// # Errors
/// [`ModelError::Proxies`] if there are fewer places than proxies; and the errors of `evaluate`.
pub fn rank_by<E: From<ModelError>>(
    places: usize,
    start: Vec<usize>,
    keep: usize,
    evaluate: impl Fn(&[usize]) -> Result<Outcome, E>,
) -> Result<Ranking, E> {
    let proxies = start.len();
    check(places, proxies)?;
    let exhaustive = combinations(places, proxies) <= MOST_EXAMINED;
    let mut placements = if exhaustive {
        all(places, proxies, &evaluate)?
    } else {
        climb(places, start, &evaluate)?
    };
    let examined = placements.len();
    placements.sort_by(better_first);
    placements.truncate(keep);
    Ok(Ranking {
        placements,
        examined,
        exhaustive,
    })
}

fn better_first(a: &Placement, b: &Placement) -> Ordering {
    let faster = b
        .outcome
        .throughput
        .partial_cmp(&a.outcome.throughput)
        .unwrap_or(Ordering::Equal);
    faster.then_with(|| a.positions.cmp(&b.positions))
}

fn check(places: usize, proxies: usize) -> Result<(), ModelError> {
    if proxies > places {
        return Err(ModelError::Proxies { proxies, places });
    }
    Ok(())
}

/// C(n, k), saturating.
fn combinations(n: usize, k: usize) -> usize {
    let k = k.min(n - k);
    let mut count = 1usize;
    for i in 0..k {
        // Exact: after each step `count` is C(n, i + 1).
        let Some(product) = count.checked_mul(n - i) else {
            return usize::MAX;
        };
        count = product / (i + 1);
    }
    count
}

/// All placements.
fn all<E>(
    places: usize,
    proxies: usize,
    evaluate: &impl Fn(&[usize]) -> Result<Outcome, E>,
) -> Result<Vec<Placement>, E> {
    let mut positions: Vec<usize> = (1..=proxies).collect();
    let mut found = Vec::new();
    loop {
        found.push(Placement {
            outcome: evaluate(&positions)?,
            positions: positions.clone(),
        });
        // The next combination: move the last proxy that can still move, and put those after it
        // right behind it.
        let movable = (0..proxies)
            .rev()
            .find(|&i| positions[i] < places - (proxies - 1 - i));
        let Some(first) = movable else {
            return Ok(found);
        };
        positions[first] += 1;
        for i in first + 1..proxies {
            positions[i] = positions[i - 1] + 1;
        }
    }
}

/// From `start`, moves one proxy at a time to the place that helps most, until no move helps or
/// [`MOST_EXAMINED`] placements were computed.
fn climb<E>(
    places: usize,
    start: Vec<usize>,
    evaluate: &impl Fn(&[usize]) -> Result<Outcome, E>,
) -> Result<Vec<Placement>, E> {
    let mut best = Placement {
        outcome: evaluate(&start)?,
        positions: start,
    };
    let mut found = vec![best.clone()];
    loop {
        let start = best.clone();
        for (moved, place) in moves(&start.positions, places) {
            if found.len() >= MOST_EXAMINED {
                return Ok(found);
            }
            let mut positions = start.positions.clone();
            positions[moved] = place;
            if found.iter().any(|known| known.positions == positions) {
                continue;
            }
            let candidate = Placement {
                outcome: evaluate(&positions)?,
                positions,
            };
            if candidate.outcome.throughput > best.outcome.throughput {
                best = candidate.clone();
            }
            found.push(candidate);
        }
        if best.positions == start.positions {
            return Ok(found);
        }
    }
}

/// Every move of one proxy between its neighbours: the proxy, and its new position.
fn moves(positions: &[usize], places: usize) -> Vec<(usize, usize)> {
    let mut moves = Vec::new();
    for (index, &at) in positions.iter().enumerate() {
        let low = index
            .checked_sub(1)
            .map_or(1, |before| positions[before] + 1);
        let high = positions.get(index + 1).map_or(places, |next| next - 1);
        moves.extend((low..=high).filter(|&to| to != at).map(|to| (index, to)));
    }
    moves
}

/// The placement of `proxies` proxies that gives the slowest leg the highest throughput, and this
/// throughput. The result is exact, by dynamic programming over the hops, in hops² × proxies
/// steps. Legs do not interact here (Maki Eq. (4)). Of equal placements, the one with the proxies
/// nearest to the receiver is returned.
///
/// # Errors
/// [`ModelError::Proxies`] if the path has fewer places.
pub fn fastest_slowest_leg(
    path: &Path,
    setup: &Setup,
    proxies: usize,
) -> Result<(Vec<usize>, Throughput), ModelError> {
    check(path.places(), proxies)?;
    let hops = path.hops().len();
    // alone[from][to - from - 1]: the leg over the hops from..to alone.
    let alone: Vec<Vec<Throughput>> = (0..hops)
        .map(|from| {
            (from + 1..=hops)
                .map(|to| setup.leg(path.section(from, to)).isolated().throughput)
                .collect()
        })
        .collect();
    // best[to]: the highest possible throughput of the slowest leg over hops 0..to, with the
    // proxies placed so far.
    let mut best: Vec<Option<Throughput>> = (0..=hops)
        .map(|to| to.checked_sub(1).map(|last| alone[0][last]))
        .collect();
    let mut cuts: Vec<Vec<usize>> = Vec::with_capacity(proxies);
    for _ in 0..proxies {
        let mut next = vec![None; hops + 1];
        let mut cut = vec![0; hops + 1];
        for to in 1..=hops {
            for at in 1..to {
                let candidate = best[at].map(|slowest| slowest.min(alone[at][to - at - 1]));
                if candidate.is_some() && candidate >= next[to] {
                    (next[to], cut[to]) = (candidate, at);
                }
            }
        }
        best = next;
        cuts.push(cut);
    }
    let mut positions = Vec::with_capacity(proxies);
    let mut to = hops;
    for cut in cuts.iter().rev() {
        to = cut[to];
        positions.push(to);
    }
    positions.reverse();
    Ok((positions, best[hops].unwrap_or(Throughput::ZERO)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Hop;

    fn path(hops: usize) -> Path {
        // Delays and losses without a pattern.
        let mut state = 12_345u64;
        let mut next = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % bound
        };
        let hops = (0..hops)
            .map(|_| Hop {
                rate: "1 Gbit/s".parse().unwrap(),
                round_trip: midspan_units::TimeSpan::from_milliseconds(1 + next(50)),
                loss: format!("0.00{}", 1 + next(90)).parse().unwrap(),
                return_rate: None,
                queue: None,
            })
            .collect();
        Path::new(hops).unwrap()
    }

    fn setup() -> Setup {
        Setup {
            transport: Transport::maki(),
            receive_buffer: ByteSize::from_bytes(1 << 20),
            send_buffer: ByteSize::from_bytes(64_000),
            send_buffer_bounds_window: false,
            analysis: Analysis::default(),
        }
    }

    #[test]
    fn every_placement_is_examined_once() {
        let ranking = rank(&path(9), &setup(), 3, usize::MAX).unwrap();
        assert!(ranking.exhaustive);
        assert_eq!(ranking.examined, 56);
        let mut positions: Vec<_> = ranking.placements.iter().map(|p| &p.positions).collect();
        positions.sort();
        positions.dedup();
        assert_eq!(positions.len(), 56);
        for pair in ranking.placements.windows(2) {
            assert!(pair[0].outcome.throughput >= pair[1].outcome.throughput);
        }
    }

    #[test]
    fn dynamic_programming_finds_what_enumeration_finds() {
        let (path, setup) = (path(12), setup());
        for proxies in 0..=4 {
            let (positions, slowest) = fastest_slowest_leg(&path, &setup, proxies).unwrap();
            let enumerated = all(path.places(), proxies, &|positions: &[usize]| {
                setup.evaluate(&path, positions)
            })
            .unwrap();
            let best = enumerated
                .iter()
                .map(|p| p.outcome.expected)
                .fold(Throughput::ZERO, |a, b| if a < b { b } else { a });
            assert_eq!(slowest, best, "{proxies} proxies");
            let outcome = setup.evaluate(&path, &positions).unwrap();
            assert_eq!(outcome.expected, best, "{proxies} proxies");
        }
    }

    #[test]
    fn a_search_that_is_too_large_climbs_and_is_bounded() {
        let (path, setup) = (path(40), setup());
        let ranking = rank(&path, &setup, 5, 10).unwrap();
        assert!(!ranking.exhaustive);
        assert!(ranking.examined <= MOST_EXAMINED);
        let (positions, _) = fastest_slowest_leg(&path, &setup, 5).unwrap();
        let start = setup.evaluate(&path, &positions).unwrap();
        assert!(ranking.placements[0].outcome.throughput >= start.throughput);
    }

    #[test]
    fn more_proxies_than_places_are_refused() {
        assert_eq!(
            rank(&path(2), &setup(), 2, 1),
            Err(ModelError::Proxies {
                proxies: 2,
                places: 1
            })
        );
        let alone = rank(&path(1), &setup(), 0, 1).unwrap();
        assert_eq!(alone.placements[0].positions, Vec::<usize>::new());
    }
}
