//! The epoll of one thread, and the tokens by which it recognises the owner of a descriptor.

use std::os::fd::{AsFd, OwnedFd};

use midspan_policy::Leg;
use rustix::event::Timespec;
use rustix::event::epoll::{Event, EventFlags};
use rustix::io::Result;

use super::system;
use super::table::Key;

/// Marks tokens of descriptors that belong to no session.
const OWN: u64 = 1 << 63;
/// Marks tokens of negotiations, all of whose sockets have the same.
const NEGOTIATION: u64 = OWN | 1 << 62;
/// Marks tokens of foreign sources of events.
const SOURCE: u64 = OWN | 1 << 61;

/// Edge-triggered; both legs of a session.
const SESSION_INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::PRI)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
/// The same of a client that is spoken with, and of servers that are called for it.
const NEGOTIATION_INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// The owner of the descriptor of an event. An event may come for a session that has just ended;
/// its key finds nothing then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// A leg of a session.
    Session(Key, Leg),
    /// A socket of a negotiation.
    Negotiation(Key),
    /// The listening socket of the acceptor at this place.
    Acceptor(usize),
    /// The foreign source with this number.
    Source(usize),
}

impl Token {
    const fn number(self) -> u64 {
        match self {
            Self::Session(key, leg) => key.number() << 1 | leg as u64,
            Self::Negotiation(key) => NEGOTIATION | key.number(),
            Self::Acceptor(index) => OWN | index as u64,
            Self::Source(index) => SOURCE | index as u64,
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
            Self::Source(index(SOURCE))
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
    /// Nothing is watched yet.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)`.
    pub fn new() -> Result<Self> {
        Ok(Self {
            epoll: system::epoll()?,
        })
    }

    /// Waits for events, at most so long; adds them to the list, as many as it has room for.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<()> {
        system::wait(&self.epoll, events, timeout)
    }

    /// Watches both legs of the session that gets this key.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_session(&self, client: &OwnedFd, server: &OwnedFd, key: Key) -> Result<()> {
        let add = |socket, leg| {
            let token = Token::Session(key, leg).number();
            system::watch_leg(&self.epoll, socket, token, SESSION_INTEREST)
        };
        add(client, Leg::Client)?;
        add(server, Leg::Server)
    }

    /// Watches both sockets of a negotiation from now on as the legs of the session that gets this key.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn change_to_session(&self, client: &OwnedFd, server: &OwnedFd, key: Key) -> Result<()> {
        let change = |socket, leg| {
            let token = Token::Session(key, leg).number();
            system::watch_anew(&self.epoll, socket, token, SESSION_INTEREST)
        };
        change(client, Leg::Client)?;
        change(server, Leg::Server)
    }

    /// Watches a socket of a negotiation.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_negotiation(&self, socket: &OwnedFd, key: Key) -> Result<()> {
        let token = Token::Negotiation(key).number();
        system::watch(&self.epoll, socket, token, NEGOTIATION_INTEREST)
    }

    /// Watches the client's leg of a session from now on as the socket of a negotiation.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn change_to_negotiation(&self, socket: &OwnedFd, key: Key) -> Result<()> {
        let token = Token::Negotiation(key).number();
        system::watch_anew(&self.epoll, socket, token, NEGOTIATION_INTEREST)
    }

    /// Watches a listening socket, level-triggered.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_listener(&self, socket: &OwnedFd, index: usize) -> Result<()> {
        let token = Token::Acceptor(index).number();
        system::watch(&self.epoll, socket, token, EventFlags::IN)
    }

    /// The acceptor of a listening socket has another place.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn change_listener(&self, socket: &OwnedFd, index: usize) -> Result<()> {
        let token = Token::Acceptor(index).number();
        system::watch_anew(&self.epoll, socket, token, EventFlags::IN)
    }

    /// Watches a foreign source until it is readable, edge-triggered: each change wakes the thread
    /// once.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_source(&self, descriptor: impl AsFd, index: usize) -> Result<()> {
        let token = Token::Source(index).number();
        system::watch(
            &self.epoll,
            descriptor,
            token,
            EventFlags::IN | EventFlags::ET,
        )
    }

    /// Watches a descriptor no more.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn delete(&self, descriptor: &OwnedFd) -> Result<()> {
        system::unwatch(&self.epoll, descriptor)
    }

    /// One more descriptor, of no use but to be closed.
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
            Token::Source(0),
            Token::Source(7),
        ] {
            assert_eq!(Token::from_number(token.number()), token);
        }
    }
}
