//! Medians, ratios, and their bounds.

use midspan_records::{Bound, By, Record, Records, Spread};
use midspan_report::{pivot, stdout_width};

use crate::rounds::Run;

/// Cores that the samples of all sessions may take.
const CORES: f64 = 1.0;
/// The least rate of samples with the last number of threads, as a multiple of that with the second.
const LEAST_RATIO: f64 = 1.0;

/// The results as records.
pub fn records(runs: &[Run], threads: &[usize]) -> Records {
    let mut records = Records::default();
    for count in threads {
        let case = format!("{count} threads");
        let spread = |value: fn(&Run) -> f64| {
            let of = runs.iter().filter(|run| run.threads == *count).map(value);
            Spread::of(&of.collect::<Vec<f64>>())
        };
        if let Some(cores) = spread(cores) {
            let record = record("many sessions", &case, "CPU time per second", "s", &cores);
            records.push(judged(record, &cores, Bound::AtMost(CORES)));
        }
        for (value, name, unit) in [
            (cost as fn(&Run) -> f64, "CPU time of a sample", "s"),
            (
                virtual_rate as fn(&Run) -> f64,
                "samples per second of the sessions",
                "1/s",
            ),
            (
                rate as fn(&Run) -> f64,
                "samples per second of the machine",
                "1/s",
            ),
        ] {
            if let Some(spread) = spread(value) {
                records.push(record("many sessions", &case, name, unit, &spread));
            }
        }
    }
    if let [_, second, .., last] = threads
        && let Some(ratios) = ratios(runs, *last, *second)
    {
        let case = format!("{last} / {second} threads");
        let name = "samples per second of the machine";
        let record = record("ratio", &case, name, "", &ratios);
        records.push(judged(record, &ratios, Bound::AtLeast(LEAST_RATIO)));
    }
    records
}

/// Prints the results as tables.
pub fn print(records: &Records, runs: &[Run]) {
    for (item, title) in [
        (
            "many sessions",
            "Samples of active sessions: median and 95 % interval",
        ),
        ("ratio", "Ratio of the same round: median and 95 % interval"),
    ] {
        let of = records.records.iter().filter(|record| record.item == item);
        let of: Vec<Record> = of.cloned().collect();
        println!("{}", pivot(title, &of).to_text(stdout_width()));
    }
    let all: f64 = runs.iter().map(|run| run.took.as_secs_f64()).sum();
    let each = all / runs.len().max(1) as f64;
    println!("{} runs of {each:.1} s, {all:.0} s in all", runs.len());
}

fn cores(run: &Run) -> f64 {
    run.cpu.as_secs_f64() / run.seconds as f64
}

fn cost(run: &Run) -> f64 {
    run.cpu.as_secs_f64() / run.samples.max(1) as f64
}

fn virtual_rate(run: &Run) -> f64 {
    run.samples as f64 / run.seconds as f64
}

fn rate(run: &Run) -> f64 {
    run.samples as f64 / run.elapsed.as_secs_f64().max(1e-9)
}

fn ratios(runs: &[Run], of: usize, to: usize) -> Option<Spread> {
    let find = |round: usize, threads: usize| {
        runs.iter()
            .find(|run| (run.round, run.threads) == (round, threads))
            .map(rate)
    };
    let rounds = runs.iter().map(|run| run.round).max()? + 1;
    let ratios = (0..rounds).filter_map(|round| Some(find(round, of)? / find(round, to)?));
    Spread::of(&ratios.collect::<Vec<f64>>())
}

fn record(item: &str, case: &str, name: &str, unit: &str, spread: &Spread) -> Record {
    Record::new(item, case, name, unit, By::Measurement, spread.median).with_interval(spread)
}

/// The record with the verdict and the bound.
fn judged(record: Record, spread: &Spread, bound: Bound) -> Record {
    match bound.verdict(spread, None) {
        Some(ok) => record.with_ok(ok).with_note(bound.to_string()),
        None => record.with_note(format!("{bound}: open, the interval holds it")),
    }
}
