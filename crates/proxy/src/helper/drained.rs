//! The listeners that an operator drains, and the clients of listeners.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::command::DrainedListener;
use crate::configuration::Configuration;
use crate::summary::DrainedClients;

/// Most prefixes of clients that are drained at one listener. Each new connection is compared with all of
/// them.
pub(super) const PREFIX_LIMIT: usize = 64;

/// What is drained.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Drained {
    /// Whole listeners.
    pub listeners: BTreeMap<String, Progress>,
    /// Prefixes of clients of listeners; no list is empty.
    clients: BTreeMap<String, Vec<IpNet>>,
}

/// How far a listener is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<Duration>", into = "Option<Duration>")]
pub(super) enum Progress {
    /// `/health` reports it; new connections are accepted until then.
    Announced(Instant),
    /// No new connections are accepted.
    Done,
}

/// The rest of the time, which another program of this process reads.
impl From<Progress> for Option<Duration> {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Announced(until) => Some(until.saturating_duration_since(Instant::now())),
            Progress::Done => None,
        }
    }
}

impl From<Option<Duration>> for Progress {
    fn from(rest: Option<Duration>) -> Self {
        let until = rest.and_then(|rest| Instant::now().checked_add(rest));
        until.map_or(Self::Done, Self::Announced)
    }
}

impl Drained {
    /// The names of all drained listeners.
    pub fn names(&self) -> Vec<String> {
        self.listeners.keys().cloned().collect()
    }

    /// Each drained listener, and whether it still accepts connections.
    pub fn list(&self) -> Vec<DrainedListener> {
        let accepts = |progress: &Progress| matches!(progress, Progress::Announced(_));
        let listener = |(name, progress): (&String, &Progress)| DrainedListener {
            name: name.clone(),
            accepts: accepts(progress),
        };
        self.listeners.iter().map(listener).collect()
    }

    /// Each drained prefix of clients. Only the relay counts their sessions.
    pub fn list_clients(&self) -> Vec<DrainedClients> {
        let of_listener = |(name, prefixes): (&String, &Vec<IpNet>)| {
            let row = |prefix: &IpNet| DrainedClients {
                listener: name.clone(),
                clients: prefix.to_string(),
                sessions: None,
            };
            prefixes.iter().map(row).collect::<Vec<_>>()
        };
        self.clients.iter().flat_map(of_listener).collect()
    }

    /// Drains clients of a listener; returns whether all prefixes have room. Otherwise nothing has changed.
    #[must_use]
    pub fn add_clients(&mut self, name: &str, prefixes: &[IpNet]) -> bool {
        let mut of_listener = self.clients.get(name).cloned().unwrap_or_default();
        for prefix in prefixes {
            if !of_listener.contains(prefix) {
                of_listener.push(*prefix);
            }
        }
        let has_room = of_listener.len() <= PREFIX_LIMIT;
        if has_room && !of_listener.is_empty() {
            self.clients.insert(name.to_owned(), of_listener);
        }
        has_room
    }

    /// Ends the draining of exactly these prefixes.
    ///
    /// # Errors
    /// The first one that is not drained. Nothing has changed then.
    pub fn remove_clients(&mut self, name: &str, prefixes: &[IpNet]) -> Result<(), IpNet> {
        let mut of_listener = self.clients.get(name).cloned().unwrap_or_default();
        if let Some(unknown) = prefixes.iter().find(|prefix| !of_listener.contains(prefix)) {
            return Err(*unknown);
        }
        of_listener.retain(|prefix| !prefixes.contains(prefix));
        match of_listener.is_empty() {
            true => self.clients.remove(name),
            false => self.clients.insert(name.to_owned(), of_listener),
        };
        Ok(())
    }

    /// Ends all draining of a listener; returns whether there was any.
    pub fn remove(&mut self, name: &str) -> bool {
        let listener = self.listeners.remove(name).is_some();
        self.clients.remove(name).is_some() || listener
    }

    /// Whether the configuration in force is another one than the file's.
    pub fn changes_anything(&self) -> bool {
        let mut progress = self.listeners.values();
        !self.clients.is_empty() || progress.any(|progress| *progress == Progress::Done)
    }

