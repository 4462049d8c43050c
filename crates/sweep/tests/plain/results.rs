//! Results change only with the version of stored runs.
//!
//! `results.jsonl` has the results of all built-in paths, of the networks of the papers
//! (`crates/reproduce/src`), of a path that replays recorded traces (`docs/traces`), and of one with
//! effects that the others lack (`effects.toml`). Stored runs rely on them: a run is not made again as
//! long as its path and the version are the same.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use midspan_document::Source;
use midspan_records::{Store, merge};
use midspan_sweep::{Execution, Part, Plan, RUNS, StoredRun};

/// If this variable is set, the file is written again. Results that differ are still refused, unless
/// the version has changed.
const WRITE: &str = "MIDSPAN_STORE_RESULTS";

/// The paths whose results are kept.
fn paths() -> Vec<Source> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["tests/effects.toml", "../../docs/traces/drive.toml"];
    let built_in = midspan_path::built_in()
        .iter()
        .map(midspan_path::BuiltIn::source);
    let files = files.map(|file| Source::load(here.join(file)).unwrap());
    let networks = networks(&here.join("../reproduce/src"));
    built_in.chain(files).chain(networks).collect()
}

/// The path files of a folder and of the folders in it. Files that are only a part of a path, or have
/// no flow, are left out.
fn networks(folder: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).unwrap();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort_unstable();
    for entry in entries {
        if entry.is_dir() {
            found.extend(networks(&entry));
        } else if entry.extension().is_some_and(|end| end == "toml") {
            let source = Source::load(&entry).unwrap();
            if plan(source.clone()).path().is_ok() {
                found.push(source);
            }
        }
    }
    found
}

fn plan(source: Source) -> Plan {
    Plan {
        source,
        overrides: Vec::new(),
        sweeps: Vec::new(),
        cases: Vec::new(),
        flows: Vec::new(),
        repetitions: 1,
        seed: None,
    }
}

fn make(source: Source, store: &mut Store<StoredRun>) {
    let execution = Execution {
        threads: 2,
        part: Part::All,
        commit: String::new(),
    };
    let runs = plan(source).runs().unwrap();
    let made = runs.make(&execution, store, |_| ControlFlow::Continue(()));
    made.unwrap();
}

/// Makes all runs; the sorted lines of their store.
fn all_lines(folder: &Path) -> Vec<String> {
    let name = folder.join("made");
    let mut store = Store::open(&name, RUNS).unwrap();
    for source in paths() {
        make(source, &mut store);
    }
    let sorted = folder.join("sorted");
    merge(&[name], &sorted).unwrap();
    lines(&sorted)
}

fn lines(name: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(name).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Version and key of a line.
fn run_of(line: &str) -> &str {
    line.split(",\"row\":").next().unwrap_or(line)
}

#[test]
fn results_change_only_with_the_version() {
    let folder = tempfile::tempdir().unwrap();
    let kept: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "results.jsonl"]
        .iter()
        .collect();
    let (made, stored) = (all_lines(folder.path()), lines(&kept));
    for line in &made {
        if let Some(before) = stored.iter().find(|before| run_of(before) == run_of(line)) {
            assert_eq!(
                before, line,
                "a run has another result than before: increase the version of RUNS in \
                 crates/sweep/src/run.rs, then run this test with {WRITE}=1"
            );
        }
    }
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&kept, made.join("\n") + "\n").unwrap();
        return;
    }
    let names = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| run_of(line).to_owned()).collect()
    };
    assert!(
        names(&stored) == names(&made),
        "paths or the version have changed: run this test with {WRITE}=1"
    );
}
