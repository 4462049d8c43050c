//! Compares senders of the simulator with those of the kernel: bulk transfers of a fixed time over
//! the same paths with the same seeds, in the simulator and in the lab.
//!
//! `cargo run --release -p simulator-beside-kernel -- --state target/beside-kernel.jsonl`
//!
//! | module | content |
//! | --- | --- |
//! | [`cells`] | the paths |
//! | [`kernel`], [`simulated`] | one run |
//! | [`verdict`] | medians, ratios, bounds |
//!
//! A cell is one path. A line of the table is ok if the simulator's median differs from the kernel's by
//! at most 10 % (goodput; sender's smoothed round trip) or 25 % (share of segments that were sent
//! again; a difference of 0.05 % of all segments is always ok). The exit status is 3 if a line is not
//! ok. A line without runs of the kernel is not judged.

mod cells;
mod kernel;
mod simulated;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use midspan_records::{RunKey, RunKind, Store};
use serde::{Deserialize, Serialize};

use cells::Cell;
use verdict::Verdict;

/// Any error that stops a measurement.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Exit status if a bound was missed.
const NOT_MET: u8 = 3;
/// The stored runs. Increase the version if the meaning of a [`Run`] changes.
const RUNS: RunKind = RunKind {
    name: "beside-kernel",
    version: 1,
    before: None,
};
/// Seconds of a run in the lab apart from its transfer.
const SET_UP: u64 = 3;

/// Compares the simulator's BBR with that of the kernel: goodput, retransmissions, round trips.
///
/// Example: `cargo run --release -p simulator-beside-kernel -- --state target/beside-kernel.jsonl`
#[derive(Parser, Debug, Clone)]
#[command(about)]
struct Arguments {
    /// Paths to compare; all by default
    #[arg(long, value_delimiter = ',', value_enum)]
    cells: Vec<Cell>,
    /// Congestion control of the sender, by its kernel name: bbr, cubic or reno
    #[arg(long, default_value = "bbr")]
    congestion_control: String,
    /// Runs of each path, each with a seed of its own
    #[arg(long, default_value_t = 5)]
    seeds: u32,
    /// Seconds of each transfer
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Run only the simulator
    #[arg(long)]
    without_kernel: bool,
    /// File for finished runs of the kernel; with it, an interrupted measurement can continue
    #[arg(long)]
    state: Option<PathBuf>,
    /// Print JSON records instead of a table
    #[arg(long)]
    json: bool,
}

/// The values of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    /// In bit/s.
    goodput: f64,
    /// Segments with data that were sent, those that were sent again included.
    segments: f64,
    /// Those that were sent again.
    again: f64,
    /// The sender's smoothed round trip in seconds: the median of its values after each second.
    round_trip: Option<f64>,
    /// Why the run does not count.
    void: Option<String>,
}

fn main() -> ExitCode {
    match compare(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_MET),
        Err(failure) => {
            eprintln!("simulator-beside-kernel: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn compare(mut arguments: Arguments) -> Result<bool, Failure> {
    if arguments.cells.is_empty() {
        arguments.cells = Cell::ALL.to_vec();
    }
    let mut store: Store<Run> = match &arguments.state {
        Some(file) => Store::open(file, RUNS)?,
        None => Store::in_memory(RUNS),
    };
    if let Some(note) = store.note() {
        eprintln!("{note}");
    }
    if !arguments.without_kernel {
        // The process leaves the host's network; an ordinary user becomes root of a user namespace.
        midspan_linux::namespace::isolate()?;
        run_kernel(&arguments, &mut store)?;
    }
    let mut verdict = Verdict::default();
    for cell in &arguments.cells {
        let path = cell.path(&arguments.congestion_control, arguments.seconds)?;
        let mut of_kernel = Vec::new();
        let mut of_simulator = Vec::new();
        for seed in 0..arguments.seeds {
            of_simulator.push(simulated::run(&path, seed)?);
            of_kernel.extend(store.get(&key(*cell, seed, &arguments)).cloned());
        }
        verdict.add(*cell, &of_kernel, &of_simulator);
    }
    if arguments.json {
        println!("{}", verdict.to_json());
    } else {
        verdict.print(
            &arguments.congestion_control,
            arguments.seconds,
            arguments.seeds,
        );
    }
    Ok(verdict.is_met())
}

/// Makes the runs of the kernel that are not stored. All paths run once before one runs again.
fn run_kernel(arguments: &Arguments, store: &mut Store<Run>) -> Result<(), Failure> {
    let mut left = Vec::new();
    for seed in 0..arguments.seeds {
        for cell in &arguments.cells {
            let stored = store.get(&key(*cell, seed, arguments));
            if stored.is_none_or(|run| run.void.is_some()) {
                left.push((*cell, seed));
            }
        }
    }
    let all = arguments.cells.len() * arguments.seeds as usize;
    let each = u64::from(arguments.seconds) + SET_UP;
    eprintln!(
        "{} of {all} runs of the kernel are left; each takes about {each} s, together {:.1} minutes",
        left.len(),
        midspan_units::number(each * left.len() as u64) / 60.0
    );
    for (number, (cell, seed)) in (1..).zip(&left) {
        let path = cell.path(&arguments.congestion_control, arguments.seconds)?;
        let run = kernel::run(&path, *seed, arguments.seconds)?;
        eprintln!("{number} of {}: {cell}, seed {seed}: {run}", left.len());
        store.put(&key(*cell, *seed, arguments), run)?;
    }
    Ok(())
}

/// What the result of a run of the kernel depends on.
fn key(cell: Cell, seed: u32, arguments: &Arguments) -> RunKey {
    RunKey::new()
        .with("path", cell)
        .with("congestion control", &arguments.congestion_control)
        .with("seed", seed)
        .with("seconds", arguments.seconds)
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let round_trip = self.round_trip.unwrap_or(f64::NAN) * 1000.0;
        write!(
            f,
            "{:.2} Mbit/s, {:.0} of {:.0} segments sent again, round trip {round_trip:.1} ms",
            self.goodput / 1e6,
            self.again,
            self.segments,
        )?;
        match &self.void {
            Some(reason) => write!(f, " (void: {reason})"),
            None => Ok(()),
        }
    }
}
