//! One thread of the relay: its loop, and the types that handle its events.
//!
//! | type | job |
//! | --- | --- |
//! | [`Acceptors`] | the listening sockets: watched, paused, about to be closed |
//! | [`Negotiations`] | clients that are spoken with before a session |
//! | [`Sessions`] | the sessions: moved, timed, measured, shown, ended |
//! | [`Clockwork`] | the time of the turn, and the next deadline with its reason |
//! | [`RelayThread`] | the loop that joins them: takes events, accepts, obeys its owner |

mod accepting;
mod containment;
mod handed;
#[cfg(test)]
mod tests;
mod updates;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use midspan_policy::SamplingPace;
use midspan_policy::accept_share::Churn;
use midspan_units::{Time, TimeSpan};
use rustix::event::epoll::Event;
use rustix::io::Errno;

use super::acceptors::Acceptors;
use super::clockwork::{Clockwork, Deadline, Reason};
use super::control::{Clock, Command, Control};
use super::eviction::Eviction;
use super::kick::Kicks;
use super::limits::Limits;
use super::negotiation::{NamesOfThread, Negotiations, Neighbours, Tries};
use super::opening::Acceptor;
use super::overlay::SharedOverlay;
use super::passing::Passing;
use super::pipes::Pipes;
use super::poll::{Poll, Token};
use super::register::Register;
use super::sessions::{Observation, Sessions};
use super::sharing::Loads;
use super::source::{EventSource, SourceHost, SourceSockets};
use super::statistics::Counters;
use super::suspects::SharedSuspects;
use super::table::Key;
use handed::{Handing, Taking};
pub use updates::Update;

/// Events read at once.
const EVENTS: usize = 512;
/// Sessions whose deadline is handled in one turn. After a pause of the process, all deadlines may have passed.
const DEADLINES_AT_ONCE: usize = 256;
/// Turns that unfinished sessions have before the thread looks for events again, …
const UNFINISHED_AT_ONCE: usize = 64;
/// … and how long after the beginning of the thread's turn the last of them begins.
const UNFINISHED_SPAN: TimeSpan = TimeSpan::from_milliseconds(1);

/// One thread of the relay.
pub struct RelayThread {
    poll: Arc<Poll>,
    clockwork: Clockwork,
    acceptors: Acceptors,
    negotiations: Negotiations,
    sessions: Sessions,
    kicks: Kicks,
    eviction: Eviction,
    /// The first is the wake-up by the relay's owner. A source that is over leaves its place empty.
    sources: Vec<Option<Box<dyn EventSource>>>,
    control: Arc<Control>,
    updates: Receiver<Update>,
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    /// This thread's number, and the number of each thread's sessions.
    number: usize,
    loads: Loads,
    /// Whether many of this thread's sessions end.
    churn: Churn,
    /// Connections that one thread has accepted, for another one.
    passing: Passing,
    /// When to look whether other threads have served the connections that this one has passed on.
    next_return: Option<Time>,
    /// Whether events of sources have been read and not handled.
    has_lost_events: bool,
    /// The connections of this thread, and which of them is being handled.
    register: Arc<Register>,
    /// The source that is being handled.
    source_in_hand: Option<usize>,
    /// Connections that may have caused a fault, of all threads.
    suspects: SharedSuspects,
    /// Sessions that move to another relay, and from one.
    handing: Option<Handing>,
    taking: Option<Taking>,
}

/// Wakes the thread for a command of its owner, for an answer of the resolver, or for connections of other threads. The
/// thread looks for all of them in every turn, so there is nothing to do for the event itself.
struct WakeUp<T>(T);

impl<T: AsFd + Send> EventSource for WakeUp<T> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn handle(&mut self, _: &mut SourceHost<'_>) {}
}

/// The parts with which a thread starts.
pub struct ThreadParts {
    /// Its number, from 0.
    pub number: usize,
    /// Commands to all threads.
    pub control: Arc<Control>,
    /// Commands to this thread.
    pub updates: Receiver<Update>,
    /// The clock of all threads.
    pub clock: Clock,
    /// The connections of this thread, of which there are none yet.
    pub register: Arc<Register>,
    /// The look-up of names for this thread.
    pub names: NamesOfThread,
    /// Clients with wrong passwords.
    pub tries: Arc<Tries>,
    /// This thread's pipes.
    pub pipes: Pipes,
    /// Counters, queries and the log.
    pub observation: Observation,
    /// The number of each thread's sessions.
    pub loads: Loads,
    /// Connections that one thread has accepted, for another one.
    pub passing: Passing,
    /// When the policies of this thread's sessions get samples.
    pub sampling_pace: SamplingPace,
    /// How long one leg of a session remains after the failure of the other.
    pub reset_timeout: TimeSpan,
    /// Connections that may have caused a fault, of all threads.
    pub suspects: SharedSuspects,
    /// What is known of the overlay.
    pub overlay: SharedOverlay,
}

