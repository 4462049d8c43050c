//! The listeners of the relay process, and the gate before those that are transparent: at the start
//! and at every reload.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_policy::opening_bound::OpeningLimits;
use midspan_policy::overlay::Overlay;
use midspan_relay::{
    self as relay, ComingSessions, Listener, ListenerId, OpenListener, Predecessor, Relay,
};
use midspan_units::TimeSpan;
use tracing::{info, warn};

use crate::Error;
use crate::control::GateAndSockets;
use crate::gate::{Gate, GateListener, GateStatistics};

/// How long handing over may take, of the listeners and of all sessions.
pub(crate) const HANDOVER_LIMIT: Duration = Duration::from_secs(10);
/// How long clients may take to complete the handshakes of connections that are being opened: several round trips of a
/// satellite.
const OPENING_LIMIT: Duration = Duration::from_secs(3);
/// How long the predecessor may take to close its queue.
const QUEUE_LIMIT: Duration = Duration::from_secs(5);
const QUEUE_PAUSE: Duration = Duration::from_millis(1);

/// How long the threads may take to hear of other listeners.
const UPDATE_LIMIT: Duration = Duration::from_secs(2);

/// A running relay and what leads to it.
pub(crate) struct RunningListeners {
    pub relay: Relay,
    /// The gate, if a listener is or was transparent.
    pub gate: Option<Gate>,
    /// To open the gate again.
    gate_parts: Option<GateAndSockets>,
    /// By the address of the listening sockets.
    known: BTreeMap<SocketAddr, Known>,
}

struct Known {
    id: ListenerId,
    listener: Listener,
}

impl RunningListeners {
    /// Accepts connections from here on.
    pub fn start(
        settings: &relay::Settings,
        listeners: Vec<OpenListener>,
        gate: Option<GateAndSockets>,
    ) -> Result<Self, Error> {
        let mut known = BTreeMap::new();
        let ids = Relay::first_listeners(listeners.len());
        for (open, id) in listeners.iter().zip(ids) {
            let listener = open.listener.clone();
            known.insert(address(&listener)?, Known { id, listener });
        }
        let overlay = overlay_of(listeners.iter().map(|open| &open.listener));
        let relay = Relay::start(settings, listeners)?;
        relay.overlay().set_members(overlay);
        let all: Vec<Listener> = known.values().map(|of| of.listener.clone()).collect();
        let gate_parts = gate.as_ref().and_then(duplicate);
        let gate = gate.map(|gate| start_gate(gate, &all, &relay));
        Ok(Self {
            gate: gate.transpose()?,
            gate_parts,
            relay,
            known,
        })
    }

    /// Accepts connections instead of the predecessor from here on, and continues its sessions, which follow. Listeners
    /// without sockets get those of the predecessor.
    pub fn take_over(
        settings: &relay::Settings,
        predecessor: &Predecessor,
        listeners: Vec<OpenListener>,
        gate: Option<GateAndSockets>,
    ) -> Result<(Self, ComingSessions), Error> {
        let all: Vec<Listener> = (listeners.iter())
            .map(|open| open.listener.clone())
            .collect();
        let addresses = all.iter().map(address).collect::<Result<Vec<_>, _>>()?;
        let mut relay = Relay::start(settings, Vec::new())?;
        relay.overlay().set_members(overlay_of(all.iter()));
        let taken = relay.take_over(predecessor, listeners, OPENING_LIMIT + HANDOVER_LIMIT)?;
        // From here on, this relay has the listeners, so an error is logged and does not end it.
        let mut known = BTreeMap::new();
        for ((listener, address), id) in all.iter().zip(addresses).zip(taken.listeners) {
            let listener = listener.clone();
            match id {
                Ok(id) => {
                    known.insert(address, Known { id, listener });
                }
                Err(error) => tracing::error!("listener \"{}\" is closed: {error}", listener.name),
            }
        }
        let listeners = Self {
            relay,
            gate: None,
            gate_parts: gate,
            known,
        };
        Ok((listeners, taken.sessions))
    }

    /// Continues the sessions of the predecessor, and then opens the gate. Before that, a thread of the predecessor may
    /// still accept a connection whose SYN this gate has sent again, and the predecessor would not have its server leg. An
    /// error is logged, and does not end this relay.
    pub fn take_sessions(&mut self, sessions: ComingSessions) {
        match self.relay.take_sessions(sessions, HANDOVER_LIMIT) {
            Ok(sessions) => info!(sessions, "taken over from the relay of the former program"),
            Err(error) => warn!("not all sessions were taken over: {error}"),
        }
        self.open_gate();
    }

