//! The decision for a new connection, with its reason and how to change it: a pure function of the
//! configuration, the state of the proxy, and the interface at which the client arrives.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;
use midspan_proxy::command::Status;
use midspan_proxy::configuration::{Configuration, Listener, Mode, Transparent};
use midspan_proxy::learned::{Learned, LeftAloneRow, PathRow};
use midspan_proxy::summary::Summary;
use midspan_top::filter::prefix;
use serde::Serialize;

/// A connection from a client to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The client.
    pub client: IpAddr,
    /// The server.
    pub server: SocketAddr,
}

/// What is known of this machine.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// The interface towards the client, by the routing table.
    pub interface: Option<String>,
    /// Whether the server's address is this machine's own.
    pub server_is_local: bool,
}

/// The state of the running proxy. A part is `None` if Midspan did not answer.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// The state of the helper.
    pub status: &'a Status,
    /// Counters.
    pub summary: Option<&'a Summary>,
    /// What was learned about the client.
    pub learned: Option<&'a Learned>,
    /// Routes that are left alone because splitting was found not to help.
    pub left_alone: Option<&'a [LeftAloneRow]>,
}

/// The decision for a new connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `split`, `untouched`, or `refused`.
    pub decision: &'static str,
    /// The listener, if one matches.
    pub listener: Option<String>,
    /// The reason.
    pub reason: String,
    /// How to change the decision.
    pub change: String,
    /// What could still decide otherwise for a single connection.
    pub unless: Vec<String>,
}

/// Explains the decision for a new connection.
pub fn explain(
    flow: &Flow,
    machine: &Machine,
    configuration: &Configuration,
    running: &Running<'_>,
) -> Explanation {
    let status = running.status;
    // A client may connect to Midspan itself.
    for listener in &configuration.listeners {
        let name = &listener.relay.name;
        if let Some(listen) = listener.mode.listen()
            && listen.port() == flow.server.port()
            && (listen.ip() == flow.server.ip()
                || (listen.ip().is_unspecified() && machine.server_is_local))
        {
            if let Some(drained) = drained_at(name, flow, status) {
                return Explanation {
                    decision: "refused",
                    ..drained
                };
            }
            let to = match &listener.mode {
                Mode::Forward(forward) => format!("forwards to {}", forward.to),
                _ => "asks the client for its server".to_owned(),
            };
            return Explanation {
                decision: "split",
                listener: Some(name.clone()),
                reason: format!("listener \"{name}\" listens at {listen} and {to}"),
                change: format!("change or remove [[listener]] \"{name}\", then midspan reload"),
                unless: vec!["access rules or limits refuse the client".to_owned()],
            };
        }
    }
    if machine.server_is_local {
        return untouched(
            "the server is this machine: only connections that it forwards are intercepted",
            "add a listener with mode = \"forward\" for this port",
        );
    }
    if configuration.transparent().next().is_none() {
        return untouched(
            "no listener is transparent",
            "add a [[listener]] with mode = \"transparent\" (docs/gateway.md)",
        );
    }
    if let Some(reason) = status.passing.first() {
        return passing(reason);
    }
    if let Some(bypass) = bypass_of(flow, status) {
        return untouched(
            format!("the operator bypasses {bypass}"),
            format!("midspan bypass off {bypass}"),
        );
    }
    let Some(interface) = &machine.interface else {
        return untouched(
            format!("this machine has no route to {}", flow.client),
            "check the address of the client: ip route get",
        );
    };
    let mut nearest = None;
    for (listener, transparent) in configuration.transparent() {
        let name = &listener.relay.name;
        let Some(obstacle) = obstacle(flow, interface, configuration, transparent) else {
            return drained_at(name, flow, status)
                .or_else(|| learned_reason(flow, configuration, running))
                .map(|untouched| Explanation {
                    listener: Some(name.clone()),
                    ..untouched
                })
                .unwrap_or_else(|| split(interface, configuration, listener, running));
        };
        // The listener that comes furthest is the one that the operator means.
        if nearest
            .as_ref()
            .is_none_or(|(_, known): &(_, Obstacle)| obstacle.rank > known.rank)
        {
            nearest = Some((name.clone(), obstacle));
        }
    }
    match nearest {
        Some((name, obstacle)) => Explanation {
            listener: Some(name.clone()),
            ..untouched(
                format!("listener \"{name}\": {}", obstacle.reason),
                obstacle.change,
            )
        },
        None => untouched("no listener matches", "midspan check"),
    }
}

