//! The listeners of the relay process: from messages of the helper to those of the relay and of
//! the gate, at the start and at every reload.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use midspan_policy::{Configured, Handshake, Knowledge, LegStart, Policy, SessionSettings};
use midspan_relay::narrow::Profiles;
use midspan_relay::profile::AccessProfile;
use midspan_relay::remembered::Remembered;
use midspan_relay::{
    self as relay, Clock, Destination, ListenerId, OpeningLimits, Openings, Relay, ServerLeg,
};
use midspan_units::TimeSpan;
use tracing::warn;

use crate::Error;
use crate::control::{ControlError, GateListenerMessage, GateMessage, ListenerMessage};
use crate::gate::{Decided, Gate, GateListener, GateSettings};
use crate::relay_process::{GateAndSockets, ListenerAndSockets, start_gate};

/// How long the threads may take to hear of other listeners.
const UPDATE_LIMIT: Duration = Duration::from_secs(2);

/// A running relay and what leads to it.
pub(crate) struct Listeners {
    pub relay: Relay,
    /// The gate, if a listener is or was transparent.
    pub gate: Option<Gate>,
    openings: Option<Arc<Openings>>,
    /// By the address of the listening sockets.
    known: BTreeMap<SocketAddr, Known>,
    /// What clients were found to take.
    pub verdicts: Remembered,
}

struct Known {
    id: ListenerId,
    message: ListenerMessage,
}

impl Listeners {
    /// Accepts connections from here on.
    pub fn start(
        settings: &relay::Settings,
        messages: Vec<ListenerAndSockets>,
        gate: Option<GateAndSockets>,
        verdicts: Remembered,
    ) -> Result<Self, Error> {
        let gate = gate.map(|(message, sockets)| gate_settings(message, sockets));
        let gate = gate.transpose()?;
        let openings = gate.as_ref().map(|(gate, _)| Arc::clone(&gate.openings));
        let mut known = BTreeMap::new();
        let mut listeners = Vec::new();
        let ids = Relay::first_listeners(messages.len());
        for ((message, sockets), id) in messages.into_iter().zip(ids) {
            listeners.push(relay_listener(
                &message,
                sockets,
                openings.as_ref(),
                &verdicts,
            )?);
            known.insert(message.listen, Known { id, message });
        }
        let relay = Relay::start(settings, listeners)?;
        let gate = gate.map(|(mut gate, limit)| {
            gate.limits = Some(relay.limits());
            gate.learned = relay.learned();
            start_gate((gate, limit))
        });
        let gate = gate.transpose()?;
        Ok(Self {
            relay,
            gate,
            openings,
            known,
            verdicts,
        })
    }

    /// Takes over other listeners. Those that are no longer there stay until they are
    /// [retired](Self::retire). After an error, all is as it was.
    pub fn reload(
        &mut self,
        messages: Vec<ListenerAndSockets>,
        gate: Option<GateAndSockets>,
    ) -> Result<(), Error> {
        let mut gate_listeners = None;
        // First what may fail.
        if let Some((message, sockets)) = gate {
            if self.gate.is_none() {
                let mut settings = gate_settings(message, sockets)?;
                settings.0.limits = Some(self.relay.limits());
                settings.0.learned = self.relay.learned();
                self.openings = Some(Arc::clone(&settings.0.openings));
                self.gate = Some(start_gate(settings)?);
            } else {
                gate_listeners = Some(decided(message.listeners, message.profiles));
            }
        }
        let (new, old): (Vec<_>, Vec<_>) = messages
            .into_iter()
            .partition(|(_, sockets)| !sockets.is_empty());
        self.add(new)?;
        for (message, sockets) in old {
            let listener =
                relay_listener(&message, sockets, self.openings.as_ref(), &self.verdicts)?;
            let Some(known) = self.known.get_mut(&message.listen) else {
                return Err(ControlError::OutOfTurn.into());
            };
            if known.message == message {
                continue;
            }
            self.relay
                .change_listener(known.id, &listener, message.client_mark);
            known.message = message;
        }
        if !self.relay.wait_for_updates(UPDATE_LIMIT) {
            warn!("a thread of the relay is late to hear of the new listeners");
        }
        if let (Some(gate), Some(listeners)) = (&self.gate, gate_listeners)
            && !gate.change_listeners(listeners)
        {
            warn!("the gate is late to hear of the new listeners");
        }
        Ok(())
    }

