//! The questions about a synthetic overlay of 30 transit nodes and 270 leaves, without the tables of the command line:
//! `cargo run --release -p midspan-overlay-sim --example simulate -- [SECONDS] [SEED] [PART]`. PART is the first letters of
//! the name of one part, such as `routes` or `load`; without it, all parts are simulated.

use midspan_overlay_sim::{NetworkError, Part, Questions, Settings, Synthetic, generate};
use midspan_units::TimeSpan;

fn main() -> Result<(), NetworkError> {
    let number = |place, default| {
        let text = std::env::args().nth(place);
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (duration, seed) = (TimeSpan::from_seconds(number(1, 3600)), number(2, 1));
    let of_part = std::env::args().nth(3).unwrap_or_default();
    let network = generate(&Synthetic {
        seed,
        transit: 30,
        leaves: 270,
        duration,
    })?;
    let settings = Settings {
        seed,
        duration,
        ..Settings::default()
    };
    let questions = Questions { network, settings };
    for part in Part::ALL {
        if !part.name().starts_with(&of_part) {
            continue;
        }
        let (answers, results) = questions.answer(part, |_, _| {})?;
        for answer in answers {
            println!("{answer:?}");
        }
        println!(
            "{}: {} sessions, {} over transit nodes, {} failed",
            part.name(),
            results.sessions,
            results.over_transit,
            results.failed
        );
    }
    Ok(())
}
