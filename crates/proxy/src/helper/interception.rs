//! Rules for transparent listeners: what is asked of the kernel, and what the gate is told.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use midspan_linux::initial_window::InitialWindows;
use midspan_linux::interception::{self, InterceptionError, Marks, Plan, Selection};
use midspan_linux::raw_packet::{Family, RawSocket};
use midspan_policy::Handshake;

use super::listening::Listening;
use crate::Error;
use crate::configuration::Configuration;
use crate::control::{GateListenerMessage, GateMessage};

/// Groups of initial windows: which legs they are for.
pub(super) const FORWARD: u8 = 0;
pub(super) const CLIENT_LEG: u8 = 1;
pub(super) const SERVER_LEG: u8 = 2;

/// The initial windows that the configuration asks for, by group.
pub(super) fn windows(configuration: &Configuration) -> BTreeSet<(u8, u32)> {
    let mut windows = BTreeSet::new();
    for listener in &configuration.listeners {
        let is_transparent = listener.transparent().is_some();
        for (leg, group) in [
            (&listener.session.client, CLIENT_LEG),
            (&listener.session.server, SERVER_LEG),
        ] {
            let group = if is_transparent { group } else { FORWARD };
            windows.extend(leg.initial_window.map(|window| (group, window)));
        }
    }
    windows
}

/// The marks of interception; `None` without transparent listeners.
pub(super) fn marks(configuration: &Configuration) -> Result<Option<Marks>, Error> {
    let listeners = configuration.transparent().count();
    if listeners == 0 {
        return Ok(None);
    }
    let field = configuration.interception.place.marks;
    let others = windows(configuration).len();
    let marks = Marks::new(field, listeners, others).map_err(InterceptionError::from)?;
    Ok(Some(marks))
}

/// What is to be intercepted; `listening` are the sockets of the transparent listeners.
pub(super) fn plan(
    configuration: &Configuration,
    listening: &[Listening<'_>],
    initial: Option<&InitialWindows>,
) -> Plan {
    let selections = configuration.transparent().map(|(listener, transparent)| {
        let port = |ipv4: bool| {
            listening
                .iter()
                .filter(|other| other.listener.name == listener.name)
                .map(|other| other.address)
                .find(|address| address.is_ipv4() == ipv4)
                .map(|address| address.port())
        };
        Selection {
            interfaces: transparent.interfaces.clone(),
            ipv4_port: port(true),
            ipv6_port: port(false),
            ports: transparent.ports.clone(),
            except_ports: transparent.except_ports.clone(),
            except: transparent.except.clone(),
        }
    });
    let all = windows(configuration);
    let marks_of = |wanted: u8| {
        all.iter()
            .filter(|(group, _)| *group == wanted)
            .filter_map(|(group, window)| initial?.mark_of_group(*group, *window))
            .collect()
    };
    Plan {
        place: configuration.interception.place.clone(),
        selections: selections.collect(),
        client_leg_marks: marks_of(CLIENT_LEG),
        server_leg_marks: marks_of(SERVER_LEG),
    }
}

/// The rules that [`run`](crate::run) would put in force for this configuration, as text for
/// people, with invented ports of the internal listeners; empty without transparent listeners.
///
/// # Errors
/// The mark field is too small, or the program `nft` is missing.
pub fn describe_rules(configuration: &Configuration) -> Result<String, Error> {
    let Some(_) = marks(configuration)? else {
        return Ok(String::new());
    };
    let mut plan = plan(configuration, &[], None);
    let transparent = configuration.transparent();
    for (selection, (_, transparent)) in plan.selections.iter_mut().zip(transparent) {
        selection.ipv4_port = transparent.ipv4.then_some(EXAMPLE_PORT);
        selection.ipv6_port = transparent.ipv6.then_some(EXAMPLE_PORT);
    }
    Ok(interception::describe(&plan)?)
}

const EXAMPLE_PORT: u16 = 40_000;

/// What the gate is told, and the raw sockets it needs; `None` without transparent listeners.
pub(super) fn gate(
    configuration: &Configuration,
    initial: Option<&InitialWindows>,
) -> Result<Option<(GateMessage, [OwnedFd; 2])>, Error> {
    let Some(marks) = marks(configuration)? else {
        return Ok(None);
    };
    let open = |family| {
        RawSocket::open(family).map_err(Error::system(
            "open a raw socket, which transparent listeners need (CAP_NET_RAW)",
        ))
    };
    let sockets = [open(Family::V4)?, open(Family::V6)?];
    let listeners =
        configuration
            .transparent()
            .zip(&marks.listeners)
            .map(|((listener, transparent), mark)| {
                let server = &listener.session.server;
                GateListenerMessage {
                    name: listener.name.clone(),
                    mark: *mark,
                    is_early: transparent.handshake == Handshake::Early,
                    server_mark: leg_mark(initial, SERVER_LEG, server.initial_window)
                        .unwrap_or(marks.server_leg),
                    server_leg: server.clone(),
                    connect_timeout: listener.session.connect_timeout,
                }
            });
    let settings = &configuration.interception;
    let message = GateMessage {
        queue: settings.place.queue,
        mask: marks.mask,
        refused_mark: marks.refused,
        opening_limit: settings.opening_limit,
        opening_limit_per_client: settings.opening_limit_per_client,
        listeners: listeners.collect(),
    };
    Ok(Some((message, sockets)))
}

/// The mark of a leg's initial window.
pub(super) fn leg_mark(
    initial: Option<&InitialWindows>,
    group: u8,
    window: Option<u32>,
) -> Option<u32> {
    initial?.mark_of_group(group, window?)
}
