//! The sessions of one thread: their table, their deadlines, and what they share.

mod handed;
mod low_water;
mod observed;
mod overlaid;
mod plain;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use midspan_policy::{Leg, SamplingPace, SessionId, forget_running};
use midspan_units::{Time, TimeSpan};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::acceptors::Acceptors;
use super::arrival::Arrival;
use super::identity::Identity;
use super::legs::Legs;
use super::lifecycle::Step;
use super::limits::{SetAside, Shortage};
use super::memory::Measuring;
use super::observation::{Ending, Listings, Record, Surveys};
use super::overlay::{OverlayPart, SharedOverlay};
use super::pipes::Pipes;
use super::poll::Poll;
use super::register::Register;
use super::seeded_faults::{self, Fault};
use super::session::{End, Phase, Session};
use super::shared_part::SharedPart;
use super::sockets::Sockets;
use super::statistics::Counters;
use super::table::{Key, Table};
use super::timers::Timers;
use super::transfer::Shared;

use low_water::LowWaterMarks;
pub use observed::Observation;
use observed::{EndingAll, Sampling};
use overlaid::OverlaidSessions;
use plain::PlainSessions;

/// How long a session waits for memory of the kernel.
const STARVED_PAUSE: TimeSpan = TimeSpan::from_milliseconds(10);

/// The sessions of one thread.
pub struct Sessions {
    table: Table<Session>,
    timers: Timers,
    /// Sessions that had more to move than fitted into their last turn.
    unfinished: VecDeque<Key>,
    /// The buffer and the pipes of all sessions.
    shared: Shared,
    measuring: Measuring,
    /// When the policies of sessions get samples.
    sampling_pace: SamplingPace,
    observation: Observation,
    register: Arc<Register>,
    sampling: Option<Sampling>,
    surveys: Surveys,
    listings: Listings,
    /// The names by which clients requested the servers of live sessions, by the session's number.
    destinations: BTreeMap<u64, Box<str>>,
    /// Sessions whose legs are hops of an overlay.
    overlaid: OverlaidSessions,
    /// Sessions without any mechanism.
    plain: PlainSessions,
    /// Fast bulk transfers.
    low_water_marks: LowWaterMarks,
    /// Set when the relay ends.
    ending: Option<EndingAll>,
    poll: Arc<Poll>,
    counters: Arc<Counters>,
    /// How long one leg of a session remains after the failure of the other.
    reset_timeout: TimeSpan,
}

impl Sessions {
    /// No sessions yet.
    pub fn new(
        poll: Arc<Poll>,
        counters: Arc<Counters>,
        register: Arc<Register>,
        pipes: Pipes,
        (observation, overlay): (Observation, SharedOverlay),
        (sampling_pace, reset_timeout): (SamplingPace, TimeSpan),
    ) -> Self {
        Self {
            sampling_pace,
            table: Table::new(),
            timers: Timers::default(),
            unfinished: VecDeque::new(),
            shared: Shared::new(pipes, Arc::clone(register.limits())),
            measuring: Measuring::new(Arc::clone(&register), Arc::clone(&counters)),
            register,
            sampling: observation.sampling_interval.map(Sampling::new),
            surveys: Surveys::default(),
            listings: Listings::default(),
            observation,
            destinations: BTreeMap::new(),
            overlaid: OverlaidSessions::new(overlay),
            plain: PlainSessions::default(),
            low_water_marks: LowWaterMarks::default(),
            ending: None,
            poll,
            counters,
            reset_timeout,
        }
    }

    /// The table of all sessions.
    pub const fn table(&mut self) -> &mut Table<Session> {
        &mut self.table
    }

    /// The key that the next session gets.
    pub fn next_key(&self) -> Key {
        self.table.next_key()
    }

    /// From now on, an HTTP client is closed after its answer.
    pub const fn close_exchanges(&mut self) {
        self.shared.is_closing = true;
    }

    /// The first deadline of a session.
    pub fn next_timer(&self) -> Option<Time> {
        self.timers.next()
    }

    /// When sessions are read for the metrics next.
    pub fn next_sampling(&self) -> Option<Time> {
        self.sampling.as_ref().and_then(Sampling::next)
    }

