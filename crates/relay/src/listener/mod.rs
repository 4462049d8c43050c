//! A listener: its settings.

mod negotiation;
mod service_class;
mod source_addresses;

pub use negotiation::{HeaderVersion, Language, Negotiation, Users};
pub use service_class::ServiceClass;
pub use source_addresses::SourceAddresses;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use midspan_linux::tcp;
use midspan_policy::overlay::Overlay;
use midspan_policy::servers::ServerSettings;
use midspan_policy::{Handshake, LegStart, SessionSettings};
use midspan_units::{Dscp, Probability};
use serde::{Deserialize, Serialize};

use crate::access::Network;
use crate::leg_options::{self, LegError};
use crate::limits::ListenerLimits;
use crate::machine;
use crate::profile::{AccessProfile, SegmentMarks};

/// A place where connections are accepted, and what the relay does with them. Plain data, without
/// sockets.
///
/// The configuration resolves to a listener, the helper sends it to the relay process, and the
/// relay's threads and the gate use it unchanged. A key of a listener is a field here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Name in logs and metrics. A transparent listener has several sets of sockets, each a
    /// listener of the same name here.
    pub name: String,
    /// The address of its sockets; `None` for a transparent listener that has not been opened yet.
    pub listen: Option<SocketAddr>,
    /// The destination of its sessions.
    pub to: Destination,
    /// The servers from which one is chosen for each session, if there are several
    /// ([`Language::Servers`]).
    pub servers: Option<ServerSettings>,
    /// The settings of legs. The relay does not set `initial_window` on sockets, because Linux supports it on
    /// routes only. The packet mark of a socket selects a route with this window. The process that opens the
    /// listener makes these routes and fills in the [marks](Self::marks).
    pub session: SessionSettings,
    /// The limits of its sessions, and their idle times.
    pub limits: ListenerLimits,
    /// Profiles of clients' access links.
    pub profiles: Vec<AccessProfile>,
    /// When the SYN of an intercepted connection is answered.
    pub handshake: Handshake,
    /// The initial windows in segments from which one is selected for each intercepted connection, by
    /// earlier measurements of its path; empty if none is selected.
    pub learned_windows: Vec<u32>,
    /// The share of connections that are not intercepted, as a control group.
    pub control_group: Probability,
    /// The DSCP of packets on both legs of its sessions.
    pub dscp: ServiceClass,
    /// The addresses of this machine from which server legs connect. Not for transparent listeners,
    /// whose server legs have the clients' addresses.
    pub source: SourceAddresses,
    /// Prefixes of clients that an operator drains: their new connections are not served. The process that
    /// opens the listener fills them in.
    pub drained_clients: Vec<Network>,
    /// The overlay by whose routes the sessions of a transparent listener go; `None` if they go to their
    /// servers only. Other listeners have it in their [negotiation](Self::negotiation).
    pub overlay: Option<Box<Overlay>>,
    /// Packet marks, which the process that opens the listener fills in.
    pub marks: ListenerMarks,
}

/// The packet marks of a listener and its legs; none where nothing depends on them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerMarks {
    /// Mark of the listening sockets (`SO_MARK`), which client legs inherit.
    pub client: Option<u32>,
    /// Mark of server legs (`SO_MARK`, needs `CAP_NET_ADMIN`). It selects the route, and with it
    /// the initial window towards the server.
    pub server: Option<u32>,
    /// The initial windows in segments from which one is chosen towards known servers, each with the mark
    /// that selects it instead of `server`; empty if none is chosen.
    pub server_windows: Vec<(u32, u32)>,
    /// Mark of the SYNs for this listener.
    pub syn: Option<u32>,
    /// Marks for the segment sizes of clients with an access profile.
    pub segments: SegmentMarks,
}

impl ListenerMarks {
    /// The mark of a server leg that begins with this initial window, if one was chosen.
    #[must_use]
    pub fn of_server_leg(&self, window: Option<u32>) -> Option<u32> {
        let mut marks = self.server_windows.iter();
        let chosen = window.and_then(|window| marks.find(|(of, _)| *of == window));
        chosen.map(|(_, mark)| *mark).or(self.server)
    }
}

/// The destination of a listener's sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    /// One server.
    Fixed(SocketAddr),
    /// The server to which the client connected; the server leg has the client's address and port.
    /// The listening sockets are transparent.
    Original,
    /// The server that the client names, or one server after a negotiation with client or server.
    Negotiated(Box<Negotiation>),
}

impl Listener {
    /// A listener with this name and defaults.
    #[must_use]
    pub fn new(name: impl Into<String>, to: Destination) -> Self {
        Self {
            name: name.into(),
            listen: None,
            to,
            servers: None,
            session: SessionSettings::default(),
            limits: ListenerLimits::default(),
            profiles: Vec::new(),
            handshake: Handshake::default(),
            learned_windows: Vec::new(),
            control_group: Probability::ZERO,
            dscp: ServiceClass::default(),
            source: SourceAddresses::default(),
            drained_clients: Vec::new(),
            overlay: None,
            marks: ListenerMarks::default(),
        }
    }

    /// Whether rules lead connections to this listener whose destination is another host. A
    /// connection that a transparent listener cannot accept passes untouched; at other listeners,
    /// to whose own address clients connect, it is lost.
    #[must_use]
    pub const fn is_transparent(&self) -> bool {
        matches!(self.to, Destination::Original)
    }

    /// Whether an operator drains this client.
    #[must_use]
    pub fn drains(&self, client: IpAddr) -> bool {
        let mut drained = self.drained_clients.iter();
        drained.any(|network| network.contains(client))
    }

