//! Connects to a server that may have several addresses (RFC 8305).

use std::net::SocketAddr;

use midspan_explicit::{Attempts, Failure};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use crate::limits::Spare;
use crate::register::SharedSocket;
use crate::server_pool::{ServerChoice, ServerUse};
use crate::system;

/// Connection attempts; the first that succeeds is kept.
#[derive(Debug)]
pub struct ConnectAttempts {
    attempts: Attempts,
    /// The first attempt uses the descriptor of the session's server leg; each other one has a
    /// spare descriptor.
    open: Vec<(SocketAddr, SharedSocket, Option<Spare>)>,
    last_error: Errno,
    /// The servers that were chosen, if the listener has several, and the last one that has failed.
    choice: Option<ServerChoice>,
    failed: Option<SocketAddr>,
}

/// The present state of the attempts.
#[derive(Debug)]
pub enum ConnectState {
    /// No answer yet.
    Waiting,
    /// The server has answered at this address.
    Connected(SocketAddr, SharedSocket),
    /// All attempts have failed.
    Failed(Errno),
}

impl ConnectAttempts {
    /// Attempts for these addresses; none has begun.
    pub fn new(addresses: Vec<SocketAddr>, now: Time) -> Self {
        Self {
            attempts: Attempts::new(addresses, now),
            open: Vec::new(),
            last_error: Errno::HOSTUNREACH,
            choice: None,
            failed: None,
        }
    }

    /// Attempts for servers that were chosen: the second one if the first fails, or has not answered after
    /// this time.
    pub fn to_servers(choice: ServerChoice, delay: TimeSpan, now: Time) -> Self {
        Self {
            attempts: Attempts::in_order(choice.addresses(), delay, now),
            choice: Some(choice),
            ..Self::new(Vec::new(), now)
        }
    }

    /// Checks the attempts and begins those that are due, each by `call`. If there is no `spare`
    /// descriptor for another one at a time, the attempt waits.
    pub fn advance(
        &mut self,
        now: Time,
        mut spare: impl FnMut() -> Option<Spare>,
        mut call: impl FnMut(SocketAddr) -> rustix::io::Result<SharedSocket>,
    ) -> ConnectState {
        if let Some((address, server)) = self.look(now) {
            return ConnectState::Connected(address, server);
        }
        while self.attempts.next().is_some_and(|next| next <= now) {
            let own = match self.open.is_empty() {
                true => None,
                false => match spare() {
                    Some(spare) => Some(spare),
                    None => {
                        self.attempts.postpone(now);
                        break;
                    }
                },
            };
            let Some(address) = self.attempts.due(now) else {
                break;
            };
            match call(address) {
                Ok(server) => {
                    self.open.push((address, server, own));
                    if let Some(choice) = &mut self.choice {
                        choice.begin(address);
                    }
                }
                Err(error) => self.note_failure(now, address, error),
            }
        }
        match self.open.is_empty() && self.attempts.next().is_none() {
            true => ConnectState::Failed(self.last_error),
            false => ConnectState::Waiting,
        }
    }

    /// The first attempt that has succeeded; failed ones are closed.
    fn look(&mut self, now: Time) -> Option<(SocketAddr, SharedSocket)> {
        let mut place = 0;
        while let Some((address, server, _)) = self.open.get(place) {
            // A socket has a peer as soon as the peer has answered, and has none if the attempt has
            // failed.
            if matches!(system::peer_address(server), Ok(Some(_))) {
                let (address, server, _) = self.open.remove(place);
                return Some((address, server));
            }
            match system::socket_error(server) {
                // The peer has answered, and has then reset the connection, perhaps behind data: a SYN is refused by
                // ECONNREFUSED. The session reads the data, and finds the reset.
                Ok(Err(Errno::CONNRESET | Errno::PIPE)) => {
                    let (address, server, _) = self.open.remove(place);
                    return Some((address, server));
                }
                Ok(Err(error)) | Err(error) => {
                    let address = *address;
                    self.open.remove(place);
                    self.note_failure(now, address, error);
                }
                Ok(Ok(())) => place += 1,
            }
        }
        None
    }

