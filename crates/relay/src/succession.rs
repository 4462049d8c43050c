//! One relay takes the place of another: the exchange by which listeners and sessions move.
//!
//! The relay that has the sessions [greets](Relay::greet_successor) its successor, which [meets](Predecessor::meet)
//! it before it starts, because it continues the clock. When the successor runs, it [takes over](Relay::take_over)
//! the listeners that its predecessor [hands over](Relay::hand_over), and then [the sessions](Relay::take_sessions), in
//! parts. Until the listeners belong to the successor, nothing has changed, and after any error nothing does.
//! Afterwards, a part of the sessions that the successor cannot take stays with the predecessor.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use midspan_handover::{FromPredecessor, FromSuccessor, WRITTEN, newest_common};
use midspan_units::Time;

use super::Relay;
use super::handing::{
    ANSWER_LIMIT, Answer, Channel, HandOver, HandoverError, ListenerName, SendListeners, TakeOver,
};
use super::listener::Listener;
use super::opening::ListenerId;
use super::running::RunningThread;
use super::settings::{Error, OpenListener};
use super::thread::Update;

/// How long a message that is no session may take.
const MESSAGE_LIMIT: Duration = Duration::from_secs(1);

/// Most different listeners of a predecessor, and most names of listeners: those of each thread.
const MOST_LISTENERS: usize = 1 << 12;
const MOST_NAMES: usize = 1 << 18;

/// Most sessions that a relay begins after it has handed its listeners over: of clients that negotiate then.
const NEGOTIATING: u64 = 1 << 16;

/// The relay that gets the sessions.
#[derive(Debug)]
pub struct Successor(Arc<Channel>);

impl Successor {
    /// Readable when the successor is ready, or has ended.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
}

/// The relay that has the sessions.
#[derive(Debug)]
pub struct Predecessor {
    channel: Arc<Channel>,
    version: u32,
    now: Time,
}

/// What a relay has taken over.
#[derive(Debug)]
pub struct TakenOver {
    /// The listeners in their order; an error where the kernel refuses to set a socket up.
    pub listeners: Vec<Result<ListenerId, Error>>,
    /// The sessions, which follow.
    pub sessions: ComingSessions,
}

/// Sessions that a predecessor sends.
#[derive(Debug)]
#[must_use = "the predecessor waits"]
pub struct ComingSessions {
    channel: Arc<Channel>,
    /// The threads that send.
    threads: u32,
}

impl Predecessor {
    /// Waits for the greeting of the relay at the other end of this socket.
    ///
    /// # Errors
    /// There is no greeting within the limit, or no common version of the format.
    pub fn meet(socket: OwnedFd, limit: Duration) -> Result<Self, HandoverError> {
        let channel = Channel::new(socket)?;
        let until = Instant::now() + limit;
        let (versions, now) = match FromPredecessor::decode(&channel.receive(until)?.bytes)? {
            FromPredecessor::Hello { versions, now } => (versions, now),
            _ => return Err(HandoverError::OutOfTurn),
        };
        let Some(version) = newest_common(&versions) else {
            let error = HandoverError::Versions(versions);
            refuse(&channel, &error);
            return Err(error);
        };
        Ok(Self {
            channel: Arc::new(channel),
            version,
            now: Time::from_nanoseconds(now),
        })
    }

    /// The time on its clock, for [`Settings::begins_at`](super::Settings::begins_at).
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }
}

impl Relay {
    /// Greets the relay at the other end of this socket, which is to continue the sessions.
    ///
    /// # Errors
    /// The greeting cannot be sent.
    pub fn greet_successor(&self, socket: OwnedFd) -> Result<Successor, HandoverError> {
        let channel = Channel::new(socket)?;
        let hello = FromPredecessor::Hello {
            versions: WRITTEN.to_vec(),
            now: self.clock.now().nanoseconds(),
        };
        channel.send(&hello.encode()?, &[], Instant::now() + MESSAGE_LIMIT)?;
        Ok(Successor(Arc::new(channel)))
    }

