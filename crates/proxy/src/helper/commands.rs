//! Carries out an operator's commands.

use std::time::Instant;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use midspan_gateway::initial_window::InitialWindows;
use midspan_linux::connection_tracking::Occupancy;
use midspan_relay::kick::Target;
use tracing::{info, warn};

use super::routes::NO_WINDOWS;
use super::state::{KeptBypasses, State};
use super::supervision::Supervisor;
use crate::command::{Answer, LateThreadStatus, ListenerStatus, Request, Status, TrackingStatus};
use crate::configuration::{Configuration, Listener, Mode, prefix};
use crate::control::FromRelay;
use crate::health::{HelperState, Passing};
use crate::late::LateThread;

/// The answer to a text that is no prefix.
pub(super) const NO_PREFIX: &str =
    "not an address or prefix: write 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32";
/// Most bypassed prefixes.
const BYPASS_LIMIT: usize = 1000;
/// Most bytes of the names of all listeners in the message to the relay.
const MOST_NAMES: usize = 16 << 10;

impl Supervisor {
    /// Carries a request out.
    pub(super) fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status => Answer {
                ok: true,
                status: Some(self.status()),
                ..Answer::default()
            },
            Request::Reload
            | Request::Upgrade { .. }
            | Request::DrainOn { .. }
            | Request::DrainOff { .. }
                if self.is_draining() || self.is_lame_duck() =>
            {
                Answer::error("the proxy is about to end")
            }
            Request::Reload => match self.reload_and_say() {
                Ok(notes) => Answer {
                    ok: true,
                    notes,
                    ..Answer::default()
                },
                Err(error) => {
                    Answer::error(format!("{error}; the old configuration stays in force"))
                }
            },
            Request::Upgrade { program } => self.begin_upgrade(program.as_deref()),
            Request::Kick { target } => self.kick(&target),
            Request::LeftAlone => self.list_left_alone(),
            Request::Forget { .. } if self.is_draining() => {
                Answer::error("the proxy is about to end")
            }
            Request::Forget { prefix } => self.forget(prefix.as_deref()),
            Request::DrainList => self.list_drained(),
            Request::DrainOn { listener, clients } => match &clients[..] {
                [] => self.drain_listener(&listener, Instant::now()),
                clients => self.drain_clients(&listener, clients),
            },
            Request::DrainOff { listener, clients } => match (listener, &clients[..]) {
                (Some(listener), [_, ..]) => self.end_draining_of_clients(&listener, &clients),
                (listener, _) => self.end_draining_of(listener.as_deref()),
            },
            Request::BypassList => self.list(),
            Request::BypassOn { prefix } => self.change_bypasses(prefix.as_deref(), true),
            Request::BypassOff { prefix } => self.change_bypasses(prefix.as_deref(), false),
        }
    }

    /// Resets live sessions.
    fn kick(&mut self, target: &str) -> Answer {
        let Some(meant) = kick_target(target) else {
            return Answer::error(
                "neither the number of a session nor an address or prefix: write 17, 192.0.2.1, \
                 192.0.2.0/24 or 2001:db8::/32",
            );
        };
        self.orders += 1;
        let order = self.orders;
        let result = match self.relay.kick(order, meant) {
            Ok(()) => self.wait_for(|message| match message {
                FromRelay::Kicked { number, kicked } if *number == order => Some(*kicked),
                _ => None,
            }),
            Err(error) => Err(error),
        };
        match result {
            Err(error) => Answer::error(error.to_string()),
            Ok(kicked) => {
                info!(target, ?kicked, "kick");
                Answer {
                    ok: true,
                    notes: match kicked {
                        Some(_) => Vec::new(),
                        None => vec![
                            "they are being reset; there are too many to wait for their number"
                                .to_owned(),
                        ],
                    },
                    kicked,
                    ..Answer::default()
                }
            }
        }
    }

    fn list(&self) -> Answer {
        Answer {
            ok: true,
            bypasses: Some(self.bypasses.iter().map(IpNet::to_string).collect()),
            notes: self.bypass_notes(),
            ..Answer::default()
        }
    }

    fn change_bypasses(&mut self, prefix: Option<&str>, on: bool) -> Answer {
        if self.configuration.transparent().next().is_none() && on {
            return Answer::error(
                "no listener is transparent, so there is nothing to bypass: clients of forward \
                 listeners connect to Midspan itself",
            );
        }
        let prefixes = match prefix.map(parse) {
            None => everything(),
            Some(Some(prefix)) => vec![prefix],
            Some(None) => {
                return Answer::error(NO_PREFIX);
            }
        };
        let mut bypasses = self.bypasses.clone();
        if on {
            let new = prefixes.iter().filter(|p| !self.bypasses.contains(p));
            bypasses.extend(new);
            if bypasses.len() > BYPASS_LIMIT {
                return Answer::error(format!("more than {BYPASS_LIMIT} prefixes"));
            }
        } else if prefix.is_none() {
            bypasses.clear();
        } else {
            bypasses.retain(|bypass| !prefixes.contains(bypass));
            // After an error, the operator tries the same command again.
            if bypasses.len() == self.bypasses.len() && !self.bypasses_late {
                return Answer::error("this prefix is not bypassed; `midspan bypass` lists them");
            }
        }
        let late = self
            .guard
            .as_mut()
            .and_then(|guard| guard.set_bypasses(bypasses.clone()).err());
        self.bypasses_late = late.is_some();
        let names: Vec<String> = bypasses.iter().map(IpNet::to_string).collect();
        self.bypasses = bypasses;
        // Also if the rules are late: the change will be in force, so a restart must not undo it.
        let kept = match &self.kept_bypasses {
            Some(kept) => kept.keep(&names).map_err(|error| error.to_string()),
            None => Err("there is no state directory (relay.state_directory)".to_owned()),
        };
        self.bypasses_not_kept = kept.err().filter(|_| !names.is_empty());
        self.notifier.status(&self.status_line());
        if let Some(error) = late {
            warn!("rules cannot be changed, they are tried again: {error}");
            return Answer::error(format!(
                "the rules cannot be changed yet, Midspan will try again: {error}"
            ));
        }
        info!(bypasses = names.join(" "), "bypass changed");
        self.list()
    }

    /// Notes for the operator about connections to which a bypass does not apply.
    fn bypass_notes(&self) -> Vec<String> {
        let not_kept = self.bypasses_not_kept.as_ref();
        let not_kept =
            not_kept.map(|why| format!("this ends with Midspan, after a crash too: {why}"));
        let forward: Vec<&str> = self
            .configuration
            .listeners
            .iter()
            .filter(|listener| listener.listen().is_some())
            .map(|listener| listener.relay.name.as_str())
            .collect();
        let unaffected = (!forward.is_empty()).then(|| {
            format!(
                "these listeners cannot be bypassed, their clients connect to Midspan itself: {}",
                forward.join(", ")
            )
        });
        unaffected.into_iter().chain(not_kept).collect()
    }

    fn status(&self) -> Status {
        let passing = self.passing().unwrap_or_default();
        let is_passing = (self.guard.as_ref()).is_some_and(|guard| !guard.is_taking());
        let state = match (self.is_draining(), is_passing) {
            (true, _) => "draining",
            (false, _) if self.is_lame_duck() => "ending",
            (false, true) => "passing",
            (false, false) => "running",
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: state.to_owned(),
            pid: std::process::id(),
            relay_pid: self.relay.id(),
            uptime_seconds: self.ready_since.elapsed().as_secs(),
            configuration: self.file.display().to_string(),
            reloads: self.reloads,
            reload_error: self.reload_error.clone(),
            upgrade: self.upgrades.last.clone(),
            former_relay_pids: (self.former.list(Instant::now()).iter())
                .map(|former| former.id)
                .collect(),
            passing: passing.names().into_iter().map(str::to_owned).collect(),
            late_threads: self.late.iter().map(late_thread).collect(),
            log_lines_lost: midspan_log::lost(),
            listeners: self.configuration.listeners.iter().map(listener).collect(),
            bypasses: self.bypasses.iter().map(IpNet::to_string).collect(),
            drained: self.drained.list(),
            drained_clients: self.drained.list_clients(),
            admin: (self.configuration.admin.as_ref()).map(|admin| admin.listen.to_string()),
            connection_tracking: self.connection_tracking(),
            notices: self.notices(),
        }
    }

    /// Differences from the configuration.
    fn notices(&self) -> Vec<String> {
        let takes_ipv6 = self.configuration.transparent().any(|(_, of)| of.ipv6);
        let without_ipv6 = self.machine.no_ipv6().filter(|_| takes_ipv6);
        let without_ipv6 = without_ipv6.map(|missing| {
            format!("no IPv6 connections are intercepted, because this machine has no IPv6 now: {missing}")
        });
        let looping = self.machine.machine().looping.iter().map(|name| {
            format!("listener \"{name}\" forwards to itself: its connections are refused")
        });
        let windows = self.windows.as_ref();
        let without_windows = windows.is_some_and(InitialWindows::is_suspended);
        let members = self.members.error().map(|error| {
            format!("the file of members is not used, the last members stay: {error}")
        });
        (self.left_out.iter().cloned())
            .chain(members)
            .chain(without_windows.then(|| NO_WINDOWS.to_owned()))
            .chain(without_ipv6)
            .chain(looping)
            .collect()
    }

    fn connection_tracking(&self) -> Option<TrackingStatus> {
        let guard = self.guard.as_ref()?;
        let occupancy = Occupancy::read_files()?;
        Some(TrackingStatus {
            entries: occupancy.entries,
            limit: occupancy.limit,
            is_nearly_full: occupancy.is_nearly_full(),
            has_timeouts: guard.has_timeouts(),
        })
    }

    /// Why all new connections of transparent listeners pass untouched; `None` if no listener is
    /// transparent.
    fn passing(&self) -> Option<Passing> {
        self.configuration.transparent().next()?;
        let guard = self.guard.as_ref()?;
        let is_bypassed = everything().iter().all(|all| self.bypasses.contains(all));
        Some(Passing {
            bypass: is_bypassed,
            ..guard.passing()
        })
    }

    /// The helper's state for the relay.
    pub(super) fn state(&self) -> HelperState {
        HelperState {
            passing: self.passing(),
            bypasses: self.bypasses.len() as u64,
            firewall_obstacles: (self.guard.as_ref()).map_or(0, |guard| guard.obstacles() as u64),
            reloads: self.reloads,
            reloads_failed: self.reloads_failed,
            is_reload_failed: self.reload_error.is_some(),
            configured_at: self.configured_at,
            log_lines_lost: midspan_log::lost(),
            process: self.measured.process,
            quic: self.measured.quic,
            takeover_resets: self.measured.takeover_resets,
            is_ending: self.is_lame_duck(),
            drained: self.drained.names(),
            listeners: listener_names(&self.whole),
        }
    }

    /// The state in one line, for the service manager.
    pub(super) fn status_line(&self) -> String {
        let mut line = format!("{} listeners", self.configuration.listeners.len());
        if !self.bypasses.is_empty() {
            line.push_str(&format!(", {} prefixes bypassed", self.bypasses.len()));
        }
        if !self.drained.names().is_empty() {
            line.push_str(&format!(", {} drained", self.drained.names().len()));
        }
        let clients = self.drained.list_clients().len();
        if clients > 0 {
            line.push_str(&format!(", {clients} prefixes of clients drained"));
        }
        if self.reload_error.is_some() {
            line.push_str(", the last reload failed: see the log");
        }
        line
    }
}

