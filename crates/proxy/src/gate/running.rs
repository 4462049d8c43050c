//! A running gate: starts, watches, changes and ends its thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use midspan_relay::kick::Target;

use super::statistics::Counters;
use super::thread::{Update, Worker};
use super::{GateListener, GateSettings, GateStatistics, RawSockets, RelaySide};

/// Room in the queue in addition to the connections being opened, for SYNs that arrive together.
const QUEUE_MARGIN: u32 = 1024;
/// How long the thread may take to carry out an update: several beats.
const UPDATE_LIMIT: Duration = Duration::from_secs(1);

/// A running gate; it ends when this value is dropped.
#[derive(Debug)]
pub struct Gate {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
    updates: Sender<Update>,
}

impl Gate {
    /// Opens the queue and starts the thread. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// The queue or a thread is not available.
    pub fn start(
        settings: &GateSettings,
        listeners: Vec<GateListener>,
        relay: RelaySide,
        raw: RawSockets,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Counters::default());
        let (sender, updates) = mpsc::channel();
        let limits = settings.opening_limits;
        relay.openings.change_limits(limits);
        let room = u32::try_from(limits.most).unwrap_or(u32::MAX);
        let room = room.saturating_add(QUEUE_MARGIN);
        let counts = Arc::clone(&counters);
        let worker = Worker::new(settings, listeners, relay, raw, room, counts, updates)?;
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("gate".to_owned())
            .spawn(move || {
                if let Err(error) = worker.run(&stopped) {
                    tracing::error!("no connections are intercepted any more: {error}");
                }
            })?;
        Ok(Self {
            stop,
            counters,
            thread: Some(thread),
            updates: sender,
        })
    }

    /// Changes the listeners; SYNs that are held for a removed listener pass untouched. Returns
    /// whether the thread has answered within a second.
    #[must_use]
    pub fn change_listeners(&self, listeners: Vec<GateListener>) -> bool {
        let (sender, done) = mpsc::channel();
        let sent = self.updates.send(Update::Listeners(listeners, sender));
        sent.is_ok() && done.recv_timeout(UPDATE_LIMIT).is_ok()
    }

    /// Refuses the held connections that the target includes; returns their number. A thread that
    /// does not answer within a second refuses them later.
    #[must_use]
    pub fn kick(&self, target: Target) -> u64 {
        let (sender, refused) = mpsc::channel();
        let _ = self.updates.send(Update::Kick(target, sender));
        refused.recv_timeout(UPDATE_LIMIT).unwrap_or_default()
    }

    /// Whether its thread runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Its numbers.
    #[must_use]
    pub fn statistics(&self) -> GateStatistics {
        self.counters.read()
    }

    /// An observer of its counters.
    #[must_use]
    pub fn observer(&self) -> GateObserver {
        GateObserver(Arc::clone(&self.counters))
    }
}

/// Observes the counters of a gate.
#[derive(Debug, Clone)]
pub struct GateObserver(Arc<Counters>);

impl GateObserver {
    /// Its numbers.
    #[must_use]
    pub fn statistics(&self) -> GateStatistics {
        self.0.read()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
