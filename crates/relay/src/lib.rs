//! The relay, the data plane of `midspan run`: joins the two legs of each session and moves the bytes between
//! them.
//!
//! This crate has no access to configuration files, the command line, firewall rules or other processes. A
//! [`Listener`] contains the settings for its connections; the owner of the relay passes it together with its
//! listening sockets. Connections arrive at these sockets. A gate may have prepared a connection at its SYN
//! and stored it in [`Openings`].
//!
//! Each thread, normally one per core, has a loop of its own, with its own listening sockets (`SO_REUSEPORT`)
//! or sockets that it shares with other threads, and the sessions accepted from them. A session stays on its
//! thread. The threads also share the limits, the counters' registry, opened connections, verdicts and
//! knowledge about clients and servers, the look-up of names, and the numbers of their sessions.
//!
//! | module | content | pure |
//! | --- | --- | --- |
//! | `thread` | the loop of one thread: handles events, accepts, carries out commands | |
//! | `acceptors` | the listening sockets of a thread: watched, paused, retired | |
//! | `sharing`, `passing`, `crowd` | which thread serves a connection of a shared socket, and how it gets there; how many connections in one turn | |
//! | `sessions` | the sessions of a thread: moved, timed, measured, reported, ended | |
//! | `clockwork` | the time of a thread, and its next deadline with the reason | |
//! | `source` | sources of events of other parts of the process | |
//! | `direction` | one direction of data: the next action | yes |
//! | `throttle` | limits of a direction's writing: pacing, a cap of the data in flight | yes |
//! | `lifecycle` | a session: continue, close, settle or reset | yes |
//! | `transfer` | carries a direction's actions out: read, write, splice | |
//! | `session` | two sockets, two transfers, events, failures | |
//! | `identity`, `sockets`, `shared_part` | a session's addresses and sockets, which the register of its thread reaches too | |
//! | `exchange` | a session that carries one HTTP request and its answer | |
//! | `arrival` | a connection that will become a session | yes |
//! | `openings` | connections that are being opened; acceptors find them here | |
//! | `opening`, `acceptance` | accept, call the policy, set up, connect; the results | |
//! | `legs`, [`leg_options`] | the sockets of both legs: opened, connected, set up; their options | |
//! | `listener` | the settings of a listener, and how its sockets get them | |
//! | [`access`], [`machine`] | who may use a listener; the addresses of this machine | |
//! | `destination` | the server of a connection, and how the server leg is opened | |
//! | [`negotiation`] | the negotiation before a session | |
//! | `limits` | limits of sessions, memory, descriptors, and of the rates of client prefixes | |
//! | [`profile`], [`narrow`] | access links of clients; legs towards narrow or distant clients | |
//! | [`remembered`], `knowledge` | verdicts about clients; what sessions leave for later ones | |
//! | `meter` | the bytes that sessions may read while the rate of one client is limited | |
//! | `memory`, `rounds` | memory of sessions, and limits of their buffers; passes through a long table | |
//! | `eviction`, [`kick`] | idle sessions evicted for new ones; sessions that an operator resets | |
//! | `system` | the calls to the kernel that tests can script | |
//! | `poll`, `table`, `timers`, `pipes` | a thread's epoll, table, deadlines and pipes | |
//! | `changes` | adding, changing and removing listeners while the relay runs | |
//! | [`observation`], `sample` | metrics, reports and log lines of sessions; a leg's `TCP_INFO` | |
//! | `suspects` | connections that may have caused a fault | |
//! | [`overlay`] | what is known of the overlay; warm connections to its nodes | |
//! | `server_pool`, `server_lists`, `server_checks` | the servers of a listener that has several: one for each session; looked up and checked | |
//! | `register` | what a thread's connections occupy, so that a stuck thread can be replaced | |
//! | `handing`, `succession` | sessions that another relay continues | |
//! | `running`, `known_listeners` | threads: started, and replaced with their listening sockets | |
//! | `statistics`, `control`, `settings` | counters, commands, and the settings at the start | |
//! | `scripted`, `failing_calls`, [`seeded_faults`] | for tests: a scripted kernel, failing calls, faults | |
//!
//! # Moving data
//!
//! Small data is read into one buffer per thread and written at once. After a read of 8 KiB or more, the
//! direction changes to splice through a pipe, and back to copying after a shorter read. The pipe comes from
//! a bounded pool and returns to it when it is empty. The direction copies if no pipe of full size is
//! available, or if its writing is limited (pacing, a cap of the data in flight). A direction reads only when
//! it holds nothing, so it never holds more than one read: back-pressure comes from the kernel's buffers. A
//! session that holds no data has neither buffer nor pipe.
//!
//! # Life of a session
//!
//! `connecting` (the client is accepted, and Midspan connects to the server) → `relaying` → closed or, when a
//! leg has failed, `settling` → reset. Both sockets have `SO_LINGER {1, 0}` until the session closes with a
//! FIN in each direction. Any other close, also by a crash, is a reset and never looks like a clean end.
//!
//! A leg *fails* by a reset, a time-out, or another error of its socket.
//!
//! | event | while connecting | while relaying |
//! | --- | --- | --- |
//! | data | stays in the kernel | forwarded |
//! | FIN of a leg | passed on once connected | passed on after the last byte; the other direction continues |
//! | FIN of both legs | as above | both legs are closed, without `SO_LINGER` |
//! | failure of the client leg, no data waits | reset the server leg | settle the server leg |
//! | failure of the client leg, data waits | connect, forward, settle | forward, settle the server leg |
//! | failure of the server leg | reset the client leg | forward its data, settle the client leg |
//! | failure of a leg after its FIN | as above | the FIN is passed on too, then settle |
//! | failure of both legs | | both legs reset |
//! | `connect_timeout` | reset the client leg | |
//! | `idle_timeout`, `half_closed_timeout` | | both legs reset |
//! | the relay is crowded | | both legs reset, if the session is idle and its client has most sessions |
//! | the process dies | both legs reset | both legs reset |
//!
//! Only data that arrived on the leg before it failed is forwarded.
//!
//! **Settling** a leg: as soon as its peer has acknowledged everything (`SIOCOUTQ` = 0), or after
//! [`Settings::reset_timeout`], both sockets are closed by a reset. An earlier reset would destroy data that
//! the peer's kernel has not received yet; without a proxy, too, a receiver can read the data that arrived
//! before a reset. Data towards the failed leg is dropped.
//!
//! A session that carries **one HTTP request** ends with its answer instead. Exactly the bytes of the request
//! go to the server, and exactly those of the answer to the client:
//!
//! | event | then |
//! | --- | --- |
//! | request and answer are complete | the server leg ends; the client returns to the [`negotiation`] |
//! | FIN of the client behind its request | passed on; the session waits for the answer |
//! | answer complete, request not | the request continues until either leg ends; then *close the client leg* |
//! | FIN of the server in the middle of the answer | *close the client leg* |
//! | reset of the server in the middle of the answer | settle the client leg |
//! | an answer that breaks the rules in its body | settle the client leg |
//! | the server ends before its answer | the client gets status 502; *close the client leg* |
//! | the answer's head is not HTTP | the client gets status 502; *close the client leg* |
//! | the request's chunks break the rules | status 400; in the middle of the answer, settle the client leg |
//! | reset of the client | settle the server leg |
//!
//! *Close the client leg*: with a FIN, after the client had time to read.
//!
//! **Was it a FIN?** A socket returns its error only once, to the first call that reports errors; from then
//! on reads return 0, as after a FIN. So the session stores the first error of a leg. An end that is read
//! later counts as a FIN only if the FIN certainly arrived first: the kernel's error was EPIPE, or epoll had
//! reported the FIN before. A splice may even swallow the error, so at an end the relay checks whether the
//! socket still has a peer: a reset removes the peer, a FIN does not.
//!
//! # The policy
//!
//! Each acceptor, and for transparent listeners the gate, has a [`Policy`]. For a connection of a transparent
//! listener, the gate calls [`Policy::admit`] at the SYN; for other listeners, a thread calls it when the
//! connection is accepted or the client has named a server. [`Policy::start`] (or one of its parts,
//! `client_start` and `server_start`) is called before Midspan connects to the server, because the options in
//! the SYN depend on it, and [`Policy::sample`] at most every [`Policy::sampling_interval`] while data flows.
//!
//! [`leg_options::apply`] sets the options of a [`LegStart`](midspan_policy::LegStart); it refuses
//! `segment_ceiling` and `window_scale`. A [`Decision`](midspan_policy::Decision) is carried out without its
//! segment size, which legs with an access profile have from [`narrow`]. A forward listener always accepts
//! early, whatever the policy's handshake is, and relays a bypassed connection (`Bypass`) without options and
//! samples of the policy.
//!
//! SIGPIPE must be ignored, as in every Rust program, because `splice` has no `MSG_NOSIGNAL`.

