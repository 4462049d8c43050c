//! The keys of transparent listeners and of `[interception]`.

use std::fmt;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use midspan_document::{Located, Source, Spanned};
use midspan_gateway::initial_window::MarkField;
use midspan_gateway::interception::InterceptionNumbers;
use midspan_linux::netlink;
use midspan_policy::Handshake;
use midspan_policy::learned_start::{DEFAULT_WINDOW_LIMIT, LEAST_WINDOW, MOST_WINDOW, windows};
use midspan_units::{Probability, TimeSpan};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::values::within;

/// The connections that a transparent listener intercepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transparent {
    /// Interfaces at which clients arrive; a name may end in `*`.
    pub interfaces: Vec<String>,
    /// Whether IPv4 connections are intercepted.
    pub ipv4: bool,
    /// Whether IPv6 connections are intercepted.
    pub ipv6: bool,
    /// Destination ports to intercept; empty for all.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Destination ports that pass untouched.
    pub except_ports: Vec<RangeInclusive<u16>>,
    /// Servers and clients whose connections pass untouched.
    pub except: Vec<IpNet>,
    /// What happens to QUIC, which cannot be split.
    pub quic: Quic,
    /// For how long the host's firewall is not asked again about a client, a server and its port; with `None`, it
    /// is asked about each connection.
    pub firewall_cache: Option<TimeSpan>,
}

/// What happens to new connections of QUIC (UDP port 443) from clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quic {
    /// They pass untouched.
    #[default]
    Pass,
    /// They are rejected, so that clients use TCP.
    Reject,
}

/// The port of QUIC that is rejected, and of TCP that clients use instead.
const HTTPS: u16 = 443;

/// How connections of a transparent listener are admitted at their SYN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admitting {
    pub handshake: Handshake,
    pub learned_windows: Vec<u32>,
    pub control_group: Probability,
}

/// Settings of all transparent listeners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterceptionSettings {
    /// Numbers of rules, routes and marks.
    pub numbers: InterceptionNumbers,
    /// Most connections that are being opened, all clients together.
    pub opening_limit: u32,
    /// Most connections that one client (an IPv4 address, an IPv6 /64) is opening.
    pub opening_limit_per_client: u32,
    /// How long a client's connections to a network pass untouched if the network's answers do not
    /// come back through this machine.
    pub asymmetric_route_time: TimeSpan,
    /// How long a client's connections to a network pass untouched if splitting does not help them.
    pub leave_alone_time: TimeSpan,
    /// A relay that is stuck for this long is ended.
    pub watchdog_timeout: TimeSpan,
    /// Control ports of protocols for which connection tracking has helpers. They pass untouched at
    /// listeners without the key `ports`.
    pub helper_ports: Vec<RangeInclusive<u16>>,
    /// Whether `midspan takeover` makes this gateway answer packets of unknown connections by a reset.
    pub takeover_reset: bool,
}

impl InterceptionSettings {
    /// The ports of `helper_ports` that pass untouched at a listener.
    #[must_use]
    pub fn helper_ports_of(&self, listener: &Transparent) -> &[RangeInclusive<u16>] {
        match listener.ports.is_empty() {
            true => &self.helper_ports,
            false => &[],
        }
    }

    /// All destination ports that pass untouched at a listener.
    #[must_use]
    pub fn except_ports(&self, listener: &Transparent) -> Vec<RangeInclusive<u16>> {
        [&listener.except_ports, self.helper_ports_of(listener)].concat()
    }

    /// The usual control ports of protocols with helpers that a listener intercepts nevertheless.
    #[must_use]
    pub fn helper_ports_taken(&self, listener: &Transparent) -> Vec<RangeInclusive<u16>> {
        let has = |ranges: &[RangeInclusive<u16>], port| ranges.iter().any(|of| of.contains(&port));
        let except = self.except_ports(listener);
        DEFAULT_HELPER_PORTS
            .into_iter()
            .filter(|port| listener.ports.is_empty() || has(&listener.ports, *port))
            .filter(|port| !has(&except, *port))
            .map(|port| port..=port)
            .collect()
    }
}

