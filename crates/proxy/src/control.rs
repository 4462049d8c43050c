//! The messages between the privileged helper and the relay process.
//!
//! They are JSON over a `SOCK_SEQPACKET` pair. The relay process has one end as its standard input. The end
//! of either process closes the connection, which ends the other process.
//!
//! | phase | messages, in this order |
//! | --- | --- |
//! | start | [`ToRelay::Settings`]; one [`ToRelay::Listener`] for each listener, with its listening sockets |
//! | | [`ToRelay::Gate`] if a listener is transparent; [`ToRelay::Machine`]; [`FromRelay::Ready`] |
//! | reload | [`ToRelay::Reload`]; one [`ToRelay::Listener`] for each listener |
//! | | [`ToRelay::Gate`] if a listener is transparent; [`FromRelay::Reloaded`] or [`FromRelay::NotReloaded`] |
//! | upgrade | [`ToRelay::Save`]; [`ToRelay::Greet`]; [`FromRelay::HandedOver`] or [`FromRelay::NotHandedOver`] |
//! | commands | [`ToRelay::Kick`], [`FromRelay::Kicked`]; [`ToRelay::Forget`], [`FromRelay::Forgotten`] |
//! | end | [`ToRelay::Drain`] |
//!
//! In a reload, a listener comes without sockets if the relay already has its sockets, and the gate comes
//! with raw sockets only if there was no gate before. After an upgrade, listeners come without sockets too: the
//! relay of the former program passes its own on. When rules no longer lead to removed listeners,
//! [`ToRelay::Retire`] closes them.
//!
//! At any time after the start, the helper may send [`ToRelay::Machine`], [`ToRelay::Limits`], [`ToRelay::Paths`] and
//! [`ToRelay::State`]. The relay sends [`FromRelay::Alive`] several times per second, [`FromRelay::Verdicts`]
//! and [`FromRelay::Paths`] if there is a state directory, [`FromRelay::LeaveAlone`], and [`FromRelay::Stuck`] before it ends because of a
//! stuck thread.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_policy::leave_alone::Route;
use midspan_relay::access::Network;
use midspan_relay::kick::{Kicked, Target};
use midspan_relay::{Listener, RelayLimits};
use midspan_service::logging::LogSettings;
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

use crate::configuration::RelaySettings;
use crate::gate::GateSettings;
use crate::health::HelperState;
use crate::late::{LateThread, ThreadName};
use crate::learned::ForgottenCounts;

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
        /// Number of listeners that follow.
        listeners: usize,
        /// Settings of the admin listener, if there is one; its socket comes with this message.
        admin: Option<AdminMessage>,
        /// Whether a socket comes with this message, behind the admin socket, over which the relay
        /// gets connections of the control socket's clients.
        has_pages: bool,
        /// Whether another relay hands its sessions over to this one: the connection to it comes with this
        /// message, behind the other sockets. Then the listeners come without those listening sockets that the
        /// other relay has.
        has_predecessor: bool,
        /// The mark of the fragmenter's packets, if there is a fragmenter. Its device and its raw
        /// sockets for IPv4 and IPv6 are the last descriptors of this message.
        fragmenter: Option<u32>,
        /// Whether verdicts about clients are kept.
        verdicts: KeptVerdicts,
    },
    /// Settings of the gate; after the listeners, if any is transparent. Two raw sockets, for IPv4
    /// and IPv6, come with this message.
    Gate(GateSettings),
    /// A listener; its listening sockets, one for each thread or fewer, come with this message.
    Listener(Box<Listener>),
    /// Changes the listeners.
    Reload {
        /// The new `relay.drain_timeout`.
        drain_timeout: TimeSpan,
        /// The new `relay.upgrade_timeout`.
        upgrade_timeout: TimeSpan,
        /// The new `interception.watchdog_timeout`.
        watchdog_timeout: TimeSpan,
        /// The new `[limits]`.
        limits: RelayLimits,
        /// Number of listeners that follow.
        listeners: usize,
    },
    /// Send verdicts and known paths now, because another relay is about to read them.
    Save,
    /// Greet the relay at the other end of the connection that comes with this message, and hand all sessions over to
    /// it when it is ready. [`FromRelay::HandedOver`] or [`FromRelay::NotHandedOver`] answers.
    Greet,
    /// Changes the limits, because the machine permits more or less memory than before.
    Limits(RelayLimits),
    /// Closes the listening sockets at these addresses after a time.
    Retire {
        /// Addresses of removed listeners.
        addresses: Vec<SocketAddr>,
        /// How long connections that are being opened may still arrive.
        after: TimeSpan,
    },
    /// Reset these sessions; [`FromRelay::Kicked`] answers.
    Kick {
        /// The answer has the same number.
        number: u64,
        /// The sessions.
        target: Target,
    },
    /// Forget what was learned; [`FromRelay::Forgotten`] answers.
    Forget {
        /// The answer has the same number.
        number: u64,
        /// Only about clients and servers with this prefix; `None` for all.
        prefix: Option<Network>,
    },
    /// The addresses of this machine, in the file in memory that comes with this message; sent
    /// after the listeners and the gate, and whenever the addresses change.
    Machine,
    /// What is known of the paths to peers, in the file that comes with this message: from an earlier run, or from
    /// another gateway.
    Paths,
    /// The helper's state, for the admin listener.
    State(HelperState),
    /// Accept nothing more, let the sessions end, at most for `drain_timeout`, and exit.
    Drain,
}

