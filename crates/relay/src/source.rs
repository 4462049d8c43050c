//! Sources of events: descriptors of other parts of the process, watched by a thread of the relay.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use midspan_policy::Request;
use midspan_units::Time;

use super::acceptors::Acceptors;
use super::arrival::Arrival;
use super::kick::Kicks;
use super::legs::{self, InputStart, Legs};
use super::limits::{Limits, Shortage};
use super::opening::ListenerId;
use super::poll::Poll;
use super::sessions::Sessions;
use super::statistics::Counters;

/// A source of events on a thread of the relay: a descriptor, and what to do when it is readable.
///
/// The descriptor is watched edge-triggered: when a source is called, it must read all available
/// data, or set its deadline so that the thread calls it again. It must not block, because the
/// thread also serves sessions.
pub trait EventSource: Send {
    /// The descriptor, which the thread watches until the source is [over](Self::is_over), or the
    /// thread ends.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Whether sources on other threads have the same descriptor. Then an event wakes one of the
    /// threads that sleep, so a source may be called when another one has read everything.
    fn is_shared(&self) -> bool {
        false
    }

    /// The thread begins to watch the descriptor; `sockets` can watch further ones.
    fn begin(&mut self, sockets: SourceSockets) {
        let _ = sockets;
    }

    /// The descriptor has become readable, or the deadline has passed.
    fn handle(&mut self, host: &mut SourceHost<'_>);

    /// A [further socket](SourceSockets) is connected, has become readable, or has failed. The socket may be
    /// closed already.
    fn handle_socket(&mut self, number: u64, host: &mut SourceHost<'_>) {
        let _ = (number, host);
    }

    /// The connection that the source was handling when a call of it panicked.
    fn in_hand(&self) -> Option<Request> {
        None
    }

    /// The thread has panicked, perhaps in a call of this source, and continues. Events that the thread had
    /// read are lost, those of [further sockets](SourceSockets) included; the thread calls
    /// [`handle`](Self::handle) once after this.
    fn recover(&mut self) {}

    /// Whether the thread may drop the source; read after each call.
    fn is_over(&self) -> bool {
        false
    }

    /// When to call the source even if nothing is readable; read before each wait for events.
    fn deadline(&self) -> Option<Time> {
        None
    }
}

/// The sockets that a thread watches for a source of events until they belong to a session, in addition to
/// the source's own descriptor.
#[derive(Debug, Clone)]
pub struct SourceSockets {
    pub(super) poll: Arc<Poll>,
    /// The index of the source.
    pub(super) index: usize,
}

impl SourceSockets {
    /// Watches a socket, edge-triggered: the thread calls [`EventSource::handle_socket`] with this number, at
    /// least 1 and less than 2^48, when the socket is connected, becomes readable, or has failed. A socket
    /// that is closed is no longer watched.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn watch(&self, socket: &OwnedFd, number: u64) -> io::Result<()> {
        Ok(self.poll.add_source_socket(socket, self.index, number)?)
    }

    /// Stops watching a socket, so that another part of the process may use it.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn forget(&self, socket: &OwnedFd) -> io::Result<()> {
        Ok(self.poll.delete(socket)?)
    }
}

/// A thread of the relay, with the functions that a source of events may use.
pub struct SourceHost<'a> {
    pub(super) acceptors: &'a mut Acceptors,
    pub(super) sessions: &'a mut Sessions,
    pub(super) kicks: &'a Kicks,
    pub(super) limits: &'a Arc<Limits>,
    pub(super) counters: &'a Counters,
    pub(super) now: Time,
}

/// Why a session does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotBegun {
    /// The listener is unknown, or accepts nothing.
    NoListener,
    /// There is no room for it.
    Shortage(Shortage),
    /// An operator's command resets this connection.
    Kicked,
}

impl SourceHost<'_> {
    /// The beginning of this turn of the thread, on the relay's clock.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Begins a session of a listener with these non-blocking sockets as legs: the client's, and
    /// the server's, which may not have answered yet.
    ///
    /// # Errors
    /// Why there is no session; both sockets have been reset.
    pub fn begin(
        &mut self,
        listener: ListenerId,
        mut arrival: Arrival,
        client: OwnedFd,
        server: OwnedFd,
    ) -> Result<(), NotBegun> {
        // An option that the kernel refuses counts whether or not a session begins.
        let errors = [&client, &server].map(|leg| legs::set_common_options(leg).is_err());
        let option_errors = errors.map(u64::from).iter().sum();
        self.counters.option_errors.add(option_errors);
        let index = self.acceptors.find(listener);
        let index = index.ok_or(NotBegun::NoListener)?;
        if self.kicks.includes(&arrival) {
            return Err(NotBegun::Kicked);
        }
        if arrival.seat.is_none()
            && let Some(acceptor) = self.acceptors.get(index)
        {
            let address: SocketAddr = arrival.request.client;
            let seat = self.limits.take_of(&acceptor.places, Some(address.ip()));
            arrival.seat = Some(seat.map_err(NotBegun::Shortage)?);
        }
        let legs = Legs {
            client,
            server: server.into(),
            client_pacing: InputStart::default(),
            server_pacing: InputStart::default(),
            narrow: None,
            option_errors,
        };
        (self.sessions).begin(index, arrival, legs, self.acceptors, self.now);
        Ok(())
    }
}
