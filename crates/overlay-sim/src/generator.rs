//! A synthetic network: places on a sphere, round trips that grow with the distance, losses, and bad times.

use midspan_units::TimeSpan;

use crate::network::{Episode, EpisodeKind, Network, NetworkError, Role};
use crate::random::Random;

/// The size of a synthetic network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synthetic {
    /// The seed.
    pub seed: u64,
    /// Transit nodes.
    pub transit: usize,
    /// Leaves.
    pub leaves: usize,
    /// The time for which episodes are drawn.
    pub duration: TimeSpan,
}

/// The radius of the Earth in km, and the distance for a round trip of 1 s: light in glass has 200,000 km/s.
const RADIUS: f64 = 6371.0;
const PER_SECOND: f64 = 100_000.0;
/// A path is 1.5 times as long as the line on the sphere, log-normal with this deviation. It is chosen so that with 30
/// transit nodes, 10 to 20 % of the legs between leaves have a clearly shorter route over one of them (a test).
const DETOUR: (f64, f64) = (1.5, 0.12);
/// The mean round trip of a leaf's access link in seconds.
const ACCESS: f64 = 0.005;
/// Loss: median, and the deviation of its logarithm.
const LOSS: (f64, f64) = (1e-4, 1.5);
/// Rates in bit/s of legs and of access links: median, and the deviation of the logarithm.
const LEG_RATE: (f64, f64) = (200e6, 0.5);
const ACCESS_RATE: (f64, f64) = (300e6, 0.5);
/// Outages: one in this many seconds of a leg (Andersen et al., RON, SOSP 2001: one of more than 30 minutes in 260
/// hours), at least this long, and this much more on average.
const OUTAGE: (f64, f64, f64) = (260.0 * 3600.0, 1800.0, 900.0);
/// Brownouts: one in this many seconds of a leg, and their mean duration. An assumption.
const BROWNOUT: (f64, f64) = (8.0 * 3600.0, 300.0);

/// A synthetic network. Transit nodes are the first ones.
///
/// # Errors
/// The network has too few or too many nodes.
pub fn generate(size: &Synthetic) -> Result<Network, NetworkError> {
    let mut random = Random::new(size.seed, "places");
    let count = size.transit.saturating_add(size.leaves);
    let roles: Vec<Role> = (0..count.min(crate::network::MOST_NODES + 1))
        .map(|node| match node < size.transit {
            true => Role::Transit,
            false => Role::Leaf,
        })
        .collect();
    let count = roles.len();
    let places: Vec<[f64; 3]> = roles.iter().map(|_| place(&mut random)).collect();
    let access: Vec<f64> = roles
        .iter()
        .map(|role| match role {
            Role::Transit => 0.0,
            Role::Leaf => random.exponential(ACCESS),
        })
        .collect();
    let mut slice = vec![0.0; count * count];
    for one in 0..count {
        for other in 0..one {
            let cosine: f64 = places[one]
                .iter()
                .zip(&places[other])
                .map(|(a, b)| a * b)
                .sum();
            let distance = libm::acos(cosine.clamp(-1.0, 1.0)) * RADIUS;
            let detour = random.log_normal(DETOUR.0, DETOUR.1).max(1.0);
            let seconds = 0.001 + access[one] + access[other] + distance * detour / PER_SECOND;
            #[allow(clippy::cast_possible_truncation)] // Seven digits are enough.
            for place in [one * count + other, other * count + one] {
                slice[place] = seconds as f32;
            }
        }
    }
    let mut network = Network::new(roles, vec![slice], TimeSpan::from_seconds(3600))?;
    weather(&mut network, size.seed, size.duration);
    Ok(network)
}

