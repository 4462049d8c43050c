//! Sessions that an operator resets: those of one client or server, of a network, or one by number.
//!
//! Each thread gets the command through its channel and resets the sessions between two turns of its loop, a
//! limited number at a time, so that the data of other sessions is not delayed. A command for a host or a
//! network also applies to its connections that are being opened. Such a connection is reset when its session
//! would begin; the thread stores the command for this purpose for at least 15 s, unless more than 64 such
//! commands follow each other.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use midspan_policy::Request;
use midspan_units::{Time, TimeSpan};
use serde::{Deserialize, Serialize};

use super::acceptors::Acceptors;
use super::access::Network;
use super::arrival::Arrival;
use super::observation::Ending;
use super::session::End;
use super::sessions::Sessions;

/// Indices of the table that are checked in one turn.
const PLACES_AT_ONCE: usize = 8192;
/// Sessions that are reset in one turn.
const SESSIONS_AT_ONCE: usize = 256;
/// How long the command also applies to connections that are being opened: longer than one may wait
/// to be accepted.
const REMEMBERED: TimeSpan = TimeSpan::from_seconds(15);
/// Most commands that are stored for this purpose; beyond, the oldest is dropped.
const REMEMBERED_LIMIT: usize = 64;

/// The sessions to reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Target {
    /// The session with this number.
    Session(u64),
    /// The sessions whose client or server has this prefix.
    Prefix(Network),
}

impl Target {
    /// Whether the target includes a session with this number.
    const fn is_session(self, id: u64) -> bool {
        matches!(self, Self::Session(session) if session == id)
    }

    /// Whether the target includes this address.
    pub fn has_address(self, address: IpAddr) -> bool {
        matches!(self, Self::Prefix(network) if network.contains(address))
    }

    /// Whether the target includes either end of a connection.
    pub fn has_end_of(self, request: &Request) -> bool {
        [request.client, request.server]
            .iter()
            .any(|end| self.has_address(end.ip()))
    }
}

/// Numbers of reset connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kicked {
    /// Sessions.
    pub sessions: u64,
    /// Clients without a session: they were negotiating, or Midspan was connecting to their
    /// servers.
    pub negotiations: u64,
    /// Connections whose SYN was held.
    pub held: u64,
}

impl Kicked {
    /// Adds other numbers.
    pub const fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.negotiations += other.negotiations;
        self.held += other.held;
    }
}

/// A command that the threads carry out.
#[derive(Debug)]
pub struct Kick {
    /// Where the answer of each thread arrives, by its number, until it has answered.
    answers: Vec<Option<Receiver<Kicked>>>,
    sum: Kicked,
}

impl Kick {
    /// A command with these answers to come, and `held` connections that the gate has reset.
    pub(super) fn new(answers: Vec<Option<Receiver<Kicked>>>, held: u64) -> Self {
        let sum = Kicked {
            held,
            ..Kicked::default()
        };
        Self { answers, sum }
    }

    /// The thread with this number has been replaced: it does not answer, and its sessions have been reset.
    pub fn forget_thread(&mut self, thread: usize) {
        if let Some(answer) = self.answers.get_mut(thread) {
            *answer = None;
        }
    }

    /// The result, when all threads have answered; `None` if one has not answered yet.
    pub fn result(&mut self, wait: Duration) -> Option<Kicked> {
        let end = Instant::now() + wait;
        for place in &mut self.answers {
            let Some(answer) = place else {
                continue;
            };
            let left = end.saturating_duration_since(Instant::now());
            match answer.recv_timeout(left) {
                Ok(kicked) => self.sum.add(kicked),
                Err(mpsc::RecvTimeoutError::Timeout) => return None,
                // The thread has ended, and its sessions have ended with it.
                Err(mpsc::RecvTimeoutError::Disconnected) => {}
            }
            *place = None;
        }
        Some(self.sum)
    }
}

/// The sessions that a thread has to reset.
#[derive(Debug, Default)]
pub(crate) struct Kicks {
    /// Commands that are being carried out, the oldest first.
    under_way: VecDeque<UnderWay>,
    /// Commands that have been carried out, for connections that were being opened at that time.
    remembered: VecDeque<(Target, Time)>,
}

#[derive(Debug)]
struct UnderWay {
    target: Target,
    place: usize,
    kicked: Kicked,
    reply: Sender<Kicked>,
}