impl RelayThread {
    /// A loop that is ready to run.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)` and `epoll_ctl(2)`.
    pub fn new(acceptors: Vec<Acceptor>, parts: ThreadParts) -> rustix::io::Result<Self> {
        let ThreadParts {
            number,
            control,
            updates,
            clock,
            register,
            names,
            tries,
            pipes,
            observation,
            loads,
            passing,
            sampling_pace,
            reset_timeout,
            suspects,
            overlay,
        } = parts;
        let poll = Arc::new(Poll::new()?);
        let counters = Arc::new(Counters::default());
        let limits = Arc::clone(register.limits());
        let common = || {
            (
                Arc::clone(&poll),
                Arc::clone(&counters),
                Arc::clone(&register),
            )
        };
        let (own_poll, own_counters, _) = common();
        let mut acceptors = Acceptors::new(acceptors, own_poll, own_counters, Arc::clone(&limits));
        acceptors.keep_reserve()?;
        acceptors.watch_all()?;
        let (own_poll, own_counters, own_register) = common();
        let mut negotiations = Negotiations::new(own_poll, own_counters, own_register);
        negotiations.names = Some(names);
        negotiations.tries = tries;
        let (own_poll, own_counters, own_register) = common();
        let mut thread = Self {
            clockwork: Clockwork::new(clock),
            acceptors,
            negotiations,
            sessions: Sessions::new(
                own_poll,
                own_counters,
                own_register,
                pipes,
                (observation, overlay),
                (sampling_pace, reset_timeout),
            ),
            kicks: Kicks::default(),
            eviction: Eviction::new(Arc::clone(&limits), Arc::clone(&control)),
            sources: Vec::new(),
            poll,
            control,
            updates,
            limits,
            counters,
            number,
            loads,
            churn: Churn::default(),
            passing,
            next_return: None,
            has_lost_events: false,
            register,
            source_in_hand: None,
            suspects,
            handing: None,
            taking: None,
        };
        let wake_up = WakeUp(Arc::clone(&thread.control));
        thread.add_source(Box::new(wake_up))?;
        if let Some(wake_up) = thread.passing.wake_up(number) {
            thread.add_source(Box::new(WakeUp(wake_up)))?;
        }
        Ok(thread)
    }