    /// Hands listeners and sessions over to a successor that is ready. Returns the number of sessions that the successor
    /// has. Each session waits only while the successor takes it and those in the same message. As soon as the successor has
    /// the listeners, this relay accepts no connections: the successor has duplicates of the listening sockets. What cannot be handed over
    /// stays: clients that negotiate, HTTP exchanges, and client legs with an access profile. So do sessions that the
    /// successor does not take, or not within the limit; the log has the reason.
    ///
    /// # Errors
    /// The successor is not ready, or there was another error; all continues here.
    pub fn hand_over(&self, successor: &Successor, limit: Duration) -> Result<u64, HandoverError> {
        let until = Instant::now() + limit;
        let channel = &successor.0;
        let largest_id = self.largest_id();
        if let Err(error) = self.hand_listeners_over(channel, largest_id, until) {
            // If the successor has ended, it needs no message.
            if let Ok(message) = FromPredecessor::Stay.encode() {
                let _ = channel.send(&message, &[], Instant::now() + MESSAGE_LIMIT);
            }
            return Err(error);
        }
        Ok(self.hand_sessions_over(channel, until))
    }

    /// A number that no session of this relay will exceed: those that clients negotiate at present get numbers later.
    fn largest_id(&self) -> u64 {
        self.shared.registry.largest_session() + NEGOTIATING
    }

    /// The successor has the listeners, or none after an error.
    fn hand_listeners_over(
        &self,
        channel: &Arc<Channel>,
        largest_id: u64,
        until: Instant,
    ) -> Result<(), HandoverError> {
        match from_successor(channel, until)? {
            FromSuccessor::Welcome { version } if WRITTEN.contains(&version) => {}
            _ => return Err(HandoverError::OutOfTurn),
        }
        let (report, reports) = mpsc::channel();
        self.order(|| {
            Update::SendListeners(SendListeners {
                channel: Arc::clone(channel),
                report: report.clone(),
                until,
            })
        })?;
        drop(report);
        for _ in &self.threads {
            let left = until.saturating_duration_since(Instant::now());
            reports.recv_timeout(left).map_err(|error| match error {
                RecvTimeoutError::Timeout => HandoverError::Late,
                RecvTimeoutError::Disconnected => HandoverError::Thread,
            })??;
        }
        for (address, sockets) in self.known.open_sockets() {
            let message = FromPredecessor::Sockets { address }.encode()?;
            let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            channel.send(&message, &sockets, until)?;
        }
        channel.send(&FromPredecessor::Check.encode()?, &[], until)?;
        match from_successor(channel, until)? {
            FromSuccessor::Ready => {}
            _ => return Err(HandoverError::OutOfTurn),
        }
        let threads = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        let go = FromPredecessor::Go {
            threads,
            largest_id,
        };
        channel.send(&go.encode()?, &[], until)
    }

    /// Sends each thread an update.
    fn order(&self, update: impl Fn() -> Update) -> Result<(), HandoverError> {
        for thread in &self.threads {
            let sent = thread.updates.send(update());
            sent.map_err(|_| HandoverError::Thread)?;
        }
        self.control.wake();
        Ok(())
    }

