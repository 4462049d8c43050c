//! The relay process, from the inside.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use midspan_linux::capability::{self, Capability};
use midspan_policy::{Handshake, LegStart};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketType;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::{info, warn};

use crate::configuration::RelaySettings;
use crate::control::{self, ControlError, FromRelay, GateMessage, ListenerMessage, ToRelay};
use crate::gate::{Gate, GateListener, GateSettings, Limits, Openings, ServerLeg};
use crate::relay::{self, Destination, Relay};
use crate::{Error, logging};

/// How often the relay is looked after while nothing happens.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// How often it says that its gate is well.
const ALIVE_INTERVAL: Duration = Duration::from_millis(150);

/// The same while it drains.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// For how long there must be no session before draining is over: connections that had arrived
/// when it began may become sessions meanwhile.
const QUIET_TIME: Duration = Duration::from_millis(200);

/// The relay process, to be called by the program that [`run`](crate::run) starts. Its standard
/// input is the connection to the helper.
///
/// # Errors
/// What keeps the relay from running. It returns without an error when it was told to end.
pub fn relay_main() -> Result<(), Error> {
    ignore_signals().map_err(Error::system("set up signals"))?;
    // Also before anything is read.
    capability::give_up_all_but(&[Capability::CAP_NET_ADMIN])?;
    let helper = connection_to_helper()?;
    let Some(Received {
        settings,
        listeners,
        gate,
    }) = receive_configuration(&helper)?
    else {
        return Ok(());
    };
    let threads = settings.threads as u64;
    let relay = Relay::start(&relay_settings(&settings), listeners)?;
    let mut life = gate.map(start_gate).transpose()?.map(Life::new);
    control::send(&helper, &FromRelay::Ready, &[])?;
    let interval = life.as_ref().map_or(WATCH_INTERVAL, |_| ALIVE_INTERVAL);
    loop {
        if is_readable(&helper, interval)? {
            return match control::receive(&helper)? {
                Some((ToRelay::Drain, _)) => drain(relay, &helper, &settings, life),
                Some(_) => Err(ControlError::OutOfTurn.into()),
                // The helper is gone, and nobody takes care of the routes any more.
                None => Ok(()),
            };
        }
        if relay.statistics().threads_running < threads {
            return Err(Error::ThreadEnded);
        }
        if let Some(life) = &mut life {
            life.say(&helper)?;
        }
    }
}

/// Tells the helper that the gate's thread is well.
struct Life {
    gate: Gate,
    turns: u64,
}

impl Life {
    const fn new(gate: Gate) -> Self {
        Self { gate, turns: 0 }
    }

    fn say(&mut self, helper: &OwnedFd) -> Result<(), Error> {
        if !self.gate.is_running() {
            return Err(Error::ThreadEnded);
        }
        let turns = self.gate.statistics().turns;
        if turns != self.turns {
            self.turns = turns;
            control::send(helper, &FromRelay::Alive, &[])?;
        }
        Ok(())
    }
}

fn start_gate((settings, limit): (GateSettings, u32)) -> Result<Gate, Error> {
    let queue = settings.queue;
    Gate::start(settings, limit).map_err(|source| {
        tracing::error!("queue {queue} cannot be had: is it in use? (interception.queue)");
        Error::system("take the queue of transparent listeners")(source)
    })
}

fn connection_to_helper() -> Result<OwnedFd, Error> {
    let input = std::io::stdin();
    if rustix::net::sockopt::socket_type(&input) != Ok(SocketType::SEQPACKET) {
        return Err(ControlError::OutOfTurn.into());
    }
    input
        .as_fd()
        .try_clone_to_owned()
        .map_err(Error::system("take over the connection to the helper"))
}

/// Signals that reach every process of a terminal or service are the helper's to act on.
fn ignore_signals() -> std::io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// What the relay is to do.
struct Received {
    settings: RelaySettings,
    listeners: Vec<relay::Listener>,
    /// The gate, and how many connections may be opened at a time.
    gate: Option<(GateSettings, u32)>,
}

