//! Puts initial windows and interception in force, or takes them over from the former program.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use midspan_gateway::initial_window::{InitialWindows, MarkField, Places};
use midspan_gateway::interception::{
    FormerListeners, FormerSessions, Interception, Rung, Selection,
};
use tracing::warn;

use super::firewall::Firewall;
use super::inheritance::Inheritance;
use super::interception::{self, Marking};
use super::listening::Open;
use super::slots::Slots;
use crate::Error;
use crate::configuration::Configuration;
use crate::gate::hop_limit;

/// Installs the initial windows, at the places that they have already; `None` if no leg has one.
pub(super) fn install_initial_windows(
    configuration: &Configuration,
    places: Option<Places>,
    device: Option<u32>,
) -> Result<Option<InitialWindows>, Error> {
    // Before anything is installed, checks that there are enough marks.
    let limit = interception::slot_limit(configuration, None);
    let slots = Slots::default().assign(configuration, limit);
    Marking::new(configuration, &slots, None)?;
    let windows = interception::windows(configuration);
    if windows.is_empty() && places.is_none() {
        return Ok(None);
    }
    let (numbers, places) = (configuration.marks, places.unwrap_or_default());
    let windows = InitialWindows::install_at(numbers, places, &windows, device)?;
    Ok(Some(windows))
}

/// Logs which time-outs of connection tracking cannot be set.
pub(super) fn log_timeouts(interception: &Interception) {
    if !interception.has_timeouts() {
        warn!(
            "neither the kernel nor nft has time-outs of connection tracking: the two entries of \
             each session stay for as long after its end as the host's (two minutes), and few \
             hundred new connections a second fill a table of usual size"
        );
    }
}

/// Sets the rules; `None` if no socket has a client's address. No connection is intercepted yet, and none
/// later if the host's firewall would stop it.
pub(super) fn install_interception(
    configuration: &Configuration,
    marking: &Marking<'_>,
    open: &[Open],
    bypasses: &[IpNet],
) -> Result<Option<(Interception, Firewall)>, Error> {
    if !configuration.has_clients_addresses() {
        return Ok(None);
    }
    let plan = marking.plan(open, &BTreeSet::new(), bypasses);
    let interception = Interception::install(plan)?;
    log_timeouts(&interception);
    let firewall = Firewall::open(interception.probe()?);
    Ok(Some((interception, firewall)))
}

/// The transparent listeners of the former relay.
fn former_listeners(state: &Inheritance, marks: MarkField) -> FormerListeners {
    let mut listeners: BTreeMap<&str, Selection> = BTreeMap::new();
    for open in state.open.iter().filter(|open| open.is_transparent) {
        let selection = listeners.entry(&open.name).or_default();
        selection.slot = state.slots.of(&open.name);
        let port = open.address.port();
        let [ipv4_port, ipv6_port] =
            [true, false].map(|ipv4| (open.address.is_ipv4() == ipv4).then_some(port));
        match open.window {
            None => {
                selection.ipv4_port = selection.ipv4_port.or(ipv4_port);
                selection.ipv6_port = selection.ipv6_port.or(ipv6_port);
            }
            Some(window) => selection.rungs.push(Rung {
                hop_limit: hop_limit(window),
                ipv4_port,
                ipv6_port,
            }),
        }
    }
    FormerListeners {
        marks,
        selections: listeners.into_values().collect(),
    }
}

/// Replaces the rules of the former program. `None` if no socket has, or had, a client's address.
pub(super) fn adopt_interception(
    configuration: &Configuration,
    marking: &Marking<'_>,
    open: &[Open],
    state: &Inheritance,
    former: &Configuration,
) -> Result<Option<(Interception, Firewall)>, Error> {
    let Some(rules) = &state.rules else {
        return install_interception(configuration, marking, open, &state.bypasses);
    };
    let mut plan = marking.plan(open, &state.interfaces, &state.bypasses);
    let former = former.interception.numbers.clone();
    let legs = [&rules.client_leg_marks, &rules.server_leg_marks];
    let last = FormerSessions::new(&former, legs[0], legs[1]);
    for sessions in rules.former_sessions.iter().cloned().chain(last) {
        plan.continue_sessions(sessions);
    }
    let mut transparent = state.open.iter().filter(|open| open.is_transparent);
    let has_other_sockets = transparent.any(|was| {
        let is_same = |now: &Open| now.is_transparent && now.address == was.address;
        !open.iter().any(is_same)
    });
    if former.marks != plan.numbers.marks || has_other_sockets {
        plan.former_listeners = Some(former_listeners(state, former.marks));
    }
    let interception = Interception::adopt(plan, rules.adopted, former)?;
    log_timeouts(&interception);
    let firewall = Firewall::open(interception.probe()?);
    Ok(Some((interception, firewall)))
}