/// The names of all listeners; none if they are too long for the message to the relay.
fn listener_names(configuration: &Configuration) -> Vec<String> {
    let names = configuration.listeners.iter();
    let names: Vec<String> = names.map(|listener| listener.relay.name.clone()).collect();
    let length: usize = names.iter().map(String::len).sum();
    if names.len() + length > MOST_NAMES {
        return Vec::new();
    }
    names
}

fn late_thread(late: &LateThread) -> LateThreadStatus {
    LateThreadStatus {
        thread: late.thread.to_string(),
        still_milliseconds: late.still_milliseconds,
        stuck: late.is_stuck,
    }
}

fn listener(listener: &Listener) -> ListenerStatus {
    let status = |mode: &str| ListenerStatus {
        name: listener.relay.name.clone(),
        mode: mode.to_owned(),
        listen: None,
        to: None,
        interfaces: Vec::new(),
        servers: Vec::new(),
    };
    match &listener.mode {
        Mode::Forward(forward) => ListenerStatus {
            listen: Some(forward.listen.to_string()),
            to: Some(forward.to.to_string()),
            ..status("forward")
        },
        Mode::Explicit(explicit) => ListenerStatus {
            listen: Some(explicit.listen.to_string()),
            ..status(explicit.mode)
        },
        Mode::Transparent(transparent) => ListenerStatus {
            interfaces: transparent.interfaces.clone(),
            ..status("transparent")
        },
    }
}

