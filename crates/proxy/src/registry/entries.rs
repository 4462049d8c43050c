//! The list of members, as the registry has changed it so far: what is written to the file of members.
//!
//! The registry can be wrong, empty or restored from an old copy. Such a registry adds and changes nodes, but only
//! removes those that were removed on purpose:
//!
//! - an entry that cannot be read leaves the node as it was;
//! - a registry without any good entry changes nothing;
//! - after the revision has gone back, which etcd does only in a new or restored cluster, missing nodes stay for
//!   [`KEPT_AFTER_RETURN`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use midspan_document::Source;
use midspan_policy::overlay::NodeName;
use thiserror::Error;

use super::answer::{Answer, ENTRY_LIMIT};
use crate::configuration::members;

/// How long nodes stay that are missing in a new or restored registry, in seconds: a day.
const KEPT_AFTER_RETURN: u64 = 24 * 3600;

/// Beginning of the first line of the file.
const HEAD: &str = "# Written by `midspan overlay follow`: changes are lost. Revision";

/// Beginning of the line before a node, with its name and the size of its entry in bytes.
const ENTRY: &str = "# entry";

/// A list of members with its history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Members {
    revision: u64,
    /// Until when missing nodes stay because the registry began again, in seconds since 1970.
    kept_until: Option<u64>,
    entries: BTreeMap<NodeName, String>,
}

/// The next list, and what is wrong with the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Merged {
    pub members: Members,
    pub faults: Vec<String>,
}

/// The registry has nothing that could be the list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EntriesError {
    /// No entry is good.
    #[error("the registry has no good entry{}", with(.faults))]
    Empty {
        /// What is wrong with its entries.
        faults: Vec<String>,
    },
    /// The entries do not fit together.
    #[error("the entries are no list of members: {0}")]
    Together(String),
}

fn with(faults: &[String]) -> String {
    faults.iter().map(|fault| format!("; {fault}")).collect()
}

impl Members {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The registry's revision of this list.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the other list has the same nodes, and missing nodes stay as long.
    pub fn is_same_list(&self, other: &Self) -> bool {
        (&self.entries, self.kept_until) == (&other.entries, other.kept_until)
    }

    /// This list after an answer of the registry.
    ///
    /// # Errors
    /// This list stays as it is.
    pub fn merged(&self, answer: &Answer, now: u64) -> Result<Merged, EntriesError> {
        let mut faults = answer.faults.clone();
        let mut faulty: BTreeSet<&NodeName> = answer.faulty.iter().collect();
        let mut entries = BTreeMap::new();
        for (name, entry) in &answer.entries {
            match members::check_entry(name, entry) {
                Ok(()) => {
                    entries.insert(name.clone(), entry.clone());
                }
                Err(error) => {
                    faults.push(error.to_string());
                    faulty.insert(name);
                }
            }
        }
        if entries.is_empty() {
            return Err(EntriesError::Empty { faults });
        }
        let kept_until = match answer.revision < self.revision {
            true => Some(now.saturating_add(KEPT_AFTER_RETURN)),
            false => self.kept_until.filter(|until| now < *until),
        };
        for (name, entry) in &self.entries {
            if entries.contains_key(name) {
                continue;
            }
            if faulty.contains(name) {
                faults.push(format!(
                    "node {name} stays as it was before its entry was wrong"
                ));
            } else if kept_until.is_some() {
                faults.push(format!(
                    "node {name} is missing in a registry that began again: it stays for a day"
                ));
            } else {
                continue;
            }
            entries.insert(name.clone(), entry.clone());
        }
        let members = Self {
            revision: answer.revision,
            kept_until,
            entries,
        };
        let source = Source::new("the registry", members.to_text());
        members::check(&source).map_err(|error| EntriesError::Together(error.to_string()))?;
        Ok(Merged { members, faults })
    }

