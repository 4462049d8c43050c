//! Each question of large overlays on a small synthetic network. A failure prints the seed and the results.

use midspan_overlay_sim::{Part, Questions, Results, Settings, Simulation, Synthetic, generate};
use midspan_units::TimeSpan;

/// The seed of all networks and sessions.
const SEED: u64 = 1;

fn questions(seed: u64, seconds: u64) -> Questions {
    let duration = TimeSpan::from_seconds(seconds);
    let size = Synthetic {
        seed,
        transit: 10,
        leaves: 40,
        duration,
    };
    Questions {
        network: generate(&size).unwrap(),
        settings: Settings {
            seed,
            duration,
            rate: 50.0,
            exits: 5,
            sampled: 10,
            ..Settings::default()
        },
    }
}

/// Simulates, and requires that each bound is met.
fn check(questions: &Questions, part: Part) -> Results {
    let (answers, results) = questions.answer(part, |_, _| {}).unwrap();
    for answer in &answers {
        println!("seed {SEED}: {answer:?}");
        assert_ne!(
            answer.met,
            Some(false),
            "seed {SEED}: {answer:?}\n{results:?}"
        );
    }
    results
}

#[test]
fn the_same_seed_gives_the_same_results() {
    let results = |seed| {
        let Questions { network, settings } = questions(seed, 120);
        Simulation::new(network, settings).run(|_| {})
    };
    let one = results(SEED);
    assert_eq!(one, results(SEED));
    assert_ne!(one.fingerprint, results(SEED + 1).fingerprint);
    assert!(one.sessions > 5_000 && one.over_transit > 100, "{one:?}");
}

#[test]
fn the_routes_have_most_of_the_oracles_gain_and_change_rarely() {
    let results = check(&questions(SEED, 400), Part::Routes);
    assert!(
        results.failed == 0 && results.changes.most > 0,
        "{results:?}"
    );
    let small = check(&questions(SEED, 200), Part::SmallSessions);
    // Without pairs, there would be no bound.
    for gain in results.fixed.iter().chain(&small.fixed) {
        assert!(gain.pairs >= 10 && gain.possible() > 0.05, "{gain:?}");
    }
}

#[test]
fn after_a_failure_of_transit_nodes_each_session_needs_at_most_one_retry() {
    let results = check(&questions(SEED, 240), Part::Failure);
    let after = results.after_failure;
    assert!(
        after.nodes == 1 && after.sessions > 5_000 && after.retried > 0,
        "{after:?}"
    );
}

/// 40 ingresses at the rate of the large simulation: with fewer sessions, their sizes alone would vary the load.
fn busy() -> Questions {
    let mut busy = questions(SEED, 240);
    busy.settings.rate = 500.0;
    busy.settings.ingresses = 40;
    busy.settings.sampled = u64::MAX;
    busy
}

#[test]
fn the_load_of_links_at_90_percent_does_not_swing() {
    let results = check(&busy(), Part::LoadOfLinks);
    assert!((0.85..0.95).contains(&results.mean_used(12)), "{results:?}");
}

#[test]
fn the_load_of_processors_at_90_percent_does_not_swing() {
    let results = check(&busy(), Part::LoadOfProcessors);
    assert!((0.75..0.9).contains(&results.mean_used(12)), "{results:?}");
}
