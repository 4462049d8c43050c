//! What must hold between the keys of a file.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;

use midspan_document::{Located, Source};
use midspan_policy::{Buffer, LegSettings};
use midspan_units::{ByteSize, TimeSpan};

use super::{Configuration, Listener};

/// Most threads that relay.
pub const THREAD_LIMIT: usize = 128;

/// Most listeners.
pub const LISTENER_LIMIT: usize = 250;

/// Largest initial window in segments.
pub const INITIAL_WINDOW_LIMIT: u32 = 1000;

/// Longest name of a listener in bytes.
const NAME_LIMIT: usize = 64;

/// Longest name of a congestion control in bytes (`TCP_CA_NAME_MAX`, less the closing zero).
const CONGESTION_CONTROL_LIMIT: usize = 15;

/// Fixed buffers: the kernel doubles the size and counts it in 31 bits.
const BUFFER_RANGE: (ByteSize, ByteSize) = (
    ByteSize::from_bytes(4 << 10),
    ByteSize::from_bytes(1_000_000_000),
);

/// The limits of `TCP_KEEPIDLE`.
const KEEPALIVE_RANGE: (TimeSpan, TimeSpan) =
    (TimeSpan::from_seconds(1), TimeSpan::from_seconds(32_767));

/// Above it a time-out of unacknowledged data is no time-out any more.
const USER_TIMEOUT_RANGE: (TimeSpan, TimeSpan) = (
    TimeSpan::from_milliseconds(1),
    TimeSpan::from_seconds(86_400),
);

pub(super) fn check(configuration: &Configuration) -> Result<(), Located> {
    let source = &configuration.source;
    if let Some(first_too_many) = configuration.listeners.get(LISTENER_LIMIT) {
        let message = format!("more than {LISTENER_LIMIT} listeners");
        return Err(Located::new(
            source,
            first_too_many.places.name.clone(),
            message,
        ));
    }
    check_names(configuration)?;
    check_listening_addresses(configuration)?;
    for listener in &configuration.listeners {
        check_destination(source, listener)?;
        check_leg(
            source,
            &listener.relay.session.client,
            &listener.places.client_leg,
        )?;
        check_leg(
            source,
            &listener.relay.session.server,
            &listener.places.server_leg,
        )?;
    }
    check_loops(configuration, |address| address.ip().is_loopback())
}

fn check_names(configuration: &Configuration) -> Result<(), Located> {
    let source = &configuration.source;
    let mut seen: BTreeMap<&str, &Listener> = BTreeMap::new();
    for listener in &configuration.listeners {
        let name = listener.relay.name.as_str();
        let place = listener.places.name.clone();
        if name.is_empty() || name.len() > NAME_LIMIT || name.chars().any(char::is_control) {
            let message = format!("a name has 1 to {NAME_LIMIT} bytes and no control characters");
            return Err(Located::new(source, place, message));
        }
        if let Some(first) = seen.insert(name, listener) {
            let (line, _) = source.position(first.places.name.start);
            let message = format!("the name \"{name}\" is already used in line {line}");
            return Err(Located::new(source, place, message)
                .with_help("give every listener a name of its own"));
        }
    }
    Ok(())
}

fn check_listening_addresses(configuration: &Configuration) -> Result<(), Located> {
    let source = &configuration.source;
    let mut seen: BTreeMap<SocketAddr, &Listener> = BTreeMap::new();
    for listener in &configuration.listeners {
        let place = listener.places.listen.clone();
        let Some(listen) = listener.listen() else {
            continue;
        };
        if listen.port() == 0 {
            return Err(Located::new(
                source,
                place,
                "a listener needs a port other than 0",
            ));
        }
        if listen.ip().is_multicast() {
            let message = format!("{} is a multicast address", listen.ip());
            return Err(Located::new(source, place, message));
        }
        if let Some(first) = seen.insert(listen, listener) {
            let (line, _) = source.position(first.places.listen.start);
            let message = format!(
                "listener \"{}\" already listens on {listen} (line {line})",
                first.relay.name
            );
            return Err(Located::new(source, place, message)
                .with_help("give every listener an address or port of its own"));
        }
    }
    if let Some(admin) = &configuration.admin
        && let Some(first) = seen.get(&admin.listen)
    {
        let (line, _) = source.position(first.places.listen.start);
        let message = format!(
            "listener \"{}\" already listens on {} (line {line})",
            first.relay.name, admin.listen
        );
        return Err(Located::new(source, admin.place.clone(), message)
            .with_help("give the admin listener an address or port of its own"));
    }
    Ok(())
}

fn check_destination(source: &Source, listener: &Listener) -> Result<(), Located> {
    let servers = listener.forward().map(|forward| forward.to.addresses());
    for to in servers.unwrap_or_default() {
        let message = if to.port() == 0 {
            "a destination needs a port other than 0".to_owned()
        } else if to.ip().is_unspecified() || to.ip().is_multicast() {
            format!("{} is not the address of one host", to.ip())
        } else {
            continue;
        };
        return Err(Located::new(source, listener.places.to.clone(), message));
    }
    Ok(())
}

