//! A network whose round trips change all the time.

use midspan_overlay_sim::{Network, Part, Questions, Role, Settings, weather};
use midspan_units::{ByteSize, TimeSpan};

const NODES: u64 = 26;
const TRANSIT: u64 = 6;
const MINUTES: u64 = 30;
const SIZE: ByteSize = ByteSize::from_bytes(100_000);

/// A number below 1,000 that depends on all of these.
fn drawn(seed: u64, slice: u64, one: u64, other: u64) -> u64 {
    [slice, one.min(other), one.max(other)]
        .into_iter()
        .fold(seed, |mixed, number| {
            let mixed = (mixed ^ number)
                .wrapping_add(1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 29
        })
        % 1_000
}

/// Each leg has another round trip every 16 s, 40 to 160 ms, and a twentieth of the time four times as much.
fn questions(seed: u64) -> Questions {
    let round_trip = |slice, one, other| {
        let drawn = drawn(seed, slice, one, other);
        let usual = 0.04 + 0.12 * drawn as f32 / 1_000.0;
        usual * if drawn.is_multiple_of(20) { 4.0 } else { 1.0 }
    };
    let slice = |number| {
        let rows = (0..NODES).flat_map(|one| (0..NODES).map(move |other| (one, other)));
        rows.map(|(one, other)| {
            if one == other {
                0.0
            } else {
                round_trip(number, one, other)
            }
        })
        .collect()
    };
    let roles = (0..NODES).map(|node| {
        if node < TRANSIT {
            Role::Transit
        } else {
            Role::Leaf
        }
    });
    let slices = (0..MINUTES * 60 / 16).map(slice);
    let mut network = Network::new(
        roles.collect(),
        slices.collect(),
        TimeSpan::from_seconds(16),
    )
    .unwrap();
    let duration = TimeSpan::from_seconds(MINUTES * 60);
    weather(&mut network, seed, duration);
    let settings = Settings {
        seed,
        duration,
        rate: 30.0,
        exits: 5,
        size: SIZE,
        transfer: SIZE,
        sampled: 20,
        ..Settings::default()
    };
    Questions { network, settings }
}

/// No other route is better on the whole, but some always look better. Without margins for the noise of legs, and with one bound for
/// all changes of an hour, sessions of seed 1 take 35 % longer than by straight routes.
#[test]
fn noise_costs_little_where_straight_routes_are_the_best_ones() {
    for seed in 1..=2 {
        let (_, results) = questions(seed).answer(Part::Routes, |_, _| {}).unwrap();
        println!("seed {seed}: {:?} {:?}", results.fixed, results.changes);
        assert!(results.changes.most <= 4, "seed {seed}: {results:?}");
        // Those of 100 KB.
        let gain = results.fixed[0];
        let is_worse = gain.chosen > gain.straight * 1.1;
        assert!(gain.pairs > 10 && !is_worse, "seed {seed}: {gain:?}");
    }
}