/// `None` where the helper has gone meanwhile.
fn receive_configuration(helper: &OwnedFd) -> Result<Option<Received>, Error> {
    let (settings, log, count) = match control::receive(helper)? {
        Some((
            ToRelay::Settings {
                relay,
                log,
                listeners,
            },
            _,
        )) => (relay, log, listeners),
        Some(_) => return Err(ControlError::OutOfTurn.into()),
        None => return Ok(None),
    };
    logging::start(log);
    let mut listeners = Vec::new();
    for _ in 0..count {
        match control::receive(helper)? {
            Some((ToRelay::Listener(listener), sockets)) => listeners.push((*listener, sockets)),
            Some(_) => return Err(ControlError::OutOfTurn.into()),
            None => return Ok(None),
        }
    }
    let gate = if listeners.iter().any(|(listener, _)| listener.to.is_none()) {
        match control::receive(helper)? {
            Some((ToRelay::Gate(gate), sockets)) => Some(gate_settings(*gate, sockets)?),
            Some(_) => return Err(ControlError::OutOfTurn.into()),
            None => return Ok(None),
        }
    } else {
        None
    };
    let openings = gate.as_ref().map(|(gate, _)| Arc::clone(&gate.openings));
    let listeners = listeners
        .into_iter()
        .map(|(listener, sockets)| relay_listener(listener, sockets, openings.as_ref()))
        .collect::<Result<_, _>>()?;
    Ok(Some(Received {
        settings,
        listeners,
        gate,
    }))
}

fn relay_listener(
    listener: ListenerMessage,
    sockets: Vec<OwnedFd>,
    openings: Option<&Arc<Openings<OwnedFd>>>,
) -> Result<relay::Listener, Error> {
    let to = match (listener.to, openings) {
        (Some(to), _) => Destination::Fixed(to),
        (None, Some(openings)) => Destination::Original(Arc::clone(openings)),
        (None, None) => return Err(ControlError::OutOfTurn.into()),
    };
    Ok(relay::Listener {
        sockets,
        to,
        server_mark: listener.server_mark,
        settings: listener.session(),
        name: listener.name,
    })
}

fn gate_settings(
    message: GateMessage,
    sockets: Vec<OwnedFd>,
) -> Result<(GateSettings, u32), Error> {
    let raw: [OwnedFd; 2] = sockets.try_into().map_err(|_| ControlError::OutOfTurn)?;
    let limits = Limits {
        all: message.opening_limit as usize,
        per_client: message.opening_limit_per_client as usize,
    };
    let listeners = message.listeners.into_iter().map(|listener| GateListener {
        name: listener.name,
        mark: listener.mark,
        handshake: match listener.is_early {
            true => Handshake::Early,
            false => Handshake::EndToEnd,
        },
        server: ServerLeg {
            mark: listener.server_mark,
            start: LegStart::from(&listener.server_leg),
        },
        connect_timeout: listener.connect_timeout,
    });
    let settings = GateSettings {
        queue: message.queue,
        mask: message.mask,
        refused_mark: message.refused_mark,
        listeners: listeners.collect(),
        openings: Arc::new(Openings::new(limits)),
        raw,
    };
    Ok((settings, message.opening_limit))
}

fn relay_settings(settings: &RelaySettings) -> relay::Settings {
    relay::Settings {
        threads: settings.threads,
        pipe_size: settings.pipe_size,
        pipe_memory: settings.pipe_memory,
        reset_timeout: settings.reset_timeout,
    }
}

/// Lets the sessions end, until the time is up or the helper is gone.
fn drain(
    relay: Relay,
    helper: &OwnedFd,
    settings: &RelaySettings,
    life: Option<Life>,
) -> Result<(), Error> {
    // The helper has seen to it that no connection is taken any more.
    if let Some(Life { gate, .. }) = life {
        info!("connections taken and left alone: {:?}", gate.statistics());
    }
    relay.drain();
    let start = Instant::now();
    let limit = Duration::from(settings.drain_timeout);
    let mut last_active = start;
    loop {
        // Nothing but its end is expected from the helper.
        if is_readable(helper, DRAIN_INTERVAL)? {
            return Ok(());
        }
        let active = relay.statistics().sessions_active;
        if active > 0 {
            last_active = Instant::now();
        }
        if last_active.elapsed() >= QUIET_TIME {
            break;
        }
        if start.elapsed() >= limit {
            if active > 0 {
                warn!(
                    sessions = active,
                    "drain_timeout is over: resetting the rest"
                );
            }
            break;
        }
    }
    let total = relay.statistics();
    relay.stop();
    info!(
        sessions = total.sessions_opened,
        bytes_to_client = total.bytes_to_client,
        bytes_to_server = total.bytes_to_server,
        "relay ends"
    );
    Ok(())
}

fn is_readable(helper: &OwnedFd, timeout: Duration) -> Result<bool, Error> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut descriptors = [PollFd::new(helper, PollFlags::IN)];
    match poll(&mut descriptors, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(Error::system("wait for the helper")(error.into())),
    }
}
