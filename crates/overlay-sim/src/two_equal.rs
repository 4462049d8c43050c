//! The network for the question about swings of the load: two equal transit nodes.

use midspan_units::TimeSpan;

use crate::network::{Network, NetworkError, Role};
use crate::settings::Settings;

/// Transit nodes, ingresses at most, and leaves.
const TRANSIT: usize = 2;
const INGRESSES: usize = 200;
const LEAVES: usize = 210;
/// The load if all sessions take transit nodes, and share them equally.
const LOAD: f64 = 0.9;
/// Round trips in seconds and losses of legs from or to a transit node, and of the straight legs.
const OVER_TRANSIT: (f32, f64) = (0.04, 1e-5);
const STRAIGHT: (f32, f64) = (0.2, 0.01);
/// The rate of a leg in bit/s: the nodes are the bottlenecks.
const LEG_RATE: f64 = 1e9;
/// The load rises for this part of the time.
const RISES: u64 = 4;

/// Two equal transit nodes between up to 200 ingresses and their exits. The straight legs are slow and lossy. The transit
/// nodes together carry so much that the sessions would use 90 % of it.
///
/// # Errors
/// None with these numbers of nodes.
pub fn two_equal(settings: &Settings) -> Result<(Network, Settings), NetworkError> {
    let count = TRANSIT + LEAVES;
    let roles = (0..count).map(|node| match node < TRANSIT {
        true => Role::Transit,
        false => Role::Leaf,
    });
    let of_leg = |from: usize, to: usize| match from.min(to) < TRANSIT {
        true => OVER_TRANSIT,
        false => STRAIGHT,
    };
    let slice = (0..count * count).map(|place| of_leg(place / count, place % count).0);
    let mut network = Network::new(
        roles.collect(),
        vec![slice.collect()],
        TimeSpan::from_seconds(3600),
    )?;
    for from in 0..count {
        for to in 0..count {
            network.set_leg(from, to, of_leg(from, to).1, LEG_RATE);
        }
    }
    let offered = settings.rate * settings.size.bytes() as f64 * 8.0;
    for node in 0..TRANSIT {
        network.set_capacity(node, offered / LOAD / TRANSIT as f64);
    }
    let settings = Settings {
        ingresses: INGRESSES.min(settings.ingresses),
        rises: settings.duration / RISES,
        ..settings.clone()
    };
    Ok((network, settings))
}

/// How much of the time passes before the load is measured: it rises, and then settles for as long.
pub const SETTLED: f64 = 2.0 / RISES as f64;
