//! The keys of listeners that negotiate, and of access rules.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

use midspan_document::{Located, Source, Spanned};
use midspan_policy::overlay::Overlay;
use midspan_relay::access::{AccessRule, AccessRules, Network};
use midspan_relay::{HeaderVersion, Language, Negotiation, Users};
use midspan_units::TimeSpan;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use super::servers::To;
use super::transparent::{Ports, TransparentKeys, prefix};
use super::values::{Address, within};
use super::{Explicit, Mode, Places};

const DEFAULT_NEGOTIATION_TIMEOUT: TimeSpan = TimeSpan::from_seconds(10);
/// The ports that are usual.
const SOCKS5_PORT: u16 = 1080;
const HTTP_PORT: u16 = 3128;
const HOP_PORT: u16 = 7704;
/// Most entries of one list.
const LIST_LIMIT: usize = 1000;
/// RFC 1929 counts the bytes of a name and of a password in one byte each.
const CREDENTIAL_LIMIT: usize = 255;

/// The keys of a listener that transparent ones do not have, except `overlay`.
#[derive(Debug, Default)]
pub(super) struct ExplicitKeys {
    pub users: Option<Spanned<BTreeMap<String, String>>>,
    pub clients: Option<Spanned<Networks>>,
    pub access: Option<Spanned<Vec<Spanned<AccessKey>>>>,
    pub negotiation_timeout: Option<Spanned<TimeSpan>>,
    pub accept_proxy_protocol: Option<Spanned<bool>>,
    pub proxy_protocol_from: Option<Spanned<Networks>>,
    pub send_proxy_protocol: Option<Spanned<HeaderVersion>>,
    pub overlay: Option<Spanned<bool>>,
    /// The place of `source = "client"`.
    pub as_client: Option<Range<usize>>,
}

impl ExplicitKeys {
    /// The first of these keys in the file, with its name.
    fn first(&self) -> Option<(&'static str, Range<usize>)> {
        [
            ("users", self.users.as_ref().map(Spanned::span)),
            ("clients", self.clients.as_ref().map(Spanned::span)),
            ("access", self.access.as_ref().map(Spanned::span)),
            (
                "negotiation_timeout",
                self.negotiation_timeout.as_ref().map(Spanned::span),
            ),
            (
                "accept_proxy_protocol",
                self.accept_proxy_protocol.as_ref().map(Spanned::span),
            ),
            (
                "proxy_protocol_from",
                self.proxy_protocol_from.as_ref().map(Spanned::span),
            ),
            (
                "send_proxy_protocol",
                self.send_proxy_protocol.as_ref().map(Spanned::span),
            ),
            ("overlay", self.overlay.as_ref().map(Spanned::span)),
        ]
        .into_iter()
        .find_map(|(name, span)| Some((name, span?)))
    }
}

/// A listener of mode `socks5`, `http` or `hop`.
pub(super) fn explicit(
    mode: &'static str,
    source: &Source,
    listen: Option<Spanned<Address>>,
    to: Option<Spanned<To>>,
    keys: &TransparentKeys,
) -> Result<Mode, Located> {
    let to = to.map(|to| ("to", "forward", to.span()));
    let key = keys.first().map(|(key, place)| (key, "transparent", place));
    if let Some((key, right, place)) = to.or(key) {
        let message = format!("`{key}` is for listeners of mode \"{right}\"");
        return Err(Located::new(source, place, message));
    }
    let port = match mode {
        "socks5" => SOCKS5_PORT,
        "hop" => HOP_PORT,
        _ => HTTP_PORT,
    };
    let default = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let listen = listen.map_or(default, |listen| listen.into_inner().0);
    Ok(Mode::Explicit(Explicit { listen, mode }))
}

