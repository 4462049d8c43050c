//! Reads the configuration again while sessions continue.
//!
//! The order keeps new connections possible at every moment. First, new sockets are opened, the rules are
//! tested, and the marks of new legs are permitted. Then relay and gate get the new listeners in addition to
//! the old ones. Then the rules lead to the new listeners, in one step. Finally the removed listeners are
//! closed. If a step fails before the relay has the new listeners, the old configuration stays in force. If
//! the rules cannot be changed afterwards, this is tried again.

use std::os::fd::OwnedFd;
use std::time::Instant;

use midspan_gateway::initial_window::InitialWindows;
use midspan_gateway::interception::{Interception, Plan};
use midspan_relay::OpenListener;
use midspan_units::TimeSpan;
use tracing::{error, info, warn};

use super::firewall::Firewall;
use super::guard::Guard;
use super::installing::log_timeouts;
use super::interception::{self, Marking};
use super::listening::{self, Open, Threads};
use super::relay_process::Listeners;
use super::slots::Slots;
use super::supervision::Supervisor;
use super::{check_machine, families, log_listener};
use crate::Error;
use crate::configuration::Configuration;

/// How long connections of a removed transparent listener that were being opened may still arrive:
/// the last ACK of the handshake is in flight.
const OPENING_TIME: TimeSpan = TimeSpan::from_seconds(10);

/// Most interfaces that are remembered for connections of removed listeners.
const INTERFACE_LIMIT: usize = 1000;

/// The next configuration.
struct Next {
    open: Vec<Open>,
    listeners: Listeners,
    /// `None` if no socket has or had a client's address.
    plan: Option<Plan>,
}

impl Supervisor {
    /// Reloads, and reports the result in the log and to the service manager; returns the keys that
    /// need a restart.
    pub(super) fn reload_and_say(&mut self) -> Result<Vec<String>, Error> {
        self.notifier.reloading();
        let result = self.reload();
        self.reload_error = result.as_ref().err().map(ToString::to_string);
        let notes = match &result {
            Ok(fixed) => {
                self.reloads += 1;
                self.configured_at = super::now_in_seconds();
                let note =
                    |key: &&str| format!("{key} has changed in the file: it needs a restart");
                let notes: Vec<String> = fixed.iter().map(note).collect();
                for note in &notes {
                    warn!("{note}");
                }
                info!(listeners = self.configuration.listeners.len(), "reloaded");
                notes
            }
            Err(error) => {
                self.reloads_failed += 1;
                error!("not reloaded, the old configuration stays in force: {error}");
                Vec::new()
            }
        };
        self.notifier.ready(&self.status_line());
        result.map(|_| notes)
    }

