//! Nodes, and the legs between them over time.

use std::collections::BTreeMap;

use midspan_units::TimeSpan;
use thiserror::Error;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It carries sessions of others on.
    Transit,
    /// Sessions begin and end at it.
    Leaf,
}

/// A leg from one node to another one, at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leg {
    /// Its round trip in seconds.
    pub round_trip: f64,
    /// The probability that a segment is lost.
    pub loss: f64,
    /// Its rate in bit/s.
    pub rate: f64,
}

/// A time in which a leg is worse than usual, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Episode {
    /// When it begins and ends, in seconds.
    pub begin: f64,
    /// See `begin`.
    pub end: f64,
    /// What is worse.
    pub kind: EpisodeKind,
}

/// What is worse during an episode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EpisodeKind {
    /// Nothing passes.
    Outage,
    /// Congestion: more loss (0…1, added), and a longer round trip (seconds, added).
    Brownout {
        /// The added loss.
        loss: f64,
        /// The added round trip.
        delay: f64,
    },
}

/// A network cannot be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NetworkError {
    /// It has too few or too many nodes.
    #[error(
        "a network needs 1 to {MOST_NODES} nodes with at least two leaves; this one has {transit} transit nodes and {leaves} leaves"
    )]
    Nodes {
        /// Transit nodes.
        transit: usize,
        /// Leaves.
        leaves: usize,
    },
}

/// Most nodes of a network.
pub const MOST_NODES: usize = 512;

/// The nodes of an overlay, and the legs between them.
#[derive(Debug, Clone)]
pub struct Network {
    roles: Vec<Role>,
    /// Round trips in seconds, by slice and by 2-tuple of nodes; 0 if a leg does not exist.
    slices: Vec<Vec<f32>>,
    /// How long a slice lasts. After the last one, the first one follows.
    slice: TimeSpan,
    loss: Vec<f32>,
    rate: Vec<f32>,
    /// Measured rates, by the nodes at the beginning and at the end of a leg.
    measured_rates: BTreeMap<(usize, usize), f64>,
    episodes: Vec<Vec<Episode>>,
    /// The rate of each node as a transit node, in bit/s.
    capacity: Vec<f64>,
}

impl Network {
    /// A network of these nodes. `slices` has the round trips in seconds, by rows; a leg with a round trip of 0
    /// does not exist. The round trip of a leg is the same from both ends: if two values differ, their mean counts. Without more calls, legs lose one segment in 10,000, and legs and nodes carry 100 Mbit/s and 1 Gbit/s.
    ///
    /// # Errors
    /// [`NetworkError::Nodes`].
    pub fn new(
        roles: Vec<Role>,
        mut slices: Vec<Vec<f32>>,
        slice: TimeSpan,
    ) -> Result<Self, NetworkError> {
        let leaves = roles.iter().filter(|role| **role == Role::Leaf).count();
        let count = roles.len();
        if leaves < 2 || count > MOST_NODES {
            return Err(NetworkError::Nodes {
                transit: count - leaves,
                leaves,
            });
        }
        for slice in &mut slices {
            slice.resize(count * count, 0.0);
            join_directions(slice, count);
        }
        if slices.is_empty() {
            slices.push(vec![0.0; count * count]);
        }
        Ok(Self {
            slices,
            slice,
            loss: vec![1e-4; count * count],
            rate: vec![1e8; count * count],
            measured_rates: BTreeMap::new(),
            episodes: vec![Vec::new(); count * count],
            capacity: vec![1e9; count],
            roles,
        })
    }

