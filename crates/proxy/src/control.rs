//! What the privileged helper and the relay process say to each other.
//!
//! JSON over a `SOCK_SEQPACKET` pair, of which the relay process has one end as its standard
//! input. Order: [`ToRelay::Settings`] with the admin socket, one [`ToRelay::Listener`] for each listener with its
//! listening sockets, [`ToRelay::Gate`] if one is transparent, [`ToRelay::Machine`], [`FromRelay::Ready`]; later
//! [`FromRelay::Alive`] again and again, [`FromRelay::Verdicts`] where they are kept, and perhaps
//! [`ToRelay::Drain`], or [`ToRelay::Machine`] again. The end of either
//! process closes the connection, which ends the other.
//!
//! A reload: [`ToRelay::Reload`], one [`ToRelay::Listener`] for each listener (those whose
//! sockets the relay has already come without), [`ToRelay::Gate`] if one is transparent (with
//! raw sockets only if there was none before); then [`FromRelay::Reloaded`] or
//! [`FromRelay::NotReloaded`]. When rules no longer lead to listeners that have gone,
//! [`ToRelay::Retire`] closes them.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use midspan_linux::descriptor_passing::{self, PassingError};
use midspan_policy::leave_alone::Route;
use midspan_relay::kick::{Kicked, Target};
use midspan_relay::{Listener, RelayLimits};
use midspan_units::TimeSpan;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::configuration::{LogSettings, RelaySettings};
use crate::gate::GateSettings;
use crate::health::HelperState;
use crate::liveness::{LateThread, ThreadName};

/// Most routes of one message.
pub(crate) const ROUTES_AT_ONCE: usize = 64;

/// The gate's settings, and its raw sockets if it is new.
pub(crate) type GateAndSockets = (GateSettings, Vec<OwnedFd>);

/// From the helper to the relay process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum ToRelay {
    /// What holds for all sessions.
    Settings {
        /// The file's `[relay]`.
        relay: RelaySettings,
        /// The file's `[log]`.
        log: LogSettings,
        /// How long a thread may make no turn.
        watchdog_timeout: TimeSpan,
        /// How many listeners follow.
        listeners: usize,
        /// How to answer on the admin listener, whose socket comes with this, if there is one.
        admin: Option<AdminMessage>,
        /// The mark of what a fragmenter sends, if there is to be one; last of all come its device
        /// and its raw sockets for IPv4 and IPv6.
        fragmenter: Option<u32>,
        /// Whether what clients were found to take is kept.
        verdicts: KeptVerdicts,
    },
    /// What the gate of transparent listeners needs; after the listeners, if any is transparent.
    /// With it come two raw sockets, for IPv4 and IPv6.
    Gate(GateSettings),
    /// A listener; with it come its listening sockets, one for each thread.
    Listener(Box<Listener>),
    /// Other listeners from now on.
    Reload {
        /// The new `relay.drain_timeout`.
        drain_timeout: TimeSpan,
        /// The new `interception.watchdog_timeout`.
        watchdog_timeout: TimeSpan,
        /// The new `[limits]`.
        limits: RelayLimits,
        /// How many listeners follow.
        listeners: usize,
    },
    /// Other limits from now on, since the machine allows more or less than before.
    Limits(RelayLimits),
    /// Accept no more at these addresses once this time is over.
    Retire {
        /// Where listeners listen that are no longer wanted.
        addresses: Vec<SocketAddr>,
        /// How long connections that are being opened may still arrive.
        after: TimeSpan,
    },
    /// Reset these sessions; [`FromRelay::Kicked`] answers.
    Kick {
        /// Comes back with the answer.
        number: u64,
        /// Which ones.
        target: Target,
    },
    /// The addresses of this machine, in the file in memory that comes with this; after the
    /// listeners and the gate, and whenever they change.
    Machine,
    /// How the helper is, for whoever asks the admin listener.
    State(HelperState),
    /// Accept nothing more, let the sessions end, at most for `drain_timeout`, and exit.
    Drain,
}

/// Whether what clients were found to take is kept across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeptVerdicts {
    /// Not at all.
    Nowhere,
    /// From now on.
    New,
    /// The file comes with this, behind the admin socket, open to be read.
    InFile,
}

/// What holds for the admin listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminMessage {
    /// Names that requests may call this machine by.
    pub names: Vec<String>,
}