    fn note_failure(&mut self, now: Time, address: SocketAddr, error: Errno) {
        self.last_error = error;
        self.attempts.handle_failure(now);
        if let Some(choice) = &mut self.choice {
            choice.fail(now, address, is_of_server(error));
            self.failed = Some(address);
        }
    }

    /// There are no more attempts: one has succeeded at this address, or (`None`) the time is over. Returns the
    /// chosen server that has answered, if the listener has several.
    pub fn end(&mut self, now: Time, connected: Option<SocketAddr>) -> Option<ServerUse> {
        self.choice.as_mut()?.end(now, connected)
    }

    /// Whether any attempt has begun.
    pub const fn has_begun(&self) -> bool {
        !self.open.is_empty()
    }

    /// When the next attempt is due.
    pub fn next(&self) -> Option<Time> {
        self.attempts.next()
    }

    /// The address of the last attempt; for the log, if none has succeeded.
    pub fn tried(&self) -> Option<SocketAddr> {
        let open = self.open.last().map(|(address, ..)| *address);
        open.or(self.failed)
    }
}

/// Whether a server, or the network, is the reason for this error, and not this machine.
pub fn is_of_server(error: Errno) -> bool {
    let is_own = matches!(failure(error), Failure::Shortage | Failure::NotAllowed);
    !is_own && error != Errno::ADDRNOTAVAIL
}

/// The failure that the client is informed of.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Limits, RelayLimits};
    use midspan_units::TimeSpan;
    use rustix::net::{AddressFamily, SocketType, socket};
    use socket2::SockRef;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::Duration;

    /// An attempt that is never answered.
    fn silent(_: SocketAddr) -> rustix::io::Result<SharedSocket> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        Ok(Arc::new(socket.into()))
    }

    fn under_way(limits: &Arc<Limits>) -> usize {
        let addresses = (1..=16).map(|last| SocketAddr::from(([192, 0, 2, last], 80)));
        let mut attempts = ConnectAttempts::new(addresses.collect(), Time::ZERO);
        let mut now = Time::ZERO;
        for _ in 0..100 {
            let state = attempts.advance(now, || limits.take_descriptor(), silent);
            assert!(matches!(state, ConnectState::Waiting));
            // The spare descriptor is not requested again at once.
            assert!(attempts.next().is_none_or(|next| next > now));
            now += TimeSpan::from_milliseconds(250);
        }
        attempts.open.len()
    }

    /// The reset arrives before the attempt is looked at for the first time.
    #[test]
    fn a_server_that_answers_and_resets_is_connected() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut attempts = ConnectAttempts::new(vec![address], Time::ZERO);
        let state = attempts.advance(
            Time::ZERO,
            || None,
            |address| {
                let client = TcpStream::connect(address).unwrap();
                client.set_nonblocking(true).unwrap();
                let (mut server, _) = listener.accept().unwrap();
                server.write_all(b"data").unwrap();
                SockRef::from(&server)
                    .set_linger(Some(Duration::ZERO))
                    .unwrap();
                drop(server);
                while client.peer_addr().is_ok() {
                    std::thread::yield_now();
                }
                Ok(Arc::new(OwnedFd::from(client).into()))
            },
        );
        assert!(matches!(state, ConnectState::Waiting));
        let silent = |_| Err(Errno::CONNREFUSED);
        let state = attempts.advance(Time::ZERO, || None, silent);
        let ConnectState::Connected(_, server) = state else {
            panic!("{state:?}");
        };
        let mut data = [0; 8];
        assert_eq!(server.receive(&mut data), Ok(4));
    }

    #[test]
    fn fewer_are_tried_at_once_where_descriptors_are_short() {
        let many = Arc::new(Limits::new(&RelayLimits::default(), 0));
        assert_eq!(under_way(&many), 16);
        // The first attempt and seven spare descriptors; each attempt returns its own.
        let few = Arc::new(Limits::with_descriptors(&RelayLimits::default(), 8));
        assert_eq!(under_way(&few), 8);
        assert_eq!(under_way(&few), 8);
        let short = Arc::new(Limits::with_descriptors(&RelayLimits::default(), 1));
        short.note_descriptors();
        assert_eq!(under_way(&short), 1);
    }
}
