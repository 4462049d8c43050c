//! The loop of one thread: edge-triggered epoll over its listening sockets and sessions.
//!
//! A token of epoll is a session's [`Key`] and its leg, so an event for a session that has ended
//! finds nothing. Bit 63 marks the loop's own descriptors.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_policy::Leg;
use midspan_units::{Time, TimeSpan};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{Event, EventData, EventFlags};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::control::{Clock, Command, Control};
use super::lifecycle::Step;
use super::opening::{Acceptor, Opened};
use super::pipes::Pipes;
use super::session::{End, Phase, Session};
use super::statistics::Counters;
use super::table::{Key, Table};
use super::timers::Timers;
use super::transfer::Shared;

/// Events taken at once.
const EVENTS: usize = 512;
/// Connections accepted at once from one socket, so that sessions have their turn.
const ACCEPTS_PER_TURN: usize = 16;
/// Such turns when accepting ends; more than any backlog needs.
const LAST_ACCEPT_TURNS: usize = 4096;
/// How long accepting rests when descriptors or memory are short.
const ACCEPT_PAUSE: TimeSpan = TimeSpan::from_milliseconds(100);
/// Longest wait for an event: the kernel takes at most 24 days.
const LONGEST_WAIT: TimeSpan = TimeSpan::from_seconds(3600);
/// Marks tokens of the loop's own descriptors.
const OWN: u64 = 1 << 63;
/// The token of the wake-up descriptor; those of the acceptors follow.
const WAKE_UP: u64 = OWN;
const FIRST_ACCEPTOR: u64 = OWN + 1;

/// One thread of the relay.
pub struct Worker {
    epoll: OwnedFd,
    acceptors: Vec<Acceptor>,
    sessions: Table<Session>,
    timers: Timers,
    turns: VecDeque<Key>,
    shared: Shared,
    counters: Arc<Counters>,
    control: Arc<Control>,
    clock: Clock,
    now: Time,
    reset_timeout: TimeSpan,
    accepting: bool,
}

