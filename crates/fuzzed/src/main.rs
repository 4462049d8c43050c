//! Runs the fuzz targets, and measures the coverage of their corpora (`make fuzz`).

mod build;
mod coverage;
mod fuzz;
mod self_test;

use std::path::PathBuf;
use std::process::ExitCode;

use midspan_fuzzed::planted::PlantedError;
use midspan_fuzzed::{TARGETS, Target, repository};
use thiserror::Error;

const HELP: &str = "\
Runs the fuzz targets of Midspan, and measures what their corpora reach.

Usage: fuzzing COMMAND [--runs N] [--seconds S] [TARGET ...]

Commands:
  list       Print the targets
  run        Fuzz each target for at most N runs or S seconds (10,000,000 and 1,200)
  coverage   Print how many lines of each parser its corpus reaches; at least 85 % are wanted
  collect    Take the few small inputs into fuzz/corpus that reach more than those there
  self-test  Plant a fault in each parser of a copy, and require that the fuzzer finds it
  replay     Give each target its corpus, and nothing else

Without TARGET: all of them. What the fuzzer has found lies in target/fuzz/found.
";

/// Why a command fails.
#[derive(Debug, Error)]
enum Error {
    /// The command line.
    #[error("{0}\n\n{HELP}")]
    Usage(String),
    /// A program could not be run.
    #[error("cannot run {program}: {source}")]
    Program {
        program: String,
        source: std::io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {what}")]
    Failed { program: String, what: String },
    /// A file could not be read or written.
    #[error("cannot use {}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The list of faults.
    #[error(transparent)]
    Planted(#[from] PlantedError),
}

impl Error {
    fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// The commands.
struct Options {
    runs: u64,
    seconds: u64,
    targets: Vec<&'static Target>,
}

fn main() -> ExitCode {
    match begin() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; returns whether no fault was found.
fn begin() -> Result<bool, Error> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let options = options(arguments)?;
    match command.as_str() {
        "list" => {
            for target in &options.targets {
                println!("{:<20}{}", target.name, target.reads);
            }
            Ok(true)
        }
        "run" => fuzz::run(&options),
        "collect" => fuzz::collect(&options),
        "coverage" => coverage::measure(&options),
        "self-test" => self_test::run(&options),
        "replay" => replay(&options),
        other => Err(Error::Usage(format!("no command is called \"{other}\""))),
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, Error> {
    let mut options = Options {
        runs: 10_000_000,
        seconds: 1_200,
        targets: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        let number = match argument.as_str() {
            "--runs" => &mut options.runs,
            "--seconds" => &mut options.seconds,
            name => {
                let target = TARGETS.iter().find(|target| target.name == name);
                let unknown = || Error::Usage(format!("no target is called \"{name}\""));
                options.targets.push(target.ok_or_else(unknown)?);
                continue;
            }
        };
        let value = arguments.next().and_then(|text| text.parse().ok());
        let wrong = || Error::Usage(format!("{argument} needs a whole number"));
        *number = value.filter(|value| *value > 0).ok_or_else(wrong)?;
    }
    if options.targets.is_empty() {
        options.targets = TARGETS.iter().collect();
    }
    Ok(options)
}

/// The directory of a target's corpus.
fn corpus(target: &Target) -> PathBuf {
    repository().join("fuzz/corpus").join(target.name)
}

fn replay(options: &Options) -> Result<bool, Error> {
    for target in &options.targets {
        let directory = corpus(target);
        let entries = std::fs::read_dir(&directory).map_err(Error::file(&directory))?;
        for entry in entries {
            let path = entry.map_err(Error::file(&directory))?.path();
            let input = std::fs::read(&path).map_err(Error::file(&path))?;
            (target.run)(&input);
        }
    }
    Ok(true)
}