/// Ports and ranges of ports as text, as in `"21 8000-8100"`.
pub(crate) fn ports(ranges: &[RangeInclusive<u16>]) -> String {
    let texts: Vec<String> = ranges
        .iter()
        .map(|range| match range.start() == range.end() {
            true => range.start().to_string(),
            false => format!("{}-{}", range.start(), range.end()),
        })
        .collect();
    texts.join(" ")
}

/// `[interception]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct InterceptionTable {
    table: Option<Spanned<String>>,
    routing_table: Option<Spanned<u32>>,
    rule_priority: Option<Spanned<u32>>,
    forward_priority: Option<Spanned<i32>>,
    zone: Option<Spanned<u16>>,
    queue: Option<Spanned<u16>>,
    opening_limit: Option<Spanned<u32>>,
    opening_limit_per_client: Option<Spanned<u32>>,
    asymmetric_route_time: Option<Spanned<TimeSpan>>,
    leave_alone_time: Option<Spanned<TimeSpan>>,
    watchdog_timeout: Option<Spanned<TimeSpan>>,
    helper_ports: Option<Spanned<Vec<Ports>>>,
    takeover_reset: Option<bool>,
}

const DEFAULT_TABLE: &str = "midspan";
/// Below those of the initial windows, which begin at 7700.
const DEFAULT_ROUTING_TABLE: u32 = 7690;
/// Before the rules of other users of marks, because marked packets must reach this machine.
const DEFAULT_RULE_PRIORITY: u32 = 100;
/// Behind `filter` (0), where hosts have their rules, and `security` (50).
const DEFAULT_FORWARD_PRIORITY: i32 = 100;
const DEFAULT_ZONE: u16 = 7700;
const DEFAULT_QUEUE: u16 = 7700;
/// Each connection needs a descriptor and about 10 KB of kernel memory. Room for 1,500 SYNs per
/// second that are never repeated, for 1.5 s each, in addition to 500 real connections per second
/// with a round trip of 600 ms. Connections that are completed make more room.
const DEFAULT_OPENING_LIMIT: u32 = 4096;
const DEFAULT_OPENING_LIMIT_PER_CLIENT: u32 = 128;
/// Each listening socket lets as many connections wait as `net.core.somaxconn` allows; there is one for
/// each thread. Beyond, the kernel answers with SYN cookies.
const MOST_OPENINGS: u32 = 65_536;
const DEFAULT_ASYMMETRIC_ROUTE_TIME: TimeSpan = TimeSpan::from_seconds(600);
/// Of all protocols over TCP for which Linux has a helper: FTP, H.323 (call signalling), PPTP, SIP,
/// SANE, IRC.
const DEFAULT_HELPER_PORTS: [u16; 6] = [21, 1720, 1723, 5060, 6566, 6667];
const DEFAULT_WATCHDOG_TIMEOUT: TimeSpan = TimeSpan::from_seconds(3);

/// `control_group` with policy = "auto".
fn default_control_group() -> Probability {
    Probability::from_f64(0.01).unwrap_or_default()
}

/// The longest `firewall_cache`.
const MOST_FIREWALL_CACHE: TimeSpan = TimeSpan::from_seconds(60);

const DEFAULT_LEAVE_ALONE_TIME: TimeSpan = TimeSpan::from_seconds(600);

/// `IFNAMSIZ`, less the closing zero.
const INTERFACE_NAME_LIMIT: usize = 15;
const TABLE_NAME_LIMIT: usize = 64;
/// Most entries of one list of a listener.
const LIST_LIMIT: usize = 1000;