/// Whether verdicts about clients are kept across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeptVerdicts {
    /// They are not kept.
    Nowhere,
    /// They are kept from now on.
    New,
    /// There is a file, open for reading, which comes with this message, behind these sockets.
    InFile,
}

/// Settings of the admin listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminMessage {
    /// Host names that requests may contain.
    pub names: Vec<String>,
}

/// From the relay process to the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum FromRelay {
    /// Connections are being accepted.
    Ready,
    /// All threads exist; sent several times per second.
    Alive {
        /// Whether the gate has made turns since the last of these messages, or there is none.
        gate_moves: bool,
        /// Late threads.
        late: Vec<LateThread>,
    },
    /// This thread is stuck; the relay ends.
    Stuck(ThreadName),
    /// Several threads were stuck, this one last, and were replaced: a new process is to take over.
    Renew(ThreadName),
    /// New connections reach the new listeners.
    Reloaded,
    /// The new listeners cannot be used; the old ones stay in force.
    NotReloaded,
    /// Another relay has the sessions, and accepts the connections. This one drains the rest, and ends.
    HandedOver {
        /// How many sessions the other relay has.
        sessions: u64,
    },
    /// The sessions stay here.
    NotHandedOver {
        /// Why.
        reason: String,
    },
    /// Verdicts about clients, in the file in memory that comes with this message.
    Verdicts,
    /// What is known of the paths to peers, in the file in memory that comes with this message.
    Paths,
    /// The sessions that were reset for the [`ToRelay::Kick`] with this number.
    Kicked {
        /// The number of the command.
        number: u64,
        /// Numbers of reset connections.
        kicked: Kicked,
    },
    /// What was forgotten for the [`ToRelay::Forget`] with this number. Verdicts about clients that are
    /// left come before this message.
    Forgotten {
        /// The number of the command.
        number: u64,
        /// Numbers of forgotten entries.
        forgotten: ForgottenCounts,
    },
    /// Splitting does not help on these routes: leave them alone for a while.
    LeaveAlone(Vec<Route>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_linux::descriptor_passing;
    use midspan_policy::{Buffer, LegSettings, PolicyName, SessionSettings};
    use midspan_relay::ListenerMarks;
    use midspan_relay::access::AccessRules;
    use midspan_relay::{HeaderVersion, Language, Negotiation, Users};
    use midspan_service::message::{receive, send};
    use midspan_units::ByteSize;
    use std::os::fd::AsFd;

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
            overlay: None,
            as_clients: None,
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
                server_windows: vec![(40, 0x0300_0000)],
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
}