mod acceptance;
mod acceptors;
pub mod access;
mod arrival;
mod changes;
mod clockwork;
mod control;
mod crowd;
mod destination;
mod direction;
mod eviction;
mod exchange;
#[cfg(feature = "failing-calls")]
pub mod failing_calls;
mod handing;
mod identity;
pub mod kick;
mod knowledge;
mod known_listeners;
pub mod known_paths;
pub mod leg_options;
mod leg_socket;
mod legs;
mod lifecycle;
mod limits;
mod listener;
pub mod machine;
mod memory;
mod meter;
pub mod narrow;
pub mod negotiation;
pub mod observation;
mod opening;
mod openings;
pub mod overlay;
mod passing;
mod pipes;
mod poll;
pub mod profile;
mod register;
pub mod remembered;
mod rounds;
mod running;
mod sample;
#[cfg(test)]
mod scripted;
pub mod seeded_faults;
mod server_checks;
mod server_lists;
mod server_pool;
mod session;
mod sessions;
mod settings;
mod shared_part;
mod sharing;
mod sockets;
mod source;
mod statistics;
mod succession;
mod suspects;
mod system;
mod table;
mod thread;
mod throttle;
mod timers;
mod transfer;

pub use arrival::Arrival;
pub use control::{Clock, Waker};
pub use handing::{HandoverError, handover_pair};
pub use knowledge::SharedKnowledge;
pub use leg_socket::LegSocket;
pub use legs::{Connecting, connect_as_client, connect_to_node, set_common_options};
pub use limits::{Limits, ListenerLimits, RelayLimits, Seat, SessionLimits, SetAside, Shortage};
pub use listener::{
    Destination, HeaderVersion, Language, Listener, ListenerMarks, Negotiation, ServiceClass,
    SourceAddresses, Users,
};
pub use opening::ListenerId;
pub use openings::{Openings, Reception, Released};
pub use overlay::{OverlayPart, SharedOverlay, log_broken_route};
pub use settings::{Error, OpenListener, Settings};
pub use sharing::{Expected, Loads};
pub use source::{EventSource, NotBegun, SourceHost, SourceSockets};
pub use statistics::Statistics;
pub use succession::{ComingSessions, Predecessor, Successor, TakenOver};
pub use suspects::SharedSuspects;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use midspan_policy::{Offered, Policy};
use midspan_units::Time;

