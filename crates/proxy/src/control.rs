//! What the privileged helper and the relay process say to each other.
//!
//! JSON over a `SOCK_SEQPACKET` pair, of which the relay process has one end as its standard
//! input. Order: [`ToRelay::Settings`], one [`ToRelay::Listener`] for each listener with its
//! listening sockets, [`ToRelay::Gate`] if one is transparent, [`FromRelay::Ready`]; later
//! [`FromRelay::Alive`] again and again, and perhaps [`ToRelay::Drain`]. The end of either
//! process closes the connection, which ends the other.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use midspan_linux::descriptor_passing::{self, PassingError};
use midspan_policy::{LegSettings, SessionSettings};
use midspan_units::TimeSpan;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::configuration::{LogSettings, RelaySettings};

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
        /// How many listeners follow.
        listeners: usize,
    },
    /// What the gate of transparent listeners needs; after the listeners, if any is transparent.
    /// With it come two raw sockets, for IPv4 and IPv6.
    Gate(Box<GateMessage>),
    /// A listener; with it come its listening sockets, one for each thread.
    Listener(Box<ListenerMessage>),
    /// Accept nothing more, let the sessions end, at most for `drain_timeout`, and exit.
    Drain,
}

/// A listener as the relay process needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenerMessage {
    pub name: String,
    pub listen: SocketAddr,
    /// `None`: where the client wanted to go.
    pub to: Option<SocketAddr>,
    pub client_leg: LegSettings,
    pub server_leg: LegSettings,
    pub connect_timeout: Option<TimeSpan>,
    /// `SO_MARK` of sockets towards the server, for their initial window.
    pub server_mark: Option<u32>,
}

impl ListenerMessage {
    pub fn session(&self) -> SessionSettings {
        SessionSettings {
            client: self.client_leg.clone(),
            server: self.server_leg.clone(),
            connect_timeout: self.connect_timeout,
        }
    }
}

/// What the gate needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateMessage {
    pub queue: u16,
    pub mask: u32,
    pub refused_mark: u32,
    pub opening_limit: u32,
    pub opening_limit_per_client: u32,
    pub listeners: Vec<GateListenerMessage>,
}

/// A transparent listener as the gate needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateListenerMessage {
    pub name: String,
    pub mark: u32,
    pub is_early: bool,
    pub server_mark: u32,
    pub server_leg: LegSettings,
    pub connect_timeout: Option<TimeSpan>,
}

/// From the relay process to the helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum FromRelay {
    /// Connections are being accepted.
    Ready,
    /// The gate's thread is well; said several times a second where there is one.
    Alive,
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
    use midspan_policy::Buffer;
    use midspan_units::ByteSize;

    #[test]
    fn a_listener_arrives_as_it_was_sent() {
        let (here, there) = descriptor_passing::pair().unwrap();
        let listener = ListenerMessage {
            name: "web".to_owned(),
            listen: "[::1]:8080".parse().unwrap(),
            to: Some("192.0.2.1:80".parse().unwrap()),
            client_leg: LegSettings {
                congestion_control: Some("bbr".to_owned()),
                initial_window: Some(200),
                send_buffer: Buffer::Fixed(ByteSize::from_bytes(1 << 20)),
                pacing_rate: Some("8.192 Mbit/s".parse().unwrap()),
                ..LegSettings::default()
            },
            server_leg: LegSettings::default(),
            connect_timeout: Some(TimeSpan::from_seconds(30)),
            server_mark: Some(0x0200_0000),
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
