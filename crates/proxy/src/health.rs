//! The state of the whole proxy apart from its counters, for the admin listener.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use midspan_gateway::interception::Quic;
use midspan_linux::process_use::{ProcessFiles, ProcessUse};

use crate::late::LateThread;
use crate::summary::State;

/// The helper's state, which it sends to the relay for the metrics, because the helper itself
/// answers no queries over the network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HelperState {
    /// Why transparent listeners intercept no new connections; `None` if no listener is
    /// transparent.
    pub passing: Option<Passing>,
    /// Prefixes whose new connections pass untouched.
    pub bypasses: u64,
    /// Number of obstacles for intercepted connections in the host's firewall.
    pub firewall_obstacles: u64,
    pub reloads: u64,
    pub reloads_failed: u64,
    /// Whether the last reload failed, so that an older configuration is in force.
    pub is_reload_failed: bool,
    /// When the configuration in force was read, in seconds since 1970.
    pub configured_at: u64,
    /// Lines missing in the helper's log.
    pub log_lines_lost: u64,
    /// What the helper's process uses.
    pub process: Option<OwnUse>,
    /// The packets of QUIC that passed untouched; `None` if no listener is transparent.
    pub quic: Option<Quic>,
    /// Packets of unknown connections that were answered by a reset after a takeover.
    pub takeover_resets: u64,
    /// Whether the proxy will drain soon, which `/health` announces.
    pub is_ending: bool,
    /// The listeners that an operator drains.
    pub drained: Vec<String>,
    /// All listeners of the configuration in force, also the drained ones; empty until the relay gets
    /// them.
    pub listeners: Vec<String>,
}

/// What a process of Midspan uses, and since when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnUse {
    pub cpu_milliseconds: u64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub descriptors: u64,
    pub descriptor_limit: Option<u64>,
    /// Milliseconds since 1970.
    pub started_milliseconds: u64,
}

impl OwnUse {
    /// The present values; `None` if they cannot be read.
    pub fn of(files: &ProcessFiles) -> Option<Self> {
        let now: ProcessUse = files.now()?;
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let started = files.started()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Self {
            cpu_milliseconds: milliseconds(now.cpu_time),
            resident_bytes: now.resident_bytes,
            virtual_bytes: now.virtual_bytes,
            descriptors: now.descriptors,
            descriptor_limit: now.descriptor_limit,
            started_milliseconds: milliseconds(started),
        })
    }
}

/// Whether new connections are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Running,
    /// New connections of transparent listeners pass untouched.
    Passing,
    Draining,
}

impl Condition {
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Running, "running"),
        (Self::Passing, "passing"),
        (Self::Draining, "draining"),
    ];
}

/// Why all new connections pass untouched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Passing {
    /// The host's firewall would stop them.
    pub firewall: bool,
    /// The relay's gate does not answer.
    pub relay: bool,
    /// The operator has set a bypass for all.
    pub bypass: bool,
    /// The proxy is about to end.
    pub draining: bool,
    /// The rules could not be changed.
    pub rules: bool,
}

impl Passing {
    /// The names of all reasons, and whether each applies.
    pub const fn reasons(self) -> [(&'static str, bool); 5] {
        [
            ("firewall", self.firewall),
            ("relay", self.relay),
            ("bypass", self.bypass),
            ("draining", self.draining),
            ("rules", self.rules),
        ]
    }

    /// The names of the reasons that apply.
    pub fn names(self) -> Vec<&'static str> {
        let holding = self.reasons().into_iter().filter(|(_, holds)| *holds);
        holding.map(|(name, _)| name).collect()
    }
}

/// The present state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub late: Vec<LateThread>,
    pub is_draining: bool,
    pub helper: HelperState,
    /// The prefixes of clients that an operator drains, each with the name of its listener.
    pub drained_clients: Vec<(String, IpNet)>,
}

/// The state, shared by several threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health(Arc<Mutex<Known>>);

impl Health {
    /// A copy.
    pub fn known(&self) -> Known {
        self.lock().clone()
    }

    pub fn set_late(&self, late: Vec<LateThread>) {
        self.lock().late = late;
    }

    pub fn set_draining(&self) {
        self.lock().is_draining = true;
    }

    pub fn set_helper(&self, helper: HelperState) {
        self.lock().helper = helper;
    }

    pub fn set_drained_clients(&self, drained: Vec<(String, IpNet)>) {
        self.lock().drained_clients = drained;
    }

    /// No code panics while it holds this lock.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The condition of the proxy.
    pub fn condition(&self) -> Condition {
        let passing = self.helper.passing.map(Passing::names);
        match (self.is_draining, passing) {
            (true, _) => Condition::Draining,
            (false, Some(reasons)) if !reasons.is_empty() => Condition::Passing,
            (false, _) => Condition::Running,
        }
    }