use control::{Command, Control};
use destination::Finder;
use known_listeners::KnownListeners;
use negotiation::{Names, Tries};
use observation::{Observer, Registry, Roster};
use opening::{Acceptor, AcceptorParts};
use passing::Passing;
use pipes::Pipes;
use remembered::Remembered;
use running::{RunningThread, ThreadSettings};
use server_lists::SharedServers;
use sharing::ListeningSocket;

/// Descriptors of a relay in addition to those of sessions: listening sockets, epoll and others.
const OTHER_DESCRIPTORS: u64 = 128;

/// State that the listeners of a relay share.
#[derive(Debug)]
struct Shared {
    /// The counters of all listeners.
    registry: Arc<Registry>,
    /// The limits.
    limits: Arc<Limits>,
    /// Connections that are intercepted at their SYN.
    openings: Arc<Openings>,
    /// Verdicts about clients.
    verdicts: Remembered,
    /// What sessions have left for later ones.
    knowledge: SharedKnowledge,
    /// Connections that may have caused a fault.
    suspects: SharedSuspects,
    /// What is known of the overlay.
    overlay: SharedOverlay,
    /// The servers of listeners that have several.
    servers: SharedServers,
}

impl Shared {
    fn acceptor_parts(
        &self,
        id: ListenerId,
        listener: &Arc<Listener>,
        policy: Box<dyn Policy + Send>,
        thread: usize,
        now: Time,
    ) -> AcceptorParts {
        let is_called = !listener.is_transparent();
        let limits = listener.limits.sessions;
        AcceptorParts {
            id,
            finder: Finder::new(&listener.to, &self.openings),
            policy,
            counters: self.registry.counters(thread, &listener.name),
            places: (self.limits).set_listener(&listener.name, limits, is_called),
            verdicts: self.verdicts.clone(),
            knowledge: self.knowledge.clone(),
            suspects: self.suspects.clone(),
            overlay: self.overlay.clone(),
            servers: self.servers.set(now, listener),
            listener: Arc::clone(listener),
        }
    }
}

