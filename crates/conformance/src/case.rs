//! The type of a case.

use wildmatch::WildMatch;

use crate::error::Played;
use crate::proxies::Conditions;
use crate::stage::Stage;
use crate::transcript::Event;

/// What a run with a proxy must show.
#[derive(Debug, Clone, Copy)]
pub enum Expected {
    /// The events of the run without a proxy, in the same invocation.
    WithoutProxy,
    /// These events of client and server, because the proxy itself ends in this case.
    Events(&'static [Event], &'static [Event]),
}

/// A scripted session, or several.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The name, in lower case, as words.
    pub name: &'static str,
    /// The actions of both ends.
    pub script: fn(&mut Stage<'_>) -> Played,
    /// The expected events.
    pub expected: Expected,
    /// What the case needs in the proxy's configuration.
    pub conditions: Conditions,
    /// The case uses much of the machine, so it runs alone.
    pub heavy: bool,
    /// Connections may be left at the proxy: one end has vanished, and the proxy may not have
    /// noticed.
    pub leaves_connections: bool,
}

impl Case {
    /// A case that has the usual properties.
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
    WildMatch::new(pattern).matches(name)
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