    /// Puts the file in force; returns the keys that need a restart.
    fn reload(&mut self) -> Result<Vec<&'static str>, Error> {
        let mut new = Configuration::load(&self.file)?;
        new.log.level = self.log_level.unwrap_or(new.log.level);
        let left_out = families::leave_out_and_say(&mut new)?;
        let fixed = new.keep_fixed(&self.configuration);
        self.put_in_force(new)?;
        self.left_out = left_out;
        Ok(fixed)
    }

    /// Puts the members of their file in force if the file has changed, with the rest of the configuration as it is in
    /// force. A file that is missing or wrong changes nothing.
    pub(super) fn follow_members(&mut self, now: Instant) {
        // A relay that drains answers no change of its listeners.
        if self.is_draining() || !self.members.look(self.whole.members.as_deref(), now) {
            return;
        }
        let result = self.read_members();
        self.members.note(result, now);
    }

    /// Returns whether the members have changed.
    fn read_members(&mut self) -> Result<bool, Error> {
        let read = self.whole.read_again();
        let mut new = read.map_err(midspan_document::Error::from)?;
        if new.overlay() == self.whole.overlay() {
            return Ok(false);
        }
        new.log = self.whole.log;
        let left_out = families::leave_out_missing(&mut new)?;
        new.keep_fixed(&self.configuration);
        self.put_in_force(new)?;
        self.left_out = left_out;
        Ok(true)
    }

    /// Puts a configuration in force, without its drained listeners, and with the drained clients of the others.
    pub(super) fn put_in_force(&mut self, whole: Configuration) -> Result<(), Error> {
        check_machine(&whole)?;
        let new = self.drained.applied_to(&whole);
        let places = self.windows.as_ref().map(InitialWindows::places);
        let plan = self.guard.as_mut().map(Guard::plan).transpose()?;
        let result = self.reload_to(new);
        if let Err(error) = &result {
            // Only marks may be expected in vain then, which does no harm. To restore the rules would take as long again,
            // and meanwhile the repeated command would fail.
            let is_late = matches!(error, Error::RulesLate);
            if let (Some(guard), Some(plan)) = (&mut self.guard, plan.filter(|_| !is_late)) {
                guard.restore(plan);
            }
            // Existing windows keep their marks.
            let restored = match (&mut self.windows, places) {
                (Some(windows), Some(places)) => windows.set_places(places),
                _ => {
                    self.windows = None;
                    Ok(())
                }
            };
            self.raising
                .change(&self.configuration, self.windows.as_ref());
            restored?;
        }
        result.map(|()| {
            self.drained.keep_those_of(&whole);
            self.whole = whole;
        })
    }

    fn reload_to(&mut self, new: Configuration) -> Result<(), Error> {
        self.change_windows(&new)?;
        let limit = interception::slot_limit(&new, self.windows.as_ref());
        let slots = self.slots.assign(&new, limit);
        let Next {
            open,
            listeners,
            plan,
        } = self.prepare(&new, &slots)?;
        let guard = match (&mut self.guard, &plan) {
            (Some(guard), Some(plan)) => {
                guard.expect(plan.clone())?;
                None
            }
            (None, Some(plan)) => {
                let interception = Interception::install(plan.clone())?;
                log_timeouts(&interception);
                let firewall = Firewall::open(interception.probe()?);
                Some(Guard::new(interception, firewall)?)
            }
            _ => None,
        };
        self.raising.pause(&new, self.windows.as_ref());
        self.relay.reload(&new, listeners)?;
        if !self.wait_for_reload()? {
            return Err(Error::RelayNotReloaded);
        }
        // From here on the reload cannot be undone: a step that fails is tried again.
        if let Some(mut guard) = guard {
            guard.take_from_now();
            self.guard = Some(guard);
        } else if let (Some(guard), Some(plan)) = (&mut self.guard, plan) {
            guard.change(plan);
        }
        self.watch
            .set_limit(new.interception.watchdog_timeout.into());
        let is_open = |old: &Open| open.iter().any(|open| open.address == old.address);
        let gone = self.open.iter().filter(|old| !is_open(old));
        let gone: Vec<_> = gone.map(|old| old.address).collect();
        if !gone.is_empty()
            && let Err(error) = self.relay.retire(gone, OPENING_TIME)
        {
            warn!("listeners that have gone may still accept: {error}");
        }
        self.remember_interfaces(&new);
        let measures = new.has_control_group();
        self.raising.change(&new, self.windows.as_ref());
        self.configuration = new;
        self.count_bytes(measures);
        self.open = open;
        self.slots = slots;
        self.machine.look_again();
        Ok(())
    }

    fn change_windows(&mut self, new: &Configuration) -> Result<(), Error> {
        let wanted = interception::windows(new);
        match &mut self.windows {
            Some(windows) => windows.change_groups(&wanted)?,
            None if wanted.is_empty() => {}
            None => {
                self.windows = Some(InitialWindows::install_groups(new.marks, &wanted)?);
            }
        }
        Ok(())
    }

    /// Opens new sockets, and prepares the rules.
    fn prepare(&self, new: &Configuration, slots: &Slots) -> Result<Next, Error> {
        let marking = Marking::new(new, slots, self.windows.as_ref())?;
        let mut open = Vec::new();
        let mut relay = Vec::new();
        for listener in &new.listeners {
            let mut opened = Vec::new();
            for leg in marking.client_legs(listener) {
                let of_leg = listening::open(listener, leg, Threads::from(&new.relay), &self.open)
                    .map_err(|error| {
                        midspan_document::Error::from(new.listen_error(listener, error))
                    })?;
                opened.extend(of_leg);
            }
            if opened.iter().any(|(_, sockets)| !sockets.is_empty()) {
                log_listener(new, listener);
            }
            for (place, sockets) in opened {
                let listener = marking.listener(listener, &place);
                relay.push(OpenListener { listener, sockets });
                open.push(place);
            }
        }
        let gate = match marking.gate() {
            None => None,
            Some(message) => {
                let mut present = self.configuration.transparent();
                // With a transparent listener, the relay has them already.
                let raw: Vec<OwnedFd> = match present.next() {
                    Some(_) => Vec::new(),
                    None => interception::raw_sockets()?,
                };
                Some((message, raw))
            }
        };
        let has_rules = marking.marks().is_some() || self.guard.is_some();
        let plan = has_rules.then(|| marking.plan(&open, &self.interfaces, &self.bypasses));
        Ok(Next {
            open,
            listeners: Listeners { relay, gate },
            plan,
        })
    }

    /// Existing connections continue at the interfaces at which they arrive.
    pub(super) fn remember_interfaces(&mut self, configuration: &Configuration) {
        let names = configuration.transparent();
        let names = names.flat_map(|(_, transparent)| &transparent.interfaces);
        let room = INTERFACE_LIMIT.saturating_sub(self.interfaces.len());
        self.interfaces.extend(names.take(room).cloned());
    }
}
