//! The threads of a running relay: they are started, and replaced if they are stuck.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use midspan_linux::processors;
use midspan_policy::{Request, SamplingPace, forget_running};
use midspan_units::TimeSpan;

use super::Relay;
use super::knowledge::SharedKnowledge;
use super::known_listeners::ListenerOfThread;
use super::observation::Mailbox;
use super::opening::Acceptor;
use super::pipes::Pipes;
use super::poll::Poll;
use super::register::{InHand, Register, Seized};
use super::sessions::Observation;
use super::settings::{Error, Settings};
use super::statistics::Counters;
use super::thread::{RelayThread, ThreadParts, Update};

/// The settings with which each thread starts.
#[derive(Debug, Clone, Copy)]
pub struct ThreadSettings {
    /// Number of threads.
    pub threads: usize,
    /// Whether each runs on one processor only.
    pub are_pinned: bool,
    /// Pipes of each thread, and their size.
    pub pipes: (usize, usize),
    /// How often live sessions are read.
    pub sampling_interval: Option<TimeSpan>,
    /// How long one leg of a session remains after the failure of the other.
    pub reset_timeout: TimeSpan,
}

impl From<&Settings> for ThreadSettings {
    fn from(settings: &Settings) -> Self {
        Self {
            threads: settings.threads,
            are_pinned: settings.pin_threads,
            pipes: (settings.pipes_per_thread(), settings.real_pipe_size()),
            sampling_interval: settings.sampling_interval,
            reset_timeout: settings.reset_timeout,
        }
    }
}

/// A thread, as the owner of the relay sees it.
#[derive(Debug)]
pub struct RunningThread {
    /// Commands.
    pub updates: Sender<Update>,
    /// Its connections.
    register: Arc<Register>,
    poll: Arc<Poll>,
    handle: JoinHandle<()>,
}

impl RunningThread {
    /// Whether events have arrived that the thread has not fetched yet.
    pub fn has_events(&self) -> bool {
        self.poll.has_events()
    }

    /// Waits for its end.
    pub fn join(self) {
        // A panic was reported when it happened; its sessions have been reset.
        let _ = self.handle.join();
    }
}

/// A thread that has been started, and what observers need of it.
pub struct Started {
    pub thread: RunningThread,
    pub counters: Arc<Counters>,
    pub mailbox: Arc<Mailbox>,
}

impl Relay {
    /// Starts a thread with this number.
    ///
    /// # Errors
    /// Those of epoll and of starting a thread.
    pub(super) fn start_thread(
        &self,
        number: usize,
        acceptors: Vec<Acceptor>,
    ) -> Result<Started, Error> {
        let settings = &self.settings;
        let mailbox = Arc::<Mailbox>::default();
        let (sender, updates) = mpsc::channel();
        let register = Arc::new(Register::new(Arc::clone(&self.shared.limits)));
        let (pipes, pipe_size) = settings.pipes;
        let parts = ThreadParts {
            number,
            control: Arc::clone(&self.control),
            updates,
            clock: self.clock,
            register: Arc::clone(&register),
            names: self.names.of_thread(),
            tries: Arc::clone(&self.tries),
            pipes: Pipes::new(pipes, pipe_size),
            observation: Observation {
                registry: Arc::clone(&self.shared.registry),
                mailbox: Arc::clone(&mailbox),
                sampling_interval: settings.sampling_interval,
            },
            loads: self.loads.clone(),
            passing: self.passing.clone(),
            sampling_pace: SamplingPace::new(settings.threads),
            reset_timeout: settings.reset_timeout,
            suspects: self.shared.suspects.clone(),
            overlay: self.shared.overlay.clone(),
        };
        let thread = RelayThread::new(acceptors, parts).map_err(Error::kernel("set up epoll"))?;
        let (counters, poll) = (thread.counters(), thread.poll());
        counters.threads_running.set(1);
        let running = Running(Arc::clone(&counters), Arc::clone(&register));
        let processor = (settings.are_pinned)
            .then(|| processor_of(number))
            .flatten();
        let handle = std::thread::Builder::new()
            .name(format!("relay {number}"))
            .spawn(move || {
                if let Some(processor) = processor
                    && let Err(error) = processors::run_only_on(processor)
                {
                    tracing::warn!(
                        "relay thread {number} is not pinned to processor {processor}: {error}"
                    );
                }
                if let Err(error) = thread.run() {
                    tracing::error!("relay thread {number} ends, its sessions are reset: {error}");
                } else if running.is_replaced() {
                    tracing::info!("the former relay thread {number} goes on, and ends");
                }
                drop(running);
            })
            .map_err(Error::kernel("start a thread"))?;
        Ok(Started {
            thread: RunningThread {
                updates: sender,
                register,
                poll,
                handle,
            },
            counters,
            mailbox,
        })
    }

