//! What a relay is started with.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_explicit::Credentials;
use midspan_policy::{Offered, SessionSettings};
use midspan_units::{ByteSize, TimeSpan};
use thiserror::Error;

use super::limits::{ListenerLimits, RelayLimits};
use super::narrow::Profiles;
use super::negotiation::Negotiation;
use super::openings::Openings;

/// What is fixed for the whole relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Threads, each with a loop of its own; at least 1. Best: one per core.
    pub threads: usize,
    /// Size of one pipe, rounded up by the kernel to a power of two of pages. Without
    /// `CAP_SYS_RESOURCE` at most `fs.pipe-max-size` (1 MiB by default). Zero: always copy.
    pub pipe_size: ByteSize,
    /// Bound of all pipes together. Without `CAP_SYS_RESOURCE` the kernel gives at most
    /// `fs.pipe-user-pages-soft` to one user (64 MiB by default). What does not fit is copied.
    pub pipe_memory: ByteSize,
    /// When a leg has failed, the time that the other leg's peer has to take what the failed leg
    /// had delivered, before it is reset as well.
    pub reset_timeout: TimeSpan,
    /// How often some of the sessions that move data are read for the numbers of their listener.
    /// `None`: only at their end.
    pub sampling_interval: Option<TimeSpan>,
    /// How much it takes on.
    pub limits: RelayLimits,
    /// What policies may choose from.
    pub offered: Offered,
}

impl Default for Settings {
    /// One thread per core, 64 pipes of 1 MiB, 30 s, no sampling, no limits, no BBR.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads,
            pipe_size: ByteSize::from_bytes(1 << 20),
            pipe_memory: ByteSize::from_bytes(64 << 20),
            reset_timeout: TimeSpan::from_seconds(30),
            sampling_interval: None,
            limits: RelayLimits::default(),
            offered: Offered::default(),
        }
    }
}

impl Settings {
    /// Size of one pipe as the kernel makes it; 0 for none.
    pub(super) fn real_pipe_size(&self) -> usize {
        let page = rustix::param::page_size() as u64;
        match self.pipe_size.bytes() {
            0 => 0,
            size => size
                .max(page)
                .checked_next_power_of_two()
                .and_then(|size| usize::try_from(size).ok())
                .unwrap_or(0),
        }
    }

    /// Pipes that one thread may have.
    pub(super) fn pipes_per_thread(&self) -> usize {
        let each = self.real_pipe_size() as u64 * self.threads.max(1) as u64;
        let count = self.pipe_memory.bytes().checked_div(each).unwrap_or(0);
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}

/// Where the sessions of a listener go.
#[derive(Debug, Clone)]
pub enum Destination {
    /// To one server.
    Fixed(SocketAddr),
    /// To where the client wanted to go, from the client's own address and port. The listening
    /// sockets are transparent. Server legs that are connected already are found here.
    Original(Arc<Openings>),
    /// To where the client says, or to one server after a word with one of the two.
    Negotiated(Negotiator),
}

/// How clients are spoken with before there is a session.
#[derive(Debug, Clone)]
pub struct Negotiator {
    /// What was configured.
    pub settings: Arc<Negotiation>,
    /// Its users, as they are compared.
    pub credentials: Option<Arc<Credentials>>,
}

impl Destination {
    /// Whether clients call the listener by its address: what it cannot take is lost to them. What
    /// a transparent one cannot take passes untouched.
    #[must_use]
    pub const fn is_called(&self) -> bool {
        !matches!(self, Self::Original(_))
    }
}

impl From<Negotiation> for Destination {
    fn from(settings: Negotiation) -> Self {
        let credentials = settings.users.as_ref();
        let credentials = credentials.map(|users| Arc::new(users.credentials()));
        Self::Negotiated(Negotiator {
            settings: Arc::new(settings),
            credentials,
        })
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self::Fixed(address)
    }
}

/// Where sessions come from, and where they go.
#[derive(Debug)]
pub struct Listener {
    /// Its name in logs and errors.
    pub name: String,
    /// One listening, non-blocking socket per thread, all of the same address (`SO_REUSEPORT`).
    /// A mark set on them (`SO_MARK`) is inherited by the client legs.
    pub sockets: Vec<OwnedFd>,
    /// The server.
    pub to: Destination,
    /// The mark of the server legs (`SO_MARK`, needs `CAP_NET_ADMIN`): it selects the route and
    /// with it the initial window towards the server.
    pub server_mark: Option<u32>,
    /// How legs are set up. `initial_window` is not the relay's: Linux has it on routes only,
    /// which whoever opens the listener selects by the marks.
    pub settings: SessionSettings,
    /// How many sessions it takes, and how long they may be still.
    pub limits: ListenerLimits,
    /// What is known of clients' access links, and the marks of their segments.
    pub profiles: Profiles,
}

/// Why a relay cannot start.
#[derive(Debug, Error)]
pub enum Error {
    /// No thread to run on.
    #[error("threads = 0: the relay needs at least one thread")]
    NoThreads,
    /// A listener does not fit the threads.
    #[error(
        "listener \"{listener}\" has {sockets} sockets and the relay {threads} threads: \
         open one socket per thread (SO_REUSEPORT)"
    )]
    SocketCount {
        /// Name of the listener.
        listener: String,
        /// Its sockets.
        sockets: usize,
        /// Threads of the relay.
        threads: usize,
    },
    /// The kernel refused something.
    #[error("cannot {action}: {source}")]
    Kernel {
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn kernel<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self::Kernel {
            action: action.into(),
            source: source.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_shared_out_to_the_threads() {
        let settings = |size: u64, memory: u64| Settings {
            threads: 2,
            pipe_size: ByteSize::from_bytes(size),
            pipe_memory: ByteSize::from_bytes(memory),
            ..Settings::default()
        };
        assert_eq!(settings(1 << 20, 64 << 20).pipes_per_thread(), 32);
        // 1 MB becomes 1 MiB.
        assert_eq!(settings(1_000_000, 64 << 20).pipes_per_thread(), 32);
        assert_eq!(settings(1 << 20, 1 << 20).pipes_per_thread(), 0);
        assert_eq!(settings(0, 64 << 20).pipes_per_thread(), 0);
        assert_eq!(settings(u64::MAX, u64::MAX).pipes_per_thread(), 0);
    }
}