    fn add(&mut self, new: Vec<ListenerAndSockets>) -> Result<(), Error> {
        let mut added = Vec::new();
        for (message, sockets) in new {
            let result = relay_listener(&message, sockets, self.openings.as_ref(), &self.verdicts)
                .and_then(|listener| Ok(self.relay.add_listener(listener)?));
            match result {
                Ok(id) => added.push((message.listen, Known { id, message })),
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
                let after = match known.message.is_transparent() {
                    false => TimeSpan::ZERO,
                    true => after,
                };
                self.relay.retire_listener(known.id, after);
            }
        }
        if !self
            .known
            .values()
            .any(|known| known.message.is_transparent())
            && let Some(gate) = &self.gate
            && !gate.change_listeners(Vec::new())
        {
            warn!("the gate is late to hear that no listener is transparent any more");
        }
    }
}

fn relay_listener(
    message: &ListenerMessage,
    sockets: Vec<OwnedFd>,
    openings: Option<&Arc<Openings>>,
    verdicts: &Remembered,
) -> Result<relay::Listener, Error> {
    let to = match (&message.negotiation, message.to, openings) {
        (Some(negotiation), _, _) => negotiation.clone().into(),
        (None, Some(to), _) => Destination::Fixed(to),
        (None, None, Some(openings)) => Destination::Original(Arc::clone(openings)),
        (None, None, None) => return Err(ControlError::OutOfTurn.into()),
    };
    Ok(relay::Listener {
        name: message.name.clone(),
        sockets,
        to,
        server_mark: message.server_mark,
        settings: message.session(),
        limits: message.limits,
        profiles: Profiles {
            profiles: message.profiles.clone().into(),
            marks: Arc::new(message.segment_marks.clone()),
            verdicts: verdicts.clone(),
        },
    })
}

fn decided(listeners: Vec<GateListenerMessage>, profiles: Vec<AccessProfile>) -> Vec<Decided> {
    let profiles: Arc<[AccessProfile]> = profiles.into();
    let listeners = listeners.into_iter();
    listeners
        .map(|listener| gate_listener(listener, &profiles))
        .collect()
}

fn gate_listener(message: GateListenerMessage, profiles: &Arc<[AccessProfile]>) -> Decided {
    let policy = admission(&message);
    let listener = GateListener {
        name: message.name,
        mark: message.mark,
        server: ServerLeg {
            mark: message.server_mark,
            start: LegStart::from(&message.server_leg),
        },
        windows: message.windows,
        profiles: Arc::clone(profiles),
        control_group: message.control_group,
    };
    (listener, policy)
}

/// Who decides at the SYN which connections of a transparent listener are taken, and how.
fn admission(listener: &GateListenerMessage) -> Box<dyn Policy + Send> {
    let settings = SessionSettings {
        server: listener.server_leg.clone(),
        connect_timeout: listener.connect_timeout,
        ..SessionSettings::default()
    };
    let handshake = match listener.is_early {
        true => Handshake::Early,
        false => Handshake::EndToEnd,
    };
    Box::new(Configured::new(settings).with_handshake(handshake))
}

/// The gate, and how many connections may be opened at a time.
fn gate_settings(
    message: GateMessage,
    sockets: Vec<OwnedFd>,
) -> Result<(GateSettings, u32), Error> {
    let mut sockets = sockets.into_iter();
    let four = sockets.next().ok_or(ControlError::OutOfTurn)?;
    let raw = [Some(four), sockets.next()];
    let limits = OpeningLimits {
        all: message.opening_limit as usize,
        per_client: message.opening_limit_per_client as usize,
    };
    let settings = GateSettings {
        queue: message.queue,
        mask: message.mask,
        refused_mark: message.refused_mark,
        watched_mark: message.watched_mark,
        server_zone: message.server_zone,
        asymmetric_route_time: message.asymmetric_route_time,
        listeners: decided(message.listeners, message.profiles),
        openings: Arc::new(Openings::new(limits)),
        limits: None,
        raw,
        learned: (Knowledge::default(), Clock::start()),
    };
    Ok((settings, message.opening_limit))
}