    /// Lets the threads hand their sessions over, and passes the successor's answers on to them. Returns how many sessions
    /// the successor has.
    fn hand_sessions_over(&self, channel: &Arc<Channel>, until: Instant) -> u64 {
        let (report, reports) = mpsc::channel();
        let mut answers = Vec::new();
        for thread in &self.threads {
            let (sender, receiver) = mpsc::channel();
            answers.push(sender);
            // A thread that has ended has no sessions.
            let _ = thread.updates.send(Update::HandOver(HandOver {
                channel: Arc::clone(channel),
                answers: receiver,
                report: report.clone(),
                until,
            }));
        }
        drop(report);
        self.control.wake();
        // Threads wait so long for the answer to what they have sent at the last moment.
        if let Err(error) = pass_answers_on(channel, &answers, until + ANSWER_LIMIT) {
            tracing::warn!("not all sessions were handed over: {error}");
            if matches!(error, HandoverError::Ended) {
                // Threads that wait for an answer get none.
                answers.clear();
            }
        }
        let mut sessions = 0;
        // Threads wait for their last answer at most as long.
        let until = Instant::now() + 2 * ANSWER_LIMIT;
        while let Ok(count) = reports.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            sessions += count;
        }
        sessions
    }

    /// Takes over the listeners of a predecessor, and accepts connections for these `listeners` from then on: by their
    /// own sockets, or, if they have none, by those of the predecessor at the same address. The sessions
    /// [follow](Self::take_sessions).
    ///
    /// # Errors
    /// Listeners and sessions stay with the predecessor.
    pub fn take_over(
        &mut self,
        predecessor: &Predecessor,
        listeners: Vec<OpenListener>,
        limit: Duration,
    ) -> Result<TakenOver, HandoverError> {
        let until = Instant::now() + limit;
        let result = self.take_over_until(predecessor, listeners, until);
        if let Err(error) = &result {
            refuse(&predecessor.channel, error);
        }
        result
    }

    fn take_over_until(
        &mut self,
        predecessor: &Predecessor,
        listeners: Vec<OpenListener>,
        until: Instant,
    ) -> Result<TakenOver, HandoverError> {
        let Predecessor {
            channel, version, ..
        } = predecessor;
        let welcome = FromSuccessor::Welcome { version: *version };
        channel.send(&welcome.encode()?, &[], until)?;
        let (taken, mut sockets) = receive_listeners(channel, until)?;
        let listeners = listeners.into_iter();
        let listeners = listeners.map(|open| with_sockets(open, &mut sockets, &self.threads));
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        channel.send(&FromSuccessor::Ready.encode()?, &[], until)?;
        let (threads, largest_id) = match FromPredecessor::decode(&channel.receive(until)?.bytes)? {
            FromPredecessor::Go {
                threads,
                largest_id,
            } => (threads, largest_id),
            FromPredecessor::Stay => return Err(HandoverError::Stays),
            _ => return Err(HandoverError::OutOfTurn),
        };
        self.shared.registry.note_session(largest_id);
        self.expect_sessions(taken);
        // The sockets have been checked, and the predecessor has set them up.
        let listeners = listeners.into_iter().map(|open| self.add_listener(open));
        Ok(TakenOver {
            listeners: listeners.collect(),
            sessions: ComingSessions {
                channel: Arc::clone(channel),
                threads,
            },
        })
    }

    /// Each thread gets an acceptor for the sessions of each listener of the predecessor. The acceptors accept nothing.
    fn expect_sessions(&mut self, taken: TakenListeners) {
        let mut listeners = Vec::new();
        for mut listener in taken.listeners {
            // The limits of sessions belong to all sessions of a listener's name; the present ones apply.
            if let Some(present) = self.known.named(&listener.name) {
                listener.limits.sessions = present.limits.sessions;
            }
            let id = ListenerId(self.next_listener);
            self.next_listener += 1;
            listeners.push((id, Arc::new(listener)));
        }
        for (number, thread) in self.threads.iter().enumerate() {
            let acceptors = listeners.iter().enumerate();
            let acceptors = acceptors
                .map(|(place, (id, listener))| (place, self.acceptor(number, *id, None, listener)));
            let order = TakeOver {
                places: taken.places.clone(),
                acceptors: acceptors.collect(),
            };
            // The sessions of a thread that has ended stay with the predecessor.
            let _ = thread.updates.send(Update::TakeOver(Box::new(order)));
        }
    }

    /// Takes over the sessions that follow the listeners: deals them out to the threads as they arrive. Each session
    /// keeps the settings of the listener that it had. Returns the number of sessions.
    ///
    /// # Errors
    /// The predecessor has ended, or has not sent everything within the limit. This relay keeps the sessions that it has.
    pub fn take_sessions(
        &self,
        coming: ComingSessions,
        limit: Duration,
    ) -> Result<u64, HandoverError> {
        let until = Instant::now() + limit;
        let result = self.deal_out(&coming, until);
        for thread in &self.threads {
            let _ = thread.updates.send(Update::EndTaking);
        }
        self.control.wake();
        result
    }

    fn deal_out(&self, coming: &ComingSessions, until: Instant) -> Result<u64, HandoverError> {
        let mut threads = self.threads.iter().cycle();
        let (mut ended, mut sum) = (0, 0);
        while ended < coming.threads {
            let message = coming.channel.receive(until)?;
            if FromPredecessor::has_sessions(&message.bytes) {
                let thread = threads.next().ok_or(HandoverError::Thread)?;
                let channel = Arc::clone(&coming.channel);
                let sent = thread.updates.send(Update::Sessions(message, channel));
                sent.map_err(|_| HandoverError::Thread)?;
                self.control.wake();
                continue;
            }
            match FromPredecessor::decode(&message.bytes)? {
                FromPredecessor::End { sessions } => {
                    ended += 1;
                    sum += sessions;
                }
                _ => return Err(HandoverError::OutOfTurn),
            }
        }
        let done = FromSuccessor::Done.encode()?;
        coming.channel.send(&done, &[], until)?;
        Ok(sum)
    }
}