/// The negotiation of this mode.
pub(super) fn negotiation(
    source: &Source,
    mode: &Mode,
    keys: ExplicitKeys,
    places: &Places,
    overlay: Option<&Overlay>,
) -> Result<Option<Negotiation>, Located> {
    let (language, is_fixed) = match mode {
        Mode::Transparent(_) => {
            return match keys.first() {
                None | Some(("overlay", _)) => Ok(None),
                Some((key, place)) => {
                    let message = format!("`{key}` is not for listeners of mode \"transparent\"");
                    Err(Located::new(source, place, message))
                }
            };
        }
        Mode::Forward(forward) => match forward.to {
            To::One(_) if keys.first().is_none() => return Ok(None),
            To::One(to) => (Language::Fixed(to), true),
            To::Several(_) => (Language::Servers, true),
        },
        Mode::Explicit(explicit) if explicit.mode == "socks5" => (Language::Socks5, false),
        Mode::Explicit(explicit) if explicit.mode == "hop" => (Language::Hop, false),
        Mode::Explicit(_) => (Language::Http, false),
    };
    let nodes = overlay.map_or(&[][..], |overlay| &overlay.nodes);
    let hops = nodes.iter().filter_map(|node| node.address).collect();
    let overlay = overlay_of(source, language, &keys, places, overlay)?;
    if let Mode::Explicit(explicit) = mode
        && language != Language::Hop
        && !explicit.listen.ip().to_canonical().is_loopback()
        && keys.users.is_none()
        && keys.clients.is_none()
    {
        let message = format!(
            "anybody who reaches {} could use this proxy for anything",
            explicit.listen
        );
        return Err(
            Located::new(source, places.listen.clone(), message).with_help(
                "say who may: users = { name = \"password\" }, or clients = [\"192.0.2.0/24\"]",
            ),
        );
    }
    let wrong_mode = |key, place: Range<usize>, right| {
        let message = format!("`{key}` is for listeners of mode {right}");
        Err(Located::new(source, place, message))
    };
    if is_fixed && let Some(users) = &keys.users {
        return wrong_mode("users", users.span(), "\"socks5\" or \"http\"");
    }
    if !is_fixed && let Some(send) = &keys.send_proxy_protocol {
        return wrong_mode("send_proxy_protocol", send.span(), "\"forward\"");
    }
    let proxies = proxies(source, keys.accept_proxy_protocol, keys.proxy_protocol_from)?;
    let clients = keys.clients;
    let clients = clients.map(|clients| networks(source, "clients", clients));
    let clients = clients.transpose()?;
    // The clients of hops are not those that connect.
    let (clients, as_clients) = match (language, keys.as_client) {
        (Language::Hop, Some(place)) if clients.is_none() => {
            let message = "`source = \"client\"` needs `clients`: whose addresses may be used";
            return Err(Located::new(source, place, message).with_help(
                "as in clients = [\"192.0.2.0/24\"]; the answers of servers to them have to pass this machine",
            ));
        }
        (Language::Hop, Some(_)) => (None, clients),
        (_, _) => (clients, None),
    };
    Ok(Some(Negotiation {
        language,
        users: keys
            .users
            .map(|users| checked_users(source, users))
            .transpose()?,
        access: AccessRules {
            clients: clients.unwrap_or_default(),
            rules: access(source, keys.access)?,
            protects_own: !is_fixed,
            hops,
        },
        timeout: within(
            source,
            "negotiation_timeout",
            keys.negotiation_timeout,
            DEFAULT_NEGOTIATION_TIMEOUT,
            TimeSpan::from_milliseconds(1)..=TimeSpan::from_seconds(3_600),
        )?,
        proxies,
        header: keys.send_proxy_protocol.map(Spanned::into_inner),
        overlay,
        as_clients,
    }))
}

/// The overlay into which the sessions of a transparent listener may go.
pub(super) fn overlay_of_transparent(
    source: &Source,
    asked: Option<&Spanned<bool>>,
    overlay: Option<&Overlay>,
) -> Result<Option<Overlay>, Located> {
    match asked.filter(|asked| *asked.get_ref()) {
        Some(asked) => existing(source, asked.span(), overlay).map(Some),
        None => Ok(None),
    }
}

/// The overlay that the file describes.
fn existing(
    source: &Source,
    place: Range<usize>,
    overlay: Option<&Overlay>,
) -> Result<Overlay, Located> {
    overlay.cloned().ok_or_else(|| {
        Located::new(source, place, "the table [overlay] is missing")
            .with_help("it names this node and the file of members (docs/overlay.md)")
    })
}

/// The overlay of a listener, if its sessions may go through it, or if it accepts hops.
fn overlay_of(
    source: &Source,
    language: Language,
    keys: &ExplicitKeys,
    places: &Places,
    overlay: Option<&Overlay>,
) -> Result<Option<Overlay>, Located> {
    let asked = keys.overlay.as_ref();
    let (is_hop, asks) = (
        language == Language::Hop,
        asked.is_some_and(|it| *it.get_ref()),
    );
    if is_hop {
        // Nodes are recognized by their addresses, and the list of members names these.
        let wrong = [
            ("users", keys.users.as_ref().map(Spanned::span)),
            (
                "clients",
                (keys.clients.as_ref())
                    .filter(|_| keys.as_client.is_none())
                    .map(Spanned::span),
            ),
            (
                "accept_proxy_protocol",
                keys.accept_proxy_protocol.as_ref().map(Spanned::span),
            ),
            ("overlay", asked.map(Spanned::span)),
        ];
        let wrong = wrong
            .into_iter()
            .find_map(|(key, place)| Some((key, place?)));
        if let Some((key, place)) = wrong {
            let message = format!("`{key}` is not for listeners of mode \"hop\"");
            return Err(Located::new(source, place, message));
        }
    }
    if !is_hop && !asks {
        return Ok(None);
    }
    let place = asked.map_or_else(|| places.name.clone(), Spanned::span);
    if language == Language::Servers {
        let message = "`overlay` is not for listeners whose `to` is a list of servers";
        return Err(Located::new(source, place, message));
    }
    existing(source, place, overlay).map(Some)
}