/// Draws losses, rates that are not measured, brownouts and outages of this time. A seed gives the same ones for each network of
/// the same size.
pub fn weather(network: &mut Network, seed: u64, duration: TimeSpan) {
    let mut random = Random::new(seed, "weather");
    let is_leaf: Vec<bool> = {
        let leaves: Vec<usize> = network.nodes(Role::Leaf).collect();
        (0..network.len())
            .map(|node| leaves.contains(&node))
            .collect()
    };
    let access: Vec<f64> = is_leaf
        .iter()
        .map(|leaf| match leaf {
            true => random.log_normal(ACCESS_RATE.0, ACCESS_RATE.1),
            false => f64::MAX,
        })
        .collect();
    for one in 0..network.len() {
        for other in 0..one {
            let rate = random.log_normal(LEG_RATE.0, LEG_RATE.1);
            let rate = rate.min(access[one]).min(access[other]);
            for (from, to) in [(one, other), (other, one)] {
                let loss = random.log_normal(LOSS.0, LOSS.1).min(0.2);
                let rate = network.measured_rate(from, to).unwrap_or(rate);
                network.set_leg(from, to, loss, rate);
            }
            let end = duration.as_seconds();
            let brownout = |random: &mut Random| {
                let lasts = random.exponential(BROWNOUT.1);
                let kind = EpisodeKind::Brownout {
                    loss: 0.01 + random.exponential(0.02),
                    delay: random.exponential(0.03),
                };
                (lasts, kind)
            };
            let outage = |random: &mut Random| {
                let lasts = OUTAGE.1 + random.exponential(OUTAGE.2);
                (lasts, EpisodeKind::Outage)
            };
            for episode in episodes(&mut random, BROWNOUT, end, brownout) {
                network.add_episode(one, other, episode);
            }
            for episode in episodes(&mut random, (OUTAGE.0, OUTAGE.1), end, outage) {
                network.add_episode(one, other, episode);
            }
        }
    }
}

/// Episodes until `end`: the mean time in seconds between two of them, and how long the first one may have lasted already
/// when the simulation begins. `draw` draws how many seconds an episode lasts, and its kind.
fn episodes(
    random: &mut Random,
    (between, earlier): (f64, f64),
    end: f64,
    draw: impl Fn(&mut Random) -> (f64, EpisodeKind),
) -> Vec<Episode> {
    let mut all = Vec::new();
    let mut begin = random.exponential(between) - earlier;
    while begin < end {
        let (lasts, kind) = draw(random);
        let end = begin + lasts;
        all.push(Episode { begin, end, kind });
        begin = end + random.exponential(between);
    }
    all
}

/// A place on the sphere; none near the poles.
fn place(random: &mut Random) -> [f64; 3] {
    let height = -0.5 + 1.4 * random.uniform();
    let around = std::f64::consts::TAU * random.uniform();
    let radius = libm::sqrt(1.0 - height * height);
    [
        radius * libm::cos(around),
        radius * libm::sin(around),
        height,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(seed: u64) -> Network {
        let size = Synthetic {
            seed,
            transit: 30,
            leaves: 270,
            duration: TimeSpan::from_seconds(3600),
        };
        generate(&size).unwrap()
    }

    #[test]
    fn a_part_of_the_legs_violates_the_triangle_inequality() {
        for seed in 1..4 {
            let share = network(seed).violations();
            assert!((0.1..0.2).contains(&share), "{seed}: {share}");
        }
    }

    #[test]
    fn legs_are_within_the_distributions() {
        let network = network(1);
        let legs = |now| {
            let nodes = 0..network.len();
            let network = &network;
            nodes.flat_map(move |from| (0..from).map(move |to| network.leg(now, from, to)))
        };
        let mut losses: Vec<f64> = legs(0.0).flatten().map(|leg| leg.loss).collect();
        losses.sort_by(f64::total_cmp);
        let median = losses[losses.len() / 2];
        assert!((0.8e-4..1.3e-4).contains(&median), "{median}");
        // 44,850 legs, of which each has an outage of about 45 minutes in 260 hours.
        let out = legs(1_800.0).filter(Option::is_none).count();
        assert!((60..220).contains(&out), "{out}");
    }

    #[test]
    fn too_many_nodes_are_refused() {
        let size = Synthetic {
            seed: 1,
            transit: usize::MAX,
            leaves: 3,
            duration: TimeSpan::ZERO,
        };
        assert!(generate(&size).is_err());
        assert!(
            generate(&Synthetic {
                transit: 1,
                leaves: 1,
                ..size
            })
            .is_err()
        );
    }
}
