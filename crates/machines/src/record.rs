//! A file with the result of each job and the commit that it belongs to: for jobs that take longer than one machine
//! lives, so that the next machine continues where this one stopped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::error::{Error, output};
use crate::job::{Outcome, Row};
use crate::release::Release;

/// The file, and what it contains.
#[derive(Debug)]
pub struct Record {
    file: PathBuf,
    /// The commit of this tree.
    commit: String,
    /// By the name of the release and of the job.
    lines: BTreeMap<(String, String), Line>,
}

/// A line of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    release: String,
    job: String,
    outcome: Outcome,
    kernel: String,
    seconds: f64,
    commit: String,
    reason: String,
}

impl Record {
    /// Reads the file; without a file, the record is empty.
    ///
    /// # Errors
    /// The file cannot be read, or is not such a record; git reports no commit.
    pub fn open(file: &Path) -> Result<Self, Error> {
        let mut lines = BTreeMap::new();
        if file.exists() {
            let reader = csv::Reader::from_path(file);
            for line in reader.map_err(Error::record(file))?.deserialize() {
                let line: Line = line.map_err(Error::record(file))?;
                lines.insert((line.release.clone(), line.job.clone()), line);
            }
        }
        Ok(Self {
            file: file.to_owned(),
            commit: commit()?,
            lines,
        })
    }

    /// The result of a job, in whichever state of the tree, unless it was a failure.
    pub fn get(&self, release: Release, job: &str) -> Option<Row> {
        let line = self
            .lines
            .get(&(release.name().to_owned(), job.to_owned()))?;
        let has_reason = !line.reason.is_empty();
        (line.outcome != Outcome::Failed).then(|| Row {
            outcome: line.outcome,
            kernel: line.kernel.clone(),
            seconds: line.seconds,
            lines: has_reason
                .then(|| line.reason.clone())
                .into_iter()
                .collect(),
            findings: Vec::new(),
        })
    }

    /// Adds the result of a job in this state of the tree, and writes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note(&mut self, release: Release, job: &str, row: &Row) -> Result<(), Error> {
        let reason = row.lines.first().filter(|_| row.outcome != Outcome::Passed);
        let line = Line {
            release: release.name().to_owned(),
            job: job.to_owned(),
            outcome: row.outcome,
            kernel: row.kernel.clone(),
            seconds: row.seconds.round(),
            commit: self.commit.clone(),
            reason: reason.cloned().unwrap_or_default(),
        };
        let place = (line.release.clone(), line.job.clone());
        self.lines.insert(place, line);
        self.write()
    }

    fn write(&self) -> Result<(), Error> {
        let unfinished = self.file.with_extension("unfinished");
        let write = || -> Result<(), csv::Error> {
            let mut writer = csv::Writer::from_path(&unfinished)?;
            for line in self.lines.values() {
                writer.serialize(line)?;
            }
            writer.flush()?;
            Ok(())
        };
        write().map_err(Error::record(&self.file))?;
        fs::rename(&unfinished, &self.file).map_err(Error::file(&self.file))
    }
}

/// The commit of this tree; with a plus sign if the tree has other changes.
fn commit() -> Result<String, Error> {
    let mut git = Command::new("git");
    git.args([
        "describe",
        "--always",
        "--exclude=*",
        "--abbrev=8",
        "--dirty=+",
    ]);
    let printed = output(&mut git)?;
    Ok(String::from_utf8_lossy(&printed).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outcome: Outcome, reason: &str) -> Row {
        Row {
            outcome,
            kernel: "6.1.0".to_owned(),
            seconds: 1.6,
            lines: vec![reason.to_owned()],
            findings: Vec::new(),
        }
    }

    #[test]
    fn a_record_is_continued_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("record.csv");
        let mut record = Record::open(&file).unwrap();
        let [old, new] = [Release::Bookworm, Release::Trixie];
        record
            .note(old, "one", &row(Outcome::Failed, "exit, status 1"))
            .unwrap();
        record.note(old, "two", &row(Outcome::Passed, "")).unwrap();
        record
            .note(new, "one", &row(Outcome::Skipped, "no VRF"))
            .unwrap();
        let mut record = Record::open(&file).unwrap();
        let outcome = |record: &Record, release, job| Some(record.get(release, job)?.outcome);
        assert_eq!(outcome(&record, old, "one"), None);
        assert_eq!(outcome(&record, old, "two"), Some(Outcome::Passed));
        assert_eq!(outcome(&record, new, "one"), Some(Outcome::Skipped));
        assert_eq!(outcome(&record, new, "two"), None);
        record.note(old, "one", &row(Outcome::Passed, "")).unwrap();
        let record = Record::open(&file).unwrap();
        assert_eq!(outcome(&record, old, "one"), Some(Outcome::Passed));
        fs::write(&file, "release,job\nbookworm,one\n").unwrap();
        let error = Record::open(&file).unwrap_err();
        assert!(error.to_string().contains("record.csv"), "{error}");
    }
}
