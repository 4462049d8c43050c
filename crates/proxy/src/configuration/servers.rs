//! The keys `to` and `health_check` of a forward listener: its server, or several servers.

use std::fmt;
use std::net::SocketAddr;

use midspan_document::{Located, Source, Spanned};
use midspan_explicit::{Destination, Host};
use midspan_policy::servers::{MOST_SERVERS, Server, ServerSettings};
use midspan_units::TimeSpan;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::values::within;
use super::{Forward, Mode};

/// The server of a forward listener, or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// One address.
    One(SocketAddr),
    /// Servers from which one is chosen for each session: 1 to [`MOST_SERVERS`].
    Several(Vec<Server>),
}

impl To {
    /// The addresses in the file. Those of names are not known here.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |server: &Server| match server {
            Server::Address(address) => Some(*address),
            Server::Name(..) => None,
        };
        match self {
            Self::One(address) => vec![*address],
            Self::Several(servers) => servers.iter().filter_map(address).collect(),
        }
    }

    /// Whether a server has a name instead of an address.
    #[must_use]
    pub fn has_names(&self) -> bool {
        let is_name = |server: &Server| matches!(server, Server::Name(..));
        matches!(self, Self::Several(servers) if servers.iter().any(is_name))
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(address) => address.fmt(f),
            Self::Several(servers) => {
                let servers: Vec<String> = servers.iter().map(Server::to_string).collect();
                f.write_str(&servers.join(", "))
            }
        }
    }
}

impl<'de> Deserialize<'de> for To {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ToVisitor;

        impl<'de> Visitor<'de> for ToVisitor {
            type Value = To;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "an address with a port in quotes, as in \"192.0.2.1:80\", or a list of servers",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<To, E> {
                text.parse().map(To::One).map_err(|_| {
                    E::custom(format_args!(
                        "\"{text}\" is not an address with a port: write \"192.0.2.1:80\" or \
                         \"[2001:db8::1]:80\"; names work in a list: [\"a.example:80\"]"
                    ))
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<To, A::Error> {
                let mut servers = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    let server = server(&text)?;
                    if servers.contains(&server) {
                        return Err(de::Error::custom(format_args!("{server} is listed twice")));
                    }
                    if servers.len() >= MOST_SERVERS {
                        return Err(de::Error::custom(format_args!(
                            "a listener has at most {MOST_SERVERS} servers"
                        )));
                    }
                    servers.push(server);
                }
                match servers.is_empty() {
                    true => Err(de::Error::custom("the list has no server")),
                    false => Ok(To::Several(servers)),
                }
            }
        }

        deserializer.deserialize_any(ToVisitor)
    }
}

/// A server by its address or by its name.
fn server<E: de::Error>(text: &str) -> Result<Server, E> {
    if let Ok(address) = text.parse() {
        return Ok(Server::Address(address));
    }
    match Destination::parse(text, None) {
        Ok(Destination {
            host: Host::Name(name),
            port,
        }) => Ok(Server::Name(name.to_string(), port)),
        Ok(Destination {
            host: Host::Address(address),
            port,
        }) => Ok(Server::Address(SocketAddr::new(address, port))),
        Err(reason) => Err(E::custom(format_args!(
            "\"{text}\" is no server ({reason}): write \"192.0.2.1:80\", \"[2001:db8::1]:80\" or \
             \"www.example.net:80\""
        ))),
    }
}

/// The servers of a listener of this mode, if it has several.
pub(super) fn servers(
    source: &Source,
    mode: &Mode,
    health_check: Option<Spanned<TimeSpan>>,
) -> Result<Option<ServerSettings>, Located> {
    let Mode::Forward(Forward {
        to: To::Several(servers),
        ..
    }) = mode
    else {
        return match health_check {
            None => Ok(None),
            Some(key) => {
                let message = "`health_check` is for listeners whose `to` is a list of servers";
                Err(Located::new(source, key.span(), message)
                    .with_help("write to = [\"a.example.net:80\", \"b.example.net:80\"]"))
            }
        };
    };
    let range = TimeSpan::from_milliseconds(100)..=TimeSpan::from_seconds(3_600);
    let checked = |key| within(source, "health_check", Some(key), TimeSpan::ZERO, range);
    Ok(Some(ServerSettings {
        servers: servers.clone(),
        health_check: health_check.map(checked).transpose()?,
    }))
}
