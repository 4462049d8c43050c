//! Connections that one thread has accepted and passes on to another one, which has fewer sessions.
//!
//! Threads share a listening socket, and the kernel wakes the same thread first each time. So connections that
//! begin together, such as bulk transfers, would gather in one thread. The thread that has accepted a connection
//! cannot leave it on the socket: the kernel may have announced it to no other thread (`EPOLLEXCLUSIVE`). So
//! the connection itself is passed on. [`Loads::taker`](super::sharing::Loads::taker) chooses the other thread.
//!
//! A thread looks for such connections in every turn, and each one wakes it. A thread that accepts nothing more
//! closes its place, and then connections stay where they are. A thread that replaces a stuck one has the same
//! place, with the connections in it. The thread that has passed a connection on takes it back if the other one has not
//! looked for it [in time](PATIENCE), because that one may have begun to hang.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use midspan_units::{Time, TimeSpan};
use rustix::event::{EventfdFlags, eventfd};

use super::arrival::Accepted;
use super::opening::ListenerId;
use super::sharing::Expected;

/// A connection that has waited for longer is [taken back](Passing::take_back). A thread that moves looks for
/// connections in a few milliseconds.
pub const PATIENCE: TimeSpan = TimeSpan::from_milliseconds(100);

/// A connection for another thread.
#[derive(Debug)]
pub struct PassedOn {
    /// The listener that has accepted it.
    pub listener: ListenerId,
    /// The connection.
    pub accepted: Accepted,
    /// Counts among the sessions of the other thread until it has one.
    pub expected: Expected,
    /// The thread that has passed it on.
    pub from: usize,
    /// When.
    pub at: Time,
}

/// The places of all threads.
#[derive(Debug, Clone)]
pub struct Passing(Arc<[Place]>);

/// The connections that wait for one thread.
#[derive(Debug)]
struct Place {
    waiting: Mutex<Waiting>,
    /// Wakes the thread.
    wake_up: Arc<OwnedFd>,
}

#[derive(Debug, Default)]
struct Waiting {
    connections: VecDeque<PassedOn>,
    /// The thread accepts nothing more.
    is_closed: bool,
}

