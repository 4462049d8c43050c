//! The list of members, as the registry has changed it so far: what is written to the file of members.
//!
//! The registry can be wrong, empty or restored from an old copy. Such a registry adds and changes nodes, but only
//! removes those that were removed on purpose:
//!
//! - a row that cannot be read leaves the node as it was;
//! - a registry without any good row changes nothing;
//! - after the revision has gone back, which etcd does only in a new or restored cluster, missing nodes stay for
//!   [`KEPT_AFTER_RETURN`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use midspan_document::Source;
use midspan_policy::overlay::NodeName;
use thiserror::Error;

use super::answer::{Answer, ROW_LIMIT};
use crate::configuration::members;

/// How long nodes stay that are missing in a new or restored registry, in seconds: a day.
const KEPT_AFTER_RETURN: u64 = 24 * 3600;

/// Beginning of the first line of the file.
const HEAD: &str = "# Written by `midspan overlay follow`: changes are lost. Revision";

/// Beginning of the line before a node, with its name and the size of its row in bytes.
const ROW: &str = "# row";

/// A list of members with its history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Members {
    revision: u64,
    /// Until when missing nodes stay because the registry began anew, in seconds since 1970.
    kept_until: Option<u64>,
    rows: BTreeMap<NodeName, String>,
}

/// The next list, and what is wrong with the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Merged {
    pub members: Members,
    pub faults: Vec<String>,
}

/// The registry has nothing that could be the list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RowsError {
    /// No row is good.
    #[error("the registry has no good row{}", with(.faults))]
    Empty {
        /// What is wrong with its rows.
        faults: Vec<String>,
    },
    /// The rows do not fit together.
    #[error("the rows are no list of members: {0}")]
    Together(String),
}

fn with(faults: &[String]) -> String {
    faults.iter().map(|fault| format!("; {fault}")).collect()
}

impl Members {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The registry's revision of this list.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the other list has the same nodes, and missing nodes stay as long.
    pub fn is_same_list(&self, other: &Self) -> bool {
        (&self.rows, self.kept_until) == (&other.rows, other.kept_until)
    }

    /// This list after an answer of the registry.
    ///
    /// # Errors
    /// This list stays as it is.
    pub fn merged(&self, answer: &Answer, now: u64) -> Result<Merged, RowsError> {
        let mut faults = answer.faults.clone();
        let mut faulty: BTreeSet<&NodeName> = answer.faulty.iter().collect();
        let mut rows = BTreeMap::new();
        for (name, row) in &answer.rows {
            match members::check_row(name, row) {
                Ok(()) => {
                    rows.insert(name.clone(), row.clone());
                }
                Err(error) => {
                    faults.push(error.to_string());
                    faulty.insert(name);
                }
            }
        }
        if rows.is_empty() {
            return Err(RowsError::Empty { faults });
        }
        let kept_until = match answer.revision < self.revision {
            true => Some(now.saturating_add(KEPT_AFTER_RETURN)),
            false => self.kept_until.filter(|until| now < *until),
        };
        for (name, row) in &self.rows {
            if rows.contains_key(name) {
                continue;
            }
            if faulty.contains(name) {
                faults.push(format!("node {name} stays as it was before its row was wrong"));
            } else if kept_until.is_some() {
                faults.push(format!(
                    "node {name} is missing in a registry that began anew: it stays for a day"
                ));
            } else {
                continue;
            }
            rows.insert(name.clone(), row.clone());
        }
        let members = Self {
            revision: answer.revision,
            kept_until,
            rows,
        };
        let source = Source::new("the registry", members.to_text());
        members::check(&source).map_err(|error| RowsError::Together(error.to_string()))?;
        Ok(Merged { members, faults })
    }

