//! `machines`: runs the tests of the kernel, and scenarios with systemd, on Debian's releases in
//! emulated machines.

mod batch;
mod error;
mod image;
mod job;
mod machine;
mod programs;
mod record;
mod release;
mod report;
mod scenario;
mod work;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use midspan_records::{RunKind, Store};
use wildmatch::WildMatch;

use error::Error;
use image::Image;
use job::{Job, SCENARIO};
use machine::{LIMIT_OF_START, Machine, Parts};
use programs::Programs;
use record::Record;
use release::Release;
use work::{Limits, Work};

/// Exit status if something failed.
const FAILED: u8 = 3;
/// Exit status if time was up before everything was done: EX_TEMPFAIL of <sysexits.h>.
const NOT_DONE: u8 = 75;
const RUNS: RunKind = RunKind {
    name: "machine",
    version: 1,
    before: None,
};

/// Runs Midspan's kernel tests, and scenarios with systemd, on Debian 12 and 13 with their kernels.
///
/// QEMU emulates the machines without virtualization, so they run on any host and are about 15
/// times slower than a real one. Images are made from the mirrors in this machine's configuration of
/// apt; only root can make them. Results are kept: a second call continues where the first stopped.
/// Exit status: 0 if all jobs passed, 3 if one failed, 75 if time was up before all were done, 1 for
/// an error.
#[derive(Parser, Debug)]
#[command(
    name = "machines",
    max_term_width = 100,
    after_help = "Examples:\n  machines --list\n  machines --releases bookworm --only '*passing*'\n  \
                  machines --again --only 'scenario power-cut*'\n  \
                  machines --record docs/measurements/machines.csv\n  \
                  machines --releases trixie --command 'nft --version; uname -a'"
)]
struct Arguments {
    /// Releases of Debian
    #[arg(long, value_delimiter = ',', value_enum, default_values = ["bookworm", "trixie"])]
    releases: Vec<Release>,
    /// Only the tests of these packages, such as midspan-linux; the scenarios belong to midspan
    #[arg(long, value_delimiter = ',', value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Only jobs whose names fit one of these patterns (* any text, ? any character)
    #[arg(long, value_delimiter = ';', value_name = "PATTERN")]
    only: Vec<String>,
    /// After this many minutes, begin no further job and end the running one, which then begins
    /// again in the next call; a job takes at most 35 minutes
    #[arg(long, default_value_t = 40)]
    minutes: u64,
    /// Do what has failed again, too
    #[arg(long)]
    again: bool,
    /// List the jobs with their results, and run nothing
    #[arg(long)]
    list: bool,
    /// Run this command in each release instead, and print its output
    #[arg(long)]
    command: Option<String>,
    /// Also write the results, with the commit that they belong to, into this file; jobs that have not failed in it
    /// are not done again, whatever has changed since
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Folder for images and results
    #[arg(long, value_name = "FOLDER", default_value = "target/machines")]
    folder: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to standard error.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "machines: {line}");
}

fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let start = Instant::now();
    fs::create_dir_all(&arguments.folder).map_err(Error::file(&arguments.folder))?;
    let folder = std::path::absolute(&arguments.folder).map_err(Error::file(&arguments.folder))?;
    let mut report = say;
    let programs = Programs::build(&folder, &|name| arguments.has_tests_of(name), &mut report)?;
    let jobs = arguments.chosen(&programs);
    if jobs.is_empty() && arguments.command.is_none() {
        return Err(Error::NoJob(arguments.only.join(";")));
    }
    if !programs.has_packages && jobs.iter().any(|job| matches!(job, Job::Scenario(_))) {
        return Err(Error::NoPackages);
    }
    let images = arguments
        .releases
        .iter()
        .map(|&release| Image::get(release, &folder, &mut report))
        .collect::<Result<Vec<Image>, Error>>()?;
    if let Some(command) = &arguments.command {
        for image in &images {
            print_command(&Parts::of(image, &programs), command)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let limits = Limits {
        lists_only: arguments.list,
        repeats_failed: arguments.again,
        until: start + Duration::from_secs(arguments.minutes.saturating_mul(60)),
    };
    let store = Store::open(&folder.join("results"), RUNS)?;
    let record = arguments.record.as_deref().map(Record::open).transpose()?;
    let results = Work::new(&programs, &jobs, store, record, limits).all(&images)?;
    let mut standard_output = std::io::stdout();
    let text = results.text(arguments.list);
    let _ = standard_output.write_all(text.as_bytes());
    Ok(if results.have_failed() {
        ExitCode::from(FAILED)
    } else if results.are_incomplete() {
        ExitCode::from(NOT_DONE)
    } else {
        ExitCode::SUCCESS
    })
}

fn print_command(parts: &Parts<'_>, command: &str) -> Result<(), Error> {
    let mut machine = Machine::new(parts, LIMIT_OF_START)?;
    let printed = machine.must(command)?;
    let mut standard_output = std::io::stdout();
    let _ = write!(
        standard_output,
        "{}, Linux {}:\n{printed}",
        parts.image.release.name(),
        machine.kernel
    );
    Ok(())
}

impl Arguments {
    fn has_package(&self, name: &str) -> bool {
        self.packages.is_empty() || self.packages.iter().any(|one| one == name)
    }

    /// Whether a test of this package can be among the jobs.
    fn has_tests_of(&self, package: &str) -> bool {
        let is_test = |pattern: &String| !pattern.starts_with(SCENARIO);
        self.has_package(package) && (self.only.is_empty() || self.only.iter().any(is_test))
    }

    /// All jobs of the packages whose names fit one of the patterns, or all without any.
    fn chosen<'a>(&self, programs: &'a Programs) -> Vec<Job<'a>> {
        let scenarios = scenario::ALL.iter().map(Job::Scenario);
        let scenarios = scenarios.filter(|_| self.has_package("midspan"));
        let tests = programs.tests.iter().flat_map(|program| {
            let parts = program.parts.iter();
            parts.map(move |part| Job::Test(program, part))
        });
        scenarios
            .chain(tests)
            .filter(|job| {
                let name = job.name();
                let fits = |pattern: &String| WildMatch::new(pattern).matches(&name);
                self.only.is_empty() || self.only.iter().any(fits)
            })
            .collect()
    }
}
