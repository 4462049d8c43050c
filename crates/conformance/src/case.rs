//! What a case is.

use crate::error::Played;
use crate::proxies::Conditions;
use crate::stage::Stage;
use crate::transcript::Event;

/// What is expected of a run with a proxy.
#[derive(Debug, Clone, Copy)]
pub enum Expected {
    /// What the run without a proxy gave, in the same invocation.
    WithoutProxy,
    /// These events of client and server, for the case is about the proxy's own end.
    Events(&'static [Event], &'static [Event]),
}

/// A scripted session, or many.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Lower case, in words.
    pub name: &'static str,
    /// What both ends do.
    pub script: fn(&mut Stage<'_>) -> Played,
    /// What is expected.
    pub expected: Expected,
    /// What it asks of the proxy's configuration.
    pub conditions: Conditions,
    /// Needs much of the machine, so it runs alone.
    pub heavy: bool,
    /// Connections are left on purpose: one end is gone and the proxy may not know.
    pub leaves_connections: bool,
}

impl Case {
    /// A case like most.
    pub(crate) const fn new(name: &'static str, script: fn(&mut Stage<'_>) -> Played) -> Self {
        Self {
            name,
            script,
            expected: Expected::WithoutProxy,
            conditions: Conditions {
                few_descriptors: false,
                few_pipes: false,
                keepalive: false,
            },
            heavy: false,
            leaves_connections: false,
        }
    }

    pub(crate) const fn heavy(mut self) -> Self {
        self.heavy = true;
        self
    }

    pub(crate) const fn leaves_connections(mut self) -> Self {
        self.leaves_connections = true;
        self
    }

    pub(crate) const fn under(mut self, conditions: Conditions) -> Self {
        self.conditions = conditions;
        self
    }

    pub(crate) const fn expecting(
        mut self,
        client: &'static [Event],
        server: &'static [Event],
    ) -> Self {
        self.expected = Expected::Events(client, server);
        self
    }
}

/// Whether a name fits a pattern in which `*` stands for any text and `?` for any character.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    // The place to go back to: behind the last star, and what it stands for so far.
    let mut star: Option<(usize, usize)> = None;
    let (mut at, mut position) = (0, 0);
    while position < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, position));
                at += 1;
            }
            Some(&c) if c == '?' || c == name[position] => {
                at += 1;
                position += 1;
            }
            _ => match &mut star {
                Some((behind, taken)) => {
                    *taken += 1;
                    (at, position) = (*behind, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name) in [
            ("reset*", "reset by client"),
            ("*client*", "reset by client"),
            ("*", ""),
            ("r?set by client", "reset by client"),
            ("*e*e*", "refuse me"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("reset", "reset by"), ("*x", "xy"), ("?", ""), ("", "a")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
