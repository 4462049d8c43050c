//! The loop of one thread: edge-triggered epoll over its listening sockets and sessions.
//!
//! A token of epoll is a session's [`Key`] and its leg, so an event for a session that has ended
//! finds nothing. Bit 63 marks the loop's own descriptors.

mod deciding;
mod ending;
mod making_way;
mod negotiating;
mod observed;
mod shedding;
mod waiting;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use midspan_policy::Leg;
use midspan_units::{Time, TimeSpan};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::event::epoll::{Event, EventData, EventFlags};
use rustix::io::Errno;

use super::arrival::Arrival;
use super::control::{Clock, Command, Control};
use super::crowd::{ACCEPTS_PER_TURN, Crowd};
use super::kick::Kicks;
use super::legs::Legs;
use super::lifecycle::Step;
use super::limits::{Limits, Shortage};
use super::memory::Measuring;
use super::negotiation::Negotiations;
use super::observation::{Mailbox, Registry};
use super::opening::{Acceptor, Opened};
use super::pipes::Pipes;
use super::session::{End, Phase, Session};
use super::statistics::Counters;
use super::system;
use super::table::{Key, Table};
use super::timers::Timers;
use super::transfer::Shared;
use super::update::Update;

use negotiating::NEGOTIATION;
use observed::Sampling;

/// Events taken at once.
const EVENTS: usize = 512;
/// Such turns when accepting ends; more than any backlog needs.
const LAST_ACCEPT_TURNS: usize = 4096;
/// How long a session waits for memory of the kernel.
const STARVED_PAUSE: TimeSpan = TimeSpan::from_milliseconds(10);
/// Marks tokens of the loop's own descriptors.
const OWN: u64 = 1 << 63;
/// The token of the wake-up descriptor; those of the acceptors follow.
const WAKE_UP: u64 = OWN;
pub(super) const FIRST_ACCEPTOR: u64 = OWN + 1;

/// One thread of the relay.
pub struct Worker {
    pub(super) epoll: OwnedFd,
    pub(super) acceptors: Vec<Acceptor>,
    pub(super) sessions: Table<Session>,
    timers: Timers,
    pub(super) turns: VecDeque<Key>,
    pub(super) shared: Shared,
    pub(super) counters: Arc<Counters>,
    pub(super) control: Arc<Control>,
    clock: Clock,
    pub(super) now: Time,
    /// Counts the calls of epoll.
    round: u64,
    reset_timeout: TimeSpan,
    pub(super) accepting: bool,
    pub(super) updates: Receiver<Update>,
    observation: Observation,
    sampling: Option<Sampling>,
    pub(super) limits: Arc<Limits>,
    pub(super) measuring: Measuring,
    /// With one of them a connection can be taken when there is no other, to reset it.
    reserve: Vec<OwnedFd>,
    pub(super) negotiations: Negotiations,
    pub(super) kicks: Kicks,
    /// Idle sessions that may make way for new ones.
    way: making_way::Way,
}

/// Where a thread tells of its sessions.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Counts.
    pub registry: Arc<Registry>,
    /// Questions to this thread.
    pub mailbox: Arc<Mailbox>,
    /// How often live sessions are read.
    pub sampling_interval: Option<TimeSpan>,
}

/// What all threads of one relay have in common.
pub struct Common {
    /// Commands to them.
    pub control: Arc<Control>,
    /// Their clock.
    pub clock: Clock,
    /// What they may take, all together.
    pub limits: Arc<Limits>,
    /// How long one side of a session outlives the failure of the other.
    pub reset_timeout: TimeSpan,
}

