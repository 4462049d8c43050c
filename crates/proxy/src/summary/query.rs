//! What is asked for.

use std::fmt;
use std::net::SocketAddr;

use ipnet::IpNet;

use crate::configuration::prefix;

/// Rows of an answer, if the request contains no number.
const DEFAULT_ROWS: usize = 50;
/// Most rows of an answer.
const ROW_LIMIT: usize = 1000;

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// A client, with all its sessions.
    #[default]
    Client,
    /// A session.
    Session,
    /// A listener, with all its sessions.
    Listener,
    /// A client prefix whose rates are limited.
    Prefix,
    /// A session that has ended recently, the newest first.
    Ended,
}

/// The order of rows: the largest value first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Bit/s in both directions.
    #[default]
    Rate,
    /// Bytes in both directions.
    Bytes,
    /// The round-trip time of the client leg.
    Rtt,
    /// The share of retransmitted bytes, of the leg where it is larger.
    Retransmitted,
    /// The number of sessions; for rows of sessions, their age.
    Sessions,
}

impl Sort {
    /// All orders.
    pub const ALL: [Self; 5] = [
        Self::Rate,
        Self::Bytes,
        Self::Rtt,
        Self::Retransmitted,
        Self::Sessions,
    ];

    /// Its name in a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Rtt => "rtt",
            Self::Retransmitted => "retransmitted",
            Self::Sessions => "sessions",
        }
    }

    /// The order with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.name() == name)
    }
}

/// The parameters of `GET /summary`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// What a row is.
    pub by: By,
    /// The order of rows.
    pub sort: Sort,
    /// Only sessions of clients with this prefix.
    pub client: Option<IpNet>,
    /// Most rows.
    pub limit: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            by: By::Client,
            sort: Sort::Rate,
            client: None,
            limit: DEFAULT_ROWS,
        }
    }
}

/// As the query of a URL.
impl fmt::Display for Query {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "by={}&sort={}", self.by.name(), self.sort.name())?;
        if let Some(client) = self.client {
            write!(formatter, "&client={client}")?;
        }
        write!(formatter, "&limit={}", self.limit)
    }
}

impl By {
    const ALL: [Self; 5] = [
        Self::Client,
        Self::Session,
        Self::Listener,
        Self::Prefix,
        Self::Ended,
    ];

    /// Its name in a request.
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Session => "session",
            Self::Listener => "listener",
            Self::Prefix => "prefix",
            Self::Ended => "ended",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

impl Query {
    /// The query of a URL.
    ///
    /// # Errors
    /// A sentence about what is wrong.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut query = Self::default();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let is_known = match &*name {
                "by" => By::named(&value).map(|by| query.by = by),
                "sort" => Sort::named(&value).map(|sort| query.sort = sort),
                "client" => prefix(&value).map(|client| query.client = Some(client.trunc())),
                "limit" => value.parse().ok().map(|limit| query.limit = limit),
                _ => None,
            };
            if is_known.is_none() {
                let said = "known parameters: by=client, session, listener, prefix or ended; sort=rate, bytes, rtt, \
                            retransmitted or sessions; client=PREFIX; limit=NUMBER";
                return Err(said.to_owned());
            }
        }
        query.limit = query.limit.clamp(1, ROW_LIMIT);
        Ok(query)
    }

    /// Whether a session with this client fits the filter.
    pub(super) fn fits(&self, client: SocketAddr) -> bool {
        self.client
            .is_none_or(|prefix| prefix.contains(&client.ip().to_canonical()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_it_was_written() {
        for sort in Sort::ALL {
            for by in By::ALL {
                let query = Query {
                    by,
                    sort,
                    client: prefix("2001:db8::/32"),
                    limit: 7,
                };
                assert_eq!(Query::read(&query.to_string()), Ok(query));
            }
        }
        assert_eq!(Query::read(""), Ok(Query::default()));
        let limit = |text: &str| Query::read(text).unwrap().limit;
        assert_eq!((limit("limit=0"), limit("limit=1000000")), (1, 1000));
        let client = Query::read("client=10.0.0.7%2F8").unwrap().client;
        assert_eq!(client.unwrap().to_string(), "10.0.0.0/8");
        for wrong in [
            "by=server",
            "sort=up",
            "client=x",
            "limit=-1",
            "sort",
            "a=b",
        ] {
            assert!(Query::read(wrong).is_err(), "{wrong}");
        }
    }
}