/// Whether a listener has a number of sockets that this many threads can use.
fn check(open: &OpenListener, threads: usize) -> Result<(), Error> {
    let sockets = open.sockets.len();
    match (1..=threads).contains(&sockets) {
        true => Ok(()),
        false => Err(Error::SocketCount {
            listener: open.listener.name.clone(),
            sockets,
            threads,
        }),
    }
}

/// Sets the sockets of a listener up, and deals them out to this many threads.
fn prepare(
    open: OpenListener,
    threads: usize,
) -> Result<(Arc<Listener>, Vec<ListeningSocket>), Error> {
    check(&open, threads)?;
    let OpenListener { listener, sockets } = open;
    for socket in &sockets {
        opening::prepare_listener(socket, &listener)?;
    }
    let action = "duplicate a listening socket";
    let sockets = sharing::deal(sockets, threads).map_err(Error::kernel(action))?;
    Ok((Arc::new(listener), sockets))
}

/// A running relay. Dropping it is [`Relay::stop`].
#[derive(Debug)]
pub struct Relay {
    control: Arc<Control>,
    settings: ThreadSettings,
    shared: Shared,
    threads: Vec<RunningThread>,
    /// The threads for observers.
    roster: Arc<Roster>,
    /// The number of each thread's sessions.
    loads: Loads,
    passing: Passing,
    known: KnownListeners,
    next_listener: u64,
    clock: Clock,
    offered: Offered,
    names: Arc<Names>,
    /// Clients that sent wrong passwords.
    tries: Arc<Tries>,
    /// The thread that checks servers, once a listener has several.
    checking: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay whose listeners have the policies that their settings name.
    ///
    /// # Errors
    /// As [`Relay::start_with`].
    pub fn start(settings: &Settings, listeners: Vec<OpenListener>) -> Result<Self, Error> {
        Self::start_with(settings, listeners, |listener| {
            midspan_policy::make(&listener.session, listener.handshake, settings.offered)
        })
    }

    /// The features of this machine, as the settings of the relay have them.
    #[must_use]
    pub const fn offered(&self) -> Offered {
        self.offered
    }