    /// Watches another source of events.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    fn add_source(&mut self, mut source: Box<dyn EventSource>) -> rustix::io::Result<()> {
        let free = self.sources.iter().position(Option::is_none);
        let index = free.unwrap_or(self.sources.len());
        let (descriptor, is_shared) = (source.descriptor(), source.is_shared());
        self.poll.add_source(descriptor, index, is_shared)?;
        source.begin(SourceSockets {
            poll: Arc::clone(&self.poll),
            index,
        });
        match self.sources.get_mut(index) {
            Some(place) => *place = Some(source),
            None => self.sources.push(Some(source)),
        }
        Ok(())
    }

    /// The thread's epoll.
    pub fn poll(&self) -> Arc<Poll> {
        Arc::clone(&self.poll)
    }

    /// The thread's counters.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Whether another thread has this thread's number, listening sockets and sources. Nothing that
    /// threads share may be changed from then on.
    fn is_replaced(&self) -> bool {
        self.register.is_seized()
    }

    /// Waits for events, and handles them and the deadlines that have passed. Returns whether to
    /// continue.
    fn turn(&mut self, events: &mut Vec<Event>) -> rustix::io::Result<bool> {
        events.clear();
        let deadline = self.deadline();
        let timeout = self.clockwork.wait_until(deadline);
        self.loads.note_turn(self.number, None);
        match self.poll.wait(events, timeout.as_ref()) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        self.clockwork.begin_turn(deadline, events.len());
        let begin = Some(self.clockwork.now());
        self.loads.note_turn(self.number, begin);
        self.counters.turns.add(1);
        self.register.put_in_hand(None);
        let now = self.clockwork.now();
        for event in events.iter() {
            if self.is_replaced() {
                return Ok(false);
            }
            self.handle_event(event, now);
            self.register.put_in_hand(None);
        }
        self.continue_unfinished(now);
        self.sessions.remove_late_marks(now);
        for _ in 0..DEADLINES_AT_ONCE {
            let Some(key) = self.sessions.pop_due(now) else {
                break;
            };
            self.sessions.put_in_hand(key);
            let over = (self.sessions).handle_timer(key, &mut self.acceptors, now);
            self.take_back(over);
            self.register.put_in_hand(None);
        }
        if self.is_replaced() {
            return Ok(false);
        }
        for index in 0..self.sources.len() {
            let deadline = self.sources[index].as_ref().and_then(|of| of.deadline());
            if self.has_lost_events || deadline.is_some_and(|deadline| deadline <= now) {
                self.handle_source(index, 0);
            }
        }
        self.has_lost_events = false;
        let (negotiations, mut around) = self.negotiations();
        negotiations.handle_names(&mut around);
        negotiations.handle_timers(&mut around);
        self.register.put_in_hand(None);
        if self.is_replaced() {
            return Ok(false);
        }
        self.acceptors.resume(now);
        self.serve_passed();
        self.take_back_passed();
        self.note_load(now);
        self.eviction.go_on(&mut self.sessions, now);
        (self.eviction).make_way_for_others(&mut self.sessions, &mut self.acceptors, now);
        self.handle_updates();
        (self.kicks).go_on(&mut self.sessions, &mut self.acceptors, now);
        self.hand_over_some();
        self.retire_due();
        self.sessions.publish_pipes();
        self.sessions.answer_questions(&self.acceptors, now);
        self.sessions.sample_some(now);
        self.sessions.read_overlaid(now);
        if self.sessions.measure_some(&mut self.acceptors, now) {
            // Other threads may sleep although their sessions are to be bounded.
            self.control.wake();
        }
        match self.control.command() {
            Command::Run => {}
            Command::Drain => self.stop_accepting(),
            Command::Stop => {
                self.acceptors.close_at_once();
                self.passing.close(self.number);
                return Ok(!self.sessions.end_some(&self.acceptors, now));
            }
        }
        Ok(true)
    }

    /// Gives unfinished sessions their turns, one after the other, until the thread should look for events again.
    fn continue_unfinished(&mut self, now: Time) {
        for _ in 0..UNFINISHED_AT_ONCE {
            let Some(key) = self.sessions.next_unfinished() else {
                return;
            };
            self.sessions.put_in_hand(key);
            let over = self.sessions.go_on(&mut self.acceptors, now);
            self.take_back(over);
            self.register.put_in_hand(None);
            if self.clockwork.elapsed() >= UNFINISHED_SPAN {
                return;
            }
        }
    }

    /// Notes the number of this thread's sessions for the other threads, and how many sessions have ended.
    fn note_load(&mut self, now: Time) {
        let sessions = self.counters.sessions_active.get();
        self.loads.set(self.number, sessions);
        let opened = self.counters.sessions_opened.get();
        self.churn.update(opened.saturating_sub(sessions), now);
    }

    /// The next deadline.
    fn deadline(&self) -> Option<Deadline> {
        let sources = self.sources.iter().flatten();
        let sources = sources.filter_map(|source| source.deadline());
        let at_once = |is_busy: bool| is_busy.then_some(Time::ZERO);
        Clockwork::next([
            (Reason::Unfinished, at_once(self.sessions.unfinished() > 0)),
            (Reason::LostEvents, at_once(self.has_lost_events)),
            (Reason::Kick, at_once(self.kicks.is_busy())),
            (Reason::Handing, at_once(self.handing.is_some())),
            (Reason::Stop, at_once(self.sessions.are_ending())),
            (Reason::Eviction, at_once(self.eviction.is_looking())),
            (Reason::Session, self.sessions.next_timer()),
            (Reason::Negotiation, self.negotiations.next_timer()),
            (Reason::Resume, self.acceptors.next_resume()),
            (Reason::Retire, self.acceptors.next_retirement()),
            (Reason::Sampling, self.sessions.next_sampling()),
            (Reason::Survey, self.sessions.next_survey()),
            (Reason::Measuring, self.sessions.next_measuring()),
            (Reason::LowWater, self.sessions.next_low_water()),
            (Reason::PassedOn, self.next_return),
            (Reason::Source, sources.min()),
        ])
    }

    /// The negotiations, and the other parts of the thread that they need.
    const fn negotiations(&mut self) -> (&mut Negotiations, Neighbours<'_>) {
        let around = Neighbours {
            acceptors: &mut self.acceptors,
            sessions: &mut self.sessions,
            kicks: &self.kicks,
            now: self.clockwork.now(),
        };
        (&mut self.negotiations, around)
    }

    fn handle_event(&mut self, event: &Event, now: Time) {
        match Token::from(event) {
            Token::Session(key, leg) => {
                let acceptors = &mut self.acceptors;
                self.sessions.put_in_hand(key);
                let over = (self.sessions).handle_event(key, leg, event.flags, acceptors, now);
                self.take_back(over);
            }
            Token::Negotiation(key) => {
                let (negotiations, mut around) = self.negotiations();
                negotiations.go_on(key, &mut around);
            }
            Token::Acceptor(index) => self.accept_some(index),
            Token::Source(index, number) => self.handle_source(index, number),
        }
    }

    /// Calls a source for its own descriptor, or its deadline (0), or for a further socket.
    fn handle_source(&mut self, index: usize, number: u64) {
        let Some(place) = self.sources.get_mut(index) else {
            return;
        };
        let Some(source) = place else {
            return;
        };
        let mut host = SourceHost {
            acceptors: &mut self.acceptors,
            sessions: &mut self.sessions,
            kicks: &self.kicks,
            limits: &self.limits,
            counters: &self.counters,
            now: self.clockwork.now(),
        };
        self.source_in_hand = Some(index);
        match number {
            0 => source.handle(&mut host),
            number => source.handle_socket(number, &mut host),
        }
        self.source_in_hand = None;
        if source.is_over() {
            *place = None;
        }
    }

    /// Returns the client of a finished exchange to the negotiations.
    fn take_back(&mut self, over: Option<Key>) {
        if let Some(key) = over {
            let (negotiations, mut around) = self.negotiations();
            negotiations.take_back(key, &mut around);
        }
    }
}