    /// Lets new connections pass untouched, waits until all connections that are being opened have become sessions,
    /// because only this relay has their server legs, and closes the gate. Waits for some seconds at most.
    pub fn end_openings(&mut self) {
        let Some(gate) = self.gate.take() else {
            return;
        };
        let openings = self.relay.openings();
        // None may be opened from now on.
        openings.change_limits(OpeningLimits::default());
        let until = Instant::now() + OPENING_LIMIT;
        while openings.count() > 0 && Instant::now() < until {
            std::thread::sleep(QUEUE_PAUSE);
        }
        let left = openings.count();
        if left > 0 {
            warn!(
                left,
                "clients that have not completed their handshakes have to connect again"
            );
        }
        log_gate(&gate.statistics());
    }

    /// Opens the gate if it is closed, as after [`end_openings`](Self::end_openings).
    pub fn open_gate(&mut self) {
        let all: Vec<Listener> = self.known.values().map(|of| of.listener.clone()).collect();
        let is_transparent = all.iter().any(Listener::is_transparent);
        let parts = self.gate_parts.as_ref().filter(|_| is_transparent);
        self.gate = parts.and_then(|parts| take_gate(parts, &all, &self.relay));
    }

    /// Takes over other listeners. Those that are no longer there stay until they are
    /// [retired](Self::retire). After an error, all is as it was.
    pub fn reload(
        &mut self,
        listeners: Vec<OpenListener>,
        gate: Option<GateAndSockets>,
    ) -> Result<(), Error> {
        let all: Vec<Listener> = (listeners.iter())
            .map(|open| open.listener.clone())
            .collect();
        let is_transparent = gate.is_some();
        let overlay = overlay_of(all.iter());
        // First what may fail.
        let had_gate = self.gate.is_some();
        if let Some(gate) = gate.filter(|_| !had_gate) {
            self.gate_parts = duplicate(&gate);
            self.gate = Some(start_gate(gate, &all, &self.relay)?);
        }
        let (new, old): (Vec<_>, Vec<_>) = listeners
            .into_iter()
            .partition(|open| !open.sockets.is_empty());
        self.add(new)?;
        for OpenListener { listener, .. } in old {
            let Some(known) = self.known.get_mut(&address(&listener)?) else {
                return Err(Error::OutOfTurn);
            };
            if known.listener != listener {
                self.relay.change_listener(known.id, listener.clone());
                known.listener = listener;
            }
        }
        self.relay.overlay().set_members(overlay);
        if !self.relay.wait_for_updates(UPDATE_LIMIT) {
            warn!("a thread of the relay is late to hear of the new listeners");
        }
        let offered = self.relay.offered();
        if let Some(gate) = self.gate.as_ref().filter(|_| had_gate && is_transparent)
            && !gate.change_listeners(|| GateListener::all(&all, offered))
        {
            warn!("the gate is late to hear of the new listeners");
        }
        Ok(())
    }

    /// The prefixes of clients that an operator drains, each with the name of its listener.
    pub fn drained_clients(&self) -> Vec<(String, IpNet)> {
        let of_listener = |known: &Known| {
            let listener = &known.listener;
            let prefixes = listener.drained_clients.iter();
            let prefixes = prefixes.filter_map(|of| IpNet::new(of.address, of.length).ok());
            let named = prefixes.map(|prefix| (listener.name.clone(), prefix));
            named.collect::<Vec<_>>()
        };
        // A transparent listener is there several times.
        let all: BTreeSet<(String, IpNet)> = self.known.values().flat_map(of_listener).collect();
        all.into_iter().collect()
    }

    /// Replaces a stuck thread of the relay, and the gate's part on it; returns the number of connections
    /// that were reset.
    ///
    /// # Errors
    /// The relay cannot continue.
    pub fn replace_thread(&mut self, thread: usize) -> Result<usize, Error> {
        let in_hand = self.gate.as_ref().and_then(|gate| gate.end_part(thread));
        let count = self.relay.replace_thread(thread, in_hand)?;
        if let Some(gate) = &mut self.gate {
            let all = self.known.values().map(|known| &known.listener);
            let listeners = GateListener::all(all, self.relay.offered());
            (gate.replace_part(thread, listeners, &self.relay))
                .map_err(Error::system("start a part of the gate"))?;
        }
        Ok(count)
    }