    /// Starts a relay. `policy` makes the policy of a listener in one thread; it is called once for each
    /// listener and thread.
    ///
    /// # Errors
    /// There are no threads, a listener has no socket or more than one per thread, or the kernel refuses a
    /// call.
    pub fn start_with(
        settings: &Settings,
        listeners: Vec<OpenListener>,
        mut policy: impl FnMut(&Listener) -> Box<dyn Policy + Send>,
    ) -> Result<Self, Error> {
        if settings.threads == 0 {
            return Err(Error::NoThreads);
        }
        let control = Control::new().map_err(Error::kernel("make an event descriptor"))?;
        let passing = Passing::new(settings.threads);
        let passing = passing.map_err(Error::kernel("make an event descriptor"))?;
        let (control, clock) = (Arc::new(control), Clock::start_from(settings.begins_at));
        // Two descriptors for each pipe.
        let pipes = settings.pipes_per_thread() as u64 * settings.threads as u64 * 2;
        let shared = Shared {
            registry: Arc::default(),
            limits: Arc::new(Limits::new(&settings.limits, pipes + OTHER_DESCRIPTORS)),
            openings: Arc::default(),
            verdicts: settings.verdicts.clone(),
            knowledge: SharedKnowledge::default(),
            suspects: SharedSuspects::default(),
            overlay: SharedOverlay::default(),
            servers: SharedServers::default(),
        };
        let mut acceptors: Vec<Vec<Acceptor>> = Vec::new();
        acceptors.resize_with(settings.threads, Vec::new);
        let count = listeners.len() as u64;
        let mut known = KnownListeners::default();
        for (id, open) in (0..).map(ListenerId).zip(listeners) {
            let (listener, sockets) = prepare(open, settings.threads)?;
            known.add(id, &listener, &sockets);
            for (thread, (acceptors, socket)) in acceptors.iter_mut().zip(sockets).enumerate() {
                let policy = policy(&listener);
                let parts = shared.acceptor_parts(id, &listener, policy, thread, clock.now());
                acceptors.push(Acceptor::new(Some(socket), parts));
            }
        }
        warn_without_pipes(settings);
        let mut relay = Self {
            names: Arc::new(Names::new(Arc::clone(&control))),
            tries: Arc::default(),
            control,
            settings: ThreadSettings::from(settings),
            shared,
            threads: Vec::new(),
            roster: Arc::default(),
            loads: Loads::of(settings.threads),
            passing,
            known,
            next_listener: count,
            clock,
            offered: settings.offered,
            checking: None,
        };
        for (number, acceptors) in acceptors.into_iter().enumerate() {
            let started = relay.start_thread(number, acceptors)?;
            relay.roster.add(started.counters, started.mailbox);
            relay.threads.push(started.thread);
        }
        relay.check_servers();
        Ok(relay)
    }

    /// Starts the thread that checks servers, if a listener has several and the thread does not run yet.
    fn check_servers(&mut self) {
        if self.checking.is_some() || !self.known.have_servers() {
            return;
        }
        let (servers, limits) = (self.shared.servers.clone(), Arc::clone(&self.shared.limits));
        let around = (Arc::clone(&self.control), self.clock);
        match server_checks::start(servers, self.names.of_thread(), limits, around) {
            Ok(thread) => self.checking = Some(thread),
            Err(error) => tracing::error!("servers cannot be looked up and checked: {error}"),
        }
    }