impl InterceptionTable {
    pub fn checked(
        self,
        source: &Source,
        marks: MarkField,
    ) -> Result<InterceptionSettings, Located> {
        let table = match self.table {
            Some(name) if !is_name(name.get_ref()) => {
                let message = format!(
                    "a table's name has 1 to {TABLE_NAME_LIMIT} letters, digits and underscores, \
                     a letter first"
                );
                return Err(Located::new(source, name.span(), message));
            }
            name => name.map_or_else(|| DEFAULT_TABLE.to_owned(), Spanned::into_inner),
        };
        let numbers = InterceptionNumbers {
            table,
            marks,
            routing_table: within(
                source,
                "routing_table",
                self.routing_table,
                DEFAULT_ROUTING_TABLE,
                256..=u32::MAX / 2,
            )?,
            rule_priority: within(
                source,
                "rule_priority",
                self.rule_priority,
                DEFAULT_RULE_PRIORITY,
                1..=32_765,
            )?,
            zone: within(source, "zone", self.zone, DEFAULT_ZONE, 1..=u16::MAX - 1)?,
            queue: within(source, "queue", self.queue, DEFAULT_QUEUE, 0..=u16::MAX)?,
            forward_priority: within(
                source,
                "forward_priority",
                self.forward_priority,
                DEFAULT_FORWARD_PRIORITY,
                -1000..=1000,
            )?,
        };
        Ok(InterceptionSettings {
            numbers,
            opening_limit: within(
                source,
                "opening_limit",
                self.opening_limit,
                DEFAULT_OPENING_LIMIT,
                1..=MOST_OPENINGS,
            )?,
            opening_limit_per_client: within(
                source,
                "opening_limit_per_client",
                self.opening_limit_per_client,
                DEFAULT_OPENING_LIMIT_PER_CLIENT,
                1..=MOST_OPENINGS,
            )?,
            asymmetric_route_time: within(
                source,
                "asymmetric_route_time",
                self.asymmetric_route_time,
                DEFAULT_ASYMMETRIC_ROUTE_TIME,
                TimeSpan::ZERO..=TimeSpan::from_seconds(86_400),
            )?,
            leave_alone_time: within(
                source,
                "leave_alone_time",
                self.leave_alone_time,
                DEFAULT_LEAVE_ALONE_TIME,
                TimeSpan::ZERO..=TimeSpan::from_seconds(86_400),
            )?,
            watchdog_timeout: within(
                source,
                "watchdog_timeout",
                self.watchdog_timeout,
                DEFAULT_WATCHDOG_TIMEOUT,
                TimeSpan::from_seconds(1)..=TimeSpan::from_seconds(3_600),
            )?,
            takeover_reset: self.takeover_reset.unwrap_or_default(),
            helper_ports: match self.helper_ports {
                None => DEFAULT_HELPER_PORTS.map(|port| port..=port).to_vec(),
                ports => (list(source, "helper_ports", ports)?.into_iter())
                    .map(|ports| ports.0)
                    .collect(),
            },
        })
    }
}

/// For how long verdicts of the host's firewall are used again, in whole seconds.
fn firewall_cache(
    source: &Source,
    given: Option<Spanned<TimeSpan>>,
    handshake: Handshake,
) -> Result<Option<TimeSpan>, Located> {
    let Some(given) = given else {
        return Ok(None);
    };
    let place = given.span();
    let second = TimeSpan::from_seconds(1);
    let time = within(
        source,
        "firewall_cache",
        Some(given),
        second,
        second..=MOST_FIREWALL_CACHE,
    )?;
    if !time.nanoseconds().is_multiple_of(second.nanoseconds()) {
        let message = "`firewall_cache` has whole seconds, as in \"10 s\"";
        return Err(Located::new(source, place, message));
    }
    if handshake != Handshake::Early {
        let message = "`firewall_cache` is for listeners with handshake = \"early\"";
        return Err(Located::new(source, place, message).with_help(
            "with \"end-to-end\", each SYN has to wait for its server's answer in any case",
        ));
    }
    Ok(Some(time))
}

fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    starts && name.len() <= TABLE_NAME_LIMIT && name.bytes().all(plain)
}

/// The keys of a listener that only a transparent one has.
#[derive(Debug, Default)]
pub(super) struct TransparentKeys {
    pub interfaces: Option<Spanned<Vec<Spanned<String>>>>,
    pub families: Option<Spanned<Vec<Family>>>,
    pub ports: Option<Spanned<Vec<Ports>>>,
    pub except_ports: Option<Spanned<Vec<Ports>>>,
    pub except: Option<Spanned<Vec<Hosts>>>,
    pub quic: Option<Spanned<Quic>>,
    pub handshake: Option<Spanned<Handshake>>,
    pub learned_window_limit: Option<Spanned<u32>>,
    pub control_group: Option<Spanned<Probability>>,
    pub firewall_cache: Option<Spanned<TimeSpan>>,
}