    /// When the memory of sessions is measured next.
    pub const fn next_measuring(&self) -> Option<Time> {
        self.measuring.next()
    }

    /// When the rest of a fast transfer may have to be reported.
    pub fn next_low_water(&self) -> Option<Time> {
        self.low_water_marks.next_timeout()
    }

    /// From now on, the kernel reports all data at once.
    pub fn end_low_water(&mut self) {
        self.low_water_marks.end(&mut self.table);
    }

    /// Lets the kernel report the rest of fast transfers.
    pub fn remove_late_marks(&mut self, now: Time) {
        if self.next_low_water().is_some_and(|timeout| timeout <= now) {
            (self.low_water_marks).handle_timeouts(&mut self.table, now);
        }
    }

    /// Number of sessions that had more to move than fitted into their last turn.
    pub fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    /// The first session that has more to move.
    pub fn next_unfinished(&self) -> Option<Key> {
        self.unfinished.front().copied()
    }

    /// The thread handles this session from now on.
    pub fn put_in_hand(&mut self, key: Key) {
        let session = self.table.get_mut(key);
        let registration = session.and_then(|session| session.registration());
        self.register.put_in_hand(registration);
    }

    /// The number and the addresses of a new session, and its record.
    pub fn record(
        &self,
        listener: usize,
        arrival: &Arrival,
        of: &Acceptors,
    ) -> Option<(Identity, Record)> {
        let counters = Arc::clone(&of.get(listener)?.counters);
        let id = self.observation.registry.next_session();
        let identity = Identity::new(id, arrival.request);
        Some((identity, Record::new(counters, arrival)))
    }

    /// Begins a session with these legs, whose server may not have answered yet.
    pub fn begin(
        &mut self,
        listener: usize,
        arrival: Arrival,
        legs: Legs,
        acceptors: &mut Acceptors,
        now: Time,
    ) {
        let key = self.table.next_key();
        if (self.poll)
            .add_session(&legs.client, &legs.server, key)
            .is_err()
        {
            // Dropping them resets both.
            acceptors.count_shed(Shortage::Descriptors);
            return;
        }
        let Some((identity, record)) = self.record(listener, &arrival, acceptors) else {
            return;
        };
        if arrival.is_bypassed {
            self.begin_plain(identity.id());
        }
        let number = u16::try_from(listener).unwrap_or(u16::MAX);
        let sockets = Sockets {
            client: legs.client.into(),
            server: legs.server,
        };
        let seat = arrival.seat.unwrap_or_default();
        let part = SharedPart::new(identity, sockets, seat);
        let way = (arrival.name, arrival.overlay.map(|part| *part));
        self.keep_way(identity.id(), way, acceptors, listener);
        let mut session = Session::new(part, number, record, now);
        session.pace_from_start([legs.client_pacing, legs.server_pacing]);
        session.set_narrow(legs.narrow);
        if let Some(error) = arrival.server_reset {
            session.note_server_reset(error, &mut self.shared);
        }
        self.measuring.begin(&mut session, arrival.window);
        let key = self.take_in(session, acceptors);
        let deadline = arrival.connect_timeout.map(|timeout| now + timeout);
        self.timers.set(key, deadline);
    }

    /// The next session has this number, and is relayed without any mechanism.
    pub fn begin_plain(&mut self, id: u64) {
        self.plain.begin(id);
        self.counters.sessions_plain.add(1);
    }

    /// Takes in a session whose legs are connected and watched with the
    /// [next key](Self::next_key), the memory of its receive window, the name by which its client requested the server, and what the
    /// overlay has to do with it.
    pub fn begin_connected(
        &mut self,
        (mut session, window): (Session, Option<SetAside>),
        (name, part): (Option<Box<str>>, Option<OverlayPart>),
        acceptors: &mut Acceptors,
        now: Time,
    ) {
        let listener = usize::from(session.listener);
        self.keep_way(session.id(), (name, part), acceptors, listener);
        self.measuring.begin(&mut session, window);
        self.measuring.begin_bounding(&mut session, acceptors, now);
        self.take_in(session, acceptors);
    }

