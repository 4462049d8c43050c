//! What the helper sends to the relay process at the start and in a reload.

use std::os::fd::OwnedFd;

use midspan_relay::OpenListener;
use midspan_relay::machine::{self, Machine};
use midspan_service::{logging, message};
use midspan_units::TimeSpan;

use crate::Error;
use crate::admin::Admin;
use crate::configuration::RelaySettings;
use crate::control::{GateAndSockets, KeptVerdicts, ToRelay};
use crate::keeper::Saved;

/// Listeners, with sockets if they are new, and the gate if a listener is transparent.
pub type ListenersAndGate = (Vec<OpenListener>, Option<GateAndSockets>);

/// The settings that the helper has sent.
pub struct Received {
    pub settings: RelaySettings,
    pub watchdog_timeout: TimeSpan,
    pub admin: Admin,
    /// The connection to the relay that hands its sessions over.
    pub predecessor: Option<OwnedFd>,
    pub verdicts: Saved,
    /// For the fragmenter: the mark of its packets, its device and raw sockets.
    pub cutting: Option<(u32, Vec<OwnedFd>)>,
    pub listeners: Vec<OpenListener>,
    pub gate: Option<GateAndSockets>,
}

/// Receives the settings; `None` if the helper has ended meanwhile.
pub fn receive_configuration(helper: &OwnedFd) -> Result<Option<Received>, Error> {
    let (settings, (log, watchdog_timeout), count, (admin, predecessor), (verdicts, cutting)) =
        match message::receive(helper)? {
            Some((
                ToRelay::Settings {
                    relay,
                    log,
                    watchdog_timeout,
                    listeners,
                    admin,
                    has_pages,
                    has_predecessor,
                    fragmenter,
                    verdicts,
                },
                descriptors,
            )) => {
                let mut descriptors = descriptors.into_iter();
                let admin = admin.and_then(|settings| Some((settings, descriptors.next()?)));
                let passed = has_pages.then(|| descriptors.next()).flatten();
                let admin = Admin::new(admin, passed);
                let predecessor = has_predecessor.then(|| descriptors.next()).flatten();
                let verdicts = Saved {
                    place: verdicts,
                    file: match verdicts {
                        KeptVerdicts::InFile => descriptors.next(),
                        KeptVerdicts::Nowhere | KeptVerdicts::New => None,
                    },
                };
                let cutting = fragmenter.map(|mark| (mark, descriptors.collect()));
                (
                    relay,
                    (log, watchdog_timeout),
                    listeners,
                    (admin, predecessor),
                    (verdicts, cutting),
                )
            }
            Some(_) => return Err(Error::OutOfTurn),
            None => return Ok(None),
        };
    logging::start(log).map_err(Error::system("start the thread of the log"))?;
    let received = receive_listeners(helper, count)?;
    match message::receive(helper)? {
        Some((ToRelay::Machine, list)) => learn_machine(list)?,
        Some(_) => return Err(Error::OutOfTurn),
        None => return Ok(None),
    }
    Ok(received.map(|(listeners, gate)| Received {
        settings,
        watchdog_timeout,
        admin,
        predecessor,
        verdicts,
        cutting,
        listeners,
        gate,
    }))
}

/// Receives listeners, and the gate if one of them is transparent.
pub fn receive_listeners(
    helper: &OwnedFd,
    count: usize,
) -> Result<Option<ListenersAndGate>, Error> {
    let mut listeners = Vec::new();
    for _ in 0..count {
        match message::receive(helper)? {
            Some((ToRelay::Listener(listener), sockets)) => listeners.push(OpenListener {
                listener: *listener,
                sockets,
            }),
            Some(_) => return Err(Error::OutOfTurn),
            None => return Ok(None),
        }
    }
    let gate = if listeners.iter().any(|open| open.listener.is_transparent()) {
        match message::receive(helper)? {
            Some((ToRelay::Gate(gate), sockets)) => Some((gate, sockets)),
            Some(_) => return Err(Error::OutOfTurn),
            None => return Ok(None),
        }
    } else {
        None
    };
    Ok(Some((listeners, gate)))
}

/// Sets this machine's addresses.
pub fn learn_machine(list: Vec<OwnedFd>) -> Result<(), Error> {
    let list = list.into_iter().next().ok_or(Error::OutOfTurn)?;
    let machine = Machine::from_memory(list)
        .map_err(Error::system("read which addresses are this machine's"))?;
    machine::learn(machine);
    Ok(())
}