    /// Whether an accepted connection from this address is that of a drained client. The gate decides about
    /// those of a transparent listener, at their SYN. If the first bytes name the client, it is not known yet.
    pub(crate) fn drains_peer(&self, peer: IpAddr) -> bool {
        let is_known = match &self.to {
            Destination::Fixed(_) => true,
            Destination::Original => false,
            Destination::Negotiated(negotiation) => negotiation.client_is_peer(),
        };
        is_known && self.drains(peer)
    }

    /// Whether a connection to this address would arrive at the listener itself, and open another one, without
    /// end.
    #[must_use]
    pub fn listens_at(&self, address: SocketAddr) -> bool {
        self.listen.is_some_and(|own| {
            let is_its = own.ip() == address.ip();
            let is_any = own.ip().is_unspecified() && own.is_ipv4() == address.is_ipv4();
            own.port() == address.port() && (is_its || is_any && machine::is_own(address.ip()))
        })
    }

    /// Sets what accepted connections inherit on a socket that does not listen yet.
    ///
    /// # Errors
    /// The first option that cannot be set.
    pub fn set_up_listening(&self, socket: impl AsFd) -> Result<(), LegError> {
        self.set_listening_class(&socket)?;
        leg_options::apply_before_listen(socket, &LegStart::from(&self.session.client))
    }

    /// Sets the same on a socket that listens already, maybe with the settings of a listener before
    /// a reload.
    ///
    /// # Errors
    /// As [`leg_options::change_listener`].
    pub fn change_listening(&self, socket: impl AsFd) -> Result<(), LegError> {
        let start = LegStart::from(&self.session.client);
        let others = leg_options::change_listener(&socket, &start, self.marks.client);
        self.set_listening_class(&socket)?;
        others
    }

    /// Sets up a leg before its first byte: on the server's leg before it connects. `client` is the
    /// class of the client's SYN.
    ///
    /// # Errors
    /// The first option that cannot be set; those before it stay set.
    pub fn set_up_leg(
        &self,
        socket: impl AsFd,
        start: &LegStart,
        client: Dscp,
    ) -> Result<(), LegError> {
        match self.dscp {
            // New sockets have this class.
            ServiceClass::Client if client == Dscp::default() => {}
            // A client leg has inherited a fixed class, unless the kernel reflects the client's
            // (tcp_reflect_tos).
            class => set_dscp(&socket, class.of(client))?,
        }
        if *start == LegStart::default() {
            return Ok(());
        }
        leg_options::apply(socket, start)
    }

    /// The class of an accepted client's SYN. To be called once for each client.
    #[must_use]
    pub fn class_of_syn(&self, client: impl AsFd) -> Dscp {
        match self.dscp {
            ServiceClass::Client => tcp::saved_dscp(client).ok().flatten().unwrap_or_default(),
            ServiceClass::Fixed(_) => Dscp::default(),
        }
    }

    /// The class of a client's SYN, from its leg, which has been [set up](Self::set_up_leg).
    #[must_use]
    pub fn class_of_leg(&self, client: impl AsFd) -> Dscp {
        match self.dscp {
            ServiceClass::Client => tcp::dscp(client).unwrap_or_default(),
            ServiceClass::Fixed(_) => Dscp::default(),
        }
    }

    /// Sets the class that accepted sockets inherit, and whether the class of SYNs is kept for them.
    /// The socket may have the settings of a listener before a reload.
    fn set_listening_class(&self, socket: impl AsFd) -> Result<(), LegError> {
        let is_clients = self.dscp == ServiceClass::Client;
        tcp::set_save_syn(&socket, is_clients).map_err(refused(self.dscp))?;
        let class = self.dscp.of(Dscp::default());
        if tcp::dscp(&socket).is_ok_and(|present| present == class) {
            return Ok(());
        }
        set_dscp(socket, class)
    }

    /// The overlay of its sessions, or of the hops that it accepts.
    #[must_use]
    pub fn overlay(&self) -> Option<&Overlay> {
        let negotiated = || self.negotiation()?.overlay.as_ref();
        self.overlay.as_deref().or_else(negotiated)
    }

    /// The settings of the negotiation; `None` if there is none and every client is admitted.
    #[must_use]
    pub fn negotiation(&self) -> Option<&Negotiation> {
        match &self.to {
            Destination::Negotiated(negotiation) => Some(negotiation),
            Destination::Fixed(_) | Destination::Original => None,
        }
    }
}

fn set_dscp(socket: impl AsFd, dscp: Dscp) -> Result<(), LegError> {
    tcp::set_dscp(socket, dscp).map_err(refused(ServiceClass::Fixed(dscp)))
}

fn refused(dscp: ServiceClass) -> impl FnOnce(io::Error) -> LegError {
    move |source| LegError::Refused {
        key: "dscp",
        value: dscp.to_string(),
        source,
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self::Fixed(address)
    }
}

impl From<Negotiation> for Destination {
    fn from(negotiation: Negotiation) -> Self {
        Self::Negotiated(Box::new(negotiation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_at_its_address() {
        // The addresses of this test's machine are unknown, so every address may be its own.
        for (own, address, is_at) in [
            ("192.0.2.1:80", "192.0.2.1:80", true),
            ("192.0.2.1:80", "192.0.2.1:81", false),
            ("192.0.2.1:80", "192.0.2.2:80", false),
            ("0.0.0.0:80", "192.0.2.2:80", true),
            ("0.0.0.0:80", "192.0.2.2:81", false),
            ("[::]:80", "192.0.2.2:80", false),
            ("[::]:80", "[2001:db8::1]:80", true),
        ] {
            let mut listener = Listener::new("web", Destination::Original);
            listener.listen = Some(own.parse().unwrap());
            let found = listener.listens_at(address.parse().unwrap());
            assert_eq!(found, is_at, "{own} {address}");
        }
    }
}
