//! How much of the gain of the best fixed routes a rule can have over the measured round trips of Seattle:
//! `cargo run --release -p midspan-overlay-sim --example rules_in_hindsight -- NetLatency-Data/Seattle [BYTES]`.
//!
//! A rule consists of an [estimate] of the time over each route and of a [condition for a change](rule). It has the true
//! values of all legs until one slice (15.7 s) ago, which no node has. Every rule of a large family is tried on the same three hours, and the best
//! ones are printed. They are chosen afterwards, so no rule of this family has more.

mod estimate;
mod rule;
mod times;

use std::process::ExitCode;

use estimate::Estimate;
use midspan_units::ByteSize;
use rule::{Best, Hour, Rule};
use times::{PAIRS, Times};

/// Changes of a pair in an hour: as many as are asked for at most, more, and any number.
const LIMITS: [u32; 4] = [4, 8, 16, u32::MAX];
/// How many of the best rules of all hours are printed.
const PRINTED: usize = 3;

/// A rule and the seconds that it saves in each hour, compared with the straight routes.
struct Outcome {
    rule: Rule,
    estimate: Estimate,
    saved: [f64; Hour::ALL.len()],
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: rules_in_hindsight FOLDER [BYTES]");
        return ExitCode::FAILURE;
    };
    let bytes = arguments.next().map_or(Ok(1_000_000), |text| text.parse());
    let Ok(bytes) = bytes else {
        eprintln!("BYTES is a number, as 100000");
        return ExitCode::FAILURE;
    };
    let pairs = match times::read(&folder, ByteSize::from_bytes(bytes)) {
        Ok(pairs) => pairs,
        Err(error) => {
            eprintln!("{folder}: {error}");
            return ExitCode::FAILURE;
        }
    };
    print(&pairs);
    ExitCode::SUCCESS
}

fn print(pairs: &[Times]) {
    let gains = Hour::ALL.map(|hour| {
        let (straight, best) = hour.fixed(pairs);
        println!(
            "hour {}: the best fixed routes of {PAIRS} pairs take {:.1} % less time than the straight ones",
            hour.number(),
            100.0 * (1.0 - best / straight)
        );
        straight - best
    });
    for most_changes in LIMITS {
        let mut outcomes = outcomes(pairs, most_changes);
        match most_changes {
            u32::MAX => print!("\nany number of changes"),
            most => print!("\nat most {most} changes of a pair in an hour"),
        }
        println!("; {} rules", outcomes.len());
        for hour in Hour::ALL {
            let of_hour = |outcome: &Outcome| outcome.saved[hour.place()] / gains[hour.place()];
            outcomes.sort_by(|one, other| of_hour(other).total_cmp(&of_hour(one)));
            let name = format!("the best in hour {}", hour.number());
            if let Some(outcome) = outcomes.first() {
                outcome.print(&name, &gains);
            }
        }
        let of_all = |outcome: &Outcome| outcome.saved.iter().sum::<f64>();
        outcomes.sort_by(|one, other| of_all(other).total_cmp(&of_all(one)));
        for outcome in outcomes.iter().take(PRINTED) {
            outcome.print("among the best in all hours", &gains);
        }
    }
}

/// All rules of the family with this limit.
fn outcomes(pairs: &[Times], most_changes: u32) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for estimate in Estimate::family(pairs) {
        let first = outcomes.len();
        outcomes.extend(Rule::family(most_changes).map(|rule| Outcome {
            rule,
            estimate: estimate.clone(),
            saved: Default::default(),
        }));
        for times in pairs {
            let estimates = Best::of(estimate.of(times));
            for outcome in &mut outcomes[first..] {
                for hour in Hour::ALL {
                    outcome.saved[hour.place()] += outcome.rule.saves(times, &estimates, hour);
                }
            }
        }
    }
    outcomes
}

impl Outcome {
    /// Prints the share of the best fixed routes' gain in each hour and in all.
    fn print(&self, name: &str, gains: &[f64; Hour::ALL.len()]) {
        let shares = self.saved.iter().zip(gains);
        let shares: Vec<String> = shares
            .map(|(saved, gain)| format!("{:.1}", 100.0 * saved / gain))
            .collect();
        let all = 100.0 * self.saved.iter().sum::<f64>() / gains.iter().sum::<f64>();
        println!(
            "{all:5.1} % of the gain ({} in each hour): {name}: {:?}, {:?}",
            shares.join(", "),
            self.estimate,
            self.rule
        );
    }
}
