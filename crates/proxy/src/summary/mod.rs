//! The summary of a running proxy, `GET /summary`: its state, its totals, and its clients, sessions,
//! listeners or ended sessions, sorted, filtered and added up.
//!
//! | module | content |
//! | --- | --- |
//! | `drained` | drained clients, with the sessions that are left of them |
//! | `prefixes` | rows of client prefixes whose rates are limited |
//! | `query` | the query: which rows, in which order |
//! | `rows` | sums of sessions; rows of clients, sessions, ended sessions and listeners |
//!
//! Everything is computed from values that the caller passes; `docs/control-api.md` describes the fields.

mod drained;
mod prefixes;
mod query;
mod rows;

use std::collections::BTreeMap;

use midspan_policy::leave_alone::{SIZES, SizeGain};
use midspan_relay::observation::{Figures, ListenerTotals, Survey};
use midspan_units::Time;
use serde::{Deserialize, Serialize};

pub use drained::DrainedClients;
pub(crate) use drained::count as count_drained;
pub use prefixes::PrefixRow;
pub(crate) use prefixes::rows as prefix_rows;
pub use query::{By, Query, Sort};
pub use rows::{ClientRow, EndedRow, LegRow, ListenerRow, RowFigures, ServerRow, SessionRow};

/// The answer to `GET /summary`. Unknown values are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Midspan's version.
    pub version: String,
    /// The relay's clock, for the time between two summaries.
    pub time_seconds: f64,
    /// Whether all threads of the relay have answered.
    pub complete: bool,
    /// Whether the proxy works, and if not, why.
    pub state: State,
    /// Totals since the relay's start.
    pub totals: Totals,
    /// The legs of all sessions.
    pub legs: Legs,
    /// What splitting gains, by size of the flow.
    pub gain: Vec<Gain>,
    /// The number of sessions and clients that fit the filter.
    pub matched: Matched,
    /// The first clients in the requested order, if clients were requested.
    pub clients: Vec<ClientRow>,
    /// The first sessions in the requested order, if sessions were requested.
    pub sessions: Vec<SessionRow>,
    /// The listeners in the requested order, if listeners were requested.
    #[serde(default)]
    pub listeners: Vec<ListenerRow>,
    /// The sessions that have ended while summaries were requested, the newest first, if these were
    /// requested: at most 100 of each thread.
    #[serde(default)]
    pub ended: Vec<EndedRow>,
    /// The client prefixes whose rates are limited, in the requested order, if they were requested: all that the
    /// relay remembers, also those without a session.
    #[serde(default)]
    pub prefixes: Vec<PrefixRow>,
    /// The clients that an operator drains, with the sessions that are left of them.
    #[serde(default)]
    pub drained_clients: Vec<DrainedClients>,
    /// What the answer cost the relay's threads.
    pub cost: Cost,
}

/// The state of the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    /// `running`, `passing` or `draining`.
    pub state: String,
    /// Why new connections of transparent listeners pass untouched.
    pub passing: Vec<String>,
    /// Prefixes that the operator bypasses.
    pub bypassed_prefixes: u64,
    /// Obstacles in the host's firewall.
    pub firewall_obstacles: u64,
    /// Reloads that succeeded.
    pub reloads: u64,
    /// Reloads that failed.
    pub reloads_failed: u64,
    /// Threads of the relay without a loop iteration for a second or longer, each as a sentence.
    pub late_threads: Vec<String>,
    /// Time since the relay's start.
    pub uptime_seconds: u64,
}

/// Counters since the relay's start, and gauges.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Sessions that exist.
    pub sessions: u64,
    /// Sessions that have begun.
    pub opened: u64,
    /// Connections that ended before a session began.
    pub refused: u64,
    /// Connections that were reset because there was no room for one more session.
    pub shed: u64,
    /// Connections that passed untouched, by reason; `None` if there is no transparent listener.
    pub untouched: Option<BTreeMap<String, u64>>,
    /// Bytes towards clients.
    pub bytes_to_client: u64,
    /// Bytes towards servers.
    pub bytes_to_server: u64,
    /// The rates of all sessions together.
    pub rate_to_client_bits_per_second: Option<u64>,
    /// The rates of all sessions together.
    pub rate_to_server_bits_per_second: Option<u64>,
    /// Memory of sessions.
    pub memory_used_bytes: u64,
    /// The budget of this memory.
    pub memory_budget_bytes: Option<u64>,
    /// How often splitting was found not to help the connections of a client to a network.
    pub routes_left_alone: u64,
}

