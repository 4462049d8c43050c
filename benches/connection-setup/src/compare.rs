//! Rounds, medians, table, records.

use std::time::{Duration, Instant};

use midspan_linux::namespace;
use midspan_records::statistics::quantile;
use midspan_records::{By, Record, Records, Spread};

use crate::chain::{Case, Chain};
use crate::{Failure, Plan, load};

/// The measured quantities: name and unit in records; unit, size of this unit and decimals in the
/// table.
const QUANTITIES: [(&str, &str, &str, f64, usize); 5] = [
    ("set-up time, median", "s", "us", 1e-6, 0),
    ("set-up time, 99 % below", "s", "us", 1e-6, 0),
    ("connection rate", "1/s", "1/s", 1.0, 0),
    ("relay CPU time per connection", "s", "us", 1e-6, 0),
    ("connections reset", "", "a run", 1.0, 0),
];

/// One run of one case: a value for each of [`QUANTITIES`].
type Run = [f64; QUANTITIES.len()];

/// Measures all cases and prints the comparison.
pub fn run(plan: &Plan) -> Result<(), Failure> {
    namespace::isolate()?;
    let mut chains = Vec::new();
    for case in Case::ALL {
        chains.push(Chain::new(case, plan.clients)?);
    }
    let start = Instant::now();
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); chains.len()];
    for round in 0..plan.rounds {
        // Each case is first, second, … equally often.
        for step in 0..chains.len() {
            let index = (round + step) % chains.len();
            let run = measure(&chains[index], plan);
            let name = Case::ALL[index].name();
            runs[index].push(run.map_err(|error| format!("{name}: {error}"))?);
        }
        eprintln!("round {} of {}", round + 1, plan.rounds);
    }
    let seconds = start.elapsed().as_secs_f64();
    for chain in chains {
        chain.stop()?;
    }
    let records = records(&runs)?;
    if plan.json {
        println!("{}", records.to_json());
        return Ok(());
    }
    print_table(&records);
    let count = runs.len() * plan.rounds;
    println!(
        "\n{count} runs, {} of each case in turn, of {:.1} s, {seconds:.0} s in all; median \
         (95 % interval of the median); ratios within rounds",
        plan.rounds,
        seconds / count as f64
    );
    Ok(())
}

fn measure(chain: &Chain, plan: &Plan) -> Result<Run, Failure> {
    // Afterwards neighbour entries and caches exist, and Midspan's threads are awake.
    load::set_up_times(&chain.client, 50)?;
    let times = load::set_up_times(&chain.client, plan.connections)?;
    let quantile = |fraction| quantile(&times, fraction).ok_or("no connections");
    let span = Duration::from_secs_f64(plan.seconds);
    let before = chain.relay_time()?;
    let start = Instant::now();
    let (rate, resets) = load::connection_rate(&chain.client, plan.clients, span)?;
    let connections = rate * start.elapsed().as_secs_f64();
    let time = chain.relay_time()?.saturating_sub(before).as_secs_f64();
    Ok([
        quantile(0.5)?,
        quantile(0.99)?,
        rate,
        time / connections,
        resets,
    ])
}

/// For each quantity the values of all cases, followed by the ratios to the first case.
fn records(runs: &[Vec<Run>]) -> Result<Records, Failure> {
    let mut records = Records::default();
    let mut push = |case: &str, quantity: &str, unit: &str, values: &[f64]| {
        let spread = Spread::of(values).ok_or("no runs")?;
        records.push(
            Record::new(
                "connection set-up",
                case,
                quantity,
                unit,
                By::Measurement,
                spread.median,
            )
            .with_interval(&spread),
        );
        Ok::<_, Failure>(())
    };
    for (index, (quantity, unit, ..)) in QUANTITIES.iter().enumerate() {
        for (case, of_case) in Case::ALL.iter().zip(runs) {
            let values: Vec<f64> = of_case.iter().map(|run| run[index]).collect();
            push(case.name(), quantity, unit, &values)?;
        }
        // With plain routing there is no relay's CPU time and there are no resets.
        if index >= 3 {
            continue;
        }
        for (case, of_case) in Case::ALL.iter().zip(runs) {
            let first = runs.first().ok_or("no runs")?;
            let ratios: Vec<f64> = of_case
                .iter()
                .zip(first)
                .map(|(run, first)| run[index] / first[index])
                .collect();
            push(
                case.name(),
                &format!("{quantity}, ratio to routing"),
                "",
                &ratios,
            )?;
        }
    }
    Ok(records)
}

fn print_table(records: &Records) {
    print!("{:<40}", "");
    for case in Case::ALL {
        print!(" {:>24}", case.name());
    }
    println!();
    for row in records.records.chunks(Case::ALL.len()) {
        let Some(first) = row.first() else { continue };
        let known = QUANTITIES.iter().find(|known| known.0 == first.quantity);
        let (name, size, decimals) = match known {
            Some((name, _, unit, size, decimals)) => (format!("{name} ({unit})"), *size, *decimals),
            None => ("  ratio to routing".to_owned(), 1.0, 2),
        };
        print!("{name:<40}");
        for record in row {
            let text = |number: f64| format!("{:.decimals$}", number / size);
            let low = text(record.low.unwrap_or(record.value));
            let high = text(record.high.unwrap_or(record.value));
            print!(
                " {:>24}",
                format!("{} ({low} … {high})", text(record.value))
            );
        }
        println!();
    }
}