    /// The text of the file of members.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD} {}", self.revision);
        if let Some(until) = self.kept_until {
            let _ = write!(text, ", missing nodes stay until {until}");
        }
        text.push('\n');
        for (name, row) in &self.rows {
            let _ = write!(
                text,
                "\n{ROW} {name} {}\n[[node]]\nname = \"{name}\"\n{row}\n",
                row.len()
            );
        }
        text
    }

    /// Reads the text of [`to_text`](Self::to_text); `None` for any other text.
    pub fn read(text: &str) -> Option<Self> {
        let (head, mut rest) = text.split_once('\n')?;
        let head = head.strip_prefix(HEAD)?.strip_prefix(' ')?;
        let (revision, kept_until) = match head.split_once(", missing nodes stay until ") {
            None => (head, None),
            Some((revision, until)) => (revision, Some(until.parse().ok()?)),
        };
        let mut members = Self {
            revision: revision.parse().ok()?,
            kept_until,
            rows: BTreeMap::new(),
        };
        while !rest.is_empty() {
            let (line, after) = rest.strip_prefix('\n')?.split_once('\n')?;
            let (name, size) = line.strip_prefix(ROW)?.strip_prefix(' ')?.split_once(' ')?;
            let size: usize = size.parse().ok().filter(|size| *size <= ROW_LIMIT)?;
            let after = after.strip_prefix(&format!("[[node]]\nname = \"{name}\"\n"))?;
            let row = after.get(..size)?;
            rest = after.get(size..)?.strip_prefix('\n')?;
            members.rows.insert(name.parse().ok()?, row.to_owned());
        }
        // A text that this function would print in another way was written by somebody else.
        (members.to_text() == text).then_some(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(last: u8) -> String {
        format!("address = \"10.2.0.{last}:7704\"\nsecurity = \"network\"")
    }

    fn answer(revision: u64, rows: &[(&str, &str)]) -> Answer {
        Answer {
            revision,
            rows: rows
                .iter()
                .map(|(name, row)| (name.parse().unwrap(), (*row).to_owned()))
                .collect(),
            ..Answer::default()
        }
    }

    fn names(members: &Members) -> Vec<&str> {
        members.rows.keys().map(NodeName::as_str).collect()
    }

    fn three() -> Members {
        let rows = [row(1), row(2), row(3)];
        let rows = [("ams", &*rows[0]), ("fra", &*rows[1]), ("sin", &*rows[2])];
        let merged = Members::default().merged(&answer(5, &rows), 0).unwrap();
        assert!(merged.faults.is_empty(), "{:?}", merged.faults);
        merged.members
    }

    #[test]
    fn nodes_are_added_changed_and_removed() {
        let (first, other) = (row(1), row(9));
        let rows = [("ams", &*first), ("fra", &*other), ("par", "from = \"10.9.0.1\"\nsecurity = \"network\"")];
        let merged = three().merged(&answer(6, &rows), 0).unwrap();
        assert_eq!(names(&merged.members), ["ams", "fra", "par"]);
        assert!(merged.members.to_text().contains("10.2.0.9"));
        assert!(merged.faults.is_empty(), "{:?}", merged.faults);
    }

    #[test]
    fn a_wrong_row_leaves_its_node_and_changes_the_others() {
        let first = row(7);
        for wrong in [
            "",
            "address",
            "name = \"fra\"\nsecurity = \"network\"\naddress = \"10.2.0.2:7704\"",
            "security = \"network\"\naddress = \"10.2.0.2:7704\"\n[[node]]\nname = \"x\"",
            "security = \"network\"\naddress = \"10.2.0.2:7704\"\n[more]",
            "security = \"network\"\naddress = \"8.8.8.8:7704\"",
            "security = \"network\"\naddress = \"10.2.0.2:7704\"\nextra = 1",
        ] {
            let rows = [("ams", &*first), ("fra", wrong), ("new", wrong)];
            let merged = three().merged(&answer(6, &rows), 0).unwrap();
            assert_eq!(names(&merged.members), ["ams", "fra"], "{wrong}");
            let text = merged.members.to_text();
            assert!(text.contains("10.2.0.7:7704") && text.contains("10.2.0.2:7704"), "{text}");
            assert!(merged.faults.iter().any(|fault| fault.contains("fra stays")));
        }
    }

    #[test]
    fn an_empty_registry_removes_nothing() {
        for rows in [&[][..], &[("ams", "nonsense")][..]] {
            let result = three().merged(&answer(9, rows), 0);
            assert!(matches!(result, Err(RowsError::Empty { .. })));
        }
    }

    #[test]
    fn a_registry_that_began_anew_removes_nothing_for_a_day() {
        let first = row(1);
        let one = answer(2, &[("ams", &*first)]);
        let merged = three().merged(&one, 1000).unwrap();
        assert_eq!(names(&merged.members), ["ams", "fra", "sin"]);
        assert_eq!(merged.faults.len(), 2);
        // Also after this process has begun anew.
        let read = Members::read(&merged.members.to_text()).unwrap();
        assert_eq!(read, merged.members);
        let later = answer(3, &[("ams", &*first)]);
        let merged = read.merged(&later, 1000 + KEPT_AFTER_RETURN - 1).unwrap();
        assert_eq!(merged.members.len(), 3);
        let merged = (merged.members).merged(&later, 1000 + KEPT_AFTER_RETURN).unwrap();
        assert_eq!(names(&merged.members), ["ams"]);
        assert!(merged.faults.is_empty());
    }

    #[test]
    fn the_file_is_a_list_of_members() {
        let text = three().to_text();
        assert!(members::check(&Source::new("file", text.clone())).is_ok(), "{text}");
        assert_eq!(Members::read(&text), Some(three()));
        assert_eq!(three().revision(), 5);
        for other in ["", "[[node]]\n", &text[1..], &text[..text.len() - 1], &format!("{text}\n")] {
            assert_eq!(Members::read(other), None, "{other}");
        }
        assert_eq!(Members::read(&text.replace("10.2.0.1:", "10.2.0.11:")), None);
    }

    proptest! {
        /// Every list is read as it was written, whatever its rows are.
        #[test]
        fn what_is_written_is_read(
            revision: u64,
            kept_until: Option<u64>,
            rows in proptest::collection::btree_map("[a-z][a-z0-9-]{0,8}", "(?s).{0,60}", 0..6),
        ) {
            let rows = rows.into_iter().map(|(name, row)| (name.parse().unwrap(), row)).collect();
            let members = Members { revision, kept_until, rows };
            prop_assert_eq!(Members::read(&members.to_text()), Some(members));
        }

        /// What is accepted is a list of members that Midspan reads.
        #[test]
        fn what_is_accepted_can_be_used(name in "[a-z]{1,5}", row in "(?s).{0,80}") {
            if let Ok(merged) = three().merged(&answer(6, &[(&name, &row)]), 0) {
                let source = Source::new("file", merged.members.to_text());
                prop_assert!(members::check(&source).is_ok());
            }
        }

        #[test]
        fn no_file_causes_a_panic(text in "(?s).{0,200}") {
            let _ = Members::read(&text);
            let _ = Members::read(&format!("{HEAD} 1\n{text}"));
            let _ = Members::read(&format!("{HEAD} 1\n\n{ROW} fra 5\n{text}"));
        }
    }
}
