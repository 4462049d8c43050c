//! `[limits]`, and the keys of a listener of the same names.

use midspan_document::{Located, Source, Spanned};
use midspan_policy::client_rates::{ClientRateLimits, PrefixLengths};
use midspan_policy::memory_bounds::LEAST_BUDGET;
use midspan_relay::{ListenerLimits, RelayLimits, SessionLimits};
use midspan_units::{BitRate, ByteSize, TimeSpan};
use serde::Deserialize;

use super::values::within;
use crate::machine_memory;

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsTable {
    sessions: Option<Spanned<u32>>,
    sessions_per_client: Option<Spanned<u32>>,
    connection_rate_per_client: Option<Spanned<u32>>,
    rate_per_client: Option<Spanned<BitRate>>,
    client_prefix_ipv4: Option<Spanned<u8>>,
    client_prefix_ipv6: Option<Spanned<u8>>,
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
/// Rates of one client prefix, in bit/s.
const RATES: std::ops::RangeInclusive<u64> = 64_000..=1_000_000_000_000;
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
        let client_rates = ClientRateLimits {
            connections: connection_rate(source, self.connection_rate_per_client)?,
            bytes: byte_rate(source, self.rate_per_client)?,
            prefixes: prefixes(source, self.client_prefix_ipv4, self.client_prefix_ipv6)?,
        };
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
            client_rates,
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

/// New connections per second of a client prefix.
fn connection_rate(source: &Source, rate: Option<Spanned<u32>>) -> Result<Option<u32>, Located> {
    let key = "connection_rate_per_client";
    match rate {
        None => Ok(None),
        rate => within(source, key, rate, 1, 1..=1_000_000).map(Some),
    }
}

/// The rate of the bytes of a client prefix.
fn byte_rate(source: &Source, rate: Option<Spanned<BitRate>>) -> Result<Option<BitRate>, Located> {
    match rate {
        Some(rate) if !RATES.contains(&rate.get_ref().bits_per_second()) => {
            let message = "rate_per_client lies between 64 kbit/s and 1000 Gbit/s";
            Err(Located::new(source, rate.span(), message))
        }
        rate => Ok(rate.map(Spanned::into_inner)),
    }
}

/// The lengths of the prefixes that count as one client.
fn prefixes(
    source: &Source,
    ipv4: Option<Spanned<u8>>,
    ipv6: Option<Spanned<u8>>,
) -> Result<PrefixLengths, Located> {
    let by_default = PrefixLengths::default();
    Ok(PrefixLengths {
        ipv4: within(source, "client_prefix_ipv4", ipv4, by_default.ipv4, 1..=32)?,
        ipv6: within(source, "client_prefix_ipv6", ipv6, by_default.ipv6, 1..=128)?,
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

#[cfg(test)]
mod tests {
    use crate::configuration::Configuration;

    use super::*;

    fn read(keys: &str) -> Result<ClientRateLimits, String> {
        let listener =
            "[[listener]]\nname = \"f\"\nlisten = \"127.0.0.1:1\"\nto = \"192.0.2.1:80\"\n";
        let text = format!("[limits]\n{keys}\n{listener}");
        let read = Configuration::read(&Source::new("midspan.toml", text));
        let limits = read.map(|configuration| configuration.relay.limits.client_rates);
        limits.map_err(|error| error.to_string())
    }

    #[test]
    fn the_rates_of_one_client_are_read() {
        assert_eq!(read(""), Ok(ClientRateLimits::default()));
        let keys = "connection_rate_per_client = 50\nrate_per_client = \"20 Mbit/s\"\n\
                    client_prefix_ipv4 = 24\nclient_prefix_ipv6 = 56";
        let limits = read(keys).unwrap();
        assert_eq!(limits.connections, Some(50));
        assert_eq!(limits.bytes, Some("20 Mbit/s".parse().unwrap()));
        assert_eq!(limits.prefixes, PrefixLengths { ipv4: 24, ipv6: 56 });
        for (wrong, expected) in [
            ("connection_rate_per_client = 0", "between 1 and 1000000"),
            ("rate_per_client = \"1 kbit/s\"", "between 64 kbit/s"),
            ("client_prefix_ipv4 = 33", "between 1 and 32"),
            ("client_prefix_ipv6 = 0", "between 1 and 128"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
