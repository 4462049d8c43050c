//! Runs every target with every file of its corpus, and checks that the lists of targets agree.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;

use midspan_fuzzed::{TARGETS, planted, repository};

/// The names of the files in a directory of `fuzz`.
fn names(directory: &str) -> BTreeSet<String> {
    let directory = repository().join("fuzz").join(directory);
    fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn every_target_takes_its_corpus() {
    for target in TARGETS {
        let corpus = format!("corpus/{}", target.name);
        let files = names(&corpus);
        assert!(!files.is_empty(), "{corpus} is empty");
        for file in files {
            let path = repository().join("fuzz").join(&corpus).join(&file);
            let input = fs::read(&path).unwrap();
            let result = std::panic::catch_unwind(|| (target.run)(&input));
            assert!(result.is_ok(), "{} does not take {file}", target.name);
        }
    }
}

#[test]
fn every_target_takes_nothing_and_noise() {
    for target in TARGETS {
        (target.run)(&[]);
        (target.run)(&[0xff; 300]);
        (target.run)(&[0; 300]);
    }
}

#[test]
fn a_target_has_a_corpus_a_program_and_a_fault() {
    let wanted: BTreeSet<String> = TARGETS.iter().map(|target| target.name.into()).collect();
    assert_eq!(wanted.len(), TARGETS.len());
    assert_eq!(names("corpus"), wanted);
    let programs = wanted.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(names("fuzz_targets"), programs);
    let manifest = fs::read_to_string(repository().join("fuzz/Cargo.toml")).unwrap();
    for name in &wanted {
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name}");
    }
    planted::faults().unwrap();
    for target in TARGETS {
        for lines in target.lines {
            let text = fs::read_to_string(repository().join(lines.file)).unwrap();
            for name in lines.functions {
                let is_there = ["(", "<"].map(|next| text.contains(&format!("fn {name}{next}")));
                assert!(is_there.contains(&true), "{name} in {}", lines.file);
            }
        }
    }
}

#[test]
fn corpora_are_small() {
    let mut size = 0;
    for name in names("corpus") {
        let directory = repository().join("fuzz/corpus").join(&name);
        for entry in fs::read_dir(directory).unwrap() {
            size += entry.unwrap().metadata().unwrap().len();
        }
    }
    assert!(size <= 1 << 20, "{size} bytes");
}
