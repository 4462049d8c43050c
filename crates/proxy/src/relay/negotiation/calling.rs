//! Calling a server that may have several addresses (RFC 8305).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_explicit::{Attempts, Failure};
use midspan_units::Time;
use rustix::io::Errno;
use rustix::net::sockopt;

/// Attempts under way; the first that succeeds is kept.
#[derive(Debug)]
pub struct Calling {
    attempts: Attempts,
    open: Vec<(SocketAddr, OwnedFd)>,
    last_error: Errno,
}

/// What has become of it so far.
#[derive(Debug)]
pub enum Called {
    /// No answer yet.
    Waiting,
    /// This one has answered.
    Connected(SocketAddr, OwnedFd),
    /// None has.
    Failed(Errno),
}

impl Calling {
    /// Of these addresses; nothing is called yet.
    pub fn new(addresses: Vec<SocketAddr>, now: Time) -> Self {
        Self {
            attempts: Attempts::new(addresses, now),
            open: Vec::new(),
            last_error: Errno::HOSTUNREACH,
        }
    }

    /// Looks at the attempts and begins those that are due, each by `call`.
    pub fn advance(
        &mut self,
        now: Time,
        mut call: impl FnMut(SocketAddr) -> rustix::io::Result<OwnedFd>,
    ) -> Called {
        if let Some((address, server)) = self.look(now) {
            return Called::Connected(address, server);
        }
        while let Some(address) = self.attempts.due(now) {
            match call(address) {
                Ok(server) => self.open.push((address, server)),
                Err(error) => {
                    self.last_error = error;
                    self.attempts.handle_failure(now);
                }
            }
        }
        match self.open.is_empty() && self.attempts.next().is_none() {
            true => Called::Failed(self.last_error),
            false => Called::Waiting,
        }
    }

    /// The first that has answered; those that have failed are closed.
    fn look(&mut self, now: Time) -> Option<(SocketAddr, OwnedFd)> {
        let mut place = 0;
        while let Some((_, server)) = self.open.get(place) {
            match sockopt::socket_error(server) {
                Ok(Err(error)) | Err(error) => {
                    self.last_error = error;
                    self.attempts.handle_failure(now);
                    self.open.remove(place);
                }
                // A socket has a peer once that has answered.
                Ok(Ok(())) if matches!(rustix::net::getpeername(server), Ok(Some(_))) => {
                    return Some(self.open.remove(place));
                }
                Ok(Ok(())) => place += 1,
            }
        }
        None
    }

    /// When the next attempt is due.
    pub fn next(&self) -> Option<Time> {
        self.attempts.next()
    }

    /// An address that was called last; for the log, where none has answered.
    pub fn tried(&self) -> Option<SocketAddr> {
        self.open.last().map(|(address, _)| *address)
    }
}

/// What the client is told.
pub const fn failure(error: Errno) -> Failure {
    match error {
        Errno::CONNREFUSED | Errno::CONNRESET => Failure::Refused,
        Errno::TIMEDOUT => Failure::TimedOut,
        Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT => Failure::NetworkUnreachable,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Failure::Shortage,
        Errno::ACCESS | Errno::PERM => Failure::NotAllowed,
        _ => Failure::HostUnreachable,
    }
}
