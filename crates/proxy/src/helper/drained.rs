//! The listeners that an operator drains.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::command::DrainedListener;
use crate::configuration::Configuration;

/// The listeners that are drained.
#[derive(Debug, Default)]
pub(super) struct Drained(pub BTreeMap<String, Progress>);

/// How far a listener is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// `/health` reports it; new connections are accepted until then.
    Announced(Instant),
    /// No new connections are accepted.
    Done,
}

impl Drained {
    /// The names of all of them.
    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Each of them, and whether it still accepts connections.
    pub fn list(&self) -> Vec<DrainedListener> {
        let accepts = |progress: &Progress| matches!(progress, Progress::Announced(_));
        let listener = |(name, progress): (&String, &Progress)| DrainedListener {
            name: name.clone(),
            accepts: accepts(progress),
        };
        self.0.iter().map(listener).collect()
    }

    /// The configuration without the listeners that accept nothing more.
    pub fn without_them(&self, configuration: &Configuration) -> Configuration {
        let mut rest = configuration.clone();
        rest.listeners
            .retain(|listener| self.0.get(&listener.relay.name) != Some(&Progress::Done));
        rest
    }

    /// Forgets the listeners that this configuration does not have.
    pub fn keep_those_of(&mut self, configuration: &Configuration) {
        self.0.retain(|name, _| has(configuration, name));
    }

    /// When the next announcement is over.
    pub fn next(&self) -> Option<Instant> {
        let until = |progress: &Progress| match progress {
            Progress::Announced(until) => Some(*until),
            Progress::Done => None,
        };
        self.0.values().filter_map(until).min()
    }

    /// Ends the announcements that are over; returns whether there were any.
    pub fn end_announcements(&mut self, now: Instant) -> bool {
        let mut any = false;
        for progress in self.0.values_mut() {
            if matches!(progress, Progress::Announced(until) if *until <= now) {
                *progress = Progress::Done;
                any = true;
            }
        }
        any
    }
}

/// Whether the configuration has a listener of this name.
pub(super) fn has(configuration: &Configuration, name: &str) -> bool {
    let mut listeners = configuration.listeners.iter();
    listeners.any(|listener| listener.relay.name == name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use midspan_document::Source;

    use super::*;

    fn configuration(names: &[&str]) -> Configuration {
        let listener = |(number, name): (usize, &&str)| {
            format!(
                "[[listener]]\nname = \"{name}\"\nlisten = \"127.0.0.1:{}\"\nto = \"192.0.2.1:80\"\n",
                number + 1
            )
        };
        let text: String = names.iter().enumerate().map(listener).collect();
        Configuration::read(&Source::new("midspan.toml", text)).unwrap()
    }

    #[test]
    fn a_listener_is_announced_and_then_removed() {
        let start = Instant::now();
        let whole = configuration(&["web", "mail"]);
        let until = start + Duration::from_secs(5);
        let mut drained = Drained::default();
        drained
            .0
            .insert("web".to_owned(), Progress::Announced(until));
        assert_eq!(drained.next(), Some(until));
        assert!(!drained.end_announcements(start));
        assert_eq!(drained.without_them(&whole).listeners.len(), 2);
        assert!(drained.list()[0].accepts);
        assert!(drained.end_announcements(until));
        assert!(!drained.end_announcements(until));
        assert_eq!(drained.next(), None);
        let rest = drained.without_them(&whole).listeners;
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].relay.name, "mail");
        assert!(!drained.list()[0].accepts);
        drained.keep_those_of(&whole);
        assert_eq!(drained.names(), ["web"]);
        drained.keep_those_of(&configuration(&["mail"]));
        assert_eq!(drained.names(), [""; 0]);
    }
}
