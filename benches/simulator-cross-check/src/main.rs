//! Compares Midspan's simulator with ns-2 and ns-3 in the same scenarios: the number of packets that a
//! flow carries at several probabilities of loss, as a Markdown table. The proxy's scenario and the
//! variants Tahoe and Reno are compared with ns-2 only.
//!
//! `cargo run --release -p simulator-cross-check`
//!
//! Needs both simulators (`apt-get install ns2 libns3-dev g++`), or one of them with `--against`. A row
//! is ok if the means differ by at most 3 %, or by at most the half width of the difference's 95 %
//! interval, which is the square root of the sum of the squares of both half widths. The exit status is
//! 1 if any row is not ok.

mod scenario;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::{Parser, ValueEnum};
use midspan_records::statistics::{Mean, mean};
use midspan_sim::tcp::Variant;
use scenario::{Shape, packets};
use simulator_cross_check::{Compiled, ns2, ns3};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A relative difference that is always permitted.
const TOLERANCE: f64 = 0.03;

/// Compare Midspan's simulator with ns-2 and ns-3
#[derive(Debug, Parser)]
struct Arguments {
    /// Runs of each scenario; without loss all runs are equal, so one is made
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Virtual seconds of each run
    #[arg(long, default_value_t = 100)]
    seconds: u64,
    /// The probabilities that a packet is lost
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "0,0.0001,0.001,0.003,0.01,0.02,0.05"
    )]
    loss: Vec<String>,
    /// Simulators to compare with; ns-3 takes most of the time
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ns-2,ns-3")]
    against: Vec<Other>,
}

/// A simulator to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Other {
    #[value(name = "ns-2")]
    Ns2,
    #[value(name = "ns-3")]
    Ns3,
}

/// A simulator.
#[derive(Debug)]
enum Simulator {
    Midspan,
    Ns2(PathBuf),
    Ns3(Compiled),
}

/// One line of the table: Midspan compared with another simulator.
#[derive(Debug)]
struct Row {
    shape: Shape,
    variant: Variant,
    loss: String,
    other: usize,
}

/// One run.
#[derive(Debug)]
struct Run {
    row: usize,
    simulator: usize,
    seed: u64,
}

fn main() -> Result<ExitCode, Error> {
    let arguments = Arguments::parse();
    let simulators = simulators(&arguments.against)?;
    let rows = rows(&arguments.loss, &simulators);
    let runs = runs(&rows, arguments.seeds);
    let results = run_all(&simulators, &rows, &runs, arguments.seconds)?;
    println!("| scenario | variant | loss | Midspan | other | deviation | |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut failed = 0;
    for (index, row) in rows.iter().enumerate() {
        let of = |simulator: usize| {
            let values = runs.iter().zip(&results);
            let values: Vec<f64> = values
                .filter(|(run, _)| run.row == index && run.simulator == simulator)
                .map(|(_, packets)| *packets)
                .collect();
            mean(&values).ok_or("no run")
        };
        let (ours, theirs) = (of(0)?, of(row.other)?);
        let ok = print(row, &simulators[row.other], &ours, &theirs);
        failed += usize::from(!ok);
    }
    println!();
    println!(
        "{} of {} ok; packets acknowledged in {} s, means of {} seeds with 95 % intervals",
        rows.len() - failed,
        rows.len(),
        arguments.seconds,
        arguments.seeds
    );
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Midspan and the selected other simulators.
fn simulators(against: &[Other]) -> Result<Vec<Simulator>, Error> {
    let mut simulators = vec![Simulator::Midspan];
    for other in against {
        simulators.push(match other {
            Other::Ns2 => Simulator::Ns2(ns2().ok_or("no ns-2: apt-get install ns2")?),
            Other::Ns3 => {
                let compiled = ns3(&here("flow.cc"))?;
                Simulator::Ns3(compiled.ok_or("no ns-3: apt-get install libns3-dev g++")?)
            }
        });
    }
    Ok(simulators)
}

fn rows(losses: &[String], simulators: &[Simulator]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (other, simulator) in simulators.iter().enumerate() {
        for (shape, variants) in simulator.can() {
            for variant in *variants {
                rows.extend(losses.iter().map(|loss| Row {
                    shape: *shape,
                    variant: *variant,
                    loss: loss.clone(),
                    other,
                }));
            }
        }
    }
    rows
}

fn runs(rows: &[Row], seeds: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let clean = row.loss.parse() == Ok(0.0);
        for simulator in [0, row.other] {
            for seed in 1..=if clean { 1 } else { seeds } {
                runs.push(Run {
                    row: index,
                    simulator,
                    seed,
                });
            }
        }
    }
    runs
}

/// The number of packets of each run. Runs use all cores.
fn run_all(
    simulators: &[Simulator],
    rows: &[Row],
    runs: &[Run],
    seconds: u64,
) -> Result<Vec<f64>, Error> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![0.0; runs.len()]);
    let work = || -> Result<(), Error> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(index) else {
                return Ok(());
            };
            let row = &rows[run.row];
            let (simulator, other) = (&simulators[run.simulator], &simulators[row.other]);
            let packets = simulator.run(row, other, run.seed, seconds)?;
            results.lock().map_err(|_| "a thread failed")?[index] = packets;
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err("a thread failed".into()))
        })
    })?;
    Ok(results.into_inner().map_err(|_| "a thread failed")?)
}