fn untouched(reason: impl Into<String>, change: impl Into<String>) -> Explanation {
    Explanation {
        decision: "untouched",
        listener: None,
        reason: reason.into(),
        change: change.into(),
        unless: Vec::new(),
    }
}

/// All new connections pass untouched.
fn passing(reason: &str) -> Explanation {
    let (why, change) = match reason {
        "firewall" => (
            "the host's firewall would stop intercepted connections",
            "midspan check names the rule and how to change it",
        ),
        "relay" => (
            "the relay does not answer",
            "the log of Midspan; midspan status",
        ),
        "bypass" => (
            "the operator bypasses all connections",
            "midspan bypass off",
        ),
        "draining" => ("Midspan is about to end", "start Midspan again"),
        "rules" => (
            "Midspan cannot change the firewall's rules",
            "the log of Midspan",
        ),
        _ => ("all new connections pass untouched", "midspan status"),
    };
    untouched(why, change)
}

/// The bypass that includes the client or the server.
fn bypass_of<'a>(flow: &Flow, status: &'a Status) -> Option<&'a str> {
    let has_end = |text: &&String| {
        prefix(text).is_some_and(|bypass| {
            bypass.contains(&flow.client) || bypass.contains(&flow.server.ip())
        })
    };
    status.bypasses.iter().find(has_end).map(String::as_str)
}

/// The draining of a listener's clients that includes the client.
fn drained_at(listener: &str, flow: &Flow, status: &Status) -> Option<Explanation> {
    let includes = |clients: &str| prefix(clients).is_some_and(|of| of.contains(&flow.client));
    let mut drained = status.drained_clients.iter();
    let row = drained.find(|row| row.listener == listener && includes(&row.clients))?;
    Some(Explanation {
        listener: Some(listener.to_owned()),
        ..untouched(
            format!(
                "the operator drains {} at listener \"{listener}\"",
                row.clients
            ),
            format!("midspan drain off {listener} --clients {}", row.clients),
        )
    })
}

/// Why a listener does not intercept a connection.
struct Obstacle {
    /// How far the connection came: a later condition has a higher rank.
    rank: u8,
    reason: String,
    change: String,
}

fn obstacle(
    flow: &Flow,
    interface: &str,
    configuration: &Configuration,
    listener: &Transparent,
) -> Option<Obstacle> {
    let found = |rank, reason: String, change: String| {
        Some(Obstacle {
            rank,
            reason,
            change: format!("{change}, then midspan reload"),
        })
    };
    let is_named = |name: &String| match name.strip_suffix('*') {
        Some(start) => interface.starts_with(start),
        None => name == interface,
    };
    if !listener.interfaces.iter().any(is_named) {
        return found(
            0,
            format!(
                "the client is behind {interface}, and interfaces are {}",
                listener.interfaces.join(", ")
            ),
            format!("add \"{interface}\" to interfaces"),
        );
    }
    let (is_on, family) = match flow.server {
        SocketAddr::V4(_) => (listener.ipv4, "IPv4"),
        SocketAddr::V6(_) => (listener.ipv6, "IPv6"),
    };
    if !is_on {
        let reason = format!("it intercepts no {family} connections");
        return found(1, reason, format!("add {family} to families"));
    }
    let has = |ranges: &[RangeInclusive<u16>]| {
        ranges
            .iter()
            .any(|ports| ports.contains(&flow.server.port()))
    };
    let port = flow.server.port();
    if !listener.ports.is_empty() && !has(&listener.ports) {
        return found(
            2,
            format!("ports does not contain {port}"),
            format!("add {port} to ports"),
        );
    }
    if has(configuration.interception.helper_ports_of(listener)) {
        return found(
            3,
            format!("{port} is a control port of a protocol with helpers (helper_ports)"),
            format!("remove {port} from interception.helper_ports"),
        );
    }
    if has(&listener.except_ports) {
        let change = format!("remove {port} from except_ports");
        return found(4, format!("except_ports contains {port}"), change);
    }
    let mut except = listener.except.iter();
    let except = except
        .find(|except| except.contains(&flow.client) || except.contains(&flow.server.ip()))?;
    found(
        5,
        format!("except contains {except}"),
        format!("remove {except} from except"),
    )
}