    /// Keeps what belongs to the next session, which has this number.
    fn keep_way(
        &mut self,
        id: u64,
        (name, part): (Option<Box<str>>, Option<OverlayPart>),
        acceptors: &Acceptors,
        listener: usize,
    ) {
        if let Some(name) = name {
            self.destinations.insert(id, name);
        }
        if let (Some(part), Some(acceptor)) = (part, acceptors.get(listener)) {
            let (key, listener) = (self.table.next_key(), &acceptor.listener.name);
            self.overlaid.begin(id, key, part, listener);
        }
    }

    fn take_in(&mut self, mut session: Session, acceptors: &mut Acceptors) -> Key {
        let is_plain = self.plain.include(&session);
        session.register(&self.register, is_plain);
        acceptors.begin_session(session.listener.into());
        self.counters.sessions_opened.add(1);
        self.counters.sessions_active.add(1);
        self.table.insert(session)
    }

    /// Handles an event of a leg. Returns the key if the session carries an HTTP exchange
    /// that is over.
    pub fn handle_event(
        &mut self,
        key: Key,
        leg: Leg,
        flags: EventFlags,
        acceptors: &mut Acceptors,
        now: Time,
    ) -> Option<Key> {
        let session = self.table.get_mut(key)?;
        let was_connecting = session.phase == Phase::Connecting;
        if let Some(end) = session.handle_event(leg, flags, &mut self.shared, now) {
            self.end(key, end, acceptors, now);
            return None;
        }
        if session.phase == Phase::Connecting {
            self.measuring.note_moved(session, acceptors, now);
            return None;
        }
        if was_connecting {
            self.timers.set(key, None);
            self.measuring.begin_bounding(session, acceptors, now);
        }
        if session.queued {
            // Its turn comes when those before it have had theirs.
            return None;
        }
        self.advance(key, acceptors, now)
    }

    /// Moves as much data of a session as possible, and carries out its next step; returns as
    /// [`handle_event`](Self::handle_event).
    fn advance(&mut self, key: Key, acceptors: &mut Acceptors, now: Time) -> Option<Key> {
        let session = self.table.get_mut(key)?;
        let before = session.carried();
        let turn = session.advance(&mut self.shared, now, &self.counters);
        self.low_water_marks.note_turn(key, session, before, now);
        if let Some(sampling) = &mut self.sampling
            && session.record.unsampled
        {
            sampling.wish(now);
        }
        match turn.step {
            Step::Close => {
                session.sockets().close_in_order();
                self.end(key, End::Closed, acceptors, now);
            }
            Step::Reset => self.end(key, End::Reset, acceptors, now),
            Step::HandOver => return Some(key),
            Step::Settle(leg) if session.sockets().is_acknowledged(leg) => {
                self.end(key, End::Reset, acceptors, now);
            }
            Step::Continue | Step::Settle(_) => {
                if turn.unfinished && !session.queued {
                    session.queued = true;
                    self.unfinished.push_back(key);
                }
                let starved = turn.starved.then(|| now + STARVED_PAUSE);
                let again = starved.into_iter().chain(turn.resume_at).min();
                self.schedule(key, again, acceptors, now);
                if let Some(session) = self.table.get_mut(key) {
                    self.measuring.note_moved(session, acceptors, now);
                }
            }
        }
        None
    }

    /// Sets the session's next deadline, unless it has an earlier one.
    fn schedule(&mut self, key: Key, again: Option<Time>, acceptors: &Acceptors, now: Time) {
        let Some(session) = self.table.get_mut(key) else {
            return;
        };
        let deadline = match session.phase {
            Phase::Relaying if session.has_failed() => {
                session.phase.settle_until(now + self.reset_timeout);
                let look = session.phase.next_look(now);
                self.timers.set(key, look);
                again
            }
            Phase::Relaying => {
                let acceptor = acceptors.get(session.listener.into());
                let interval = acceptor
                    .filter(|_| session.active)
                    .and_then(|of| self.plain.sampling_interval(session, &*of.policy));
                let still = acceptor.and_then(|acceptor| acceptor.still_after(session));
                let sample = interval.map(|interval| {
                    let due = &mut session.upkeep.sample_due;
                    // A timer that has run out takes the sample in this turn.
                    let is_taken = self.timers.get(key).is_some_and(|timer| timer <= now);
                    // After a pause of samples, the next one is an interval later, when there is
                    // something to measure.
                    if *due <= now && !is_taken {
                        *due = self.sampling_pace.next_sample(now, interval);
                    }
                    *due
                });
                let narrow = session.narrow.as_ref().and_then(|leg| leg.next_look());
                let wanted = [again, sample, still, narrow];
                wanted.into_iter().flatten().min()
            }
            Phase::Connecting | Phase::Settling { .. } => again,
        };
        // If a deadline passes too early, it is set again then.
        let set = self.timers.get(key);
        if deadline.is_some_and(|deadline| set.is_none_or(|set| deadline < set)) {
            self.timers.set(key, deadline);
        }
    }