    /// Sets the resolver for [`Destination::Negotiated`], at the other end of this socket.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn set_resolver(&self, socket: OwnedFd) -> Result<(), Error> {
        let started = self.names.set_resolver(socket);
        started.map_err(Error::kernel("start a thread"))
    }

    /// The number of sessions of each thread, as of its last turn.
    #[must_use]
    pub fn sessions_of_threads(&self) -> Vec<u64> {
        self.loads.all().collect()
    }

    /// The number of threads.
    #[must_use]
    pub const fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// The number of sessions of each thread, to choose threads for connections.
    #[must_use]
    pub fn loads(&self) -> Loads {
        self.loads.clone()
    }

    /// The counters of all threads together.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.roster.statistics()
    }

    /// How many turns each thread has made.
    #[must_use]
    pub fn turns(&self) -> Vec<u64> {
        self.roster.turns()
    }

    /// Whether each thread waits for events, and none has arrived. Such a thread has nothing to do.
    #[must_use]
    pub fn waiting(&self) -> Vec<bool> {
        let waits = |(number, thread): (usize, &RunningThread)| {
            self.loads.waits(number) && !thread.has_events()
        };
        self.threads.iter().enumerate().map(waits).collect()
    }

    /// A thread makes no turns, or does so again. While it makes none, it gets no connections of other threads.
    pub fn note_late(&self, thread: usize, is_late: bool) {
        self.loads.note_late(thread, is_late);
    }

    /// Makes each thread begin a turn.
    pub fn wake(&self) {
        self.control.wake();
    }

    /// Wakes the threads, too, and may be kept.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.control))
    }

    /// The table for connections that are intercepted at their SYN. It has no room until its limits
    /// are [changed](Openings::change_limits).
    #[must_use]
    pub fn openings(&self) -> Arc<Openings> {
        Arc::clone(&self.shared.openings)
    }

    /// Verdicts about clients.
    #[must_use]
    pub const fn verdicts(&self) -> &Remembered {
        &self.shared.verdicts
    }

    /// The limits, and how much of them is used.
    #[must_use]
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.shared.limits)
    }

    /// Connections that may have caused a panic of a thread, or for which a thread was stuck.
    #[must_use]
    pub fn suspects(&self) -> SharedSuspects {
        self.shared.suspects.clone()
    }

    /// What sessions have learned about paths, and the clock for its times.
    #[must_use]
    pub fn learned(&self) -> (SharedKnowledge, Clock) {
        (self.shared.knowledge.clone(), self.clock)
    }

    /// What is known of the overlay. Its members have to be set.
    #[must_use]
    pub fn overlay(&self) -> SharedOverlay {
        self.shared.overlay.clone()
    }

    /// Changes the limits of all listeners together.
    pub fn change_limits(&self, limits: &RelayLimits) {
        self.shared.limits.change(limits);
    }

    /// An observer of the relay, for other threads.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer {
            control: Arc::clone(&self.control),
            threads: Arc::clone(&self.roster),
            registry: Arc::clone(&self.shared.registry),
            limits: Arc::clone(&self.shared.limits),
            knowledge: self.shared.knowledge.clone(),
            overlay: self.shared.overlay.clone(),
            servers: self.shared.servers.clone(),
            clock: self.clock,
        }
    }

    /// Accepts the connections that already wait, then no more, and lets the sessions finish.
    /// Returns at once; the relay is drained when [`Statistics::sessions_active`] is 0.
    pub fn drain(&self) {
        self.control.give(Command::Drain);
    }

    /// Resets the remaining sessions and ends the threads.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.control.give(Command::Stop);
        self.threads.drain(..).for_each(RunningThread::join);
        if let Some(thread) = self.checking.take() {
            let _ = thread.join();
        }
    }
}

/// Logs once, at the start, that bulk data will be copied.
fn warn_without_pipes(settings: &Settings) {
    let size = settings.real_pipe_size();
    if settings.pipes_per_thread() == 0 {
        tracing::info!("no pipes are configured: bulk is copied, at twice the CPU time or more");
    } else if Pipes::new(1, size).take(Time::ZERO).is_none() {
        tracing::warn!(
            "the kernel gives no pipe of {size} bytes: bulk is copied, at twice the CPU time or \
             more (see fs.pipe-max-size and fs.pipe-user-pages-soft, or make pipe_size smaller)"
        );
    }
}
