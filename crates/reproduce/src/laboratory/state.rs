//! Finished runs, kept in a file so that a second call goes on where the first was stopped.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::LaboratoryError;
use super::plan::{Arm, Point};
use super::run::Run;

/// Largest file that is read.
const LARGEST: u64 = 64 << 20;

/// The finished runs.
#[derive(Debug, Default)]
pub(super) struct Finished {
    runs: BTreeMap<Key, Run>,
    file: Option<(PathBuf, File)>,
}

/// Point, arm, repetition, digest.
type Key = (String, String, u32, String);

fn key(run: &Run) -> Key {
    let (point, arm) = (run.point.clone(), run.arm.clone());
    (point, arm, run.repetition, run.digest.clone())
}

impl Finished {
    /// Those of a file, which new ones are added to; none where it does not exist, or is not given.
    pub(super) fn open(file: Option<&Path>) -> Result<Self, LaboratoryError> {
        let Some(name) = file else {
            return Ok(Self::default());
        };
        let state = |source| LaboratoryError::State {
            file: name.to_owned(),
            source,
        };
        let mut opened = OpenOptions::new();
        opened.read(true).write(true).create(true).truncate(false);
        let mut file = opened.open(name).map_err(state)?;
        if file.metadata().map_err(state)?.len() > LARGEST {
            return Err(state(io::Error::other("larger than 64 MiB")));
        }
        let mut text = String::new();
        (&file)
            .take(LARGEST)
            .read_to_string(&mut text)
            .map_err(state)?;
        let (runs, whole) = read(&text).map_err(|(line, reason)| LaboratoryError::StateLine {
            file: name.to_owned(),
            line,
            reason,
        })?;
        // What was being written when the call before was stopped is written anew.
        file.set_len(whole as u64).map_err(state)?;
        file.seek(SeekFrom::End(0)).map_err(state)?;
        Ok(Self {
            runs,
            file: Some((name.to_owned(), file)),
        })
    }

    /// A run, if it is there.
    pub(super) fn find(&self, point: &Point, arm: &Arm, repetition: u32) -> Option<&Run> {
        let name = (point.name.clone(), arm.name.to_owned());
        self.runs.get(&(name.0, name.1, repetition, arm.digest()))
    }

    /// Adds a run, and writes it.
    pub(super) fn add(&mut self, run: Run) -> Result<(), LaboratoryError> {
        if let Some((name, file)) = &mut self.file {
            let mut line = serde_json::to_string(&run).map_err(io::Error::from);
            if let Ok(line) = &mut line {
                line.push('\n');
            }
            line.and_then(|line| file.write_all(line.as_bytes()))
                .map_err(|source| LaboratoryError::State {
                    file: name.clone(),
                    source,
                })?;
        }
        self.runs.insert(key(&run), run);
        Ok(())
    }
}

/// The runs of a file's text, the later of two alike, and how many bytes are whole lines; or the
/// line that is wrong and why.
fn read(text: &str) -> Result<(BTreeMap<Key, Run>, usize), (usize, String)> {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let mut runs = BTreeMap::new();
    for (index, line) in text[..whole].lines().enumerate() {
        let run: Run =
            serde_json::from_str(line).map_err(|error| (index + 1, error.to_string()))?;
        runs.insert(key(&run), run);
    }
    Ok((runs, whole))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn run(repetition: u32, acks: f64) -> Run {
        Run {
            acks,
            ..Run::new("p", "a", repetition, "0".into())
        }
    }

    #[test]
    fn what_was_written_is_found_again_and_a_line_cut_short_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("state");
        let mut first = Finished::open(Some(&name)).unwrap();
        first.add(run(0, 1.0)).unwrap();
        first.add(run(0, 2.0)).unwrap();
        drop(first);
        let mut file = OpenOptions::new().append(true).open(&name).unwrap();
        file.write_all(b"{\"point\":\"p\",\"ar").unwrap();
        drop(file);
        let mut second = Finished::open(Some(&name)).unwrap();
        assert_eq!(second.runs.values().collect::<Vec<_>>(), [&run(0, 2.0)]);
        second.add(run(1, 3.0)).unwrap();
        drop(second);
        let third = Finished::open(Some(&name)).unwrap();
        assert_eq!(third.runs.len(), 2);
    }

    #[test]
    fn what_is_no_measurement_is_refused_with_its_line() {
        let good = serde_json::to_string(&run(0, 1.0)).unwrap();
        let (line, _) = read(&format!("{good}\nhello\n")).unwrap_err();
        assert_eq!(line, 2);
        let (line, reason) = read("{\"point\":1}\n").unwrap_err();
        assert_eq!(line, 1, "{reason}");
    }
}
