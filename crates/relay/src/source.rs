//! Foreign sources of events: descriptors that are not the relay's, watched by one of its threads.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use midspan_units::Time;

use super::acceptors::Acceptors;
use super::arrival::Arrival;
use super::kick::Kicks;
use super::legs::{self, InputStart, Legs};
use super::limits::{Limits, Shortage};
use super::opening::ListenerId;
use super::sessions::Sessions;

/// A source of events on a thread of the relay: a descriptor, and what to do when it is readable.
///
/// The descriptor is watched edge-triggered: a source that is called must take everything that is
/// there, or set its deadline so that the thread calls it again. It must not block, because the
/// thread has sessions to serve.
pub trait EventSource: Send {
    /// What the thread watches, from the registration on until the thread ends.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The descriptor has become readable, or the deadline has come.
    fn handle(&mut self, host: &mut SourceHost<'_>);

    /// When to call the source although nothing is readable; read before each wait for events.
    fn deadline(&self) -> Option<Time> {
        None
    }
}

/// A thread of the relay, as a source of events may use it.
pub struct SourceHost<'a> {
    pub(super) acceptors: &'a mut Acceptors,
    pub(super) sessions: &'a mut Sessions,
    pub(super) kicks: &'a Kicks,
    pub(super) limits: &'a Arc<Limits>,
    pub(super) now: Time,
}

/// Why no session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotBegun {
    /// The listener accepts nothing, or is not known.
    NoListener,
    /// There is no room for it.
    Shortage(Shortage),
    /// An operator has had it reset.
    Kicked,
}

impl SourceHost<'_> {
    /// When this turn of the thread began, on the relay's clock.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Begins a session of a listener for a connection whose legs are these non-blocking sockets:
    /// that of the client, and that of the server, which may not have answered yet.
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
        let errors = [&client, &server].map(|leg| legs::set_common_options(leg).is_err());
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
            server,
            client_pacing: InputStart::default(),
            server_pacing: InputStart::default(),
            narrow: None,
            option_errors: errors.map(u64::from).iter().sum(),
        };
        (self.sessions).begin(index, arrival, legs, self.acceptors, self.now);
        Ok(())
    }
}