    /// The number of nodes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.roles.len()
    }

    /// Never: a network has at least two leaves.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.roles.is_empty()
    }

    /// The nodes of a role.
    pub fn nodes(&self, role: Role) -> impl Iterator<Item = usize> {
        let all = self.roles.iter().enumerate();
        all.filter(move |(_, other)| **other == role)
            .map(|(node, _)| node)
    }

    /// Sets loss and rate (bit/s) of the leg from one node to another one, in this direction.
    pub fn set_leg(&mut self, from: usize, to: usize, loss: f64, rate: f64) {
        let place = self.place(from, to);
        #[allow(clippy::cast_possible_truncation)] // Seven digits are enough.
        if let (Some(of_loss), Some(of_rate)) = (self.loss.get_mut(place), self.rate.get_mut(place))
        {
            (*of_loss, *of_rate) = (loss as f32, rate as f32);
        }
    }

    /// Sets a measured rate (bit/s) of the leg from one node to another one, which [weather](crate::weather) does not change.
    pub fn set_measured_rate(&mut self, from: usize, to: usize, rate: f64) {
        self.measured_rates.insert((from, to), rate);
        let place = self.place(from, to);
        #[allow(clippy::cast_possible_truncation)] // Seven digits are enough.
        if let Some(of_rate) = self.rate.get_mut(place) {
            *of_rate = rate as f32;
        }
    }

    /// The measured rate (bit/s) of the leg from one node to another one.
    #[must_use]
    pub fn measured_rate(&self, from: usize, to: usize) -> Option<f64> {
        self.measured_rates.get(&(from, to)).copied()
    }

    /// Adds an episode of the leg between two nodes.
    pub fn add_episode(&mut self, one: usize, other: usize, episode: Episode) {
        for place in [self.place(one, other), self.place(other, one)] {
            if let Some(episodes) = self.episodes.get_mut(place) {
                episodes.push(episode);
            }
        }
    }

    /// Sets what a node carries as a transit node, in bit/s.
    pub fn set_capacity(&mut self, node: usize, rate: f64) {
        if let Some(capacity) = self.capacity.get_mut(node) {
            *capacity = rate;
        }
    }

    /// What a node carries as a transit node, in bit/s.
    #[must_use]
    pub fn capacity(&self, node: usize) -> f64 {
        self.capacity.get(node).copied().unwrap_or(1.0)
    }

    /// The leg from one node to another one at this time (seconds); `None` if nothing passes.
    #[must_use]
    pub fn leg(&self, now: f64, from: usize, to: usize) -> Option<Leg> {
        let place = self.place(from, to);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Not negative.
        let number = (now.max(0.0) / self.slice.as_seconds().max(1e-9)) as usize;
        let slice = self.slices.get(number % self.slices.len().max(1))?;
        let round_trip = f64::from(*slice.get(place)?);
        let mut leg = Leg {
            round_trip,
            loss: f64::from(*self.loss.get(place)?),
            rate: f64::from(*self.rate.get(place)?),
        };
        for episode in self.episodes.get(place)? {
            if (episode.begin..episode.end).contains(&now) {
                match episode.kind {
                    EpisodeKind::Outage => return None,
                    EpisodeKind::Brownout { loss, delay } => {
                        leg.loss = (leg.loss + loss).min(1.0);
                        leg.round_trip += delay;
                    }
                }
            }
        }
        (round_trip > 0.0).then_some(leg)
    }

    /// The share of ordered 2-tuples of leaves between which a route over one transit node has a clearly shorter
    /// round trip at the start: at most 85 %, and at least 10 ms less.
    #[must_use]
    pub fn violations(&self) -> f64 {
        let time = |from, to| self.leg(0.0, from, to).map(|leg| leg.round_trip);
        let (mut all, mut shorter) = (0.0, 0.0);
        for from in self.nodes(Role::Leaf) {
            for to in self.nodes(Role::Leaf).filter(|to| *to != from) {
                let Some(direct) = time(from, to) else {
                    continue;
                };
                all += 1.0;
                let mut over = self.nodes(Role::Transit);
                if over.any(|node| {
                    let sum = time(from, node).zip(time(node, to));
                    sum.is_some_and(|(one, two)| {
                        one + two <= 0.85 * direct && one + two + 0.01 <= direct
                    })
                }) {
                    shorter += 1.0;
                }
            }
        }
        if all > 0.0 { shorter / all } else { 0.0 }
    }

    const fn place(&self, from: usize, to: usize) -> usize {
        from * self.roles.len() + to
    }
}

/// Both ends of a leg have measured its round trip, at different moments: the mean counts for both. If one of them has not
/// measured it, the other value counts.
pub fn join_directions(slice: &mut [f32], count: usize) {
    for one in 0..count {
        for other in 0..one {
            let places = [one * count + other, other * count + one];
            let Ok([there, back]) = slice.get_disjoint_mut(places) else {
                continue;
            };
            let joined = match (*there > 0.0, *back > 0.0) {
                (true, true) => f32::midpoint(*there, *back),
                (true, false) => *there,
                (false, _) => *back,
            };
            (*there, *back) = (joined, joined);
        }
    }
}
