//! The configuration of `midspan run`: a TOML file, read, checked and given its defaults.
//!
//! `docs/configuration.md` explains every key to users.

mod admin;
mod check;
mod control;
#[cfg(test)]
mod documentation;
mod explicit;
mod file;
mod fixed;
mod limits;
pub(crate) mod members;
mod overlay;
mod overlay_keys;
pub(crate) mod passwords;
mod profile;
mod servers;
mod source_addresses;
mod state;
mod transparent;
mod values;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use midspan_document::{Located, Source};
use midspan_gateway::initial_window::WindowNumbers;
use midspan_policy::LegSettings;
use midspan_policy::overlay::Overlay;
use midspan_relay::RelayLimits;
use midspan_relay::profile::AccessProfile;
use midspan_service::logging::LogSettings;
use midspan_units::{ByteSize, Probability, TimeSpan};
use serde::{Deserialize, Serialize};

pub use admin::AdminSettings;
pub use check::{INITIAL_WINDOW_LIMIT, LISTENER_LIMIT, THREAD_LIMIT};
pub use control::ControlSocket;
pub(crate) use members::MOST_NODES;
pub use servers::To;
pub use state::StateDirectory;
pub use transparent::{InterceptionSettings, Quic, Transparent};
pub(crate) use transparent::{ports, prefix};

/// The configuration of `midspan run`.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Settings of all sessions.
    pub relay: RelaySettings,
    /// Settings of the log.
    pub log: LogSettings,
    /// The marks, tables and rules for initial windows.
    pub marks: WindowNumbers,
    /// Settings of all transparent listeners.
    pub interception: InterceptionSettings,
    /// The control socket.
    pub control: ControlSocket,
    /// Where verdicts and bypasses are kept across restarts.
    pub state: StateDirectory,
    /// The admin listener, if there is one.
    pub admin: Option<AdminSettings>,
    /// Profiles of the access links of some clients.
    pub profiles: Vec<AccessProfile>,
    /// The listeners; at least one.
    pub listeners: Vec<Listener>,
    /// The file of members of the overlay, if there is one.
    pub members: Option<PathBuf>,
    source: Source,
}

/// Settings of all sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelaySettings {
    /// Number of relay threads, 1 to [`THREAD_LIMIT`].
    pub threads: usize,
    /// Whether each relay thread runs on one processor only, and accepts the connections whose SYNs this
    /// processor handles.
    pub pin_threads: bool,
    /// Size of a pipe through which data is spliced.
    pub pipe_size: ByteSize,
    /// Most memory in pipes, all threads together.
    pub pipe_memory: ByteSize,
    /// How long sessions may continue after the first SIGTERM.
    pub drain_timeout: TimeSpan,
    /// How long sessions that cannot move to the relay of the next program may continue in the former one.
    pub upgrade_timeout: TimeSpan,
    /// How long the end of the proxy, or of a listener, is announced while new connections are
    /// accepted.
    pub lame_duck_time: TimeSpan,
    /// After one leg has failed: how long the other leg's peer may take to read the data that had
    /// arrived before, until this leg is reset too.
    pub reset_timeout: TimeSpan,
    /// The file's `[limits]`, without the time-outs, which belong to the listeners.
    pub limits: RelayLimits,
    /// Whether the file sets `limits.memory`; otherwise the limit follows the machine.
    pub memory_is_set: bool,
    /// The user of the relay process if root starts it; `None` for `midspan`, or `nobody` if there
    /// is no such user.
    pub user: Option<String>,
}

/// How connections reach a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Connects each client to one fixed address, or to one of several servers.
    Forward(Forward),
    /// Connects each client to the server that it names in the negotiation.
    Explicit(Explicit),
    /// Intercepts connections that this machine forwards, and keeps their addresses.
    Transparent(Transparent),
}

impl Mode {
    /// The address to which clients connect; `None` for a transparent listener.
    #[must_use]
    pub const fn listen(&self) -> Option<SocketAddr> {
        match self {
            Self::Forward(forward) => Some(forward.listen),
            Self::Explicit(explicit) => Some(explicit.listen),
            Self::Transparent(_) => None,
        }
    }
}

/// Clients name the server themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explicit {
    /// Address and port to accept at.
    pub listen: SocketAddr,
    /// Name of the mode: `socks5` or `http`.
    pub mode: &'static str,
}

/// From one address to another, or to one of several servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Address and port to accept at.
    pub listen: SocketAddr,
    /// Where to connect to.
    pub to: To,
}

/// `[[listener]]`: how connections reach it, and what the relay does with them.
#[derive(Debug, Clone)]
pub struct Listener {
    /// What the relay does with its connections. The helper adds marks and, for a transparent
    /// listener, the address.
    pub relay: midspan_relay::Listener,
    /// How connections reach it.
    pub mode: Mode,
    places: Places,
}

impl Listener {
    /// The addresses of a forward listener.
    #[must_use]
    pub const fn forward(&self) -> Option<&Forward> {
        match &self.mode {
            Mode::Forward(forward) => Some(forward),
            Mode::Explicit(_) | Mode::Transparent(_) => None,
        }
    }