    /// The text of the file of members.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD} {}", self.revision);
        if let Some(until) = self.kept_until {
            let _ = write!(text, ", missing nodes stay until {until}");
        }
        text.push('\n');
        for (name, entry) in &self.entries {
            let _ = write!(
                text,
                "\n{ENTRY} {name} {}\n[[node]]\nname = \"{name}\"\n{entry}\n",
                entry.len()
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
            entries: BTreeMap::new(),
        };
        while !rest.is_empty() {
            let (line, after) = rest.strip_prefix('\n')?.split_once('\n')?;
            let (name, size) = line
                .strip_prefix(ENTRY)?
                .strip_prefix(' ')?
                .split_once(' ')?;
            let size: usize = size.parse().ok().filter(|size| *size <= ENTRY_LIMIT)?;
            let after = after.strip_prefix(&format!("[[node]]\nname = \"{name}\"\n"))?;
            let entry = after.get(..size)?;
            rest = after.get(size..)?.strip_prefix('\n')?;
            members.entries.insert(name.parse().ok()?, entry.to_owned());
        }
        // A text that this function would print in another way was written by somebody else.
        (members.to_text() == text).then_some(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(last: u8) -> String {
        format!("address = \"10.2.0.{last}:7704\"\nsecurity = \"network\"")
    }

    fn answer(revision: u64, entries: &[(&str, &str)]) -> Answer {
        Answer {
            revision,
            entries: entries
                .iter()
                .map(|(name, entry)| (name.parse().unwrap(), (*entry).to_owned()))
                .collect(),
            ..Answer::default()
        }
    }

    fn names(members: &Members) -> Vec<&str> {
        members.entries.keys().map(NodeName::as_str).collect()
    }

    fn three() -> Members {
        let entries = [entry(1), entry(2), entry(3)];
        let entries = [
            ("ams", &*entries[0]),
            ("fra", &*entries[1]),
            ("sin", &*entries[2]),
        ];
        let merged = Members::default().merged(&answer(5, &entries), 0).unwrap();
        assert!(merged.faults.is_empty(), "{:?}", merged.faults);
        merged.members
    }

    #[test]
    fn nodes_are_added_changed_and_removed() {
        let (first, other) = (entry(1), entry(9));
        let entries = [
            ("ams", &*first),
            ("fra", &*other),
            ("par", "from = \"10.9.0.1\"\nsecurity = \"network\""),
        ];
        let merged = three().merged(&answer(6, &entries), 0).unwrap();
        assert_eq!(names(&merged.members), ["ams", "fra", "par"]);
        assert!(merged.members.to_text().contains("10.2.0.9"));
        assert!(merged.faults.is_empty(), "{:?}", merged.faults);
    }

    #[test]
    fn a_wrong_entry_leaves_its_node_and_changes_the_others() {
        let first = entry(7);
        for wrong in [
            "",
            "address",
            "name = \"fra\"\nsecurity = \"network\"\naddress = \"10.2.0.2:7704\"",
            "security = \"network\"\naddress = \"10.2.0.2:7704\"\n[[node]]\nname = \"x\"",
            "security = \"network\"\naddress = \"10.2.0.2:7704\"\n[more]",
            "security = \"network\"\naddress = \"8.8.8.8:7704\"",
            "security = \"network\"\naddress = \"10.2.0.2:7704\"\nextra = 1",
        ] {
            let entries = [("ams", &*first), ("fra", wrong), ("new", wrong)];
            let merged = three().merged(&answer(6, &entries), 0).unwrap();
            assert_eq!(names(&merged.members), ["ams", "fra"], "{wrong}");
            let text = merged.members.to_text();
            assert!(
                text.contains("10.2.0.7:7704") && text.contains("10.2.0.2:7704"),
                "{text}"
            );
            assert!(
                merged
                    .faults
                    .iter()
                    .any(|fault| fault.contains("fra stays"))
            );
        }
    }

    #[test]
    fn an_empty_registry_removes_nothing() {
        for entries in [&[][..], &[("ams", "nonsense")][..]] {
            let result = three().merged(&answer(9, entries), 0);
            assert!(matches!(result, Err(EntriesError::Empty { .. })));
        }
    }

    #[test]
    fn a_registry_that_began_anew_removes_nothing_for_a_day() {
        let first = entry(1);
        let one = answer(2, &[("ams", &*first)]);
        let merged = three().merged(&one, 1000).unwrap();
        assert_eq!(names(&merged.members), ["ams", "fra", "sin"]);
        assert_eq!(merged.faults.len(), 2);
        // Also after this process has begun again.
        let read = Members::read(&merged.members.to_text()).unwrap();
        assert_eq!(read, merged.members);
        let later = answer(3, &[("ams", &*first)]);
        let merged = read.merged(&later, 1000 + KEPT_AFTER_RETURN - 1).unwrap();
        assert_eq!(merged.members.len(), 3);
        let merged = (merged.members)
            .merged(&later, 1000 + KEPT_AFTER_RETURN)
            .unwrap();
        assert_eq!(names(&merged.members), ["ams"]);
        assert!(merged.faults.is_empty());
    }

    #[test]
    fn the_file_is_a_list_of_members() {
        let text = three().to_text();
        assert!(
            members::check(&Source::new("file", text.clone())).is_ok(),
            "{text}"
        );
        assert_eq!(Members::read(&text), Some(three()));
        assert_eq!(three().revision(), 5);
        for other in [
            "",
            "[[node]]\n",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}\n"),
        ] {
            assert_eq!(Members::read(other), None, "{other}");
        }
        assert_eq!(
            Members::read(&text.replace("10.2.0.1:", "10.2.0.11:")),
            None
        );
    }

    proptest! {
        /// Every list is read as it was written, whatever its entries are.
        #[test]
        fn what_is_written_is_read(
            revision: u64,
            kept_until: Option<u64>,
            entries in proptest::collection::btree_map("[a-z][a-z0-9-]{0,8}", "(?s).{0,60}", 0..6),
        ) {
            let entries = entries.into_iter().map(|(name, entry)| (name.parse().unwrap(), entry)).collect();
            let members = Members { revision, kept_until, entries };
            prop_assert_eq!(Members::read(&members.to_text()), Some(members));
        }

        /// What is accepted is a list of members that Midspan reads.
        #[test]
        fn what_is_accepted_can_be_used(name in "[a-z]{1,5}", entry in "(?s).{0,80}") {
            if let Ok(merged) = three().merged(&answer(6, &[(&name, &entry)]), 0) {
                let source = Source::new("file", merged.members.to_text());
                prop_assert!(members::check(&source).is_ok());
            }
        }

        #[test]
        fn no_file_causes_a_panic(text in "(?s).{0,200}") {
            let _ = Members::read(&text);
            let _ = Members::read(&format!("{HEAD} 1\n{text}"));
            let _ = Members::read(&format!("{HEAD} 1\n\n{ENTRY} fra 5\n{text}"));
        }
    }
}