impl Worker {
    /// A loop that is ready to run.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)` and `epoll_ctl(2)`.
    pub fn new(
        acceptors: Vec<Acceptor>,
        pipes: Pipes,
        reset_timeout: TimeSpan,
        control: Arc<Control>,
        clock: Clock,
    ) -> rustix::io::Result<Self> {
        let worker = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            acceptors,
            sessions: Table::new(),
            timers: Timers::default(),
            turns: VecDeque::new(),
            shared: Shared::new(pipes),
            counters: Arc::new(Counters::default()),
            control,
            clock,
            now: clock.now(),
            reset_timeout,
            accepting: true,
        };
        let wake_up = EventData::new_u64(WAKE_UP);
        // Edge-triggered: each command wakes every thread once.
        let edges = EventFlags::IN | EventFlags::ET;
        epoll::add(&worker.epoll, worker.control.wake_up(), wake_up, edges)?;
        for index in 0..worker.acceptors.len() {
            worker.watch_acceptor(index)?;
        }
        Ok(worker)
    }

    /// Its numbers.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Runs until the relay is stopped; then all sessions are reset.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`.
    pub fn run(mut self) -> rustix::io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            self.now = self.clock.now();
            for event in &events {
                self.handle_event(event);
            }
            self.take_turns();
            self.handle_timers();
            self.resume_accepting();
            self.publish();
            match self.control.command() {
                Command::Run => {}
                Command::Drain => self.stop_accepting(),
                Command::Stop => return Ok(()),
            }
        }
    }

    /// Until the next thing to do that no event announces.
    fn timeout(&self) -> Option<Timespec> {
        if !self.turns.is_empty() {
            return Some(Timespec::default());
        }
        let resume = self.acceptors.iter().filter_map(|a| a.paused_until).min();
        let next = [self.timers.next(), resume].into_iter().flatten().min()?;
        let wait = next.since(self.now).min(LONGEST_WAIT);
        let nanoseconds = wait.nanoseconds();
        Some(Timespec {
            tv_sec: i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX),
            #[allow(clippy::cast_possible_wrap)]
            tv_nsec: (nanoseconds % 1_000_000_000) as i64,
        })
    }

    fn handle_event(&mut self, event: &Event) {
        let token = event.data.u64();
        if token & OWN == 0 {
            let leg = if token & 1 == 0 {
                Leg::Client
            } else {
                Leg::Server
            };
            self.handle_session(Key::from_number(token >> 1), leg, event.flags);
        } else if token >= FIRST_ACCEPTOR {
            self.accept(usize::try_from(token - FIRST_ACCEPTOR).unwrap_or(usize::MAX));
        }
        // The wake-up descriptor needs nothing: the command is read in every round.
    }

    fn handle_session(&mut self, key: Key, leg: Leg, flags: EventFlags) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let was_connecting = session.phase == Phase::Connecting;
        if let Some(end) = session.handle_event(leg, flags, &mut self.shared) {
            self.end(key, end);
            return;
        }
        if session.phase == Phase::Connecting {
            return;
        }
        if was_connecting {
            self.timers.set(key, &mut session.timer, None);
        }
        self.advance(key);
    }

    /// Moves what a session can move and does what follows from it.
    fn advance(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let (step, unfinished) = session.advance(&mut self.shared, self.now, &self.counters);
        match step {
            Step::Close => {
                session.close_in_order();
                self.end(key, End::Closed);
            }
            Step::Reset => self.end(key, End::Reset),
            Step::Settle(leg) if session.is_acknowledged(leg) => self.end(key, End::Reset),
            Step::Continue | Step::Settle(_) => {
                if unfinished && !session.queued {
                    session.queued = true;
                    self.turns.push_back(key);
                }
                self.schedule(key);
            }
        }
    }

    /// Sets the deadline that a session's state asks for, if it has none.
    fn schedule(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let deadline = match session.phase {
            Phase::Relaying if session.has_failed() => {
                session.settle_until(self.now + self.reset_timeout);
                session.next_look(self.now)
            }
            Phase::Relaying if session.active && session.timer.is_none() => {
                let acceptor = self.acceptors.get(usize::from(session.listener));
                let interval = acceptor.and_then(|acceptor| acceptor.policy.sampling_interval());
                interval.map(|interval| self.now + interval)
            }
            _ => return,
        };
        if deadline.is_some() {
            self.timers.set(key, &mut session.timer, deadline);
        }
    }

    /// One turn for each session that could go on at once.
    fn take_turns(&mut self) {
        for _ in 0..self.turns.len() {
            let Some(key) = self.turns.pop_front() else {
                return;
            };
            if let Some(session) = self.sessions.get_mut(key) {
                session.queued = false;
                self.advance(key);
            }
        }
    }

    fn handle_timers(&mut self) {
        while let Some(key) = self.timers.pop_due(self.now) {
            let Some(session) = self.sessions.get_mut(key) else {
                continue;
            };
            session.timer = None;
            match session.phase {
                Phase::Connecting => self.end(key, End::Unconnected),
                Phase::Relaying => self.sample(key),
                Phase::Settling { deadline, .. } => {
                    let delivered = match session.step() {
                        Step::Settle(leg) => session.is_acknowledged(leg),
                        _ => false,
                    };
                    if delivered || self.now >= deadline {
                        self.end(key, End::Reset);
                    } else {
                        let look = session.next_look(self.now);
                        self.timers.set(key, &mut session.timer, look);
                    }
                }
            }
        }
    }

    /// Shows a session to its policy and carries out what that decides.
    fn sample(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let Some(acceptor) = self.acceptors.get_mut(usize::from(session.listener)) else {
            return;
        };
        session.active = false;
        if let Ok(sample) = session.sample() {
            let decision = acceptor.policy.sample(self.now, &sample);
            self.counters.samples.add(1);
            let refused = session.carry_out(&decision);
            self.counters.option_errors.add(refused);
        }
    }

    /// Accepts some of the connections that wait; whether more may wait.
    fn accept(&mut self, index: usize) -> bool {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(acceptor) = self.acceptors.get_mut(index) else {
                return false;
            };
            match acceptor.open(self.now) {
                Opened::Session {
                    client,
                    server,
                    connect_timeout,
                    option_errors,
                } => {
                    self.counters.option_errors.add(option_errors);
                    self.begin(index, client, server, connect_timeout);
                }
                Opened::Refused => self.counters.refused_by_policy.add(1),
                Opened::Unconnected => {
                    self.counters.sessions_opened.add(1);
                    self.counters.sessions_unconnected.add(1);
                }
                Opened::Gone => self.counters.accept_errors.add(1),
                Opened::Nothing => return false,
                Opened::Exhausted(error) => {
                    self.pause_accepting(index, error);
                    return false;
                }
            }
        }
        true
    }

    /// Takes a new session into the table and under watch.
    fn begin(
        &mut self,
        index: usize,
        client: OwnedFd,
        server: OwnedFd,
        connect_timeout: Option<TimeSpan>,
    ) {
        let token = self.sessions.next_key().number() << 1;
        let interest =
            EventFlags::IN | EventFlags::OUT | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
        let watched = epoll::add(&self.epoll, &client, EventData::new_u64(token), interest)
            .and_then(|()| {
                epoll::add(
                    &self.epoll,
                    &server,
                    EventData::new_u64(token | 1),
                    interest,
                )
            });
        if let Err(error) = watched {
            self.pause_accepting(index, error);
            return;
        }
        let listener = u16::try_from(index).unwrap_or(u16::MAX);
        let key = self.sessions.insert(Session::new(client, server, listener));
        self.counters.sessions_opened.add(1);
        self.counters.sessions_active.add(1);
        if let Some(session) = self.sessions.get_mut(key) {
            let deadline = connect_timeout.map(|timeout| self.now + timeout);
            self.timers.set(key, &mut session.timer, deadline);
        }
    }

    /// Ends a session; what its sockets do on closing was decided before.
    fn end(&mut self, key: Key, end: End) {
        let Some(mut session) = self.sessions.remove(key) else {
            return;
        };
        session.release(&mut self.shared);
        self.timers.set(key, &mut session.timer, None);
        self.counters.sessions_active.decrement();
        match end {
            End::Closed => self.counters.sessions_closed.add(1),
            End::Reset => self.counters.sessions_reset.add(1),
            End::Unconnected => self.counters.sessions_unconnected.add(1),
        }
    }

    fn watch_acceptor(&self, index: usize) -> rustix::io::Result<()> {
        let Some(acceptor) = self.acceptors.get(index) else {
            return Ok(());
        };
        let token = EventData::new_u64(FIRST_ACCEPTOR + index as u64);
        match &acceptor.socket {
            Some(socket) => epoll::add(&self.epoll, socket, token, EventFlags::IN),
            None => Ok(()),
        }
    }

    /// Rests for a moment instead of failing in a circle; old sessions go on.
    fn pause_accepting(&mut self, index: usize, error: Errno) {
        self.counters.accept_errors.add(1);
        let Some(acceptor) = self.acceptors.get_mut(index) else {
            return;
        };
        if acceptor.paused_until.is_some() {
            return;
        }
        acceptor.paused_until = Some(self.now + ACCEPT_PAUSE);
        if let Some(socket) = &acceptor.socket {
            let _ = epoll::delete(&self.epoll, socket);
        }
        if self.counters.accept_pauses.get().is_power_of_two()
            || self.counters.accept_pauses.get() == 0
        {
            tracing::warn!(
                listener = acceptor.name,
                "cannot accept, pausing: {error} (raise the limit of open files?)"
            );
        }
        self.counters.accept_pauses.add(1);
    }

    fn resume_accepting(&mut self) {
        for index in 0..self.acceptors.len() {
            let acceptor = &mut self.acceptors[index];
            if acceptor.paused_until.is_none_or(|until| until > self.now) {
                continue;
            }
            acceptor.paused_until = None;
            if self.accepting
                && let Err(error) = self.watch_acceptor(index)
            {
                self.pause_accepting(index, error);
            }
        }
    }

    /// Takes what waits already, then no more.
    fn stop_accepting(&mut self) {
        if !self.accepting {
            return;
        }
        self.accepting = false;
        for index in 0..self.acceptors.len() {
            let mut turns = 0;
            while turns < LAST_ACCEPT_TURNS && self.accept(index) {
                turns += 1;
            }
            if let Some(socket) = self.acceptors[index].socket.take() {
                // Closing it is not enough: another process may share it.
                let _ = epoll::delete(&self.epoll, &socket);
            }
        }
    }

    fn publish(&mut self) {
        self.counters.pipes.set(self.shared.pipes.count() as u64);
        let in_use = self.shared.pipes.in_use() as u64;
        self.counters.pipes_in_use.set(in_use);
        self.counters.pipe_shortages.set(self.shared.pipe_shortages);
    }
}

impl Drop for Worker {
    /// A thread that ends, for whatever reason, resets its sessions.
    fn drop(&mut self) {
        let active = self.counters.sessions_active.get();
        self.counters.sessions_reset.add(active);
        self.counters.sessions_active.set(0);
        self.counters.pipes.set(0);
        self.counters.pipes_in_use.set(0);
    }
}
