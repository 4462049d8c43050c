//! Draining: the proxy or a listener is about to end. First the end is announced for `lame_duck_time`, while
//! new connections are still accepted. Then there are no new connections, and existing sessions continue.
//!
//! A signal drains the proxy, and an operator can drain single listeners. A drained listener is not part of
//! the configuration in force, as if it had been removed from the file, until the operator ends the draining
//! or Midspan starts again.

use std::time::{Duration, Instant};

use midspan_units::TimeSpan;
use tracing::{error, info};

use super::drained::{Progress, has};
use super::supervision::{END_MARGIN, Supervisor};
use crate::Error;
use crate::command::Answer;

/// How long after a failure the removal of a listener is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl Supervisor {
    /// The list of drained listeners.
    pub(super) fn list_drained(&self) -> Answer {
        Answer {
            ok: true,
            drained: Some(self.drained.list()),
            ..Answer::default()
        }
    }

    /// Drains a listener: announces it, and removes it when the time of the announcement is over.
    pub(super) fn drain_listener(&mut self, name: &str, now: Instant) -> Answer {
        if !has(&self.whole, name) {
            return Answer::error(self.no_listener(name));
        }
        if self.drained.0.contains_key(name) {
            return self.list_drained();
        }
        let time = Duration::from(self.configuration.relay.lame_duck_time);
        // A time of zero is over at once.
        let until = now.checked_add(time).unwrap_or(now);
        let progress = Progress::Announced(until);
        self.drained.0.insert(name.to_owned(), progress);
        info!(listener = name, lame_duck_time = %self.configuration.relay.lame_duck_time, "draining");
        if let Err(why) = self.end_announcements(now) {
            self.drained.0.remove(name);
            return Answer::error(why);
        }
        self.list_drained()
    }

    /// Ends the draining of one listener, or of all.
    pub(super) fn end_draining_of(&mut self, name: Option<&str>) -> Answer {
        let before = self.drained.0.clone();
        match name {
            Some(name) if self.drained.0.remove(name).is_none() => {
                let message = match has(&self.whole, name) {
                    true => {
                        format!("listener \"{name}\" is not drained; `midspan drain` lists them")
                    }
                    false => self.no_listener(name),
                };
                return Answer::error(message);
            }
            Some(_) => {}
            None => self.drained.0.clear(),
        }
        if before.values().any(|progress| *progress == Progress::Done)
            && let Err(error) = self.put_in_force(self.whole.clone())
        {
            self.drained.0 = before;
            return Answer::error(format!("nothing has changed: {error}"));
        }
        info!(listener = name.unwrap_or("all"), "no longer drained");
        self.list_drained()
    }

    /// Removes the listeners whose announcement is over.
    ///
    /// # Errors
    /// The text for the operator. The listeners of before stay in force.
    pub(super) fn end_announcements(&mut self, now: Instant) -> Result<(), String> {
        let before = self.drained.0.clone();
        if !self.drained.end_announcements(now) {
            return Ok(());
        }
        self.put_in_force(self.whole.clone()).map_err(|error| {
            self.drained.0 = before;
            // Otherwise this would be tried in every turn.
            let retry = now.checked_add(RETRY);
            for progress in self.drained.0.values_mut() {
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
