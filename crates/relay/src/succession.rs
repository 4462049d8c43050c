//! One relay takes the place of another: the exchange by which sessions move.
//!
//! The relay that has the sessions [greets](Relay::greet_successor) its successor, which [meets](Predecessor::meet)
//! it before it starts, because it continues the clock. When the successor runs, it [takes over](Relay::take_over)
//! what its predecessor [hands over](Relay::hand_over). Until the predecessor's last message, the sessions are
//! untouched and belong to the predecessor; after any error they continue there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use midspan_handover::{FromPredecessor, FromSuccessor, WRITTEN, newest_common};
use midspan_units::Time;

use super::Relay;
use super::handing::{Channel, Delivery, HandOver, HandoverError, TakeOver};
use super::listener::Listener;
use super::opening::ListenerId;
use super::running::RunningThread;
use super::settings::{Error, OpenListener};
use super::thread::Update;

/// How long a message that is no session may take.
const MESSAGE_LIMIT: Duration = Duration::from_secs(1);

/// Most different listeners of a predecessor.
const MOST_LISTENERS: usize = 1 << 12;

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
    channel: Channel,
    version: u32,
    now: Time,
}

/// What a relay has taken over.
#[derive(Debug)]
pub struct TakenOver {
    /// The number of sessions.
    pub sessions: u64,
    /// The listeners in their order; an error where the kernel refuses to set a socket up.
    pub listeners: Vec<Result<ListenerId, Error>>,
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
            channel,
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

    /// Hands the sessions over to a successor that is ready. All threads stop meanwhile, at most for about the
    /// limit. Returns the number of sessions that the successor has. From then on, this relay accepts no connections:
    /// the successor has duplicates of the listening sockets. What cannot be handed over stays: clients that
    /// negotiate, HTTP exchanges, and client legs with an access profile.
    ///
    /// # Errors
    /// The successor is not ready, or there was another error; the sessions continue here.
    pub fn hand_over(&self, successor: &Successor, limit: Duration) -> Result<u64, HandoverError> {
        let until = Instant::now() + limit;
        let result = self.hand_over_until(&successor.0, until);
        if result.is_err()
            && let Ok(message) = FromPredecessor::Stay.encode()
        {
            // If the successor has ended, it needs no message.
            let until = Instant::now() + MESSAGE_LIMIT;
            let _ = successor.0.send(&message, &[], until);
        }
        result
    }

    fn hand_over_until(
        &self,
        channel: &Arc<Channel>,
        until: Instant,
    ) -> Result<u64, HandoverError> {
        match from_successor(channel, until)? {
            FromSuccessor::Welcome { version } if WRITTEN.contains(&version) => {}
            _ => return Err(HandoverError::OutOfTurn),
        }
        let (report, reports) = mpsc::channel();
        // If this list is dropped, the threads continue with their sessions.
        let mut verdicts: Vec<Sender<()>> = Vec::new();
        for thread in &self.threads {
            let (sender, verdict) = mpsc::channel();
            let order = HandOver {
                channel: Arc::clone(channel),
                report: report.clone(),
                verdict,
                until,
            };
            let sent = thread.updates.send(Update::HandOver(order));
            sent.map_err(|_| HandoverError::Thread)?;
            verdicts.push(sender);
        }
        drop(report);
        self.control.wake();
        let sessions = sum(&reports, verdicts.len(), until)?;
        for (address, sockets) in self.known.open_sockets() {
            let message = FromPredecessor::Sockets { address }.encode()?;
            let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            channel.send(&message, &sockets, until)?;
        }
        let end = FromPredecessor::End { sessions };
        channel.send(&end.encode()?, &[], until)?;
        match from_successor(channel, until)? {
            FromSuccessor::Ready { sessions: taken } if taken == sessions => {}
            FromSuccessor::Ready { sessions: taken } => {
                let sent = sessions;
                return Err(HandoverError::Count { sent, taken });
            }
            _ => return Err(HandoverError::OutOfTurn),
        }
        // The threads still wait, so the sessions are never handled by both relays.
        channel.send(&FromPredecessor::Go.encode()?, &[], until)?;
        for verdict in verdicts {
            let _ = verdict.send(());
        }
        Ok(sessions)
    }