/// Passes answers on to the threads of the predecessor, until the successor has the sessions of all threads.
fn pass_answers_on(
    channel: &Channel,
    threads: &[Sender<Answer>],
    until: Instant,
) -> Result<(), HandoverError> {
    loop {
        let (thread, answer) = match from_successor(channel, until)? {
            FromSuccessor::Taken { thread } => (thread, Answer::Taken),
            FromSuccessor::NotTaken { thread, reason } => (thread, Answer::NotTaken(reason)),
            FromSuccessor::Done => return Ok(()),
            _ => return Err(HandoverError::OutOfTurn),
        };
        let sender = usize::try_from(thread).ok().and_then(|at| threads.get(at));
        let sender = sender.ok_or(HandoverError::OutOfTurn)?;
        // A thread that has ended waits for nothing.
        let _ = sender.send(answer);
    }
}

/// Listening sockets by their address.
type ListeningSockets = BTreeMap<SocketAddr, Vec<OwnedFd>>;

/// A listener with sockets: its own, or those of the predecessor at its address.
fn with_sockets(
    mut open: OpenListener,
    sockets: &mut ListeningSockets,
    threads: &[RunningThread],
) -> Result<OpenListener, HandoverError> {
    if open.sockets.is_empty() {
        let found = (open.listener.listen).and_then(|address| sockets.remove(&address));
        open.sockets = found.ok_or_else(|| HandoverError::NoSocket(open.listener.name.clone()))?;
    }
    super::check(&open, threads.len())?;
    Ok(open)
}

/// The listeners whose sessions this relay takes over.
#[derive(Debug, Default)]
struct TakenListeners {
    /// Each different listener once.
    listeners: Vec<Listener>,
    /// The place of each in this list by its name.
    places: BTreeMap<ListenerName, usize>,
}

impl TakenListeners {
    fn add(&mut self, name: ListenerName, listener: Listener) -> Result<(), HandoverError> {
        let known = self.listeners.iter().position(|known| *known == listener);
        let place = known.unwrap_or(self.listeners.len());
        if place >= MOST_LISTENERS || self.places.len() >= MOST_NAMES {
            return Err(HandoverError::OutOfTurn);
        }
        if known.is_none() {
            self.listeners.push(listener);
        }
        self.places.insert(name, place);
        Ok(())
    }
}

/// The listeners of a predecessor, and their sockets.
fn receive_listeners(
    channel: &Channel,
    until: Instant,
) -> Result<(TakenListeners, ListeningSockets), HandoverError> {
    let mut listeners = TakenListeners::default();
    let mut sockets = ListeningSockets::new();
    loop {
        let message = channel.receive(until)?;
        match FromPredecessor::decode(&message.bytes)? {
            FromPredecessor::Listener {
                thread,
                index,
                settings,
            } => {
                let listener = serde_json::from_slice(settings.as_bytes())?;
                listeners.add((thread, index), listener)?;
            }
            FromPredecessor::Sockets { address } => {
                sockets.insert(address, message.descriptors);
            }
            FromPredecessor::Check => return Ok((listeners, sockets)),
            FromPredecessor::Stay => return Err(HandoverError::Stays),
            _ => return Err(HandoverError::OutOfTurn),
        }
    }
}

fn from_successor(channel: &Channel, until: Instant) -> Result<FromSuccessor, HandoverError> {
    match FromSuccessor::decode(&channel.receive(until)?.bytes)? {
        FromSuccessor::Refused { reason } => Err(HandoverError::Refused(reason)),
        message => Ok(message),
    }
}

fn refuse(channel: &Channel, error: &HandoverError) {
    if let Ok(message) = FromSuccessor::refused(error).encode() {
        // If the predecessor has ended, it needs no message.
        let _ = channel.send(&message, &[], Instant::now() + MESSAGE_LIMIT);
    }
}