impl TransparentKeys {
    /// The first of these keys in the file, with its name.
    pub fn first(&self) -> Option<(&'static str, std::ops::Range<usize>)> {
        [
            ("interfaces", self.interfaces.as_ref().map(Spanned::span)),
            ("families", self.families.as_ref().map(Spanned::span)),
            ("ports", self.ports.as_ref().map(Spanned::span)),
            (
                "except_ports",
                self.except_ports.as_ref().map(Spanned::span),
            ),
            ("except", self.except.as_ref().map(Spanned::span)),
            ("quic", self.quic.as_ref().map(Spanned::span)),
            ("handshake", self.handshake.as_ref().map(Spanned::span)),
            (
                "learned_window_limit",
                self.learned_window_limit.as_ref().map(Spanned::span),
            ),
            (
                "control_group",
                self.control_group.as_ref().map(Spanned::span),
            ),
            (
                "firewall_cache",
                self.firewall_cache.as_ref().map(Spanned::span),
            ),
        ]
        .into_iter()
        .find_map(|(name, span)| Some((name, span?)))
    }

    pub fn checked(
        self,
        source: &Source,
        name: std::ops::Range<usize>,
        (is_auto, learns): (bool, bool),
    ) -> Result<(Transparent, Admitting), Located> {
        let Some(interfaces) = self.interfaces else {
            return Err(Located::new(
                source,
                name,
                "a transparent listener needs the key `interfaces`",
            )
            .with_help("name the interfaces at which clients arrive, as in [\"eth1\"]"));
        };
        let families = self.families.as_ref();
        let has = |family| families.is_none_or(|families| families.get_ref().contains(&family));
        let (ipv4, ipv6) = (has(Family::Ipv4), has(Family::Ipv6));
        if let (false, false, Some(families)) = (ipv4, ipv6, families) {
            return Err(Located::new(source, families.span(), "there is no family"));
        }
        if let (Some(limit), false) = (&self.learned_window_limit, learns) {
            let message = "`learned_window_limit` is for listeners with policy = \"auto\" whose \
                           client leg has no initial_window";
            return Err(Located::new(source, limit.span(), message));
        }
        let limit = within(
            source,
            "learned_window_limit",
            self.learned_window_limit,
            DEFAULT_WINDOW_LIMIT,
            LEAST_WINDOW..=MOST_WINDOW,
        )?;
        if let (Some(group), false) = (&self.control_group, is_auto) {
            let message = "`control_group` is for listeners with policy = \"auto\"";
            return Err(Located::new(source, group.span(), message));
        }
        let handshake = self.handshake.map(Spanned::into_inner);
        let handshake = handshake.unwrap_or(Handshake::EndToEnd);
        let firewall_cache = firewall_cache(source, self.firewall_cache, handshake)?;
        let group = self.control_group.as_ref();
        let group = group.filter(|group| *group.get_ref() > Probability::ZERO);
        if let (Some(group), Some(_)) = (group, firewall_cache) {
            let message = "with `firewall_cache`, there is no `control_group`: connections that the firewall is \
                           not asked about cannot pass untouched";
            return Err(Located::new(source, group.span(), message));
        }
        let usual = match is_auto && firewall_cache.is_none() {
            true => default_control_group(),
            false => Probability::ZERO,
        };
        let half = Probability::from_f64(0.5).unwrap_or_default();
        let control_group = within(
            source,
            "control_group",
            self.control_group,
            usual,
            Probability::ZERO..=half,
        )?;
        let admitting = Admitting {
            control_group,
            learned_windows: match learns {
                true => windows(limit),
                false => Vec::new(),
            },
            handshake,
        };
        let transparent = Transparent {
            firewall_cache,
            interfaces: interface_names(source, interfaces)?,
            ipv4,
            ipv6,
            ports: list(source, "ports", self.ports)?
                .into_iter()
                .map(|ports| ports.0)
                .collect(),
            except_ports: list(source, "except_ports", self.except_ports)?
                .into_iter()
                .map(|ports| ports.0)
                .collect(),
            except: list(source, "except", self.except)?
                .into_iter()
                .map(|hosts| hosts.0)
                .collect(),
            quic: self
                .quic
                .as_ref()
                .map_or_else(Quic::default, |quic| *quic.get_ref()),
        };
        if let Some(quic) = self.quic.filter(|quic| *quic.get_ref() == Quic::Reject) {
            let has = |ranges: &[RangeInclusive<u16>]| ranges.iter().any(|of| of.contains(&HTTPS));
            let takes = transparent.ports.is_empty() || has(&transparent.ports);
            if !takes || has(&transparent.except_ports) {
                let message = "`quic = \"reject\"` makes clients use TCP port 443, which this \
                               listener does not intercept";
                return Err(Located::new(source, quic.span(), message)
                    .with_help("let the listener intercept port 443, or leave the key out"));
            }
        }
        Ok((transparent, admitting))
    }
}

