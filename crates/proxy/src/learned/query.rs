//! What is asked for.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_policy::hosts::Hosts;
use midspan_policy::leave_alone::Route;

use crate::configuration::prefix;

/// Most rows of an answer.
const ROW_LIMIT: usize = 1000;

/// A place in the list of all rows: behind this entry of its kind, or at the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Known paths.
    Path(Option<IpNet>),
    /// Peers with cold starts.
    ColdStart(Option<IpNet>),
    /// Asymmetric routes.
    AsymmetricRoute(Option<Route>),
    /// Gains of routes.
    Gain(Option<Route>),
    /// Verdicts about clients.
    Verdict(Option<IpAddr>),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |entry: Option<String>| entry.unwrap_or_default();
        let route = |route: &Option<Route>| {
            entry(route.map(|Route { client, server }| format!("{client},{server}")))
        };
        match self {
            Self::Path(peer) => {
                write!(
                    formatter,
                    "path:{}",
                    entry(peer.map(|peer| peer.to_string()))
                )
            }
            Self::ColdStart(peer) => {
                write!(
                    formatter,
                    "cold:{}",
                    entry(peer.map(|peer| peer.to_string()))
                )
            }
            Self::AsymmetricRoute(of) => write!(formatter, "asymmetric:{}", route(of)),
            Self::Gain(of) => write!(formatter, "gain:{}", route(of)),
            Self::Verdict(client) => {
                let client = client.map(|client| client.to_string());
                write!(formatter, "verdict:{}", entry(client))
            }
        }
    }
}

impl Place {
    fn read(text: &str) -> Option<Self> {
        let (kind, entry) = text.split_once(':')?;
        let network = || match entry {
            "" => Some(None),
            entry => Some(Some(entry.parse::<IpNet>().ok()?)),
        };
        let route = || match entry {
            "" => Some(None),
            entry => {
                let (client, server) = entry.split_once(',')?;
                let (client, server) = (client.parse().ok()?, server.parse().ok()?);
                Some(Some(Route { client, server }))
            }
        };
        Some(match kind {
            "path" => Self::Path(network()?),
            "cold" => Self::ColdStart(network()?),
            "asymmetric" => Self::AsymmetricRoute(route()?),
            "gain" => Self::Gain(route()?),
            "verdict" => Self::Verdict(match entry {
                "" => None,
                entry => Some(entry.parse().ok()?),
            }),
            _ => return None,
        })
    }
}

/// The parameters of `GET /learned`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Only entries with these hosts.
    pub hosts: Hosts,
    /// Only entries after this place.
    pub after: Place,
    /// Most rows.
    pub limit: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            hosts: Hosts::ALL,
            after: Place::Path(None),
            limit: ROW_LIMIT,
        }
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
                "prefix" => prefix(&value).map(|prefix| query.hosts = Hosts::with_prefix(prefix)),
                "after" => Place::read(&value).map(|after| query.after = after),
                "limit" => value.parse().ok().map(|limit| query.limit = limit),
                _ => None,
            };
            if is_known.is_none() {
                let said = "known parameters: prefix=PREFIX; after=NEXT, the field next of the \
                            answer before; limit=NUMBER";
                return Err(said.to_owned());
            }
        }
        query.limit = query.limit.clamp(1, ROW_LIMIT);
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let route = Route::between(
            "192.0.2.1".parse().unwrap(),
            "198.51.100.7".parse().unwrap(),
        );
        let peer = "2001:db8::/64".parse().unwrap();
        for place in [
            Place::Path(None),
            Place::Path(Some(peer)),
            Place::ColdStart(Some(peer)),
            Place::AsymmetricRoute(None),
            Place::AsymmetricRoute(Some(route)),
            Place::Gain(Some(route)),
            Place::Verdict(Some("2001:db8::1".parse().unwrap())),
            Place::Verdict(None),
        ] {
            assert_eq!(Place::read(&place.to_string()), Some(place));
        }
    }

    #[test]
    fn a_query_is_bounded_and_checked() {
        assert_eq!(Query::read(""), Ok(Query::default()));
        let limit = |text: &str| Query::read(text).unwrap().limit;
        assert_eq!((limit("limit=0"), limit("limit=99999")), (1, ROW_LIMIT));
        let query = Query::read("prefix=10.0.0.7%2F8&after=gain:").unwrap();
        assert_eq!(
            query.hosts,
            Hosts::with_prefix("10.0.0.0/8".parse().unwrap())
        );
        assert_eq!(query.after, Place::Gain(None));
        for wrong in ["prefix=lan", "after=x", "after=path:1", "limit=-1", "a=b"] {
            assert!(Query::read(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "\\PC{0,40}", kind in "(path|gain|verdict|cold|asymmetric):[0-9a-f:,./]{0,30}") {
            let _ = Place::read(&text);
            let _ = Query::read(&text);
            let _ = Place::read(&kind);
        }
    }
}
