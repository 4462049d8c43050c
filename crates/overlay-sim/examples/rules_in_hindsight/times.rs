//! The true completion times over all routes of some pairs of leaves.

use std::error::Error;
use std::fs;
use std::path::Path;

use midspan_overlay_sim::readers::{Slices, matrices};
use midspan_overlay_sim::{Network, Role, weather};
use midspan_policy::overlay::{Congestion, RouteLeg, completion_time_apart};
use midspan_units::{BitRate, ByteSize, TimeSpan};

/// Pairs that are compared.
pub const PAIRS: usize = 64;
/// Slices of an hour, and of all data: three hours.
pub const SLICES_OF_HOUR: usize = 229;
const SLICES: usize = 3 * SLICES_OF_HOUR;
const FILES: usize = 688;
const SLICE: TimeSpan = TimeSpan::from_milliseconds(15_700);
/// As in the simulation of this data.
const TRANSIT: usize = 20;
const SEED: u64 = 1;
/// Stands for the time of a route that does not work, in seconds.
pub const BROKEN: f32 = 1_000.0;

/// The seconds of a transfer in each slice over each route: straight, then over one or two transit nodes.
#[derive(Debug)]
pub struct Times(pub Vec<Vec<f32>>);

/// A leg and the seconds of the transfer over it alone.
type Timed = (RouteLeg, f64);

/// Reads the data and times all routes of some pairs for a transfer of this size.
pub fn read(folder: &str, size: ByteSize) -> Result<Vec<Times>, Box<dyn Error>> {
    let folder = Path::new(folder);
    let read = |number: usize| {
        let name = format!("SeattleData_{number}");
        let text = fs::read_to_string(folder.join(&name));
        text.map(|text| (name, text))
    };
    let files = (1..=FILES).map(read).collect::<Result<Vec<_>, _>>()?;
    let slices = Slices {
        slice: SLICE,
        unit: 1.0,
        transit: TRANSIT,
    };
    let mut network = matrices(&files, &slices)?;
    weather(&mut network, SEED, SLICE * FILES as u64);
    let leaves: Vec<usize> = network.nodes(Role::Leaf).collect();
    // Each leaf about as often as the others, with ever other ones.
    let all = (0..).map(|number| {
        let (one, other) = (number % leaves.len(), (number * 29 + 7) % leaves.len());
        (leaves[one], leaves[other])
    });
    let exists = |(one, other): &(usize, usize)| one != other && is_leg(&network, *one, *other);
    let pairs = all.take(10 * PAIRS).filter(exists).take(PAIRS);
    let of_pair = |pair| {
        Times(
            (0..SLICES)
                .map(|at| row(&network, at, pair, size))
                .collect(),
        )
    };
    Ok(pairs.map(of_pair).collect())
}

fn is_leg(network: &Network, one: usize, other: usize) -> bool {
    network.leg(0.0, one, other).is_some()
}

/// The times of one slice.
fn row(network: &Network, slice: usize, pair: (usize, usize), size: ByteSize) -> Vec<f32> {
    let (ingress, exit) = pair;
    let now = (slice as f64 + 0.5) * SLICE.as_seconds();
    let leg = |from, to| timed(network, now, (from, to), size);
    let transit: Vec<usize> = network.nodes(Role::Transit).collect();
    let firsts: Vec<_> = transit.iter().map(|node| leg(exit, *node)).collect();
    let lasts: Vec<_> = transit.iter().map(|node| leg(*node, ingress)).collect();
    let mut row = vec![leg(exit, ingress).map_or(BROKEN, |leg| time([leg]))];
    for (far, first) in transit.iter().zip(&firsts) {
        for (near, last) in transit.iter().zip(&lasts) {
            let ends = first.zip(*last);
            let over = |(first, last)| match far == near {
                true => Some(time([first, last])),
                false => leg(*far, *near).map(|middle| time([first, middle, last])),
            };
            row.push(ends.and_then(over).unwrap_or(BROKEN));
        }
    }
    row
}

fn timed(network: &Network, now: f64, (from, to): (usize, usize), size: ByteSize) -> Option<Timed> {
    let leg = network.leg(now, from, to)?;
    let leg = RouteLeg {
        round_trip: TimeSpan::from_nanoseconds((leg.round_trip * 1e9) as u64),
        loss: leg.loss,
        rate: BitRate::from_bits_per_second(leg.rate as u64)?,
        congestion: Congestion::Cubic,
        is_hop: true,
    };
    Some((leg, leg.transfer_seconds(size)?))
}

fn time<const LEGS: usize>(legs: [Timed; LEGS]) -> f32 {
    let mut seconds = legs.into_iter().map(|(_, seconds)| seconds);
    let time = completion_time_apart(&legs.map(|(leg, _)| leg), |_| seconds.next());
    time.map_or(BROKEN, |time| time.as_seconds() as f32)
        .min(BROKEN)
}
