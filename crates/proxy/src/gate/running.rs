//! A running gate: starts, watches, changes and ends its parts on the relay's threads.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use midspan_linux::packet_queue::PacketQueue;
use midspan_linux::raw_packet::RawSocket;
use midspan_policy::Request;
use midspan_relay::kick::Target;
use midspan_relay::{Relay, Waker};

use super::shared::Shared;
use super::statistics::Counters;
use super::worker::{Update, Worker, WorkerParts};
use super::{GateListener, GateSettings, GateStatistics, RawSockets, syn};

/// Room in the queue in addition to the connections being opened, for SYNs that arrive together.
const QUEUE_MARGIN: u32 = 1024;
/// How long the threads may take to carry out an update.
const UPDATE_LIMIT: Duration = Duration::from_secs(1);

/// A running gate; it ends when this value is dropped.
pub struct Gate {
    settings: GateSettings,
    queue: PacketQueue,
    raw: [Option<Arc<RawSocket>>; 2],
    shared: Arc<Shared>,
    waker: Waker,
    updates: Vec<Sender<Update>>,
    counters: Arc<[Arc<Counters>]>,
}

impl Gate {
    /// Opens the queue, which all threads of the relay read from now on. Needs `CAP_NET_ADMIN`.
    /// Each thread decides with listeners, and policies, of its own.
    ///
    /// # Errors
    /// The queue is not available, or a thread has ended.
    pub fn start(
        settings: &GateSettings,
        mut listeners: impl FnMut() -> Vec<GateListener>,
        relay: &Relay,
        raw: RawSockets,
    ) -> std::io::Result<Self> {
        let limits = settings.opening_limits;
        relay.openings().change_limits(limits);
        let (knowledge, _) = relay.learned();
        knowledge.keep_asymmetric_routes(settings.asymmetric_route_time);
        let room = u32::try_from(limits.most).unwrap_or(u32::MAX);
        let room = room.saturating_add(QUEUE_MARGIN);
        let queue = PacketQueue::bind(settings.queue, room, syn::COPIED)?;
        let raw = raw.map(|raw| raw.map(|raw| Arc::new(RawSocket::from_socket(raw))));
        let threads = relay.thread_count();
        let counters = (0..=threads).map(|_| Arc::<Counters>::default());
        let counters: Arc<[Arc<Counters>]> = counters.collect();
        let mut gate = Self {
            // The last counters belong to no thread.
            shared: Arc::new(Shared::new(relay, Arc::clone(&counters[threads]))),
            waker: relay.waker(),
            settings: *settings,
            queue,
            raw,
            updates: Vec::new(),
            counters,
        };
        for thread in 0..threads {
            let updates = gate.start_part(thread, listeners(), relay)?;
            gate.updates.push(updates);
        }
        Ok(gate)
    }

    /// Starts the part on a thread.
    fn start_part(
        &self,
        thread: usize,
        listeners: Vec<GateListener>,
        relay: &Relay,
    ) -> std::io::Result<Sender<Update>> {
        let (sender, updates) = mpsc::channel();
        let (knowledge, _) = relay.learned();
        let parts = WorkerParts {
            thread: (thread, relay.thread_count()),
            updates,
            queue: self.queue.share()?,
            raw: self.raw.clone(),
            listeners,
            counters: Arc::clone(&self.counters[thread]),
            knowledge,
        };
        let worker = Worker::new(&self.settings, Arc::clone(&self.shared), parts)?;
        match relay.add_source(thread, Box::new(worker)) {
            true => Ok(sender),
            false => Err(std::io::Error::other("a thread of the relay has ended")),
        }
    }

    /// A thread is stuck and will be replaced: its part decides nothing any more. Returns the connection
    /// that the part was handling.
    #[must_use]
    pub fn end_part(&self, thread: usize) -> Option<Request> {
        self.shared.end_term(thread);
        self.shared.in_hand(thread)
    }

    /// Starts a part on a thread that has taken the place of a stuck one. The new part takes over the SYNs
    /// that the former one has held.
    ///
    /// # Errors
    /// Those of sockets, or the new thread has ended.
    pub fn replace_part(
        &mut self,
        thread: usize,
        listeners: Vec<GateListener>,
        relay: &Relay,
    ) -> std::io::Result<()> {
        let updates = self.start_part(thread, listeners, relay)?;
        if let Some(place) = self.updates.get_mut(thread) {
            *place = updates;
        }
        Ok(())
    }

    /// Changes the listeners; SYNs that are held for a removed listener pass untouched. Returns
    /// whether all threads have answered within a second.
    #[must_use]
    pub fn change_listeners(&self, mut listeners: impl FnMut() -> Vec<GateListener>) -> bool {
        let done = self.tell(|done| Update::Listeners(listeners(), done));
        answers(&done, self.updates.len()).count() == self.updates.len()
    }

    /// Refuses the held connections that the target includes; returns their number. If no thread
    /// answers within a second, they are refused later.
    #[must_use]
    pub fn kick(&self, target: Target) -> u64 {
        let refused = self.tell(|refused| Update::Kick(target, refused));
        answers(&refused, self.updates.len()).sum()
    }

    /// Whether all its parts run.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.shared.has_failed()
    }

    /// Whether no connections have arrived for some seconds.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.shared.is_idle(now)
    }

    /// The relay's threads are checked now. Without such checks, packets in the queue count as old.
    pub fn note_watched(&self, now: Instant) {
        self.shared.note_watched(now);
    }

    /// Its numbers.
    #[must_use]
    pub fn statistics(&self) -> GateStatistics {
        self.observer().statistics()
    }

    /// An observer of its counters.
    #[must_use]
    pub fn observer(&self) -> GateObserver {
        GateObserver(Arc::clone(&self.counters))
    }

    /// Gives each part an update, with a sender for its answer.
    fn tell<T>(&self, mut update: impl FnMut(Sender<T>) -> Update) -> Receiver<T> {
        let (sender, answers) = mpsc::channel();
        for updates in &self.updates {
            // If the thread has ended, its owner notices that.
            let _ = updates.send(update(sender.clone()));
        }
        self.shared.note_update();
        self.waker.wake();
        answers
    }
}

/// The answers that come within a second, at most this many.
fn answers<T>(answers: &Receiver<T>, most: usize) -> impl Iterator<Item = T> {
    let end = Instant::now() + UPDATE_LIMIT;
    (0..most).map_while(move |_| {
        let left = end.saturating_duration_since(Instant::now());
        answers.recv_timeout(left).ok()
    })
}

/// Observes the counters of a gate.
#[derive(Debug, Clone)]
pub struct GateObserver(Arc<[Arc<Counters>]>);

impl GateObserver {
    /// Its numbers.
    #[must_use]
    pub fn statistics(&self) -> GateStatistics {
        let mut sum = GateStatistics::default();
        for counters in &*self.0 {
            sum += counters.read();
        }
        sum
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // A thread that does not answer ends its part later.
        answers(&self.tell(Update::Stop), self.updates.len()).for_each(drop);
    }
}