impl Kicks {
    /// Whether the thread has to continue without an event.
    pub fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether a connection that began at this time is included in a later command.
    fn is_meant(&self, request: &Request, began: Time) -> bool {
        let mut remembered = self.remembered.iter();
        remembered.any(|(target, at)| began < *at && target.has_end_of(request))
    }

    /// Begins a command. `negotiations` is the number of clients without a session that were
    /// already reset.
    pub fn begin(&mut self, target: Target, reply: Sender<Kicked>, negotiations: u64, now: Time) {
        self.remembered.retain(|(_, at)| *at + REMEMBERED > now);
        if matches!(target, Target::Prefix(_)) {
            if self.remembered.len() >= REMEMBERED_LIMIT {
                self.remembered.pop_front();
            }
            self.remembered.push_back((target, now));
        }
        self.under_way.push_back(UnderWay {
            target,
            place: 0,
            kicked: Kicked {
                negotiations,
                ..Kicked::default()
            },
            reply,
        });
    }

    /// Whether a connection is to be reset instead of becoming a session.
    pub fn includes(&self, arrival: &Arrival) -> bool {
        self.is_meant(&arrival.request, arrival.since)
    }

    /// Resets a limited number of the included sessions.
    pub fn go_on(&mut self, sessions: &mut Sessions, acceptors: &mut Acceptors, now: Time) {
        let Some(mut kick) = self.under_way.pop_front() else {
            return;
        };
        let end = (kick.place + PLACES_AT_ONCE).min(sessions.table().places());
        let mut reset = 0;
        while kick.place < end && reset < SESSIONS_AT_ONCE {
            let place = kick.place;
            kick.place += 1;
            let table = sessions.table();
            let Some(key) = table.key_at(place) else {
                continue;
            };
            let Some(session) = table.get_mut(key) else {
                continue;
            };
            let identity = session.identity();
            let is_meant = kick.target.is_session(identity.id())
                || kick.target.has_end_of(&identity.request());
            if is_meant {
                session.record.note_failure(Ending::Kicked);
                sessions.end(key, End::Reset, acceptors, now);
                kick.kicked.sessions += 1;
                reset += 1;
            }
        }
        if kick.place < sessions.table().places() {
            self.under_way.push_front(kick);
        } else {
            // The process that sent the command may no longer wait.
            let _ = kick.reply.send(kick.kicked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(address: &str, length: u8) -> Target {
        Target::Prefix(Network {
            address: address.parse().unwrap(),
            length,
        })
    }

    #[test]
    fn addresses_are_compared_by_their_first_bits() {
        let has = |target: Target, address: &str| target.has_address(address.parse().unwrap());
        assert!(has(prefix("10.1.2.0", 24), "10.1.2.255"));
        assert!(!has(prefix("10.1.2.0", 24), "10.1.3.0"));
        assert!(has(prefix("10.1.2.3", 32), "10.1.2.3"));
        assert!(!has(prefix("10.1.2.3", 32), "10.1.2.2"));
        assert!(has(prefix("10.1.2.3", 32), "::ffff:10.1.2.3"));
        assert!(has(prefix("0.0.0.0", 0), "255.1.1.1"));
        assert!(!has(prefix("0.0.0.0", 0), "2001:db8::1"));
        assert!(has(prefix("2001:db8::", 32), "2001:db8:ffff::1"));
        assert!(!has(prefix("2001:db8::", 32), "2001:db9::1"));
        assert!(has(prefix("::", 0), "2001:db9::1"));
        assert!(!has(Target::Session(1), "10.1.2.3"));
    }

    #[test]
    fn only_what_began_before_the_command_is_meant_later() {
        let at = |seconds| Time::ZERO + TimeSpan::from_seconds(seconds);
        let mut kicks = Kicks::default();
        kicks.remembered.push_back((prefix("10.0.0.0", 8), at(5)));
        let request = |client: &str, server: &str| Request {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
        };
        let from = request("10.1.1.1:1", "192.0.2.1:80");
        assert!(kicks.is_meant(&from, at(4)));
        assert!(!kicks.is_meant(&from, at(5)));
        assert!(kicks.is_meant(&request("192.0.2.1:1", "10.9.9.9:80"), at(4)));
        assert!(!kicks.is_meant(&request("192.0.2.1:1", "11.9.9.9:80"), at(4)));
    }
}