    /// The state for the summary.
    pub fn summary(&self, uptime_seconds: u64) -> State {
        let passing = self.helper.passing.unwrap_or_default().names();
        let condition = self.condition();
        let named = Condition::ALL.iter().find(|(one, _)| *one == condition);
        State {
            state: named.map_or("", |(_, name)| name).to_owned(),
            passing: passing.into_iter().map(str::to_owned).collect(),
            bypassed_prefixes: self.helper.bypasses,
            firewall_obstacles: self.helper.firewall_obstacles,
            reloads: self.helper.reloads,
            reloads_failed: self.helper.reloads_failed,
            late_threads: self.late.iter().map(ToString::to_string).collect(),
            uptime_seconds,
        }
    }

    /// Whether the configuration has a listener of this name, as far as it is known.
    pub fn has_listener(&self, name: &str) -> bool {
        let listeners = &self.helper.listeners;
        listeners.is_empty() || listeners.iter().any(|listener| listener == name)
    }

    /// The text of the health page for one listener: as for the whole proxy, but not if the listener is
    /// drained.
    ///
    /// # Errors
    /// Why it does not serve.
    pub fn judge_listener(&self, name: &str) -> Result<String, String> {
        match self.helper.drained.iter().any(|drained| drained == name) {
            true => Err(format!("listener {name} is drained\n")),
            false => self.judge(),
        }
    }

    /// The text of the health page: `Ok` if the proxy does its work.
    ///
    /// # Errors
    /// Why it does not.
    pub fn judge(&self) -> Result<String, String> {
        let stuck = self.late.iter().find(|late| late.is_stuck);
        if let Some(stuck) = stuck {
            return Err(format!("{stuck}\n"));
        }
        if self.is_draining {
            return Err("draining: no new connections are accepted\n".to_owned());
        }
        if self.helper.is_ending {
            return Err("ending: new connections are accepted for now\n".to_owned());
        }
        if let Some(passing) = self.helper.passing {
            let reasons = passing.names();
            if !reasons.is_empty() {
                let reasons = reasons.join(", ");
                return Err(format!("new connections pass untouched: {reasons}\n"));
            }
        }
        let mut text = "ok\n".to_owned();
        for late in &self.late {
            text.push_str(&format!("{late}\n"));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::late::ThreadName;

    fn late(is_stuck: bool) -> Vec<LateThread> {
        vec![LateThread {
            thread: ThreadName(1),
            still_milliseconds: 1250,
            is_stuck,
        }]
    }

    #[test]
    fn it_is_ok_only_while_it_does_its_work() {
        let well = Known::default();
        assert_eq!(well.judge(), Ok("ok\n".to_owned()));
        let known = Known {
            late: late(false),
            ..Known::default()
        };
        let text = known.judge().unwrap();
        assert_eq!(text, "ok\nthread relay 1 is late: no turn for 1.2 s\n");
        let known = Known {
            late: late(true),
            is_draining: true,
            ..Known::default()
        };
        assert!(known.judge().unwrap_err().contains("relay 1 is stuck"));
        let known = Known {
            is_draining: true,
            ..Known::default()
        };
        assert!(known.judge().unwrap_err().starts_with("draining"));
        let mut known = Known::default();
        known.helper.passing = Some(Passing::default());
        assert!(known.judge().is_ok());
        known.helper.passing = Some(Passing {
            bypass: true,
            firewall: true,
            ..Passing::default()
        });
        let said = known.judge().unwrap_err();
        assert_eq!(said, "new connections pass untouched: firewall, bypass\n");
        known.helper.passing = None;
        known.helper.drained = vec!["web".to_owned()];
        assert!(known.judge().is_ok() && known.judge_listener("mail").is_ok());
        assert!(
            known
                .judge_listener("web")
                .unwrap_err()
                .contains("web is drained")
        );
    }

    /// The table of states in the documentation has each answer.
    #[test]
    fn each_answer_is_documented() {
        let documentation = include_str!("../../../docs/observability.md");
        let has = |known: &Known| {
            let (status, text) = match known.judge() {
                Ok(text) => (200, text),
                Err(text) => (503, text),
            };
            let answer = text.lines().last().unwrap();
            let mut rows = documentation.lines();
            rows.any(|row| row.contains(&format!("| {status} |")) && row.contains(answer))
        };
        let mut known = Known::default();
        assert!(has(&known));
        for reason in ["firewall", "relay", "bypass", "rules"] {
            known.helper.passing = Some(Passing {
                firewall: reason == "firewall",
                relay: reason == "relay",
                bypass: reason == "bypass",
                draining: false,
                rules: reason == "rules",
            });
            assert!(has(&known), "{reason}");
            assert_eq!(known.condition(), Condition::Passing);
        }
        known.helper.passing = None;
        known.helper.is_ending = true;
        assert!(has(&known));
        known.is_draining = true;
        assert!(has(&known));
        assert_eq!(known.condition(), Condition::Draining);
        known.helper.is_ending = false;
        known.late = late(false);
        known.is_draining = false;
        known.helper.passing = None;
        assert!(has(&known));
        assert_eq!(known.condition(), Condition::Running);
        known.late[0].is_stuck = true;
        known.late[0].still_milliseconds = 3250;
        assert!(has(&known));
    }
}
