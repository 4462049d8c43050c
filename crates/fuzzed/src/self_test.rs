//! Tests that the fuzzer finds a fault in each parser.

use std::fs;
use std::path::Path;

use midspan_fuzzed::planted::{self, Fault};
use midspan_fuzzed::repository;

use crate::{Error, Options, build, corpus, fuzz};

/// The files that a copy of the sources needs for a build.
const SOURCES: [&str; 5] = ["Cargo.toml", "Cargo.lock", "crates", "fuzz", "paths"];

/// Plants all faults in a copy of the sources, and fuzzes; returns whether each was found.
pub fn run(options: &Options) -> Result<bool, Error> {
    let root = repository();
    let directory = build::target_directory().join("self-test");
    let tree = directory.join("sources");
    fs::create_dir_all(&tree).map_err(Error::file(&tree))?;
    for name in SOURCES {
        copy(&root.join(name), &tree.join(name))?;
    }
    let faults = planted::faults()?;
    for fault in &faults {
        let file = tree.join(&fault.file);
        let source = fs::read_to_string(&file).map_err(Error::file(&file))?;
        let source = fault.plant(&source)?;
        fs::write(&file, source).map_err(Error::file(&file))?;
    }
    let names = options.targets.iter().map(|target| target.name);
    let programs = directory.join("programs");
    build::fuzzer(&tree, &programs, names)?;
    println!("| target | planted fault | found after |");
    println!("| --- | --- | --- |");
    let mut are_all_found = true;
    for target in &options.targets {
        let (found, inputs) = (directory.join("found"), directory.join("faults"));
        let found = found.join(target.name);
        // The inputs of an earlier run would find the fault at once.
        let _ = fs::remove_dir_all(&found);
        let directories = [&*found, &corpus(target)];
        let inputs = inputs.join(target.name);
        let report = fuzz::fuzz(&programs, target, options, &directories, &inputs)?;
        let fault = faults.iter().find(|fault| fault.target == target.name);
        let told = fault.map_or("", |fault| &fault.what);
        let is_it = fault.is_some_and(|fault| is_found(fault, &report));
        are_all_found &= is_it;
        let after = match is_it {
            true => format!("{} runs", report.runs),
            false => "not found".to_owned(),
        };
        println!("| `{}` | {told} | {after} |", target.name);
        if !is_it {
            eprintln!("{}", report.text);
        }
    }
    Ok(are_all_found)
}

/// Whether the program panicked at the fault; an endless loop has no such position.
fn is_found(fault: &Fault, report: &fuzz::Report) -> bool {
    !report.clean && report.text.contains(fault.panics_in())
}

/// Copies a file, or a directory with its content, but only changed files: every written file is built
/// again.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if from.is_dir() {
        fs::create_dir_all(to).map_err(Error::file(to))?;
        for entry in fs::read_dir(from).map_err(Error::file(from))? {
            let name = entry.map_err(Error::file(from))?.file_name();
            if name != "target" && name != "corpus" {
                copy(&from.join(&name), &to.join(&name))?;
            }
        }
        return Ok(());
    }
    let new = fs::read(from).map_err(Error::file(from))?;
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    fs::write(to, new).map_err(Error::file(to))
}