/// No chain of listeners may come back to where it began.
pub(super) fn check_loops(
    configuration: &Configuration,
    is_local: impl Fn(SocketAddr) -> bool,
) -> Result<(), Located> {
    let Some(names) = loops(configuration, is_local).into_iter().next() else {
        return Ok(());
    };
    let message = match &names[..] {
        [name] => format!("listener \"{name}\" forwards to itself"),
        [first, ..] => format!(
            "these listeners forward in a circle: {} → {first}",
            names.join(" → ")
        ),
        [] => return Ok(()),
    };
    let listeners = &configuration.listeners;
    let start = listeners
        .iter()
        .find(|of| names.first() == Some(&of.relay.name));
    let place = start.map(|start| start.places.to.clone());
    Err(Located::new(
        &configuration.source,
        place.unwrap_or(0..0),
        message,
    ))
}

/// The chains of listeners that come back to where they begin: the names in each, once for every
/// beginning.
pub(super) fn loops(
    configuration: &Configuration,
    is_local: impl Fn(SocketAddr) -> bool,
) -> Vec<Vec<String>> {
    let listeners = &configuration.listeners;
    // The listeners to which each listener forwards.
    let next = |listener: &Listener| -> Vec<usize> {
        let servers = listener.forward().map(|forward| forward.to.addresses());
        let at = |to: SocketAddr| {
            listeners.iter().position(|other| {
                let other = other.forward();
                other.is_some_and(|other| accepts(other.listen, to, &is_local))
            })
        };
        servers
            .unwrap_or_default()
            .into_iter()
            .filter_map(at)
            .collect()
    };
    let next: Vec<Vec<usize>> = listeners.iter().map(next).collect();
    let name = |at: usize| listeners[at].relay.name.clone();
    (0..listeners.len())
        .filter_map(|start| circle(&next, start))
        .map(|places| places.into_iter().map(name).collect())
        .collect()
}

/// The shortest way from a listener back to itself: the listeners on it, in their order.
fn circle(next: &[Vec<usize>], start: usize) -> Option<Vec<usize>> {
    let mut before = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(here) = waiting.pop_front() {
        for there in &next[here] {
            if *there == start {
                let mut places = vec![here];
                while let Some(first) = places.last()
                    && *first != start
                {
                    let place = *before.get(first)?;
                    places.push(place);
                }
                places.reverse();
                return Some(places);
            }
            if let Entry::Vacant(place) = before.entry(*there) {
                place.insert(here);
                waiting.push_back(*there);
            }
        }
    }
    None
}

/// Whether a connection to `to` arrives at a socket that listens on `listen`.
fn accepts(listen: SocketAddr, to: SocketAddr, is_local: impl Fn(SocketAddr) -> bool) -> bool {
    // The question about the address is the dear one: it comes last.
    listen.port() == to.port()
        && listen.is_ipv4() == to.is_ipv4()
        && (listen.ip() == to.ip() || (listen.ip().is_unspecified() && is_local(to)))
}

fn check_leg(source: &Source, leg: &LegSettings, place: &Range<usize>) -> Result<(), Located> {
    let error = |key: &str, message: String| {
        Err(Located::new(
            source,
            source.key_span(place.clone(), key),
            message,
        ))
    };
    if let Some(window) = leg.initial_window
        && !(1..=INITIAL_WINDOW_LIMIT).contains(&window)
    {
        let message = format!(
            "initial_window lies between 1 and {INITIAL_WINDOW_LIMIT} segments, not {window}"
        );
        return error("initial_window", message);
    }
    if let Some(name) = &leg.congestion_control {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let fits = (1..=CONGESTION_CONTROL_LIMIT).contains(&name.len());
        if !fits || !name.bytes().all(plain) {
            let message =
                format!("\"{name}\" is not the name of a congestion control, such as \"bbr\"");
            return error("congestion_control", message);
        }
    }
    if leg.receive_buffer == Buffer::Adaptive {
        let message = "\"adaptive\" is for send_buffer only".to_owned();
        return error("receive_buffer", message);
    }
    for (key, buffer) in [
        ("send_buffer", leg.send_buffer),
        ("receive_buffer", leg.receive_buffer),
    ] {
        if let Buffer::Fixed(size) = buffer {
            within(key, size, BUFFER_RANGE).or_else(|message| error(key, message))?;
        }
    }
    leg.check_receive_window()
        .or_else(|message| error("receive_window", message))?;
    if let Some(idle) = leg.keepalive {
        within("keepalive", idle, KEEPALIVE_RANGE)
            .or_else(|message| error("keepalive", message))?;
    }
    if let Some(timeout) = leg.user_timeout {
        within("user_timeout", timeout, USER_TIMEOUT_RANGE)
            .or_else(|message| error("user_timeout", message))?;
    }
    Ok(())
}

fn within<T: PartialOrd + std::fmt::Display>(
    key: &str,
    value: T,
    (low, high): (T, T),
) -> Result<(), String> {
    if low <= value && value <= high {
        return Ok(());
    }
    Err(format!("{key} lies between {low} and {high}, not {value}"))
}