/// From the relay process to the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum FromRelay {
    /// Connections are being accepted.
    Ready,
    /// All threads are there; said several times a second.
    Alive {
        /// The gate has made turns since the last of these, or there is none.
        gate_moves: bool,
        /// Threads that make none.
        late: Vec<LateThread>,
    },
    /// This thread is stuck; the relay ends.
    Stuck(ThreadName),
    /// New connections find the new listeners.
    Reloaded,
    /// The new listeners cannot be had, and the old ones go on.
    NotReloaded,
    /// What clients were found to take is in the file in memory that comes with this.
    Verdicts,
    /// So many sessions were reset, as [`ToRelay::Kick`] with this number asked for.
    Kicked {
        /// Of the question.
        number: u64,
        /// How many.
        kicked: Kicked,
    },
    /// Splitting does not help on these routes: leave them alone for a while.
    LeaveAlone(Vec<Route>),
}

/// The two processes do not understand each other.
#[derive(Debug, Error)]
pub enum ControlError {
    /// A message could not be passed.
    #[error(transparent)]
    Passing(#[from] PassingError),
    /// A message could not be written or read.
    #[error("a message between the helper and the relay cannot be read: {0}")]
    Format(#[from] serde_json::Error),
    /// There is no helper, or it says something else than it should.
    #[error("no helper speaks to this relay: this command is run by `midspan run` only")]
    OutOfTurn,
}

pub(crate) fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ControlError> {
    let bytes = serde_json::to_vec(message)?;
    Ok(descriptor_passing::send(socket, &bytes, descriptors)?)
}

/// Sends a message if there is room for it; whether there was.
pub(crate) fn try_send(socket: impl AsFd, message: &impl Serialize) -> Result<bool, ControlError> {
    let bytes = serde_json::to_vec(message)?;
    match descriptor_passing::try_send(socket, &bytes) {
        Ok(()) => Ok(true),
        Err(PassingError::Io(error)) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// `None` where the other process is gone.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
) -> Result<Option<(T, Vec<OwnedFd>)>, ControlError> {
    let Some(message) = descriptor_passing::receive(socket)? else {
        return Ok(None);
    };
    let content = serde_json::from_slice(&message.bytes)?;
    Ok(Some((content, message.descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_policy::{Buffer, LegSettings, PolicyName, SessionSettings};
    use midspan_relay::ListenerMarks;
    use midspan_relay::access::AccessRules;
    use midspan_relay::{HeaderVersion, Language, Negotiation, Users};
    use midspan_units::ByteSize;

    #[test]
    fn a_listener_arrives_as_it_was_sent() {
        let (here, there) = descriptor_passing::pair().unwrap();
        let negotiation = Negotiation {
            language: Language::Socks5,
            users: Some(Users([("alice".to_owned(), "secret".to_owned())].into())),
            access: AccessRules::default(),
            timeout: TimeSpan::from_seconds(10),
            proxies: None,
            header: Some(HeaderVersion::V2),
        };
        let listener = Listener {
            listen: Some("[::1]:8080".parse().unwrap()),
            session: SessionSettings {
                policy: PolicyName::Auto,
                client: LegSettings {
                    congestion_control: Some("bbr".to_owned()),
                    initial_window: Some(200),
                    send_buffer: Buffer::Fixed(ByteSize::from_bytes(1 << 20)),
                    pacing_rate: Some("8.192 Mbit/s".parse().unwrap()),
                    ..LegSettings::default()
                },
                server: LegSettings::default(),
                connect_timeout: Some(TimeSpan::from_seconds(30)),
            },
            marks: ListenerMarks {
                server: Some(0x0200_0000),
                ..ListenerMarks::default()
            },
            learned_windows: vec![20, 40],
            ..Listener::new("web", negotiation.into())
        };
        let message = ToRelay::Listener(Box::new(listener));
        send(&here, &message, &[here.as_fd(), there.as_fd()]).unwrap();
        let (received, descriptors) = receive::<ToRelay>(&there).unwrap().unwrap();
        assert_eq!(received, message);
        assert_eq!(descriptors.len(), 2);
    }

    #[test]
    fn what_is_not_a_message_is_an_error() {
        let (here, there) = descriptor_passing::pair().unwrap();
        descriptor_passing::send(&here, b"{\"Drain\":1", &[]).unwrap();
        assert!(matches!(
            receive::<ToRelay>(&there),
            Err(ControlError::Format(_))
        ));
        drop(here);
        assert!(receive::<ToRelay>(&there).unwrap().is_none());
    }
}
