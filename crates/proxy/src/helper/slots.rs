//! Assigns a mark to each transparent listener while the proxy runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;

/// Numbers of transparent listeners by name. A listener keeps its number through reloads, because
/// packets in flight carry its mark.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Slots(BTreeMap<String, usize>);

impl Slots {
    /// The numbers for another configuration: existing listeners keep theirs, and new ones get free
    /// numbers, if possible none that has just become free.
    pub fn assign(&self, configuration: &Configuration, limit: usize) -> Self {
        let names = || {
            configuration
                .transparent()
                .map(|(listener, _)| &listener.relay.name)
        };
        let mut slots: BTreeMap<String, usize> = names()
            .filter_map(|name| Some((name.clone(), *self.0.get(name)?)))
            .collect();
        let recent: BTreeSet<usize> = self.0.values().copied().collect();
        for name in names() {
            if slots.contains_key(name) {
                continue;
            }
            let used: BTreeSet<usize> = slots.values().copied().collect();
            let fresh = (0..limit).find(|slot| !used.contains(slot) && !recent.contains(slot));
            let free = fresh.or_else(|| (0..).find(|slot| !used.contains(slot)));
            slots.insert(name.clone(), free.unwrap_or(usize::MAX));
        }
        Self(slots)
    }

    /// The number of a transparent listener.
    pub fn of(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_document::Source;

    fn configuration(names: &[&str]) -> Configuration {
        let text: String = names
            .iter()
            .map(|name| {
                format!(
                    "[[listener]]\nname = \"{name}\"\nmode = \"transparent\"\n\
                     interfaces = [\"eth1\"]\n"
                )
            })
            .collect();
        Configuration::read(&Source::new("file", text)).unwrap()
    }

    #[test]
    fn a_listener_keeps_its_number() {
        let numbers = |slots: &Slots, names: &[&str]| -> Vec<usize> {
            names.iter().map(|name| slots.of(name)).collect()
        };
        let first = Slots::default().assign(&configuration(&["a", "b", "c"]), 5);
        assert_eq!(numbers(&first, &["a", "b", "c"]), [0, 1, 2]);
        let second = first.assign(&configuration(&["d", "c"]), 5);
        assert_eq!(numbers(&second, &["c", "d"]), [2, 3]);
        // There is no other number left.
        let third = second.assign(&configuration(&["e", "f", "g", "c"]), 4);
        let mut numbers = numbers(&third, &["e", "f", "g", "c"]);
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3]);
    }
}