    /// One turn for the first session that has more to move; returns as
    /// [`handle_event`](Self::handle_event).
    pub fn go_on(&mut self, acceptors: &mut Acceptors, now: Time) -> Option<Key> {
        let key = self.unfinished.pop_front()?;
        self.table.get_mut(key)?.queued = false;
        self.advance(key, acceptors, now)
    }

    /// Removes and returns one session whose deadline has passed.
    pub fn pop_due(&mut self, now: Time) -> Option<Key> {
        self.timers.pop_due(now)
    }

    /// Handles the deadline of a session; returns as [`handle_event`](Self::handle_event).
    pub fn handle_timer(&mut self, key: Key, acceptors: &mut Acceptors, now: Time) -> Option<Key> {
        let session = self.table.get_mut(key)?;
        match session.phase {
            Phase::Connecting => {
                if let Some(acceptor) = acceptors.get(session.listener.into()) {
                    acceptor.note_unanswered(&session.part.sockets.client);
                }
                self.end(key, End::Unconnected(Errno::TIMEDOUT), acceptors, now);
                None
            }
            Phase::Relaying => self.look_after(key, acceptors, now),
            Phase::Settling { deadline, .. } => {
                let delivered = match session.step() {
                    Step::Settle(leg) => session.sockets().is_acknowledged(leg),
                    _ => false,
                };
                if delivered || now >= deadline {
                    self.end(key, End::Reset, acceptors, now);
                    return None;
                }
                let look = session.phase.next_look(now);
                self.timers.set(key, look);
                // The session may have been short of memory.
                self.advance(key, acceptors, now)
            }
        }
    }

    /// Handles the deadline of a relaying session: it may have timed out, or there may be more to
    /// move.
    fn look_after(&mut self, key: Key, acceptors: &mut Acceptors, now: Time) -> Option<Key> {
        let session = self.table.get_mut(key)?;
        let acceptor = acceptors.get(session.listener.into());
        let still = acceptor.and_then(|acceptor| acceptor.still_after(session));
        if still.is_some_and(|still| still <= now) && session.is_idle(now) {
            session.note_still();
            self.end(key, End::Reset, acceptors, now);
            return None;
        }
        let interval = acceptor.and_then(|of| self.plain.sampling_interval(session, &*of.policy));
        // Pacing wakes a session too, and more often.
        if let Some(interval) = interval
            && session.active
            && session.upkeep.sample_due <= now
        {
            self.sample(key, acceptors, interval, now);
        }
        self.advance(key, acceptors, now)
    }

    /// Passes a sample to the session's policy, which requested it after this interval, and carries out the
    /// decision.
    fn sample(&mut self, key: Key, acceptors: &mut Acceptors, interval: TimeSpan, now: Time) {
        let Some(session) = self.table.get_mut(key) else {
            return;
        };
        let Some(acceptor) = acceptors.get_mut(session.listener.into()) else {
            return;
        };
        session.active = false;
        let present = self.sampling_pace.interval(now, interval);
        if let Ok(mut sample) = session.sample() {
            sample.interval = present;
            let decision = (acceptor.policy).sample(now, &sample, &mut acceptor.knowledge);
            self.counters.samples.add(1);
            let refused = session.carry_out(&decision, &sample);
            self.counters.option_errors.add(refused);
        }
        let next = self.plain.sampling_interval(session, &*acceptor.policy);
        let next = next.unwrap_or(interval);
        session.upkeep.sample_due = self.sampling_pace.next_sample(now, next);
    }

    /// Ends a session; whether its sockets close by a FIN or a reset was decided before.
    pub fn end(&mut self, key: Key, end: End, acceptors: &mut Acceptors, now: Time) {
        drop(self.take(key, end, acceptors, now));
    }

