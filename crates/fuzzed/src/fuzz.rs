//! Runs the fuzzer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use midspan_fuzzed::{Target, repository};

use crate::{Error, Options, build, corpus};

/// An input that takes longer than this is a fault; in seconds, on a busy machine.
const SLOWEST: u32 = 10;
/// An input that needs more memory than this is a fault; in MiB.
const MOST_MEMORY: u32 = 1024;

/// The fuzzer's report at its end.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of inputs.
    pub runs: u64,
    /// Inputs per second.
    pub per_second: u64,
    /// Seconds of the slowest input.
    pub slowest: u64,
    /// The whole output.
    pub text: String,
    /// The fuzzer found no fault.
    pub clean: bool,
}

/// Fuzzes; returns whether no fault was found.
pub fn run(options: &Options) -> Result<bool, Error> {
    let programs = programs(options)?;
    println!("| target | runs | seconds | runs/s | slowest input | faults |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut is_clean = true;
    for target in &options.targets {
        let faults = build::target_directory().join("faults").join(target.name);
        let found = found(target);
        let report = fuzz(
            &programs,
            target,
            options,
            &[&found, &corpus(target)],
            &faults,
        )?;
        let seconds = report.runs.checked_div(report.per_second).unwrap_or(0);
        let (name, runs, speed) = (target.name, report.runs, report.per_second);
        let slowest = report.slowest;
        let told = if report.clean { "none" } else { "found" };
        println!("| `{name}` | {runs} | {seconds} | {speed} | {slowest} s | {told} |");
        if !report.clean {
            is_clean = false;
            eprintln!("{}\nthe input is in {}", report.text, faults.display());
        }
    }
    Ok(is_clean)
}

/// Runs one target from the inputs in `directories`; new inputs go into the first directory.
pub fn fuzz(
    programs: &Path,
    target: &Target,
    options: &Options,
    directories: &[&Path],
    faults: &Path,
) -> Result<Report, Error> {
    for directory in directories.iter().copied().chain([faults]) {
        fs::create_dir_all(directory).map_err(Error::file(directory))?;
    }
    let program = programs.join(target.name);
    let output = Command::new(&program)
        .arg(format!("-runs={}", options.runs))
        .arg(format!("-max_total_time={}", options.seconds))
        .arg(format!("-max_len={}", target.longest))
        .arg(format!("-timeout={SLOWEST}"))
        .arg(format!("-rss_limit_mb={MOST_MEMORY}"))
        .arg(format!("-artifact_prefix={}/", faults.display()))
        .arg("-print_final_stats=1")
        .args(directories)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|source| Error::Program {
            program: program.display().to_string(),
            source,
        })?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    Ok(Report {
        runs: number("stat::number_of_executed_units:"),
        per_second: number("stat::average_exec_per_sec:"),
        slowest: number("stat::slowest_unit_time_sec:"),
        clean: output.status.success(),
        text,
    })
}

/// Updates each corpus: files with a name remain, and so do the few inputs of the fuzzer, new or old,
/// that reach more lines than these files.
pub fn collect(options: &Options) -> Result<bool, Error> {
    let programs = programs(options)?;
    for target in &options.targets {
        let (corpus, found) = (corpus(target), found(target));
        fs::create_dir_all(&found).map_err(Error::file(&found))?;
        let scratch = build::target_directory().join("collect").join(target.name);
        let (small, least) = (scratch.join("small"), scratch.join("least"));
        let _ = fs::remove_dir_all(&scratch);
        for directory in [&small, &least] {
            fs::create_dir_all(directory).map_err(Error::file(directory))?;
        }
        for (path, content) in contents(&found)? {
            let place = small.join(path.file_name().unwrap_or_default());
            if content.len() <= SMALL {
                fs::write(&place, content).map_err(Error::file(&place))?;
            }
        }
        let mut fuzzer = Command::new(programs.join(target.name));
        // The number of executions of a line does not matter.
        fuzzer
            .args(["-set_cover_merge=1", "-use_counters=0"])
            .args([&least, &corpus, &small]);
        build::output(&mut fuzzer)?;
        take(&least, &corpus)?;
    }
    Ok(true)
}

/// Largest input of the fuzzer that is kept, in bytes.
const SMALL: usize = 512;

/// Replaces the files of `to` by those of `from`, except files with a name.
fn take(from: &Path, to: &Path) -> Result<(), Error> {
    let mut wanted = contents(from)?;
    for (path, content) in contents(to)? {
        match wanted.iter().position(|(_, other)| *other == content) {
            Some(place) => drop(wanted.swap_remove(place)),
            None if is_found(&path) => fs::remove_file(&path).map_err(Error::file(&path))?,
            None => {}
        }
    }
    for (path, content) in wanted {
        let place = to.join(path.file_name().unwrap_or_default());
        fs::write(&place, content).map_err(Error::file(&place))?;
    }
    Ok(())
}

/// The fuzzer names a file by the SHA-1 of its content.
fn is_found(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.len() == 40 && name.iter().all(u8::is_ascii_hexdigit)
}

fn contents(directory: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, Error> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::file(directory))? {
        let path = entry.map_err(Error::file(directory))?.path();
        let content = fs::read(&path).map_err(Error::file(&path))?;
        all.push((path, content));
    }
    all.sort();
    Ok(all)
}

fn programs(options: &Options) -> Result<PathBuf, Error> {
    let names = options.targets.iter().map(|target| target.name);
    let directory = build::target_directory().join("programs");
    build::fuzzer(&repository(), &directory, names)?;
    Ok(directory)
}

/// The directory of a target's inputs that the fuzzer has kept.
fn found(target: &Target) -> PathBuf {
    build::target_directory().join("found").join(target.name)
}