/// The proxies whose PROXY headers are accepted.
fn proxies(
    source: &Source,
    accept: Option<Spanned<bool>>,
    from: Option<Spanned<Networks>>,
) -> Result<Option<Vec<Network>>, Located> {
    match (accept, from) {
        (Some(accept), None) if *accept.get_ref() => Err(Located::new(
            source,
            accept.span(),
            "anybody could claim to be anybody: `proxy_protocol_from` is missing",
        )
        .with_help("name the proxies in front, as in proxy_protocol_from = [\"192.0.2.1\"]")),
        (Some(accept), Some(from)) if *accept.get_ref() => {
            networks(source, "proxy_protocol_from", from).map(Some)
        }
        (_, Some(from)) => Err(Located::new(
            source,
            from.span(),
            "`proxy_protocol_from` needs accept_proxy_protocol = true",
        )),
        (_, None) => Ok(None),
    }
}

fn checked_users(
    source: &Source,
    users: Spanned<BTreeMap<String, String>>,
) -> Result<Users, Located> {
    let fits = |text: &str| (1..=CREDENTIAL_LIMIT).contains(&text.len());
    let wrong = users
        .get_ref()
        .iter()
        .find(|(name, password)| !fits(name) || name.contains(':') || !fits(password));
    let message = match wrong {
        _ if users.get_ref().is_empty() => "there is no user, so no client could use it".to_owned(),
        Some((name, _)) => format!(
            "user \"{name}\": name and password have 1 to {CREDENTIAL_LIMIT} bytes, the name \
             without a colon"
        ),
        None => return Ok(Users(users.into_inner())),
    };
    Err(Located::new(source, users.span(), message))
}

fn access(
    source: &Source,
    keys: Option<Spanned<Vec<Spanned<AccessKey>>>>,
) -> Result<Vec<AccessRule>, Located> {
    let Some(keys) = keys else {
        return Ok(Vec::new());
    };
    if keys.get_ref().len() > LIST_LIMIT {
        let message = format!("access has more than {LIST_LIMIT} entries");
        return Err(Located::new(source, keys.span(), message));
    }
    keys.into_inner()
        .into_iter()
        .map(|key| {
            let place = key.span();
            let key = key.into_inner();
            let (allow, to) = match (key.allow, key.deny) {
                (Some(to), None) => (true, to),
                (None, Some(to)) => (false, to),
                _ => {
                    let message = "a rule has either allow or deny";
                    return Err(Located::new(source, place, message).with_help(
                        "as in { deny = \"10.0.0.0/8\" } or { allow = \"all\", ports = [80, 443] }",
                    ));
                }
            };
            Ok(AccessRule {
                allow,
                from: key.from.map(|from| from.0).unwrap_or_default(),
                to: to.0,
                ports: (key.ports.unwrap_or_default().into_iter())
                    .map(|ports| (*ports.0.start(), *ports.0.end()))
                    .collect(),
            })
        })
        .collect()
}

/// A list of prefixes that must not be empty, because an empty one would mean all.
fn networks(
    source: &Source,
    key: &str,
    networks: Spanned<Networks>,
) -> Result<Vec<Network>, Located> {
    if networks.get_ref().0.is_empty() {
        let message = format!("{key} must list addresses or prefixes");
        return Err(Located::new(source, networks.span(), message)
            .with_help("write prefixes, as in [\"192.0.2.0/24\"]"));
    }
    Ok(networks.into_inner().0)
}

/// An entry of `access`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessKey {
    #[serde(default)]
    allow: Option<Networks>,
    #[serde(default)]
    deny: Option<Networks>,
    #[serde(default)]
    from: Option<Networks>,
    #[serde(default)]
    ports: Option<Vec<Ports>>,
}

/// One prefix, several, or "all" (empty).
#[derive(Debug, Clone)]
pub(super) struct Networks(pub Vec<Network>);

impl<'de> Deserialize<'de> for Networks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NetworksVisitor;

        impl<'de> Visitor<'de> for NetworksVisitor {
            type Value = Networks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a prefix or a list of them, as in [\"192.0.2.0/24\"], or \"all\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Networks, E> {
                match text {
                    "all" => Ok(Networks(Vec::new())),
                    text => network(text).map(|network| Networks(vec![network])),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Networks, A::Error> {
                let mut networks = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    networks.push(network(&text)?);
                }
                match networks.len() {
                    0 => Err(de::Error::custom("the list is empty: write \"all\"")),
                    1..=LIST_LIMIT => Ok(Networks(networks)),
                    _ => Err(de::Error::custom(format_args!(
                        "the list has more than {LIST_LIMIT} entries"
                    ))),
                }
            }
        }

        deserializer.deserialize_any(NetworksVisitor)
    }
}

fn network<E: de::Error>(text: &str) -> Result<Network, E> {
    let Some(network) = prefix(text) else {
        return Err(E::custom(format_args!(
            "\"{text}\" is not an address or prefix: write \"192.0.2.1\", \"192.0.2.0/24\" or \
             \"2001:db8::/32\"; names are not looked up"
        )));
    };
    match network.addr() {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => Err(E::custom(format_args!(
            "\"{text}\" is an IPv4 address inside an IPv6 one: write it as an IPv4 address"
        ))),
        _ => Ok(network.into()),
    }
}