impl Worker {
    /// A loop that is ready to run.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)` and `epoll_ctl(2)`.
    pub fn new(
        acceptors: Vec<Acceptor>,
        pipes: Pipes,
        common: Common,
        observation: Observation,
        updates: Receiver<Update>,
    ) -> rustix::io::Result<Self> {
        let Common {
            control,
            clock,
            limits,
            reset_timeout,
        } = common;
        let mut worker = Self {
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
            round: 0,
            reset_timeout,
            accepting: true,
            updates,
            sampling: observation.sampling_interval.map(Sampling::new),
            observation,
            limits,
            measuring: Measuring::default(),
            reserve: Vec::new(),
            negotiations: Negotiations::new(),
            kicks: Kicks::default(),
            way: making_way::Way::default(),
        };
        worker.keep_reserve()?;
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
            self.counters.turns.add(1);
            self.round = self.round.wrapping_add(1);
            for event in &events {
                self.handle_event(event);
            }
            self.take_turns();
            self.handle_timers();
            self.handle_names();
            self.handle_negotiation_timers();
            self.resume_accepting();
            self.make_way_for_others();
            self.handle_updates();
            self.kick_some();
            self.retire_due();
            self.publish();
            self.answer_questions();
            self.sample_some();
            self.measure_some();
            match self.control.command() {
                Command::Run => {}
                Command::Drain => self.stop_accepting(),
                Command::Stop => {
                    self.end_all();
                    return Ok(());
                }
            }
        }
    }

    fn handle_event(&mut self, event: &Event) {
        let token = event.data.u64();
        if token & NEGOTIATION == NEGOTIATION {
            self.go_on(Key::from_number(token & !NEGOTIATION));
        } else if token & OWN == 0 {
            let leg = if token & 1 == 0 {
                Leg::Client
            } else {
                Leg::Server
            };
            self.handle_session(Key::from_number(token >> 1), leg, event.flags);
        } else if token >= FIRST_ACCEPTOR {
            self.accept_some(usize::try_from(token - FIRST_ACCEPTOR).unwrap_or(usize::MAX));
        }
        // The wake-up descriptor needs nothing: the command is read in every round.
    }

    fn handle_session(&mut self, key: Key, leg: Leg, flags: EventFlags) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let was_connecting = session.phase == Phase::Connecting;
        if let Some(end) = session.handle_event(leg, flags, &mut self.shared, self.now) {
            self.end(key, end);
            return;
        }
        if session.phase == Phase::Connecting {
            self.note_memory(key);
            return;
        }
        if was_connecting {
            self.timers.set(key, &mut session.timer, None);
            self.begin_bounding(key);
        }
        self.advance(key);
    }

    /// Moves what a session can move and does what follows from it.
    fn advance(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let turn = session.advance(&mut self.shared, self.now, &self.counters);
        if let Some(sampling) = &mut self.sampling
            && session.record.unsampled
        {
            sampling.wish(self.now);
        }
        match turn.step {
            Step::Close => {
                session.close_in_order();
                self.end(key, End::Closed);
            }
            Step::Reset => self.end(key, End::Reset),
            Step::HandOver => self.hand_over(key),
            Step::Settle(leg) if session.is_acknowledged(leg) => self.end(key, End::Reset),
            Step::Continue | Step::Settle(_) => {
                if turn.unfinished && !session.queued {
                    session.queued = true;
                    self.turns.push_back(key);
                }
                let starved = turn.starved.then(|| self.now + STARVED_PAUSE);
                let again = starved.into_iter().chain(turn.resume_at).min();
                self.schedule(key, again);
                self.note_memory(key);
            }
        }
    }

    /// Sets the deadline that a session's state asks for, if it has no earlier one.
    fn schedule(&mut self, key: Key, again: Option<Time>) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let deadline = match session.phase {
            Phase::Relaying if session.has_failed() => {
                session.settle_until(self.now + self.reset_timeout);
                let look = session.next_look(self.now);
                self.timers.set(key, &mut session.timer, look);
                again
            }
            Phase::Relaying => {
                let acceptor = self.acceptors.get(usize::from(session.listener));
                let interval = acceptor
                    .filter(|_| session.active)
                    .and_then(|acceptor| acceptor.policy.sampling_interval());
                let still = acceptor.and_then(|acceptor| acceptor.still_after(session));
                let sample = interval.map(|interval| {
                    let due = session.upkeep.sampled_at + interval;
                    // After a pause a while passes, so that there is something to see.
                    if due > self.now {
                        due
                    } else {
                        self.now + interval
                    }
                });
                let narrow = session.narrow.as_ref().and_then(|leg| leg.next_look());
                let wanted = [again, sample, still, narrow];
                wanted.into_iter().flatten().min()
            }
            Phase::Connecting | Phase::Settling { .. } => again,
        };
        // A deadline that comes too early is looked at and set anew.
        if deadline.is_some_and(|deadline| session.timer.is_none_or(|timer| deadline < timer)) {
            self.timers.set(key, &mut session.timer, deadline);
        }
    }

    /// A session's deadline while it relays: it may be its last, or there may be more to move.
    fn look_after(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let acceptor = self.acceptors.get(usize::from(session.listener));
        let still = acceptor.and_then(|acceptor| acceptor.still_after(session));
        if still.is_some_and(|still| still <= self.now) && session.is_idle(self.now) {
            session.note_still();
            self.end(key, End::Reset);
            return;
        }
        let interval = acceptor.and_then(|acceptor| acceptor.policy.sampling_interval());
        // What paces a session wakes it as well, and more often.
        let is_due =
            interval.is_some_and(|interval| session.upkeep.sampled_at + interval <= self.now);
        if session.active && is_due {
            self.sample(key);
        }
        self.advance(key);
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
                Phase::Connecting => {
                    if let Some(acceptor) = self.acceptors.get(usize::from(session.listener)) {
                        acceptor.note_unanswered(session.client());
                    }
                    self.end(key, End::Unconnected(Errno::TIMEDOUT));
                }
                Phase::Relaying => self.look_after(key),
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
                        // It may have been short of memory.
                        self.advance(key);
                    }
                }
            }
        }
    }

    /// Connections wait on a socket, which is level-triggered. One is taken: to ask whether there
    /// is another costs the kernel almost as much as to give one. Where there always was another,
    /// many are taken.
    fn accept_some(&mut self, index: usize) {
        let Some(acceptor) = self.acceptors.get_mut(index) else {
            return;
        };
        let most = acceptor.crowd.next_turn(self.round);
        if !self.accept(index, most)
            && let Some(acceptor) = self.acceptors.get_mut(index)
        {
            acceptor.crowd = Crowd::default();
        }
    }

    /// Accepts at most so many of the connections that wait; whether more may wait.
    fn accept(&mut self, index: usize, most: usize) -> bool {
        for _ in 0..most {
            self.make_way(index);
            let Some(acceptor) = self.acceptors.get_mut(index) else {
                return false;
            };
            match acceptor.open(self.now, &self.limits) {
                Opened::Session(arrival, legs) => {
                    self.counters.option_errors.add(legs.option_errors);
                    // Otherwise both legs are dropped, which resets them.
                    if !self.is_kicked(&arrival) {
                        self.begin(index, arrival, legs);
                    }
                }
                Opened::Negotiation(client, negotiator) => {
                    self.negotiate(index, client, &negotiator);
                }
                Opened::Refused => self.counters.refused_by_policy.add(1),
                Opened::Denied(client) => self.deny(index, client),
                Opened::Unconnected(arrival, error) => {
                    self.counters.sessions_opened.add(1);
                    self.counters.sessions_unconnected.add(1);
                    self.note_unconnected(index, &arrival, error, None);
                }
                Opened::Gone => self.counters.accept_errors.add(1),
                Opened::Nothing => return false,
                Opened::Shed(shortage) => self.count_shed(shortage),
                Opened::Exhausted(error) => {
                    if !self.shed(index, error) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Takes a new session into the table and under watch.
    fn begin(&mut self, index: usize, arrival: Arrival, legs: Legs) {
        let token = self.sessions.next_key().number() << 1;
        let interest =
            EventFlags::IN | EventFlags::OUT | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
        let watched = system::watch(&self.epoll, &legs.client, token, interest)
            .and_then(|()| system::watch(&self.epoll, &legs.server, token | 1, interest));
        if watched.is_err() {
            // Dropping them resets both.
            self.count_shed(Shortage::Descriptors);
            return;
        }
        let listener = u16::try_from(index).unwrap_or(u16::MAX);
        let Some(record) = self.record(index, &arrival) else {
            return;
        };
        if let Some(acceptor) = self.acceptors.get_mut(index) {
            acceptor.sessions += 1;
        }
        let sockets = [legs.client, legs.server];
        let mut session = Session::new(sockets, listener, record, arrival.seat, self.now);
        session.pace_from_start([legs.client_pacing, legs.server_pacing]);
        session.set_narrow(legs.narrow);
        let key = self.sessions.insert(session);
        self.begin_memory(key);
        self.counters.sessions_opened.add(1);
        self.counters.sessions_active.add(1);
        if let Some(session) = self.sessions.get_mut(key) {
            let deadline = arrival.connect_timeout.map(|timeout| self.now + timeout);
            self.timers.set(key, &mut session.timer, deadline);
        }
    }

    pub(super) fn watch_acceptor(&self, index: usize) -> rustix::io::Result<()> {
        let Some(acceptor) = self.acceptors.get(index) else {
            return Ok(());
        };
        let token = EventData::new_u64(FIRST_ACCEPTOR + index as u64);
        match &acceptor.socket {
            Some(socket) => epoll::add(&self.epoll, socket, token, EventFlags::IN),
            None => Ok(()),
        }
    }

    /// Takes what waits already, then no more.
    fn stop_accepting(&mut self) {
        if !self.accepting {
            return;
        }
        self.accepting = false;
        self.shared.is_closing = true;
        for index in 0..self.acceptors.len() {
            self.close_acceptor(index);
        }
    }

    /// Takes what waits already, then no more.
    pub(super) fn close_acceptor(&mut self, index: usize) {
        let mut turns = 0;
        while turns < LAST_ACCEPT_TURNS && self.accept(index, ACCEPTS_PER_TURN) {
            turns += 1;
        }
        let Some(acceptor) = self.acceptors.get_mut(index) else {
            return;
        };
        (acceptor.retire_at, acceptor.paused_until) = (None, None);
        if let Some(socket) = acceptor.socket.take() {
            // Closing it is not enough: another process may share it.
            let _ = epoll::delete(&self.epoll, &socket);
        }
        self.close_idle(index);
    }

    fn publish(&mut self) {
        self.counters.pipes.set(self.shared.pipes.count() as u64);
        let in_use = self.shared.pipes.in_use();
        self.counters.pipes_in_use.set(in_use as u64);
        self.counters.pipe_shortages.set(self.shared.pipe_shortages);
    }
}

impl Drop for Worker {
    /// A thread that ends, for whatever reason, resets its sessions.
    fn drop(&mut self) {
        let active = self.counters.sessions_active.get();
        self.counters.sessions_reset.add(active);
        self.counters.sessions_active.set(0);
        self.forget_all_memory();
        self.counters.pipes.set(0);
        self.counters.pipes_in_use.set(0);
    }
}