    fn add(&mut self, new: Vec<OpenListener>) -> Result<(), Error> {
        let mut added = Vec::new();
        for open in new {
            let listener = open.listener.clone();
            let result = address(&listener).and_then(|address| {
                let id = self.relay.add_listener(open)?;
                Ok((address, id))
            });
            match result {
                Ok((address, id)) => added.push((address, Known { id, listener })),
                Err(error) => {
                    for (_, Known { id, .. }) in added {
                        self.relay.retire_listener(id, TimeSpan::ZERO);
                    }
                    return Err(error);
                }
            }
        }
        self.known.extend(added);
        Ok(())
    }

    /// Accepts no more at these addresses, once `after` is over.
    pub fn retire(&mut self, addresses: &[SocketAddr], after: TimeSpan) {
        for address in addresses {
            if let Some(known) = self.known.remove(address) {
                // No rule leads to a transparent one any more: it may wait for connections that
                // are being opened.
                let after = match known.listener.is_transparent() {
                    false => TimeSpan::ZERO,
                    true => after,
                };
                self.relay.retire_listener(known.id, after);
            }
        }
        let mut known = self.known.values();
        if !known.any(|known| known.listener.is_transparent())
            && let Some(gate) = &self.gate
            && !gate.change_listeners(Vec::new)
        {
            warn!("the gate is late to hear that no listener is transparent any more");
        }
    }
}

/// Where the sockets of a listener listen, which the helper fills in for all.
fn address(listener: &Listener) -> Result<SocketAddr, Error> {
    listener.listen.ok_or(Error::OutOfTurn)
}

/// The overlay of these listeners; all that have one have the same.
fn overlay_of<'a>(mut listeners: impl Iterator<Item = &'a Listener>) -> Option<Overlay> {
    listeners.find_map(|listener| listener.overlay().cloned())
}

/// The gate of a relay that has taken over. Its queue is free as soon as the predecessor has closed it; until then, SYNs
/// pass untouched.
fn take_gate(
    (settings, sockets): &GateAndSockets,
    all: &[Listener],
    relay: &Relay,
) -> Option<Gate> {
    let until = Instant::now() + QUEUE_LIMIT;
    loop {
        let opened = (sockets.iter().map(OwnedFd::try_clone))
            .collect::<io::Result<Vec<_>>>()
            .and_then(|sockets| {
                let mut sockets = sockets.into_iter();
                let raw = [sockets.next(), sockets.next()];
                let listeners = || GateListener::all(all, relay.offered());
                Gate::start(settings, listeners, relay, raw)
            });
        match opened {
            Ok(gate) => return Some(gate),
            Err(_) if Instant::now() < until => std::thread::sleep(QUEUE_PAUSE),
            Err(error) => {
                tracing::error!("new connections pass untouched: no queue can be opened: {error}");
                return None;
            }
        }
    }
}

/// The same gate once more; `None` if no descriptor is left.
fn duplicate((settings, sockets): &GateAndSockets) -> Option<GateAndSockets> {
    let sockets = sockets.iter().map(OwnedFd::try_clone);
    Some((*settings, sockets.collect::<io::Result<_>>().ok()?))
}

fn start_gate(
    (settings, sockets): GateAndSockets,
    listeners: &[Listener],
    relay: &Relay,
) -> Result<Gate, Error> {
    let mut sockets = sockets.into_iter();
    let four = sockets.next().ok_or(Error::OutOfTurn)?;
    let raw = [Some(four), sockets.next()];
    let listeners = || GateListener::all(listeners, relay.offered());
    Gate::start(&settings, listeners, relay, raw).map_err(|source| {
        tracing::error!(
            "cannot open queue {}: is it in use? (interception.queue)",
            settings.queue
        );
        Error::system("take the queue of transparent listeners")(source)
    })
}

/// Logs the gate's counters in one line.
pub fn log_gate(all: &GateStatistics) {
    let bypasses = all.bypasses().into_iter().filter(|(_, count)| *count > 0);
    let bypasses: Vec<String> = bypasses
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    info!(
        taken = all.taken,
        refused = all.refused,
        unanswered = all.unanswered,
        left_alone = %bypasses.join(", "),
        "no more connections are accepted"
    );
}
