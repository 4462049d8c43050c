//! Faults that are put into parsers of a copy of the sources, one for each target, to test that the
//! fuzzer finds them (`fuzz/planted-faults.toml`).

use serde::Deserialize;
use thiserror::Error;

use crate::{TARGETS, repository};

/// A change of one source file that makes a parser wrong.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The target that must find it.
    pub target: String,
    /// The fault.
    pub what: String,
    /// The source file, from the repository's root.
    pub file: String,
    /// A text that occurs once in the file.
    pub from: String,
    /// The replacement.
    pub to: String,
    /// The file in which the program panics; the file itself by default.
    pub panics_in: Option<String>,
}

/// The list does not match the sources.
#[derive(Debug, Error)]
pub enum PlantedError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The list is invalid.
    #[error("{LIST}: {0}")]
    List(#[from] toml::de::Error),
    /// The source has changed.
    #[error("{LIST}: \"{from}\" is {count} times in {file}, not once: write the fault anew")]
    Text {
        /// The file.
        file: String,
        /// The expected text.
        from: String,
        /// How often it was found.
        count: usize,
    },
    /// A target has no fault, or several.
    #[error("{LIST}: the target {name} has {count} faults, not one")]
    Target {
        /// The target.
        name: String,
        /// The number of faults.
        count: usize,
    },
}

/// Path of the list, from the repository's root.
pub const LIST: &str = "fuzz/planted-faults.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    fault: Vec<Fault>,
}

impl Fault {
    /// The source file with the fault.
    ///
    /// # Errors
    /// `source` does not have the text once.
    pub fn plant(&self, source: &str) -> Result<String, PlantedError> {
        match source.matches(&self.from).count() {
            1 => Ok(source.replacen(&self.from, &self.to, 1)),
            count => Err(PlantedError::Text {
                file: self.file.clone(),
                from: self.from.clone(),
                count,
            }),
        }
    }

    /// The file in which the program panics.
    #[must_use]
    pub fn panics_in(&self) -> &str {
        self.panics_in.as_deref().unwrap_or(&self.file)
    }
}

/// All faults: one for each target, each with a position in the sources.
///
/// # Errors
/// The list does not match the targets or the sources.
pub fn faults() -> Result<Vec<Fault>, PlantedError> {
    let read = |file: &str| {
        std::fs::read_to_string(repository().join(file)).map_err(|source| {
            PlantedError::Unreadable {
                file: file.to_owned(),
                source,
            }
        })
    };
    let list: List = toml::from_str(&read(LIST)?)?;
    for target in TARGETS {
        let of_target = list
            .fault
            .iter()
            .filter(|fault| fault.target == target.name);
        match of_target.count() {
            1 => {}
            count => {
                return Err(PlantedError::Target {
                    name: target.name.to_owned(),
                    count,
                });
            }
        }
    }
    for fault in &list.fault {
        fault.plant(&read(&fault.file)?)?;
    }
    Ok(list.fault)
}
