//! The epoll of one thread, and the tokens by which it recognises the owner of a descriptor.

use std::os::fd::{AsFd, OwnedFd};

use midspan_policy::Leg;
use rustix::event::Timespec;
use rustix::event::epoll::{Event, EventFlags};
use rustix::io::Result;

use super::system::{self, Watched};
use super::table::Key;

/// Marks tokens of descriptors that belong to no session.
const OWN: u64 = 1 << 63;
/// Marks tokens of negotiations, all of whose sockets have the same.
const NEGOTIATION: u64 = OWN | 1 << 62;
/// Marks tokens of sources of events. Their other bits are the source's index, and the number of one
/// of its descriptors.
const SOURCE: u64 = OWN | 1 << 61;
/// Bits of the number of a source's descriptor.
const NUMBER_BITS: u32 = 48;
/// The largest number of a source's descriptor.
const LARGEST_NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// Edge-triggered; both legs of a session.
const SESSION_INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::PRI)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
/// Edge-triggered; a negotiation's client, and the servers to which it connects.
const NEGOTIATION_INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
/// Level-triggered. Of the threads that watch the same socket and sleep, a connection wakes one.
const LISTENER_INTEREST: EventFlags = EventFlags::IN.union(EventFlags::EXCLUSIVE);
/// Edge-triggered.
const SOURCE_INTEREST: EventFlags = EventFlags::IN.union(EventFlags::ET);
/// Edge-triggered. Of the threads that watch the same descriptor and sleep, an event wakes one.
const SHARED_SOURCE_INTEREST: EventFlags = SOURCE_INTEREST.union(EventFlags::EXCLUSIVE);
/// Edge-triggered; a further descriptor of a source: a socket that is being connected, or whose first bytes
/// are awaited.
const SOURCE_SOCKET_INTEREST: EventFlags = NEGOTIATION_INTEREST;

/// The owner of an event's descriptor. An event may arrive for a session that has just ended; then
/// the table has no value for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// A leg of a session.
    Session(Key, Leg),
    /// A socket of a negotiation.
    Negotiation(Key),
    /// The listening socket of the acceptor at this index.
    Acceptor(usize),
    /// A descriptor of the source of events at this index: its own, with the number 0, or a further
    /// one.
    Source(usize, u64),
}

impl Token {
    const fn number(self) -> u64 {
        match self {
            Self::Session(key, leg) => key.number() << 1 | leg as u64,
            Self::Negotiation(key) => NEGOTIATION | key.number(),
            Self::Acceptor(index) => OWN | index as u64,
            Self::Source(index, number) => {
                SOURCE | ((index as u64) << NUMBER_BITS) | (number & LARGEST_NUMBER)
            }
        }
    }

    fn from_number(number: u64) -> Self {
        let index = |flag: u64| usize::try_from(number & !flag).unwrap_or(usize::MAX);
        if number & OWN == 0 {
            let leg = match number & 1 {
                0 => Leg::Client,
                _ => Leg::Server,
            };
            Self::Session(Key::from_number(number >> 1), leg)
        } else if number & NEGOTIATION == NEGOTIATION {
            Self::Negotiation(Key::from_number(number & !NEGOTIATION))
        } else if number & SOURCE == SOURCE {
            Self::Source(index(SOURCE) >> NUMBER_BITS, number & LARGEST_NUMBER)
        } else {
            Self::Acceptor(index(OWN))
        }
    }
}

impl From<&Event> for Token {
    fn from(event: &Event) -> Self {
        Self::from_number(event.data.u64())
    }
}

/// The epoll of one thread.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
}

impl Poll {
    /// An epoll that watches nothing.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)`.
    pub fn new() -> Result<Self> {
        Ok(Self {
            epoll: system::epoll()?,
        })
    }

