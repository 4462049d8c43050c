//! The lines of a parser that its corpus reaches.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use midspan_fuzzed::{Lines, Target, repository};

use crate::{Error, Options, build};

/// The part of a parser's lines that its corpus must reach, in percent.
const WANTED: usize = 85;

/// How often each line of a file was executed, by its number.
type Counts = BTreeMap<usize, u64>;

/// Prints a table; returns whether each corpus reaches enough lines.
pub fn measure(options: &Options) -> Result<bool, Error> {
    let program = build::counting()?;
    let (profdata, cov) = (build::llvm("llvm-profdata")?, build::llvm("llvm-cov")?);
    let directory = build::target_directory().join("profiles");
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
    println!("| target | what it reads | files | bytes | lines | reached | |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut is_enough = true;
    for target in &options.targets {
        let raw = directory.join(format!("{}.profraw", target.name));
        let merged = raw.with_extension("profdata");
        let replay = &mut Command::new(&program);
        build::output(
            replay
                .args(["replay", target.name])
                .env("LLVM_PROFILE_FILE", &raw),
        )?;
        let merge = &mut Command::new(&profdata);
        build::output(
            merge
                .args(["merge", "--sparse", "-o"])
                .arg(&merged)
                .arg(&raw),
        )?;
        let export = &mut Command::new(&cov);
        export
            .args(["export", "--format=lcov"])
            .arg(format!("--instr-profile={}", merged.display()))
            .arg(&program);
        let counts = counts(&build::output(export)?);
        let (mut all, mut missed) = (0, Vec::new());
        for lines in target.lines {
            let (count, without) = missing(lines, &counts)?;
            all += count;
            if !without.is_empty() {
                missed.push((lines.file, without));
            }
        }
        let reached = all - missed.iter().map(|(_, lines)| lines.len()).sum::<usize>();
        let share = (reached * 100).checked_div(all).unwrap_or(0);
        is_enough &= share >= WANTED;
        let (files, bytes) = size(target)?;
        let (name, reads) = (target.name, target.reads);
        println!("| `{name}` | {reads} | {files} | {bytes} | {all} | {reached} | {share} % |");
        for (file, lines) in missed {
            let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
            eprintln!("{name}: not reached in {file}: {}", lines.join(", "));
        }
    }
    Ok(is_enough)
}

/// The number of counted lines, and those that were not reached.
fn missing(lines: &Lines, counts: &BTreeMap<String, Counts>) -> Result<(usize, Vec<usize>), Error> {
    let path = repository().join(lines.file);
    let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
    let wanted = numbers(&text, lines.functions);
    let unknown = || Error::Failed {
        program: "llvm-cov".to_owned(),
        what: format!("it does not tell of {}", lines.file),
    };
    let counts = counts
        .iter()
        .find_map(|(file, counts)| file.ends_with(lines.file).then_some(counts))
        .ok_or_else(unknown)?;
    let counted = counts.iter().filter(|(line, _)| wanted.contains(line));
    let without = counted.clone().filter(|(_, count)| **count == 0);
    Ok((counted.count(), without.map(|(line, _)| *line).collect()))
}

/// The lines of these functions in a file formatted by rustfmt; the lines of all functions if the
/// list is empty.
fn numbers(text: &str, functions: &[&str]) -> BTreeSet<usize> {
    let mut wanted = BTreeSet::new();
    // The closing brace of a function is below the first letter of its head.
    let mut end: Option<String> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if end.is_none() && name(line).is_some_and(|name| functions.contains(&name)) {
            let indentation: String = line.chars().take_while(|c| *c == ' ').collect();
            end = Some(format!("{indentation}}}"));
        }
        if functions.is_empty() || end.is_some() {
            wanted.insert(number);
        }
        if end.as_deref() == Some(line) || (name(line).is_some() && line.ends_with('}')) {
            end = None;
        }
    }
    wanted
}

/// The name of the function that begins in a line.
fn name(line: &str) -> Option<&str> {
    let rest = line.trim_start();
    let (before, after) = rest.split_once("fn ")?;
    let is_plain = before
        .split_whitespace()
        .all(|word| word.starts_with("pub") || ["const", "async", "crate)"].contains(&word));
    let end = after.find(['(', '<'])?;
    is_plain.then(|| &after[..end])
}

/// The output of `llvm-cov export --format=lcov`.
fn counts(text: &str) -> BTreeMap<String, Counts> {
    let mut all: BTreeMap<String, Counts> = BTreeMap::new();
    let mut file = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("SF:") {
            name.clone_into(&mut file);
        } else if let Some((number, count)) = line
            .strip_prefix("DA:")
            .and_then(|rest| rest.split_once(','))
            && let (Ok(number), Ok(count)) = (number.parse(), count.parse())
        {
            all.entry(file.clone()).or_default().insert(number, count);
        }
    }
    all
}

/// Files and bytes of a corpus.
fn size(target: &Target) -> Result<(usize, u64), Error> {
    let directory = crate::corpus(target);
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(&directory).map_err(Error::file(&directory))? {
        let entry = entry.map_err(Error::file(&directory))?;
        files += 1;
        bytes += entry.metadata().map_err(Error::file(entry.path()))?.len();
    }
    Ok((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_function_are_found() {
        let text = "fn a() {\n    1\n}\n\nimpl B {\n    pub(crate) const fn c<T>(\n        d: T,\n    \
                    ) {\n        if e {\n        }\n    }\n    fn f() {}\n}\n";
        assert_eq!(numbers(text, &["a"]), (1..=3).collect());
        assert_eq!(numbers(text, &["c"]), (6..=11).collect());
        assert_eq!(numbers(text, &[]).len(), 13);
        assert_eq!(name("    pub async fn g(h: u8) {"), Some("g"));
        assert_eq!(name("    // a fn h("), None);
    }

    #[test]
    fn counts_are_read() {
        let counts = counts("SF:/a/b.rs\nFN:1,x\nDA:1,0\nDA:2,17\nend_of_record\n");
        assert_eq!(counts["/a/b.rs"], Counts::from([(1, 0), (2, 17)]));
    }
}
