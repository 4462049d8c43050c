//! The state of a running proxy, as `midspan status` shows it.

use serde::{Deserialize, Serialize};

use crate::summary::{DrainedClients, ServerRow};

/// The state of a running proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// `running`, `ending` (about to drain), `draining`, or `passing` while the relay does not answer
    /// and new connections pass untouched.
    pub state: String,
    /// Process id of the helper.
    pub pid: u32,
    /// Process id of the relay.
    pub relay_pid: u32,
    /// Seconds since the proxy was first ready.
    pub uptime_seconds: u64,
    /// The configuration file.
    pub configuration: String,
    /// Reloads that have succeeded.
    pub reloads: u64,
    /// The error of the last reload, if it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reload_error: Option<String>,
    /// The last upgrade of the process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub upgrade: Option<UpgradeStatus>,
    /// Process ids of relays of former programs, which drain.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub former_relay_pids: Vec<u32>,
    /// Why all new connections of transparent listeners pass untouched: `firewall` (the host's
    /// firewall would stop them), `relay` (it does not answer), `bypass` (the operator has set one
    /// for all), `draining`, `rules` (they cannot be changed).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub passing: Vec<String>,
    /// Threads of the relay that made no turn although they were woken.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub late_threads: Vec<LateThreadStatus>,
    /// Lines missing in the helper's log.
    #[serde(default)]
    pub log_lines_lost: u64,
    /// Its listeners.
    pub listeners: Vec<ListenerStatus>,
    /// Prefixes whose new connections pass untouched.
    pub bypasses: Vec<String>,
    /// Its drained listeners.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub drained: Vec<DrainedListener>,
    /// Drained clients of its listeners.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub drained_clients: Vec<DrainedClients>,
    /// Differences from the configuration, with their reasons.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notices: Vec<String>,
    /// The address of the admin listener, which has the page and the metrics; `None` if it is off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub admin: Option<String>,
    /// The occupancy of the connection tracking table, if a listener is transparent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connection_tracking: Option<TrackingStatus>,
}

/// The table of connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackingStatus {
    /// Entries of the network namespace.
    pub entries: u64,
    /// The limit of entries; `None` without a limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<u64>,
    /// Whether it is so full that new connections pass untouched.
    pub is_nearly_full: bool,
    /// Whether entries expire soon after their sessions; otherwise they stay as long as the host's.
    pub has_timeouts: bool,
}

/// A thread of the relay without a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateThreadStatus {
    /// `relay` and a number, or `gate`.
    pub thread: String,
    /// Milliseconds since its last turn.
    pub still_milliseconds: u64,
    /// Whether it was late for `watchdog_timeout`, so that the relay ends.
    pub stuck: bool,
}

/// A listener that an operator drains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainedListener {
    /// Its name.
    pub name: String,
    /// Whether it still accepts connections, until `relay.lame_duck_time` is over.
    pub accepts: bool,
}

/// A listener of a running proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// `forward` or `transparent`.
    pub mode: String,
    /// The address of a forward listener.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub listen: Option<String>,
    /// The server of a forward listener, or its servers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<String>,
    /// Interfaces at which clients of a transparent listener arrive.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interfaces: Vec<String>,
    /// The servers of a listener that has several, if the relay was asked for them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub servers: Vec<ServerRow>,
}

/// How far an upgrade is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpgradeState {
    /// The new program is being tried, or executed.
    Trying,
    /// The new program runs.
    Done,
    /// The former program continues.
    Failed,
}

/// An upgrade: another program in the same process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeStatus {
    /// Its number, from 1; it counts the upgrades of the process.
    pub number: u64,
    /// How far it is.
    pub state: UpgradeState,
    /// The new program.
    pub program: String,
    /// The version of the former program.
    pub former_version: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}
