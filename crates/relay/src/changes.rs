//! Changes that the owner of a relay may make while it runs: its listeners, and resets of sessions.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use midspan_units::TimeSpan;

use super::kick::{Kick, Target};
use super::listener::Listener;
use super::opening::{Acceptor, ListenerId};
use super::settings::{Error, OpenListener};
use super::sharing::ListeningSocket;
use super::source::EventSource;
use super::thread::Update;
use super::{Relay, prepare};

impl Relay {
    /// The listeners that the relay was started with, in their order.
    pub fn first_listeners(count: usize) -> impl Iterator<Item = ListenerId> {
        (0..count as u64).map(ListenerId)
    }

    /// Adds a listener.
    ///
    /// # Errors
    /// The number of the listener's sockets, or an error of the kernel.
    pub fn add_listener(&mut self, open: OpenListener) -> Result<ListenerId, Error> {
        let (listener, sockets) = prepare(open, self.threads.len())?;
        let id = ListenerId(self.next_listener);
        self.next_listener += 1;
        self.known.add(id, &listener, &sockets);
        for (number, (thread, socket)) in self.threads.iter().zip(sockets).enumerate() {
            let acceptor = self.acceptor(number, id, Some(socket), &listener);
            // If the thread has ended, its owner notices that.
            let _ = thread.updates.send(Update::Add(Box::new(acceptor)));
        }
        self.check_servers();
        self.control.wake();
        Ok(id)
    }

    /// Changes the settings of a listener, which keeps its sockets. Existing sessions continue with
    /// the old settings.
    pub fn change_listener(&mut self, id: ListenerId, listener: Listener) {
        let listener = Arc::new(listener);
        self.known.change(id, &listener);
        for (number, thread) in self.threads.iter().enumerate() {
            let acceptor = self.acceptor(number, id, None, &listener);
            let _ = thread.updates.send(Update::Change(Box::new(acceptor)));
        }
        self.check_servers();
        self.control.wake();
    }

    /// Stops accepting connections for a listener after this time; its sessions continue.
    pub fn retire_listener(&mut self, id: ListenerId, after: TimeSpan) {
        let at = self.clock.now() + after;
        self.known.retire(id, at);
        for thread in &self.threads {
            let _ = thread.updates.send(Update::Retire(id, at));
        }
        self.control.wake();
    }

    /// An acceptor of a listener for a thread.
    pub(super) fn acceptor(
        &self,
        thread: usize,
        id: ListenerId,
        socket: Option<ListeningSocket>,
        listener: &Arc<Listener>,
    ) -> Acceptor {
        let policy = midspan_policy::make(&listener.session, listener.handshake, self.offered);
        let parts = self
            .shared
            .acceptor_parts(id, listener, policy, thread, self.clock.now());
        Acceptor::new(socket, parts)
    }

    /// Resets sessions. `held` is the number of connections that the gate has already refused; it
    /// is added to the result.
    pub fn kick(&self, target: Target, held: u64) -> Kick {
        let mut answers = Vec::new();
        for thread in &self.threads {
            let (sender, answer) = mpsc::channel();
            // If the thread has ended, its owner notices that.
            let sent = thread.updates.send(Update::Kick(target, sender));
            answers.push(sent.is_ok().then_some(answer));
        }
        self.control.wake();
        Kick::new(answers, held)
    }

    /// Adds a source of events to a thread, counted from 0, until the relay ends. Returns whether
    /// there is such a thread.
    #[must_use]
    pub fn add_source(&self, thread: usize, source: Box<dyn EventSource>) -> bool {
        let thread = self.threads.get(thread);
        let sent = thread.is_some_and(|it| it.updates.send(Update::Source(source)).is_ok());
        self.control.wake();
        sent
    }

    /// Waits until all threads have carried out their updates; returns whether they have.
    #[must_use]
    pub fn wait_for_updates(&self, limit: Duration) -> bool {
        let (sender, reports) = mpsc::channel();
        for thread in &self.threads {
            let _ = thread.updates.send(Update::Report(sender.clone()));
        }
        drop(sender);
        self.control.wake();
        let end = Instant::now() + limit;
        self.threads.iter().all(|_| {
            let left = end.saturating_duration_since(Instant::now());
            reports.recv_timeout(left).is_ok()
        })
    }
}
