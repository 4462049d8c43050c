//! Draining: the proxy or a listener is about to end. First the end is announced for `lame_duck_time`, while
//! new connections are still accepted. Then there are no new connections, and existing sessions continue.
//!
//! A signal drains the proxy, and an operator can drain single listeners. A drained listener is not part of
//! the configuration in force, as if it had been removed from the file, until the operator ends the draining
//! or Midspan starts again.
//!
//! An operator can also drain some clients of a listener. This is not announced, because the listener continues
//! to serve all others, and a load balancer must not take it out of service.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_units::TimeSpan;
use tracing::{error, info};

use super::commands::{NO_PREFIX, parse};
use super::drained::{Drained, PREFIX_LIMIT, Progress, has};
use super::supervision::{END_MARGIN, Supervisor};
use crate::Error;
use crate::command::Answer;

/// How long after a failure the removal of a listener is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl Supervisor {
    /// The lists of drained listeners and clients.
    pub(super) fn list_drained(&self) -> Answer {
        Answer {
            ok: true,
            drained: Some(self.drained.list()),
            drained_clients: Some(self.drained.list_clients()),
            ..Answer::default()
        }
    }

    /// Drains a listener: announces it, and removes it when the time of the announcement is over.
    pub(super) fn drain_listener(&mut self, name: &str, now: Instant) -> Answer {
        if !has(&self.whole, name) {
            return Answer::error(self.no_listener(name));
        }
        if self.drained.listeners.contains_key(name) {
            return self.list_drained();
        }
        let time = Duration::from(self.configuration.relay.lame_duck_time);
        // A time of zero is over at once.
        let until = now.checked_add(time).unwrap_or(now);
        let progress = Progress::Announced(until);
        self.drained.listeners.insert(name.to_owned(), progress);
        info!(listener = name, lame_duck_time = %self.configuration.relay.lame_duck_time, "draining");
        if let Err(why) = self.end_announcements(now) {
            self.drained.listeners.remove(name);
            return Answer::error(why);
        }
        self.list_drained()
    }

    /// Drains clients of a listener from now on: their new connections are no longer served.
    pub(super) fn drain_clients(&mut self, name: &str, prefixes: &[String]) -> Answer {
        let prefixes = match self.prefixes_at(name, prefixes) {
            Ok(prefixes) => prefixes,
            Err(why) => return Answer::error(why),
        };
        let before = self.drained.clone();
        if !self.drained.add_clients(name, &prefixes) {
            return Answer::error(format!("more than {PREFIX_LIMIT} prefixes of one listener"));
        }
        self.apply_drained(before, name, "clients are drained")
    }

    /// Ends the draining of exactly these prefixes of clients of a listener.
    pub(super) fn end_draining_of_clients(&mut self, name: &str, prefixes: &[String]) -> Answer {
        let prefixes = match self.prefixes_at(name, prefixes) {
            Ok(prefixes) => prefixes,
            Err(why) => return Answer::error(why),
        };
        let before = self.drained.clone();
        if let Err(unknown) = self.drained.remove_clients(name, &prefixes) {
            return Answer::error(format!(
                "{unknown} is not drained at listener \"{name}\"; `midspan drain` lists the prefixes"
            ));
        }
        self.apply_drained(before, name, "clients are no longer drained")
    }

    /// The prefixes of a command about clients of a listener.
    ///
    /// # Errors
    /// The text for the operator: there is no such listener, or a text is no prefix.
    fn prefixes_at(&self, name: &str, prefixes: &[String]) -> Result<Vec<IpNet>, String> {
        if !has(&self.whole, name) {
            return Err(self.no_listener(name));
        }
        let prefixes: Option<Vec<IpNet>> = prefixes.iter().map(|text| parse(text)).collect();
        prefixes.ok_or_else(|| NO_PREFIX.to_owned())
    }

    /// Ends the draining of one listener and its clients, or of all.
    pub(super) fn end_draining_of(&mut self, name: Option<&str>) -> Answer {
        let before = self.drained.clone();
        match name {
            Some(name) if !self.drained.remove(name) => {
                let message = match has(&self.whole, name) {
                    true => {
                        format!("listener \"{name}\" is not drained; `midspan drain` lists them")
                    }
                    false => self.no_listener(name),
                };
                return Answer::error(message);
            }
            Some(_) => {}
            None => self.drained = Drained::default(),
        }
        self.apply_drained(before, name.unwrap_or("all"), "no longer drained")
    }

    /// Puts a change of the draining in force; after an error, all is as `before`.
    fn apply_drained(&mut self, before: Drained, name: &str, done: &str) -> Answer {
        let has_effect = before.changes_anything() || self.drained.changes_anything();
        if has_effect && let Err(error) = self.put_in_force(self.whole.clone()) {
            self.drained = before;
            return Answer::error(format!("nothing has changed: {error}"));
        }
        let clients = self.drained.list_clients().len();
        info!(listener = name, drained_prefixes = clients, "{done}");
        self.notifier.status(&self.status_line());
        self.list_drained()
    }

    /// Removes the listeners whose announcement is over.
    ///
    /// # Errors
    /// The text for the operator. The listeners of before stay in force.
    pub(super) fn end_announcements(&mut self, now: Instant) -> Result<(), String> {
        let before = self.drained.listeners.clone();
        if !self.drained.end_announcements(now) {
            return Ok(());
        }
        self.put_in_force(self.whole.clone()).map_err(|error| {
            self.drained.listeners = before;
            // Otherwise this would be tried in every turn.
            let retry = now.checked_add(RETRY);
            for progress in self.drained.listeners.values_mut() {
                if let (Progress::Announced(until), Some(retry)) = (progress, retry) {
                    *until = retry.max(*until);
                }
            }
            error!("a drained listener still accepts connections, it is tried again: {error}");
            format!("the listener still accepts connections: {error}")
        })
    }

    fn no_listener(&self, name: &str) -> String {
        let names = self.whole.listeners.iter();
        let names: Vec<&str> = names.map(|of| of.relay.name.as_str()).collect();
        format!(
            "there is no listener \"{name}\"; there are: {}",
            names.join(", ")
        )
    }

    /// The first signal to end: announces the end, or drains at once.
    pub(super) fn begin_end(&mut self, now: Instant) -> Result<(), Error> {
        let time = self.configuration.relay.lame_duck_time;
        if time == TimeSpan::ZERO {
            return self.drain(now);
        }
        self.lame_duck_until = Some(now.checked_add(time.into()).unwrap_or(now));
        info!(
            lame_duck_time = %time,
            "a signal: Midspan will end, new connections are still accepted"
        );
        let end = self.configuration.relay.drain_timeout + time;
        let end = now.checked_add(Duration::from(end) + END_MARGIN);
        self.notifier.stopping("about to end", end);
        Ok(())
    }

    /// Whether the proxy will end, and accepts connections until then.
    pub(super) const fn is_lame_duck(&self) -> bool {
        self.lame_duck_until.is_some() && !self.is_draining()
    }
}