/// The legs of live sessions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Legs {
    /// Towards clients.
    pub client: LegsSummary,
    /// Towards servers.
    pub server: LegsSummary,
}

/// Legs of one kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LegsSummary {
    /// Median of the smoothed round-trip times.
    pub rtt_median_seconds: Option<f64>,
    /// The round-trip time that 95 % of the legs do not exceed.
    pub rtt_95_seconds: Option<f64>,
    /// Share of retransmitted bytes in all bytes sent.
    pub retransmitted_ratio: Option<f64>,
}

/// What splitting gains for flows of a size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Flows up to this size, in bytes; `None` for larger ones.
    pub up_to_bytes: Option<u64>,
    /// The median goodput of split flows, divided by that of the control group.
    pub ratio: f64,
    /// Split flows that were measured.
    pub split_flows: u64,
    /// Flows of the control group that were measured.
    pub direct_flows: u64,
}

/// The number of sessions and clients that fit the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Matched {
    /// Sessions.
    pub sessions: u64,
    /// Their clients.
    pub clients: u64,
}

/// What the answer cost the relay's threads.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Sessions that were looked at.
    pub scanned: u64,
    /// Slices between which data was moved.
    pub slices: u64,
    /// Time of all slices, all threads together.
    pub relay_seconds: f64,
    /// Time of the longest slice.
    pub longest_slice_seconds: f64,
}

/// The parts of a summary that are made of sessions.
#[derive(Debug, Default)]
pub(crate) struct Summed {
    pub legs: Legs,
    pub rates: Option<(u64, u64)>,
    pub matched: Matched,
    pub clients: Vec<ClientRow>,
    pub sessions: Vec<SessionRow>,
    pub listeners: Vec<ListenerRow>,
    pub ended: Vec<EndedRow>,
}

/// Sorts, filters and adds up. `totals` returns the counters of each listener by its name.
pub(crate) fn sum(
    survey: &Survey,
    query: &Query,
    now: Time,
    totals: impl FnOnce() -> BTreeMap<String, ListenerTotals>,
) -> Summed {
    let sessions = &survey.sessions;
    let fits: Vec<&Figures> = sessions
        .iter()
        .filter(|one| query.fits(one.client))
        .collect();
    let clients = rows::clients(&fits, query);
    let moved = || sessions.iter().filter_map(|session| session.moved);
    Summed {
        legs: rows::legs(sessions),
        rates: (sessions.is_empty() || moved().next().is_some()).then(|| {
            moved().fold((0, 0), |(down, up): (u64, u64), moved| {
                (
                    down.saturating_add(moved.rate_to_client),
                    up.saturating_add(moved.rate_to_server),
                )
            })
        }),
        matched: Matched {
            sessions: fits.len() as u64,
            clients: clients.len() as u64,
        },
        sessions: match query.by {
            By::Session => rows::sessions(&fits, query),
            _ => Vec::new(),
        },
        clients: match query.by {
            By::Client => rows::first(clients, query),
            _ => Vec::new(),
        },
        listeners: match query.by {
            By::Listener => rows::listeners(&fits, &totals(), query),
            _ => Vec::new(),
        },
        ended: match query.by {
            By::Ended => rows::ended(&survey.ended, now, query),
            _ => Vec::new(),
        },
    }
}

/// The sizes at which both kinds of flows were measured.
pub(crate) fn gains(sizes: &[SizeGain]) -> Vec<Gain> {
    let bounds = SIZES.iter().copied().map(Some).chain([None]);
    bounds
        .zip(sizes)
        .filter_map(|(up_to_bytes, size)| {
            #[allow(clippy::cast_precision_loss)]
            let [split, direct] =
                [size.split?, size.direct?].map(|rate| rate.bits_per_second() as f64);
            Some(Gain {
                up_to_bytes,
                ratio: split / direct,
                split_flows: size.split_flows,
                direct_flows: size.direct_flows,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