    /// Takes over the sessions of a predecessor. All threads stop meanwhile, at most for about the limit. Each session
    /// keeps the settings of the listener that it had. Afterwards, this relay accepts connections for these
    /// `listeners`: by their own sockets, or, if they have none, by those of the predecessor at the same address.
    ///
    /// # Errors
    /// The sessions stay with the predecessor.
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
        let (report, reports) = mpsc::channel();
        // If these lists are dropped, the threads forget the sessions.
        let mut verdicts: Vec<Sender<()>> = Vec::new();
        let mut deliveries: Vec<Sender<Delivery>> = Vec::new();
        for thread in &self.threads {
            let (verdict_sender, verdict) = mpsc::channel();
            let (sender, received) = mpsc::channel();
            let order = TakeOver {
                deliveries: received,
                report: report.clone(),
                verdict,
            };
            let sent = thread.updates.send(Update::TakeOver(order));
            sent.map_err(|_| HandoverError::Thread)?;
            verdicts.push(verdict_sender);
            deliveries.push(sender);
        }
        drop(report);
        self.control.wake();
        let (sent, mut sockets) = self.deliver(channel, &deliveries, until)?;
        drop(deliveries);
        let listeners = listeners.into_iter();
        let listeners = listeners.map(|open| with_sockets(open, &mut sockets, &self.threads));
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let sessions = sum(&reports, verdicts.len(), until)?;
        if sent != sessions {
            let taken = sessions;
            return Err(HandoverError::Count { sent, taken });
        }
        let ready = FromSuccessor::Ready { sessions };
        channel.send(&ready.encode()?, &[], until)?;
        match FromPredecessor::decode(&channel.receive(until)?.bytes)? {
            FromPredecessor::Go => {}
            FromPredecessor::Stay => return Err(HandoverError::Stays),
            _ => return Err(HandoverError::OutOfTurn),
        }
        for verdict in verdicts {
            let _ = verdict.send(());
        }
        // The sockets have been checked, and the predecessor has set them up.
        let listeners = listeners.into_iter().map(|open| self.add_listener(open));
        Ok(TakenOver {
            sessions,
            listeners: listeners.collect(),
        })
    }

    /// Deals the messages with sessions out to the threads as they arrive. Returns how many sessions the predecessor has
    /// sent, and its listening sockets.
    fn deliver(
        &mut self,
        channel: &Channel,
        deliveries: &[Sender<Delivery>],
        until: Instant,
    ) -> Result<(u64, ListeningSockets), HandoverError> {
        let mut sockets = ListeningSockets::new();
        let mut listeners = TakenListeners::default();
        let mut threads = deliveries.iter().cycle();
        loop {
            let message = channel.receive(until)?;
            if FromPredecessor::has_sessions(&message.bytes) {
                send(threads.next(), Delivery::Sessions(message))?;
                continue;
            }
            match FromPredecessor::decode(&message.bytes)? {
                FromPredecessor::Listener {
                    thread,
                    index,
                    settings,
                } => {
                    let listener: Listener = serde_json::from_value(settings)?;
                    let (place, listener) = listeners.place(listener)?;
                    self.deliver_listener((thread, index), place, listener, deliveries)?;
                }
                FromPredecessor::Sockets { address } => {
                    sockets.insert(address, message.descriptors);
                }
                FromPredecessor::End { sessions } => return Ok((sessions, sockets)),
                FromPredecessor::Stay => return Err(HandoverError::Stays),
                FromPredecessor::Hello { .. }
                | FromPredecessor::Sessions(_)
                | FromPredecessor::Go => return Err(HandoverError::OutOfTurn),
            }
        }
    }

    /// Gives each thread the name of a listener, and an acceptor for its sessions if the listener is new. The acceptor
    /// accepts nothing.
    fn deliver_listener(
        &mut self,
        name: (u32, u32),
        place: usize,
        new: Option<Listener>,
        deliveries: &[Sender<Delivery>],
    ) -> Result<(), HandoverError> {
        let new = new.map(|mut listener| {
            // The limits of sessions belong to all sessions of a listener's name; the present ones apply.
            if let Some(present) = self.known.named(&listener.name) {
                listener.limits.sessions = present.limits.sessions;
            }
            let id = ListenerId(self.next_listener);
            self.next_listener += 1;
            (id, Arc::new(listener))
        });
        for (thread, sender) in deliveries.iter().enumerate() {
            let acceptor = (new.as_ref())
                .map(|(id, listener)| Box::new(self.acceptor(thread, *id, None, listener)));
            let delivery = Delivery::Listener {
                name,
                place,
                acceptor,
            };
            send(Some(sender), delivery)?;
        }
        Ok(())
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
struct TakenListeners(Vec<Listener>);

impl TakenListeners {
    /// The place of a listener in the list, and the listener if it is new there.
    fn place(&mut self, listener: Listener) -> Result<(usize, Option<Listener>), HandoverError> {
        if let Some(place) = self.0.iter().position(|known| *known == listener) {
            return Ok((place, None));
        }
        let place = self.0.len();
        if place >= MOST_LISTENERS {
            return Err(HandoverError::OutOfTurn);
        }
        self.0.push(listener.clone());
        Ok((place, Some(listener)))
    }
}

fn send(to: Option<&Sender<Delivery>>, delivery: Delivery) -> Result<(), HandoverError> {
    let sent = to.is_some_and(|to| to.send(delivery).is_ok());
    sent.then_some(()).ok_or(HandoverError::Thread)
}

/// The sum of what this many threads report.
fn sum(
    reports: &Receiver<Result<u64, HandoverError>>,
    threads: usize,
    until: Instant,
) -> Result<u64, HandoverError> {
    let mut sum = 0;
    for _ in 0..threads {
        let left = until.saturating_duration_since(Instant::now());
        sum += reports.recv_timeout(left).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => HandoverError::Late,
            mpsc::RecvTimeoutError::Disconnected => HandoverError::Thread,
        })??;
    }
    Ok(sum)
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
