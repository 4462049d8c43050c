//! The listeners of a running relay, with each thread's listening sockets: what a thread needs that takes
//! the place of another one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Weak};

use midspan_units::Time;

use super::leg_socket::LegSocket;
use super::listener::Listener;
use super::opening::ListenerId;
use super::register::SharedSocket;
use super::sharing::ListeningSocket;

/// All listeners. The sockets belong to the threads, which close them; the owner of the relay keeps none open.
#[derive(Debug, Default)]
pub struct KnownListeners(BTreeMap<ListenerId, Known>);

#[derive(Debug)]
struct Known {
    listener: Arc<Listener>,
    retire_at: Option<Time>,
    /// One for each thread.
    sockets: Vec<ThreadSocket>,
}

#[derive(Debug)]
struct ThreadSocket {
    socket: Weak<LegSocket>,
    sharing: Option<Range<usize>>,
}

/// A listener, and a thread's socket of it.
#[derive(Debug)]
pub struct ListenerOfThread {
    /// Its number.
    pub id: ListenerId,
    /// Its present settings.
    pub listener: Arc<Listener>,
    /// The thread's socket.
    pub socket: ListeningSocket,
    /// When the thread closes the socket.
    pub retire_at: Option<Time>,
}

impl KnownListeners {
    /// Adds a listener with the sockets of all threads.
    pub fn add(&mut self, id: ListenerId, listener: &Arc<Listener>, sockets: &[ListeningSocket]) {
        self.0.retain(|_, known| known.is_open());
        let weak = |of: &ListeningSocket| ThreadSocket {
            socket: Arc::downgrade(&of.socket),
            sharing: of.sharing.clone(),
        };
        let known = Known {
            listener: Arc::clone(listener),
            retire_at: None,
            sockets: sockets.iter().map(weak).collect(),
        };
        self.0.insert(id, known);
    }

    /// A listener has other settings.
    pub fn change(&mut self, id: ListenerId, listener: &Arc<Listener>) {
        if let Some(known) = self.0.get_mut(&id) {
            known.listener = Arc::clone(listener);
        }
    }

    /// A listener closes its sockets at this time.
    pub fn retire(&mut self, id: ListenerId, at: Time) {
        if let Some(known) = self.0.get_mut(&id) {
            known.retire_at = Some(at);
        }
    }

    /// A listener with this name.
    pub fn named(&self, name: &str) -> Option<&Listener> {
        let mut all = self.0.values().rev();
        let known = all.find(|known| known.listener.name == name)?;
        Some(&known.listener)
    }

    /// The addresses at which listeners accept, each with its sockets, which threads may share.
    pub fn open_sockets(&self) -> impl Iterator<Item = (SocketAddr, Vec<SharedSocket>)> {
        let staying = self.0.values().filter(|known| known.retire_at.is_none());
        staying.filter_map(|known| {
            let address = known.listener.listen?;
            let mut sockets: Vec<SharedSocket> = Vec::new();
            for socket in known.sockets.iter().filter_map(|of| of.socket.upgrade()) {
                if !sockets.iter().any(|other| Arc::ptr_eq(other, &socket)) {
                    sockets.push(socket);
                }
            }
            (!sockets.is_empty()).then_some((address, sockets))
        })
    }

    /// Whether a listener has several servers.
    pub fn have_servers(&self) -> bool {
        let mut all = self.0.values();
        all.any(|known| known.listener.servers.is_some())
    }

    /// The open sockets of a thread, with their listeners.
    pub fn of_thread(&self, thread: usize) -> impl Iterator<Item = ListenerOfThread> {
        self.0.iter().filter_map(move |(id, known)| {
            let ThreadSocket { socket, sharing } = known.sockets.get(thread)?;
            Some(ListenerOfThread {
                id: *id,
                listener: Arc::clone(&known.listener),
                socket: ListeningSocket {
                    socket: socket.upgrade()?,
                    sharing: sharing.clone(),
                },
                retire_at: known.retire_at,
            })
        })
    }
}

impl Known {
    fn is_open(&self) -> bool {
        self.sockets.iter().any(|of| of.socket.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn listener(name: &str) -> Arc<Listener> {
        let to: SocketAddr = "192.0.2.1:80".parse().unwrap();
        Arc::new(Listener::new(name, to.into()))
    }

    fn socket(sharing: Option<Range<usize>>) -> ListeningSocket {
        ListeningSocket {
            socket: Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()).into()),
            sharing,
        }
    }

    #[test]
    fn a_thread_has_what_is_open_and_in_force() {
        let mut known = KnownListeners::default();
        let mut sockets = vec![socket(None), socket(None)];
        known.add(ListenerId(0), &listener("old"), &sockets);
        let shared = [socket(Some(0..2)), socket(Some(0..2))];
        known.add(ListenerId(1), &listener("shared"), &shared);
        known.change(ListenerId(0), &listener("new"));
        let at = Time::from_nanoseconds(7);
        known.retire(ListenerId(0), at);
        let of = |known: &KnownListeners, thread| -> Vec<_> {
            let all = known.of_thread(thread);
            all.map(|of| (of.listener.name.clone(), of.retire_at, of.socket.sharing))
                .collect()
        };
        let shared_one = ("shared".to_owned(), None, Some(0..2));
        let expected = [("new".to_owned(), Some(at), None), shared_one.clone()];
        assert_eq!(of(&known, 1), expected);
        // The thread closes its socket.
        sockets.truncate(1);
        assert_eq!(of(&known, 1), [shared_one]);
        assert_eq!(of(&known, 0), expected);
        assert!(of(&known, 2).is_empty());
        // A listener without any socket is forgotten.
        drop(sockets);
        known.add(ListenerId(2), &listener("third"), &[socket(None)]);
        assert_eq!(known.0.keys().map(|id| id.0).collect::<Vec<_>>(), [1, 2]);
    }
    #[test]
    fn shared_sockets_are_listed_once_and_those_that_close_are_not() {
        let mut known = KnownListeners::default();
        let at = |port: u16| {
            let mut listener = Listener::new("one", SocketAddr::from(([192, 0, 2, 1], 80)).into());
            listener.listen = Some(SocketAddr::from(([192, 0, 2, 2], port)));
            Arc::new(listener)
        };
        let first = socket(Some(0..2));
        let shared = [
            ListeningSocket {
                socket: Arc::clone(&first.socket),
                sharing: Some(0..2),
            },
            first,
        ];
        known.add(ListenerId(0), &at(1), &shared);
        let own = [socket(None), socket(None)];
        known.add(ListenerId(1), &at(2), &own);
        let closing = [socket(None)];
        known.add(ListenerId(2), &at(3), &closing);
        known.retire(ListenerId(2), Time::ZERO);
        known.add(ListenerId(3), &listener("without an address"), &closing);
        let list = |known: &KnownListeners| -> Vec<(u16, usize)> {
            let all = known.open_sockets();
            all.map(|(address, sockets)| (address.port(), sockets.len()))
                .collect()
        };
        assert_eq!(list(&known), [(1, 1), (2, 2)]);
        drop(own);
        assert_eq!(list(&known), [(1, 1)]);
    }
}