/// The prefixes that an earlier run had bypassed, and the file in which they are kept.
pub(super) fn kept_bypasses(state: Option<&State>) -> (Vec<IpNet>, Option<KeptBypasses>) {
    let Some(state) = state else {
        return (Vec::new(), None);
    };
    let read = || {
        let kept = state.bypasses()?;
        let lines = kept.read()?;
        Ok::<_, std::io::Error>((lines, kept))
    };
    let (lines, kept) = match read() {
        Ok(read) => read,
        Err(error) => {
            warn!("what was bypassed before is not known, and is taken: {error}");
            return (Vec::new(), state.bypasses().ok());
        }
    };
    let mut prefixes: Vec<IpNet> = lines.iter().filter_map(|line| parse(line)).collect();
    prefixes.truncate(BYPASS_LIMIT);
    if !prefixes.is_empty() {
        let names: Vec<String> = prefixes.iter().map(IpNet::to_string).collect();
        warn!(
            bypasses = names.join(" "),
            "new connections of these prefixes pass untouched, as before this start; `midspan \
             bypass off` ends that"
        );
    }
    (prefixes, Some(kept))
}

fn everything() -> Vec<IpNet> {
    vec![Ipv4Net::default().into(), Ipv6Net::default().into()]
}

/// The number of a session, or a prefix.
fn kick_target(text: &str) -> Option<Target> {
    if let Ok(session) = text.parse() {
        return Some(Target::Session(session));
    }
    Some(Target::Prefix(parse(text)?.into()))
}

/// A prefix; the bits behind its length are cleared.
pub(super) fn parse(text: &str) -> Option<IpNet> {
    prefix(text).map(|prefix| prefix.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_loses_the_bits_behind_it() {
        let of = |written: &str| parse(written).as_ref().map(IpNet::to_string);
        assert_eq!(of("192.0.2.77/24").as_deref(), Some("192.0.2.0/24"));
        assert_eq!(of("192.0.2.77").as_deref(), Some("192.0.2.77/32"));
        assert_eq!(of("10.0.0.1/0").as_deref(), Some("0.0.0.0/0"));
        assert_eq!(of("2001:db8::1/32").as_deref(), Some("2001:db8::/32"));
        assert_eq!(of("::1/0").as_deref(), Some("::/0"));
        assert_eq!(of("192.0.2.0/33"), None);
        assert_eq!(of("example.org"), None);
    }
}