    /// Replaces a thread that is stuck. A new thread with the same number has its listening sockets and the
    /// connections that wait there. The sessions and negotiations are reset. The connection that the thread
    /// was handling becomes a suspect; `of_source` is the one that a source of events was handling.
    ///
    /// The sources of the stuck thread stay with it: their owner [adds](Relay::add_source) new ones. The stuck
    /// thread ends if it ever continues; until then it keeps its descriptors. Returns the number of reset
    /// connections.
    ///
    /// # Errors
    /// The thread is stuck while it changes its own register, or the kernel refuses what a new thread needs.
    /// Afterwards, the relay cannot continue.
    pub fn replace_thread(
        &mut self,
        number: usize,
        of_source: Option<Request>,
    ) -> Result<usize, Error> {
        let stuck = self.threads.get(number);
        let stuck = stuck.ok_or(Error::NotReplaceable { thread: number })?;
        // As soon as it is replaced, the thread may continue, and close its sockets.
        let sockets: Vec<ListenerOfThread> = self.known.of_thread(number).collect();
        let seized = (stuck.register.seize()).ok_or(Error::NotReplaceable { thread: number })?;
        // Before the new thread accepts connections, which need places.
        seized.give_back();
        let in_hand = seized.in_hand.or(of_source.map(InHand::usual));
        if let Some(InHand { request, is_plain }) = in_hand {
            let now = self.clock.now();
            self.shared.suspects.note(now, &request, is_plain);
        }
        self.shared.registry.end_thread(number);
        self.loads.set(number, 0);
        self.loads.note_turn(number, None);
        // The new thread does not hang: it gets connections at once, not only after the owner has looked again.
        self.loads.note_late(number, false);
        let mut acceptors = Vec::new();
        for of in sockets {
            // If the thread continues, its epoll does not report connections of its successor.
            let _ = stuck.poll.delete(&of.socket.socket);
            acceptors.push(self.acceptor_of_successor(number, of));
        }
        let Started {
            thread,
            counters,
            mailbox,
        } = self.start_thread(number, acceptors)?;
        self.roster.replace(number, counters, mailbox);
        if let Some(place) = self.threads.get_mut(number) {
            // No thread waits for the end of the stuck one.
            drop(std::mem::replace(place, thread));
        }
        let count = seized.count();
        end_aside(seized, self.shared.knowledge.clone());
        Ok(count)
    }

    fn acceptor_of_successor(&self, number: usize, of: ListenerOfThread) -> Acceptor {
        let mut acceptor = self.acceptor(number, of.id, Some(of.socket), &of.listener);
        acceptor.retire_at = of.retire_at;
        // The stuck thread may not have carried out the last change of the listener.
        if let Err(error) = acceptor.set_up_again() {
            tracing::warn!(
                listener = of.listener.name,
                "a listener continues without an option: {error}"
            );
        }
        acceptor
    }
}

/// Ends the connections of a stuck thread, of which the knowledge of running sessions keeps nothing. With many of
/// them, this takes longer than the owner of the relay may take for one of its own turns.
fn end_aside(seized: Seized, knowledge: SharedKnowledge) {
    type Ended = Mutex<Option<(Seized, SharedKnowledge)>>;
    let end = |ended: &Ended| {
        let ended = ended.lock().map(|mut ended| ended.take());
        if let Ok(Some((seized, mut knowledge))) = ended {
            let sessions = seized.sessions();
            seized.end();
            // At last, because the stuck thread may have locked a part of the knowledge.
            for (client, session) in sessions {
                forget_running(&mut knowledge, client, session);
            }
        }
    };
    let ended: Arc<Ended> = Arc::new(Mutex::new(Some((seized, knowledge))));
    let aside = Arc::clone(&ended);
    let started = std::thread::Builder::new()
        .name("resets".to_owned())
        .spawn(move || end(&aside));
    if started.is_err() {
        end(&ended);
    }
}

/// The processor of a pinned thread. The caller's own thread is not pinned.
fn processor_of(thread: usize) -> Option<usize> {
    let processors = processors::allowed();
    let place = thread.checked_rem(processors.len())?;
    processors.get(place).copied()
}

/// Counts a thread as running until this is dropped, by a panic too.
struct Running(Arc<Counters>, Arc<Register>);

impl Running {
    fn is_replaced(&self) -> bool {
        self.1.is_seized()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.threads_running.set(0);
    }
}