    /// Its address; `None` for a transparent listener, whose address the helper chooses.
    #[must_use]
    pub const fn listen(&self) -> Option<SocketAddr> {
        self.mode.listen()
    }

    /// Whether its sessions leave the overlay with the addresses of their clients.
    #[must_use]
    pub fn connects_as_clients(&self) -> bool {
        let negotiation = self.relay.negotiation();
        negotiation.is_some_and(|negotiation| negotiation.as_clients.is_some())
    }

    /// The connections that a transparent listener intercepts.
    #[must_use]
    pub const fn transparent(&self) -> Option<&Transparent> {
        match &self.mode {
            Mode::Transparent(transparent) => Some(transparent),
            Mode::Forward(_) | Mode::Explicit(_) => None,
        }
    }
}

/// Where in the file a listener's keys stand, for errors found after reading it.
#[derive(Debug, Clone)]
struct Places {
    name: Range<usize>,
    listen: Range<usize>,
    to: Range<usize>,
    client_leg: Range<usize>,
    server_leg: Range<usize>,
}

impl Configuration {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or its text is wrong at one place.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, midspan_document::Error> {
        Ok(Self::read(&Source::load(path)?)?)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// The text is wrong at one place.
    pub fn read(source: &Source) -> Result<Self, Located> {
        let configuration = file::read(source)?;
        check::check(&configuration)?;
        Ok(configuration)
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.source.text()
    }

    /// Reads the same text once more. The files that it names, such as the members of an overlay, may be others now.
    ///
    /// # Errors
    /// A text is wrong at one place.
    pub fn read_again(&self) -> Result<Self, Located> {
        Self::read(&self.source)
    }

    /// The overlay; `None` if no listener uses one.
    #[must_use]
    pub fn overlay(&self) -> Option<&Overlay> {
        self.listeners
            .iter()
            .find_map(|listener| listener.relay.overlay())
    }

    /// Checks what depends on the running machine: that no listener forwards to itself through an
    /// address of this machine.
    ///
    /// # Errors
    /// The first listener in such a loop.
    pub fn check_addresses(&self, is_local: impl Fn(SocketAddr) -> bool) -> Result<(), Located> {
        check::check_loops(self, is_local)
    }

    /// The loops of forward listeners, by the present addresses of this machine: the names in each
    /// loop, once for each first listener.
    pub(crate) fn loops(&self, is_local: impl Fn(SocketAddr) -> bool) -> Vec<Vec<String>> {
        check::loops(self, is_local)
    }

    /// An error at a key of a leg of one of [`listeners`](Self::listeners); at the leg where it has
    /// no such key, and at the listener's name where it has no such leg.
    #[must_use]
    pub fn leg_error(
        &self,
        listener: &Listener,
        leg: midspan_policy::Leg,
        key: &str,
        message: impl std::fmt::Display,
    ) -> Located {
        let place = match leg {
            midspan_policy::Leg::Client => &listener.places.client_leg,
            midspan_policy::Leg::Server => &listener.places.server_leg,
        };
        Located::new(
            &self.source,
            self.source.key_span(place.clone(), key),
            message,
        )
    }

    /// An error at the key `listen` of one of [`listeners`](Self::listeners), or at its name.
    #[must_use]
    pub fn listen_error(&self, listener: &Listener, message: impl std::fmt::Display) -> Located {
        Located::new(&self.source, listener.places.listen.clone(), message)
    }

    /// An error at the key `listen` of `[admin]`.
    #[must_use]
    pub fn admin_error(&self, admin: &AdminSettings, message: impl std::fmt::Display) -> Located {
        Located::new(&self.source, admin.place.clone(), message)
    }

    /// The transparent listeners, in their order.
    pub fn transparent(&self) -> impl Iterator<Item = (&Listener, &Transparent)> {
        self.listeners
            .iter()
            .filter_map(|listener| Some((listener, listener.transparent()?)))
    }

    /// Whether sockets have the addresses of clients, so that rules have to lead packets for these addresses to
    /// this machine.
    #[must_use]
    pub fn has_clients_addresses(&self) -> bool {
        let mut listeners = self.listeners.iter();
        listeners.any(|of| of.transparent().is_some() || of.connects_as_clients())
    }

    /// Whether there is a control group of connections that pass untouched.
    #[must_use]
    pub fn has_control_group(&self) -> bool {
        let mut listeners = self.listeners.iter();
        listeners.any(|listener| listener.relay.control_group > Probability::ZERO)
    }

    /// The settings of every leg, with its listener.
    pub fn legs(&self) -> impl Iterator<Item = (&Listener, midspan_policy::Leg, &LegSettings)> {
        self.listeners.iter().flat_map(|listener| {
            let session = &listener.relay.session;
            [
                (listener, midspan_policy::Leg::Client, &session.client),
                (listener, midspan_policy::Leg::Server, &session.server),
            ]
        })
    }
}