    /// Waits for events, at most until the time-out; adds as many to the list as it has room for.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<()> {
        system::wait(&self.epoll, events, timeout)
    }

    /// Whether events have arrived that no thread has fetched yet.
    pub fn has_events(&self) -> bool {
        system::is_readable(&self.epoll)
    }

    /// Watches both legs of the session with this key.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_session(&self, client: &OwnedFd, server: &OwnedFd, key: Key) -> Result<()> {
        self.watch_legs([client, server], key, Watched::NewLeg)
    }

    /// From now on, watches both sockets of a negotiation as the legs of the session with this key.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn change_to_session(&self, client: &OwnedFd, server: &OwnedFd, key: Key) -> Result<()> {
        self.watch_legs([client, server], key, Watched::Already)
    }

    fn watch_legs(
        &self,
        [client, server]: [&OwnedFd; 2],
        key: Key,
        watched: Watched,
    ) -> Result<()> {
        for (socket, leg) in [(client, Leg::Client), (server, Leg::Server)] {
            self.watch(socket, Token::Session(key, leg), SESSION_INTEREST, watched)?;
        }
        Ok(())
    }

    /// Watches a socket of a negotiation.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_negotiation(&self, socket: &OwnedFd, key: Key) -> Result<()> {
        let token = Token::Negotiation(key);
        self.watch(socket, token, NEGOTIATION_INTEREST, Watched::New)
    }

    /// From now on, watches the client leg of a session as the socket of a negotiation.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn change_to_negotiation(&self, socket: &OwnedFd, key: Key) -> Result<()> {
        let token = Token::Negotiation(key);
        self.watch(socket, token, NEGOTIATION_INTEREST, Watched::Already)
    }

    /// Watches a listening socket, level-triggered.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_listener(&self, socket: &OwnedFd, index: usize) -> Result<()> {
        let token = Token::Acceptor(index);
        self.watch(socket, token, LISTENER_INTEREST, Watched::New)
    }

    /// Changes the index of a listening socket's acceptor.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn change_listener(&self, socket: &OwnedFd, index: usize) -> Result<()> {
        // epoll changes no exclusive watch.
        self.delete(socket)?;
        self.add_listener(socket, index)
    }

    /// Watches the own descriptor of a source of events until it is readable, edge-triggered: each
    /// change wakes the thread once; if threads share the descriptor, it wakes one thread.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_source(&self, descriptor: impl AsFd, index: usize, is_shared: bool) -> Result<()> {
        let interest = match is_shared {
            true => SHARED_SOURCE_INTEREST,
            false => SOURCE_INTEREST,
        };
        self.watch(descriptor, Token::Source(index, 0), interest, Watched::New)
    }

    /// Watches a socket of a source of events, edge-triggered. The number is at least 1, and has 48 bits.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_source_socket(&self, socket: &OwnedFd, index: usize, number: u64) -> Result<()> {
        let token = Token::Source(index, number);
        self.watch(socket, token, SOURCE_SOCKET_INTEREST, Watched::New)
    }

    fn watch(
        &self,
        descriptor: impl AsFd,
        token: Token,
        interest: EventFlags,
        watched: Watched,
    ) -> Result<()> {
        let event = (token.number(), interest);
        system::watch(&self.epoll, descriptor, event, watched)
    }

    /// Stops watching a descriptor.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn delete(&self, descriptor: &OwnedFd) -> Result<()> {
        system::unwatch(&self.epoll, descriptor)
    }

    /// A descriptor for the reserve, which can be closed when another descriptor is needed.
    ///
    /// # Errors
    /// Those of `fcntl(2)`.
    pub fn spare_descriptor(&self) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let key = Key::from_number((1 << 61) + 5);
        for token in [
            Token::Session(key, Leg::Client),
            Token::Session(key, Leg::Server),
            Token::Negotiation(key),
            Token::Acceptor(0),
            Token::Acceptor(70_000),
            Token::Source(0, 0),
            Token::Source(7, 0),
            Token::Source(0, 1),
            Token::Source(8191, LARGEST_NUMBER),
        ] {
            assert_eq!(Token::from_number(token.number()), token);
        }
    }
}
