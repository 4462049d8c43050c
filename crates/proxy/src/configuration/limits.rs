//! `[limits]`, and the keys of a listener of the same names.

use midspan_document::{Located, Source, Spanned};
use midspan_policy::memory_bounds::LEAST_BUDGET;
use midspan_relay::{ListenerLimits, RelayLimits, SessionLimits};
use midspan_units::{ByteSize, TimeSpan};
use serde::Deserialize;

use super::values::within;
use crate::machine_memory;

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsTable {
    sessions: Option<Spanned<u32>>,
    sessions_per_client: Option<Spanned<u32>>,
    memory: Option<Spanned<ByteSize>>,
    idle_timeout: Option<Spanned<TimeSpan>>,
    half_closed_timeout: Option<Spanned<TimeSpan>>,
}

/// The limits among the keys of a listener.
#[derive(Debug)]
pub(super) struct ListenerLimitKeys {
    pub sessions: Option<Spanned<u32>>,
    pub sessions_per_client: Option<Spanned<u32>>,
    pub idle_timeout: Option<Spanned<TimeSpan>>,
    pub half_closed_timeout: Option<Spanned<TimeSpan>>,
}

/// As long as Linux keeps an entry of a translated connection, so Midspan breaks no connection that
/// a NAT would not break. RFC 5382 requires at least 2 h 4 min.
const DEFAULT_IDLE_TIMEOUT: TimeSpan = TimeSpan::from_seconds(5 * 86_400);
/// Long enough for an answer that is computed after the request has ended.
const DEFAULT_HALF_CLOSED_TIMEOUT: TimeSpan = TimeSpan::from_seconds(3_600);
const LONGEST_TIMEOUT: TimeSpan = TimeSpan::from_seconds(30 * 86_400);
const LEAST_MEMORY: ByteSize = ByteSize::from_bytes(LEAST_BUDGET);
const MOST_MEMORY: ByteSize = ByteSize::from_bytes(1 << 50);

impl LimitsTable {
    /// The limits of all listeners, and the defaults of each listener's own limits.
    ///
    /// Also returns whether the file sets the budget.
    pub fn checked(self, source: &Source) -> Result<(RelayLimits, ListenerLimits, bool), Located> {
        let bounds = machine_memory::bounds();
        let is_set = self.memory.is_some();
        let sessions = session_limits(source, self.sessions, self.sessions_per_client)?;
        let memory = match self.memory {
            Some(memory) if memory.get_ref().bytes() == 0 => None,
            memory => {
                let range = LEAST_MEMORY..=MOST_MEMORY;
                let default = ByteSize::from_bytes(bounds.budget().0);
                Some(within(source, "memory", memory, default, range)?)
            }
        };
        let defaults = ListenerLimits {
            sessions: SessionLimits::default(),
            idle_timeout: Some(DEFAULT_IDLE_TIMEOUT),
            half_closed_timeout: Some(DEFAULT_HALF_CLOSED_TIMEOUT),
        };
        let still = still(
            source,
            &defaults,
            self.idle_timeout,
            self.half_closed_timeout,
        )?;
        let limits = RelayLimits {
            sessions,
            memory,
            // Without a budget, there is none for queues either.
            queues: memory.map(|_| ByteSize::from_bytes(bounds.of_queues())),
            ..RelayLimits::default()
        };
        Ok((limits, still, is_set))
    }
}

impl ListenerLimitKeys {
    pub fn checked(
        self,
        source: &Source,
        defaults: &ListenerLimits,
    ) -> Result<ListenerLimits, Located> {
        let sessions = session_limits(source, self.sessions, self.sessions_per_client)?;
        let still = still(
            source,
            defaults,
            self.idle_timeout,
            self.half_closed_timeout,
        )?;
        Ok(ListenerLimits { sessions, ..still })
    }
}

fn session_limits(
    source: &Source,
    sessions: Option<Spanned<u32>>,
    per_client: Option<Spanned<u32>>,
) -> Result<SessionLimits, Located> {
    let read = |key: &str, value: Option<Spanned<u32>>| match value {
        None => Ok(None),
        value => within(source, key, value, 1, 1..=10_000_000).map(Some),
    };
    Ok(SessionLimits {
        sessions: read("sessions", sessions)?,
        sessions_per_client: read("sessions_per_client", per_client)?,
    })
}

/// Time-outs of sessions that move nothing; zero means never.
fn still(
    source: &Source,
    defaults: &ListenerLimits,
    idle: Option<Spanned<TimeSpan>>,
    half_closed: Option<Spanned<TimeSpan>>,
) -> Result<ListenerLimits, Located> {
    let read = |key: &str, value, default: Option<TimeSpan>| {
        let default = default.unwrap_or(TimeSpan::ZERO);
        let timeout = within(
            source,
            key,
            value,
            default,
            TimeSpan::ZERO..=LONGEST_TIMEOUT,
        )?;
        Ok(Some(timeout).filter(|timeout| *timeout != TimeSpan::ZERO))
    };
    Ok(ListenerLimits {
        idle_timeout: read("idle_timeout", idle, defaults.idle_timeout)?,
        half_closed_timeout: read(
            "half_closed_timeout",
            half_closed,
            defaults.half_closed_timeout,
        )?,
        ..*defaults
    })
}