    /// Ends a session without closing its sockets yet.
    pub fn take(
        &mut self,
        key: Key,
        end: End,
        acceptors: &mut Acceptors,
        now: Time,
    ) -> Option<Session> {
        let mut session = self.table.remove(key)?;
        acceptors.end_session(session.listener.into());
        if let End::Unconnected(error) = end {
            session.record.note_failure(Ending::of_connecting(error));
        }
        let closed = end == End::Closed;
        let (ended, sample) = observed::last_words(&mut session, closed, now, &self.counters);
        let name = self.destinations.remove(&session.id());
        self.surveys
            .note_end(|| observed::ended_figures(&session, closed, &name, now));
        let ended = ended.map(|mut ended| {
            ended.report.destination = name.map(String::from);
            observed::add_reasons(&mut ended.report, session.listener, acceptors);
            ended
        });
        if !self.plain.end(session.id())
            && let Some(acceptor) = acceptors.get_mut(session.listener.into())
        {
            (acceptor.policy).end(now, &sample, &mut acceptor.knowledge);
        }
        self.overlaid.end(now, session.id(), &session, &sample);
        self.log(ended);
        if seeded_faults::is(Fault::FinForReset) {
            session.sockets().close_in_order();
        }
        if seeded_faults::is(Fault::SocketLeaked) {
            std::mem::forget(Arc::clone(&session.part));
        }
        session.release(&mut self.shared);
        self.measuring.forget(&mut session);
        self.timers.set(key, None);
        self.counters.sessions_active.decrement();
        match end {
            End::Closed => self.counters.sessions_closed.add(1),
            End::Reset => self.counters.sessions_reset.add(1),
            End::Unconnected(_) => self.counters.sessions_unconnected.add(1),
        }
        Some(session)
    }

    /// Reads some of the sessions whose legs are hops of an overlay.
    pub fn read_overlaid(&mut self, now: Time) {
        self.overlaid.read_some(&mut self.table, now);
    }

    /// Measures the memory of some sessions: of those with recent events, or of all in a sweep. Returns whether
    /// to wake the other threads, because memory has become short and they have to bound their sessions too.
    pub fn measure_some(&mut self, acceptors: &mut Acceptors, now: Time) -> bool {
        self.measuring.measure_some(&mut self.table, acceptors, now)
    }

    /// All sessions end without a last reading: their policies forget them, and what they have left for running
    /// sessions is forgotten.
    pub fn lose_all(&self, acceptors: &mut Acceptors) {
        for session in self.table.iter() {
            let (id, client) = (SessionId(session.id()), session.identity().client().ip());
            if let Some(acceptor) = acceptors.get_mut(session.listener.into()) {
                acceptor.policy.lose(id);
                forget_running(&mut acceptor.knowledge, client, id);
            }
        }
    }

    /// Resets all sessions, of which nothing else may be consistent: no log line, no report. Returns how
    /// many sessions and negotiations there were.
    pub fn abandon(&mut self) -> u64 {
        let active = self.counters.sessions_active.get();
        self.counters.sessions_reset.add(active);
        self.counters.sessions_active.set(0);
        self.measuring.forget_all();
        for session in self.table.iter() {
            session.record.note_end(false);
        }
        self.table.clear();
        self.timers = Timers::default();
        self.unfinished.clear();
        self.destinations.clear();
        self.overlaid.forget_all();
        self.plain = PlainSessions::default();
        self.low_water_marks.clear();
        self.surveys = Surveys::default();
        self.listings = Listings::default();
        self.shared.pipes.clear();
        self.shared.meter.clear();
        self.publish_pipes();
        active
    }

    /// Publishes the number of pipes.
    pub fn publish_pipes(&self) {
        self.counters.pipes.set(self.shared.pipes.count() as u64);
        let in_use = self.shared.pipes.in_use();
        self.counters.pipes_in_use.set(in_use as u64);
        self.counters.pipe_shortages.set(self.shared.pipe_shortages);
    }
}

impl Drop for Sessions {
    /// However a thread ends, its sessions are reset.
    fn drop(&mut self) {
        self.abandon();
    }
}