impl Simulator {
    const fn name(&self) -> &'static str {
        match self {
            Self::Midspan => "Midspan",
            Self::Ns2(_) => "ns-2",
            Self::Ns3(_) => "ns-3",
        }
    }

    /// The scenarios and TCP variants in which this simulator is compared. ns-3 has no Tahoe, and
    /// its Reno recovers as NewReno does.
    const fn can(&self) -> &'static [(Shape, &'static [Variant])] {
        match self {
            Self::Midspan => &[],
            Self::Ns2(_) => &[
                (
                    Shape::Single,
                    &[
                        Variant::Tahoe,
                        Variant::Reno,
                        Variant::NewReno,
                        Variant::Sack,
                    ],
                ),
                (
                    Shape::Split,
                    &[Variant::Tahoe, Variant::Reno, Variant::NewReno],
                ),
            ],
            Self::Ns3(_) => &[(Shape::Single, &[Variant::NewReno, Variant::Sack])],
        }
    }

    /// Whether the simulator has a working limited transmit. Without SACK, ns-3 counts a segment as
    /// received at each duplicate ACK and does not subtract it when a new ACK arrives; it then
    /// sends more than cwnd.
    fn limits_transmit(&self, variant: Variant) -> bool {
        !matches!(self, Self::Ns3(_)) || variant == Variant::Sack
    }

    /// Number of acknowledged packets, in a row that compares with `other`.
    fn run(&self, row: &Row, other: &Self, seed: u64, seconds: u64) -> Result<f64, Error> {
        let variant = format!("{:?}", row.variant);
        let mut command = match self {
            Self::Midspan => {
                let limited = other.limits_transmit(row.variant);
                return packets(row.shape, row.variant, limited, &row.loss, seed, seconds);
            }
            Self::Ns2(program) => {
                let mut command = Command::new(program);
                command
                    .arg(here("flow.tcl"))
                    .args([row.shape.name(), &variant]);
                command
            }
            Self::Ns3(compiled) => {
                let mut command = Command::new(&compiled.program);
                command.arg(&variant);
                command
            }
        };
        let output = command
            .arg(&row.loss)
            .args([seed.to_string(), seconds.to_string()])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.trim().parse().map_err(|_| {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("{command:?} printed {text}{errors}")
        })?)
    }
}

/// Prints one line of the table. Returns whether it is ok.
fn print(row: &Row, other: &Simulator, ours: &Mean, theirs: &Mean) -> bool {
    let half = |mean: &Mean| mean.half_width.unwrap_or(0.0);
    let deviation = ours.value / theirs.value - 1.0;
    let within = half(ours).hypot(half(theirs));
    let ok = deviation.abs() <= TOLERANCE || (ours.value - theirs.value).abs() <= within;
    println!(
        "| {} | {:?} | {} | {:.0} ± {:.0} | {} {:.0} ± {:.0} | {:+.1} % | {} |",
        row.shape.name(),
        row.variant,
        row.loss,
        ours.value,
        half(ours),
        other.name(),
        theirs.value,
        half(theirs),
        100.0 * deviation,
        if ok { "ok" } else { "not ok" },
    );
    ok
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}