    /// The configuration in force: without the listeners that accept nothing more, and with the drained
    /// clients of the others.
    pub fn applied_to(&self, configuration: &Configuration) -> Configuration {
        let mut rest = configuration.clone();
        rest.listeners
            .retain(|listener| self.listeners.get(&listener.relay.name) != Some(&Progress::Done));
        for listener in &mut rest.listeners {
            let drained = self.clients.get(&listener.relay.name).into_iter().flatten();
            listener.relay.drained_clients = drained.copied().map(Into::into).collect();
        }
        rest
    }

    /// Forgets the listeners that this configuration does not have.
    pub fn keep_those_of(&mut self, configuration: &Configuration) {
        self.listeners.retain(|name, _| has(configuration, name));
        self.clients.retain(|name, _| has(configuration, name));
    }

    /// When the next announcement is over.
    pub fn next(&self) -> Option<Instant> {
        let until = |progress: &Progress| match progress {
            Progress::Announced(until) => Some(*until),
            Progress::Done => None,
        };
        self.listeners.values().filter_map(until).min()
    }

    /// Ends the announcements that are over; returns whether there were any.
    pub fn end_announcements(&mut self, now: Instant) -> bool {
        let mut any = false;
        for progress in self.listeners.values_mut() {
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
            .listeners
            .insert("web".to_owned(), Progress::Announced(until));
        assert_eq!(drained.next(), Some(until));
        assert!(!drained.end_announcements(start));
        assert_eq!(drained.applied_to(&whole).listeners.len(), 2);
        assert!(drained.list()[0].accepts && !drained.changes_anything());
        assert!(drained.end_announcements(until));
        assert!(!drained.end_announcements(until));
        assert_eq!(drained.next(), None);
        let rest = drained.applied_to(&whole).listeners;
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].relay.name, "mail");
        assert!(!drained.list()[0].accepts && drained.changes_anything());
        drained.keep_those_of(&whole);
        assert_eq!(drained.names(), ["web"]);
        drained.keep_those_of(&configuration(&["mail"]));
        assert_eq!(drained.names(), [""; 0]);
    }

    fn prefixes(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn clients_are_drained_at_their_listener_alone() {
        let whole = configuration(&["web", "mail"]);
        let mut drained = Drained::default();
        assert!(drained.add_clients("web", &prefixes(&["192.0.2.0/24", "2001:db8::/32"])));
        // A second command with the same prefix changes nothing.
        assert!(drained.add_clients("web", &prefixes(&["192.0.2.0/24"])));
        assert!(drained.changes_anything() && drained.names().is_empty());
        let applied = drained.applied_to(&whole);
        let drains = |place: usize, client: &str| {
            let listener = &applied.listeners[place].relay;
            listener.drains(client.parse().unwrap())
        };
        assert!(drains(0, "192.0.2.7") && drains(0, "::ffff:192.0.2.7"));
        assert!(drains(0, "2001:db8::1") && !drains(0, "192.0.3.1"));
        assert!(!drains(1, "192.0.2.7"));
        let rows = drained.list_clients();
        let rows: Vec<(&str, &str)> = (rows.iter())
            .map(|row| (row.listener.as_str(), row.clients.as_str()))
            .collect();
        assert_eq!(rows, [("web", "192.0.2.0/24"), ("web", "2001:db8::/32")]);
        let unknown = prefixes(&["192.0.2.0/24", "192.0.2.0/25"]);
        assert_eq!(drained.remove_clients("web", &unknown), Err(unknown[1]));
        assert_eq!(drained.remove_clients("mail", &unknown), Err(unknown[0]));
        assert_eq!(drained.list_clients().len(), 2);
        assert_eq!(drained.remove_clients("web", &unknown[..1]), Ok(()));
        assert!(drained.remove("web") && !drained.remove("web"));
        assert!(!drained.changes_anything());
    }

    #[test]
    fn a_listener_has_a_bounded_number_of_drained_prefixes() {
        let mut drained = Drained::default();
        let all: Vec<IpNet> = (0..=PREFIX_LIMIT)
            .map(|number| format!("10.0.{number}.0/24").parse().unwrap())
            .collect();
        assert!(!drained.add_clients("web", &all));
        assert!(!drained.changes_anything());
        assert!(drained.add_clients("web", &all[1..]));
        assert!(!drained.add_clients("web", &all[..1]));
        assert_eq!(drained.list_clients().len(), PREFIX_LIMIT);
        assert!(drained.add_clients("mail", &all[..1]));
        drained.keep_those_of(&configuration(&["mail"]));
        assert_eq!(drained.list_clients().len(), 1);
    }
}