fn interface_names(
    source: &Source,
    names: Spanned<Vec<Spanned<String>>>,
) -> Result<Vec<String>, Located> {
    let place = names.span();
    let names = names.into_inner();
    if names.is_empty() || names.len() > LIST_LIMIT {
        let message = format!("1 to {LIST_LIMIT} interfaces can be named");
        return Err(Located::new(source, place, message));
    }
    for name in &names {
        let text = name.get_ref();
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\/:*".contains(&byte);
        let fixed = text.strip_suffix('*').unwrap_or(text);
        if fixed.is_empty() || text.len() > INTERFACE_NAME_LIMIT || !fixed.bytes().all(plain) {
            let message =
                format!("\"{text}\" is not the name of an interface, such as \"eth1\" or \"ppp*\"");
            return Err(Located::new(source, name.span(), message));
        }
        if fixed == "lo" {
            return Err(Located::new(
                source,
                name.span(),
                "no client arrives at \"lo\"",
            ));
        }
    }
    Ok(names.into_iter().map(Spanned::into_inner).collect())
}

fn list<T>(source: &Source, key: &str, list: Option<Spanned<Vec<T>>>) -> Result<Vec<T>, Located> {
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    if list.get_ref().len() > LIST_LIMIT {
        let message = format!("{key} has more than {LIST_LIMIT} entries");
        return Err(Located::new(source, list.span(), message));
    }
    Ok(list.into_inner())
}

/// An entry of `families`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Family {
    Ipv4,
    Ipv6,
}

/// An entry of `ports` and `except_ports`: 80 or "8000-8100".
#[derive(Debug, Clone)]
pub(super) struct Ports(pub RangeInclusive<u16>);

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortsVisitor;

        impl Visitor<'_> for PortsVisitor {
            type Value = Ports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port as in 80, or a range of ports as in \"8000-8100\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Ports, E> {
                match u16::try_from(number) {
                    Ok(port) if port > 0 => Ok(Ports(port..=port)),
                    _ => Err(E::custom(format_args!(
                        "{number} is not a port: 1 to 65535"
                    ))),
                }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ports, E> {
                let parse = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
                let (start, end) = text.split_once('-').unwrap_or((text, text));
                match (parse(start), parse(end)) {
                    (Some(start), Some(end)) if start <= end => Ok(Ports(start..=end)),
                    _ => Err(E::custom(format_args!(
                        "\"{text}\" is not a range of ports: write 80 or \"8000-8100\""
                    ))),
                }
            }
        }

        deserializer.deserialize_any(PortsVisitor)
    }
}

/// An entry of `except`: an address, or a prefix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hosts(pub IpNet);

impl<'de> Deserialize<'de> for Hosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HostsVisitor;

        impl Visitor<'_> for HostsVisitor {
            type Value = Hosts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address or prefix in quotes, as in \"192.0.2.0/24\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Hosts, E> {
                prefix(text).map(Hosts).ok_or_else(|| {
                    E::custom(format_args!(
                        "\"{text}\" is not an address or prefix: write \"192.0.2.1\", \
                         \"192.0.2.0/24\" or \"2001:db8::/32\"; names are not looked up"
                    ))
                })
            }
        }

        deserializer.deserialize_str(HostsVisitor)
    }
}

/// An address, or a prefix.
pub(crate) fn prefix(text: &str) -> Option<IpNet> {
    netlink::prefix(text).ok()
}