impl Place {
    fn with<T>(&self, action: impl FnOnce(&mut Waiting) -> T) -> T {
        action(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Passing {
    /// A place for each thread.
    ///
    /// # Errors
    /// Those of `eventfd(2)`.
    pub fn new(threads: usize) -> rustix::io::Result<Self> {
        let place = || {
            let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Place {
                waiting: Mutex::default(),
                wake_up: Arc::new(wake_up),
            })
        };
        let places: rustix::io::Result<Vec<Place>> =
            std::iter::repeat_with(place).take(threads).collect();
        Ok(Self(places?.into()))
    }

    /// Passes a connection on to the thread that is expected to serve it, and wakes this thread.
    ///
    /// # Errors
    /// The thread accepts nothing more: the connection comes back.
    pub fn pass_on(&self, connection: PassedOn) -> Result<(), Accepted> {
        let Some(place) = self.0.get(connection.expected.thread()) else {
            return Err(connection.accepted);
        };
        place.with(|waiting| match waiting.is_closed {
            true => Err(connection.accepted),
            false => {
                waiting.connections.push_back(connection);
                Ok(())
            }
        })?;
        // This fails only if the descriptor is already readable.
        let _ = rustix::io::write(&place.wake_up, &1_u64.to_ne_bytes());
        Ok(())
    }

    /// The next connection for this thread.
    pub fn take(&self, thread: usize) -> Option<PassedOn> {
        let place = self.0.get(thread)?;
        place.with(|waiting| waiting.connections.pop_front())
    }

    /// A connection that this thread has passed on, and for which no thread has looked in time.
    pub fn take_back(&self, from: usize, now: Time) -> Option<PassedOn> {
        let is_late = |it: &PassedOn| it.from == from && it.at + PATIENCE <= now;
        self.0.iter().find_map(|place| {
            place.with(|waiting| {
                let late = waiting.connections.iter().position(is_late)?;
                waiting.connections.remove(late)
            })
        })
    }

    /// When this thread has to [look](Self::take_back) for the connections that it has passed on; `None` if none waits.
    pub fn next_return(&self, from: usize) -> Option<Time> {
        let first = |waiting: &mut Waiting| {
            let own = waiting.connections.iter().filter(|it| it.from == from);
            own.map(|it| it.at + PATIENCE).min()
        };
        let all = self.0.iter().filter_map(|place| place.with(first));
        all.min()
    }

    /// No more connections are passed on to this thread. Those that wait already stay.
    pub fn close(&self, thread: usize) {
        if let Some(place) = self.0.get(thread) {
            place.with(|waiting| waiting.is_closed = true);
        }
    }

    /// A descriptor that becomes readable when a connection is passed on to this thread, and remains readable.
    pub fn wake_up(&self, thread: usize) -> Option<Arc<OwnedFd>> {
        self.0.get(thread).map(|place| Arc::clone(&place.wake_up))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::Loads;
    use midspan_policy::accept_share::Churn;
    use midspan_units::Dscp;

    fn connection(loads: &Loads, port: u16) -> PassedOn {
        let churn = Churn::default();
        PassedOn {
            listener: ListenerId(7),
            accepted: Accepted {
                client: std::fs::File::open("/dev/null").unwrap().into(),
                address: ([192, 0, 2, 1], port).into(),
                class: Dscp::default(),
            },
            expected: loads.taker((0, churn), &(0..2), Time::ZERO).unwrap(),
            from: 0,
            at: Time::ZERO + TimeSpan::from_milliseconds(port.into()),
        }
    }

    /// The first thread has many sessions, the second one has none.
    fn two_threads() -> (Loads, Passing) {
        let loads = Loads::of(2);
        loads.set(0, 100);
        (loads, Passing::new(2).unwrap())
    }

    fn is_awake(passing: &Passing, thread: usize) -> bool {
        let mut count = [0; 8];
        rustix::io::read(passing.wake_up(thread).unwrap(), &mut count).is_ok()
    }

    #[test]
    fn a_connection_wakes_its_thread_and_waits_there() {
        let (loads, passing) = two_threads();
        passing.pass_on(connection(&loads, 1)).unwrap();
        passing.pass_on(connection(&loads, 2)).unwrap();
        assert_eq!([0, 1].map(|it| is_awake(&passing, it)), [false, true]);
        let port = |thread| {
            passing
                .take(thread)
                .map(|taken| taken.accepted.address.port())
        };
        assert_eq!(
            [port(0), port(1), port(1), port(1)],
            [None, Some(1), Some(2), None]
        );
    }

    #[test]
    fn a_closed_place_gives_connections_back_and_keeps_those_in_it() {
        let (loads, passing) = two_threads();
        passing.pass_on(connection(&loads, 1)).unwrap();
        passing.close(1);
        let back = passing.pass_on(connection(&loads, 2)).unwrap_err();
        assert_eq!(back.address.port(), 2);
        assert!(passing.take(1).is_some() && passing.take(1).is_none());
    }

    #[test]
    fn a_connection_for_which_no_thread_looks_comes_back() {
        let (loads, passing) = two_threads();
        assert_eq!(passing.next_return(0), None);
        for port in [7, 3] {
            passing.pass_on(connection(&loads, port)).unwrap();
        }
        let at = |milliseconds| Time::ZERO + TimeSpan::from_milliseconds(milliseconds);
        assert_eq!(passing.next_return(0), Some(at(103)));
        let back = |from, now| passing.take_back(from, now).map(|it| it.at);
        assert_eq!(back(0, at(102)), None);
        assert_eq!(back(1, at(1000)), None);
        assert_eq!(back(0, at(103)), Some(at(3)));
        assert_eq!(passing.next_return(0), Some(at(107)));
        assert!(passing.take(1).is_some());
        assert_eq!((passing.next_return(0), back(0, at(1000))), (None, None));
    }
}
