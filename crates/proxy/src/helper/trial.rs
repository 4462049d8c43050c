//! For `midspan check`: tests what [`run`](super::run) would do, and leaves nothing behind.

use std::collections::BTreeSet;

use midspan_gateway::interception::probe::{Obstacle, Probe};
use midspan_gateway::interception::{Interception, InterceptionError, Selection};
use midspan_linux::own_addresses::OwnAddresses;

use super::interception::{Marking, slot_limit};
use super::listening::{self, ListenError, Open, Threads};
use super::slots::Slots;
use crate::Error;
use crate::configuration::{Configuration, Listener};
use midspan_service::signals::Signals;

/// Checks that no listener forwards to itself.
pub(crate) fn check_addresses(configuration: &Configuration) -> Result<(), Error> {
    let own = OwnAddresses::read().map_err(Error::system("read the machine's addresses"))?;
    configuration
        .check_addresses(|address| own.contains(address))
        .map_err(|error| midspan_document::Error::from(error).into())
}

/// Whether a forward listener could listen; the socket is closed again.
pub(crate) fn try_to_listen(listener: &Listener) -> Result<(), ListenError> {
    listening::try_forward(listener)
}

/// Whether the host's firewall permits intercepted connections. Tested for a fraction of a second
/// with rules that intercept nothing, or with the rules of the Midspan that `is_running`.
pub(crate) fn try_firewall(
    configuration: &Configuration,
    is_running: bool,
) -> Result<Vec<Obstacle>, Error> {
    let slots = Slots::default().assign(configuration, slot_limit(configuration, None));
    let marking = Marking::new(configuration, &slots, None)?;
    let Some(marks) = marking.marks() else {
        return Ok(Vec::new());
    };
    let plan = |open: &[Open]| marking.plan(open, &BTreeSet::new(), &[]);
    if is_running {
        let plan = plan(&[]);
        let listeners = configuration.transparent();
        let selections: Vec<Selection> = plan
            .selections
            .into_iter()
            .zip(listeners)
            .map(|(selection, (_, transparent))| Selection {
                // Only whether there is one matters.
                ipv4_port: transparent.ipv4.then_some(1),
                ipv6_port: transparent.ipv6.then_some(1),
                ..selection
            })
            .collect();
        // The running Midspan may probe at the same time, with a table of its own.
        return Ok(Probe::new(&plan.numbers.trial(), &selections, marks)?.run()?);
    }
    let mut listening = Vec::new();
    for (listener, _) in configuration.transparent() {
        let opened = listening::open(listener, (None, Some(marks.client_leg)), Threads::ONE, &[])
            .map_err(|error| {
            midspan_document::Error::from(configuration.listen_error(listener, error))
        })?;
        listening.extend(opened);
    }
    let open: Vec<Open> = listening.iter().map(|(open, _)| open.clone()).collect();
    let mut plan = plan(&open);
    // Uses other names than `run`, whose leftovers stay unchanged.
    plan.numbers = plan.numbers.trial();
    let mut tries = 0;
    // A signal must not leave rules behind.
    let signals = Signals::catch().map_err(Error::system("catch signals"))?;
    let result = loop {
        tries += 1;
        match Interception::install_to_probe(plan.clone()) {
            Ok(interception) => break Ok(interception.probe()?.run()?),
            Err(InterceptionError::RoutingTableInUse(_)) if tries < TABLES => {
                plan.numbers.routing_table = plan.numbers.routing_table.saturating_add(1);
            }
            Err(error) => break Err(error.into()),
        }
    };
    match signals.take_end() || signals.take_reload() {
        false => result,
        true => Err(Error::Interrupted),
    }
}

/// Most routing tables that are tested.
const TABLES: u32 = 100;