/// Whether a network, as text, contains an address.
fn has(network: &str, address: IpAddr) -> bool {
    let network = network.parse::<IpNet>();
    network.is_ok_and(|network| network.contains(&address.to_canonical()))
}

/// What was learned about the path to a peer.
pub fn path_to(learned: &Learned, peer: IpAddr) -> Option<&PathRow> {
    learned.paths.iter().find(|path| has(&path.peer, peer))
}

/// Why a listener that would intercept the connection lets it pass, because of earlier connections.
fn learned_reason(
    flow: &Flow,
    configuration: &Configuration,
    running: &Running<'_>,
) -> Option<Explanation> {
    let is_route =
        |client: &str, servers: &str| has(client, flow.client) && has(servers, flow.server.ip());
    let mut left_alone = running.left_alone.unwrap_or_default().iter();
    if let Some(route) = left_alone.find(|row| is_route(&row.client, &row.servers)) {
        return Some(untouched(
            format!(
                "splitting was found not to help between {} and {}, which are left alone for another \
                 {:.0} s",
                route.client, route.servers, route.left_seconds
            ),
            format!(
                "midspan learned --forget {}; interception.leave_alone_time = \"0 s\" switches this off \
                 (now {})",
                route.client, configuration.interception.leave_alone_time
            ),
        ));
    }
    let routes = running.learned.map(|learned| &learned.asymmetric_routes);
    let mut routes = routes.into_iter().flatten();
    let route = routes.find(|row| is_route(&row.client, &row.servers))?;
    let time = match route.left_seconds {
        Some(left) => format!("connections pass for another {left:.0} s"),
        None => {
            "the next connection passes and is watched, the one after it is intercepted unless \
                 the route is still asymmetric"
                .to_owned()
        }
    };
    Some(untouched(
        format!(
            "the answers of servers in {} to {} do not come back through this machine: {time}",
            route.servers, route.client
        ),
        format!(
            "if the route has changed: midspan learned --forget {}; if it is so for all clients: add {} \
             to except, then midspan reload",
            route.client, route.servers
        ),
    ))
}

/// The listener intercepts the connection.
fn split(
    interface: &str,
    configuration: &Configuration,
    listener: &Listener,
    running: &Running<'_>,
) -> Explanation {
    let name = listener.relay.name.as_str();
    let counted = running
        .summary
        .and_then(|summary| summary.totals.untouched.as_ref());
    let control = listener.relay.control_group;
    let mut unless = vec!["the server does not answer, or refuses the connection".to_owned()];
    if running.learned.is_none() {
        unless.push(format!(
            "the server's answers do not come back through this machine (remembered for {})",
            configuration.interception.asymmetric_route_time
        ));
    }
    if running.left_alone.is_none() {
        unless.push(format!(
            "splitting was found not to help between the two (for {})",
            configuration.interception.leave_alone_time
        ));
    }
    if control.as_f64() > 0.0 {
        let so_far = counted.and_then(|counted| counted.get("control"));
        let so_far = so_far.map_or_else(String::new, |count| {
            format!("; {count} connections of all clients since the start")
        });
        unless.push(format!(
            "chance puts the connection into the control group ({control}{so_far})"
        ));
    }
    // Reasons that have let connections pass since the start, by their number.
    let counted: Vec<String> = counted
        .into_iter()
        .flatten()
        .filter(|(_, count)| **count > 0)
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    if !counted.is_empty() {
        unless.push(format!(
            "one of the reasons for which connections have passed since the start: {}",
            counted.join(", ")
        ));
    }
    Explanation {
        decision: "split",
        listener: Some(name.to_owned()),
        reason: format!("listener \"{name}\" intercepts at {interface}"),
        change: "midspan bypass on PREFIX for now; except or except_ports in the configuration to \
                 keep it"
            .to_owned(),
        unless,
    }
}

#[cfg(test)]
mod tests;
