//! The register of one thread's connections, by which the relay's owner can end them.
//!
//! Only a thread itself can use its sessions and negotiations. If the thread is stuck, the owner of the relay
//! [seizes](Register::seize) the register of the thread: it resets the sockets, gives back the places and the
//! memory, and gets the connection that the thread was handling. The thread may continue later. Then it finds
//! its register [seized](Register::is_seized), and ends: another thread has its number, its listening sockets
//! and its sources of events.
//!
//! A socket is shared with the register, so its descriptor cannot become another file while the owner of the
//! relay uses it. The register itself keeps no socket open.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use midspan_policy::{Request, SessionId};

use super::leg_socket::LegSocket;
use super::limits::{Limits, MemoryAside, Seat, Spare};
use super::shared_part::SharedPart;
use super::system;
use super::table::{Key, Table};

/// A socket that the register of its thread can reset.
pub type SharedSocket = Arc<LegSocket>;

/// No connection is in hand.
const NOTHING: u64 = 0;

/// The connections of one thread.
#[derive(Debug)]
pub struct Register {
    limits: Arc<Limits>,
    is_seized: AtomicBool,
    /// The key of the connection that the thread is handling, plus 1.
    in_hand: AtomicU64,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    entries: Table<Entry>,
    memory: Sums,
    /// A connection that the thread is setting up, and that has no entry yet.
    opening: Option<InHand>,
    /// The descriptors of a thread that was replaced, until the thread has closed them.
    left: Option<Spare>,
}

/// Memory of all sessions of the thread, in KiB, and their number.
#[derive(Debug, Default)]
struct Sums {
    used: u64,
    reserved: u64,
    sessions: u64,
}

/// A connection that a thread is handling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InHand {
    /// Its client and its server.
    pub request: Request,
    /// Whether such connections were suspects already when it began, so that it is relayed plainly.
    pub is_plain: bool,
}

impl InHand {
    /// A connection that is not relayed plainly.
    pub const fn usual(request: Request) -> Self {
        Self {
            request,
            is_plain: false,
        }
    }
}

/// What one connection occupies.
#[derive(Debug)]
pub enum Entry {
    /// A session. Its memory is in the sums of the register.
    Session {
        /// Its sockets and its place.
        part: Weak<SharedPart>,
        /// As in [`InHand`].
        is_plain: bool,
    },
    /// A negotiation.
    Negotiation(Box<NegotiationEntry>),
}

/// What a negotiation occupies.
#[derive(Debug, Default)]
pub struct NegotiationEntry {
    /// Its client and its server; if the server is unknown, the address of the listener.
    pub request: Option<Request>,
    /// As in [`InHand`].
    pub is_plain: bool,
    /// The socket towards the client.
    pub client: Weak<LegSocket>,
    /// The sockets towards the server.
    pub servers: Vec<Weak<LegSocket>>,
    /// Its place among the sessions.
    pub seat: Weak<Seat>,
    /// Memory that is set aside for it.
    pub memory: Weak<MemoryAside>,
}

/// An entry, which is removed when this value is dropped.
#[derive(Debug)]
pub struct Registration {
    register: Arc<Register>,
    key: Key,
}

/// The connections of a thread that was replaced.
#[derive(Debug)]
pub struct Seized {
    entries: Vec<Entry>,
    /// The connection that the thread was handling.
    pub in_hand: Option<InHand>,
}

impl Register {
    /// An empty register.
    pub const fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            is_seized: AtomicBool::new(false),
            in_hand: AtomicU64::new(NOTHING),
            content: Mutex::new(Content {
                entries: Table::new(),
                memory: Sums {
                    used: 0,
                    reserved: 0,
                    sessions: 0,
                },
                opening: None,
                left: None,
            }),
        }
    }

    /// The limits of all threads.
    pub const fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Whether the thread has been replaced.
    pub fn is_seized(&self) -> bool {
        self.is_seized.load(Ordering::Acquire)
    }

    /// Adds a connection. After the seizure, the entry is not kept.
    pub fn add(self: &Arc<Self>, entry: Entry) -> Registration {
        let mut content = self.lock();
        let key = match self.is_seized() {
            true => Key::from_number(u64::MAX),
            false => content.entries.insert(entry),
        };
        Registration {
            register: Arc::clone(self),
            key,
        }
    }

    /// The thread handles this connection from now on, or none.
    pub fn put_in_hand(&self, registration: Option<&Registration>) {
        let number = registration.map_or(NOTHING, |it| it.key.number().wrapping_add(1));
        // Only after a panic, or when the thread is stuck, does anyone read it.
        self.in_hand.store(number, Ordering::Relaxed);
    }

    /// The thread sets up this connection from now on, which has no entry yet, or none.
    pub fn put_opening_in_hand(&self, opening: Option<InHand>) {
        self.lock().opening = opening;
    }

    /// The connection that the thread was handling when it panicked; afterwards, none is in hand.
    pub fn take_in_hand(&self) -> Option<InHand> {
        let mut content = self.lock();
        let in_hand = self.find_in_hand(&mut content);
        content.opening = None;
        self.in_hand.store(NOTHING, Ordering::Relaxed);
        in_hand
    }

    fn find_in_hand(&self, content: &mut Content) -> Option<InHand> {
        let number = self.in_hand.load(Ordering::Relaxed);
        let entry = match number.checked_sub(1) {
            Some(key) => content.entries.get_mut(Key::from_number(key)),
            None => None,
        };
        entry.and_then(|entry| entry.in_hand()).or(content.opening)
    }

    /// Counts a new session in the memory budget.
    pub fn begin_session(&self) {
        let mut content = self.lock();
        if !self.is_seized() {
            content.memory.sessions += 1;
            self.limits.budget.begin_session();
        }
    }

    /// Counts the end of a session.
    pub fn end_session(&self) {
        let mut content = self.lock();
        if !self.is_seized() && content.memory.sessions > 0 {
            content.memory.sessions -= 1;
            self.limits.budget.end_session();
        }
    }

    /// Replaces the used and the reserved memory of a session: from the first to the second number of KiB.
    pub fn change_memory(&self, used: [u32; 2], reserved: [u32; 2]) {
        if used[0] == used[1] && reserved[0] == reserved[1] {
            return;
        }
        let mut content = self.lock();
        if self.is_seized() {
            return;
        }
        let [old_used, used] = used.map(u64::from);
        let [old_reserved, reserved] = reserved.map(u64::from);
        let sums = &mut content.memory;
        sums.used = (sums.used + used).saturating_sub(old_used);
        sums.reserved = (sums.reserved + reserved).saturating_sub(old_reserved);
        let budget = &self.limits.budget;
        budget.change_use(old_used * 1024, used * 1024);
        budget.change_reserved(old_reserved * 1024, reserved * 1024);
    }

    /// All sessions end: gives their memory back.
    pub fn forget_memory(&self) {
        let mut content = self.lock();
        self.give_memory_back(&mut content);
    }

    fn give_memory_back(&self, content: &mut Content) {
        let sums = std::mem::take(&mut content.memory);
        let budget = &self.limits.budget;
        budget.change_use(sums.used * 1024, 0);
        budget.change_reserved(sums.reserved * 1024, 0);
        for _ in 0..sums.sessions {
            budget.end_session();
        }
    }

    /// Replaces the thread: it has no connections any more, and gets none. `None` if it has been replaced
    /// before, or if it is stuck while it changes the register itself.
    pub fn seize(&self) -> Option<Seized> {
        let mut content = match self.content.try_lock() {
            Ok(content) => content,
            Err(TryLockError::Poisoned(content)) => content.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.is_seized.swap(true, Ordering::AcqRel) {
            return None;
        }
        let in_hand = self.find_in_hand(&mut content);
        let entries: Vec<Entry> = std::mem::replace(&mut content.entries, Table::new())
            .into_values()
            .collect();
        let descriptors = entries.iter().map(Entry::descriptors).sum();
        content.left = Some(self.limits.count_descriptors(descriptors));
        self.give_memory_back(&mut content);
        Some(Seized { entries, in_hand })
    }

    /// Number of connections.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// No code panics while it holds this lock, so the content is always consistent.
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// The connection, if its client and its server are known.
    fn in_hand(&self) -> Option<InHand> {
        let (request, is_plain) = match self {
            Self::Session { part, is_plain } => (part.upgrade()?.identity.request(), *is_plain),
            Self::Negotiation(entry) => (entry.request?, entry.is_plain),
        };
        Some(InHand { request, is_plain })
    }

    /// Number of its sockets that are still open.
    fn descriptors(&self) -> u64 {
        match self {
            Self::Session { part, .. } => 2 * part.strong_count().min(1) as u64,
            Self::Negotiation(entry) => entry.sockets().count() as u64,
        }
    }

    /// Gives back its place and its memory.
    fn give_back(&self) {
        match self {
            Self::Session { part, .. } => {
                if let Some(part) = part.upgrade() {
                    part.seat.give_back();
                }
            }
            Self::Negotiation(entry) => {
                if let Some(memory) = entry.memory.upgrade() {
                    memory.give_back();
                }
                if let Some(seat) = entry.seat.upgrade() {
                    seat.give_back();
                }
            }
        }
    }

    /// Resets its sockets. A socket that cannot be reset is not connected any more.
    fn reset(&self) {
        match self {
            Self::Session { part, .. } => {
                if let Some(part) = part.upgrade() {
                    for socket in part.sockets.legs() {
                        let _ = system::reset(socket);
                    }
                }
            }
            Self::Negotiation(entry) => {
                for socket in entry.sockets() {
                    let _ = system::reset(&socket);
                }
            }
        }
    }
}

impl NegotiationEntry {
    /// The sockets that are still open.
    fn sockets(&self) -> impl Iterator<Item = SharedSocket> {
        let all = std::iter::once(&self.client).chain(&self.servers);
        all.filter_map(Weak::upgrade)
    }
}

impl Registration {
    /// Sets the client and the server of a negotiation, and whether such connections are suspects.
    pub fn set_request(&self, in_hand: InHand) {
        self.change(|entry| {
            entry.request = Some(in_hand.request);
            entry.is_plain = in_hand.is_plain;
        });
    }

    /// Adds a socket towards the server of a negotiation.
    pub fn add_server(&self, socket: &SharedSocket) {
        self.change(|entry| {
            entry.servers.retain(|known| known.strong_count() > 0);
            entry.servers.push(Arc::downgrade(socket));
        });
    }

    fn change(&self, change: impl FnOnce(&mut NegotiationEntry)) {
        if let Some(Entry::Negotiation(entry)) = self.register.lock().entries.get_mut(self.key) {
            change(entry);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let entry = self.register.lock().entries.remove(self.key);
        // After the lock is free.
        drop(entry);
    }
}

impl Seized {
    /// Number of connections.
    pub const fn count(&self) -> usize {
        self.entries.len()
    }

    /// Gives back the places and the memory of the connections.
    pub fn give_back(&self) {
        self.entries.iter().for_each(Entry::give_back);
    }

    /// The clients and the numbers of the sessions.
    pub fn sessions(&self) -> Vec<(IpAddr, SessionId)> {
        let session = |entry: &Entry| match entry {
            Entry::Session { part, .. } => {
                let identity = &part.upgrade()?.identity;
                Some((identity.client().ip(), SessionId(identity.id())))
            }
            Entry::Negotiation(_) => None,
        };
        self.entries.iter().filter_map(session).collect()
    }

    /// Resets the connections, and gives back what they have occupied.
    pub fn end(self) {
        self.give_back();
        self.entries.iter().for_each(Entry::reset);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::identity::Identity;
    use crate::limits::{RelayLimits, SessionLimits};
    use crate::sockets::Sockets;

    fn register() -> Arc<Register> {
        let limits = Arc::new(Limits::new(&RelayLimits::default(), 0));
        Arc::new(Register::new(limits))
    }

    fn request(port: u16) -> Request {
        Request {
            client: (Ipv4Addr::LOCALHOST, port).into(),
            server: (Ipv4Addr::LOCALHOST, 80).into(),
        }
    }

    fn entry(port: u16) -> NegotiationEntry {
        NegotiationEntry {
            request: Some(request(port)),
            ..NegotiationEntry::default()
        }
    }

    /// The part of a session with this number, and the peers of its legs.
    fn part(id: u64) -> (Arc<SharedPart>, [TcpStream; 2]) {
        let (client, one) = connection();
        let (server, other) = connection();
        let [client, server] = [client, server].map(|it| Arc::into_inner(it).unwrap());
        let identity = Identity::new(id, request(2));
        let sockets = Sockets { client, server };
        let part = SharedPart::new(identity, sockets, Seat::default());
        (part, [one, other])
    }

    fn add(register: &Arc<Register>, entry: NegotiationEntry) -> Registration {
        register.add(Entry::Negotiation(Box::new(entry)))
    }

    /// A connection: the relay's socket, and its peer.
    fn connection() -> (SharedSocket, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = OwnedFd::from(listener.accept().unwrap().0);
        (Arc::new(accepted.into()), peer)
    }

    #[test]
    fn sockets_are_reset_although_their_owner_keeps_them() {
        let register = register();
        let (client, mut client_peer) = connection();
        let (server, mut server_peer) = connection();
        let negotiation = NegotiationEntry {
            client: Arc::downgrade(&client),
            ..entry(1)
        };
        let registration = add(&register, negotiation);
        registration.add_server(&server);
        let (part, mut peers) = part(7);
        let session = register.add(Entry::Session {
            part: Arc::downgrade(&part),
            is_plain: false,
        });
        let seized = register.seize().unwrap();
        assert_eq!(seized.count(), 2);
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert_eq!(seized.sessions(), [(address, SessionId(7))]);
        assert!(register.is_seized() && register.seize().is_none());
        seized.end();
        let [third, fourth] = &mut peers;
        for peer in [&mut client_peer, &mut server_peer, third, fourth] {
            let error = peer.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        // The owner continues later, with sockets that are still its own.
        assert!(client.receive(&mut [0]).is_err());
        assert!(part.sockets.client.receive(&mut [0]).is_err());
        drop((client, server, part, registration, session));
        assert_eq!(register.len(), 0);
    }

    #[test]
    fn what_a_replaced_thread_had_is_given_back_once() {
        let register = register();
        let limits = Arc::clone(register.limits());
        let places = limits.set_listener("one", SessionLimits::default(), true);
        let seat = Arc::new(limits.take_of(&places, None).unwrap());
        let (mut part, _peers) = part(7);
        let of_session = limits.take_of(&places, None).unwrap();
        Arc::get_mut(&mut part).unwrap().seat = of_session;
        let session = register.add(Entry::Session {
            part: Arc::downgrade(&part),
            is_plain: false,
        });
        let memory = limits.set_aside(7 << 10);
        register.begin_session();
        register.change_memory([0, 40], [0, 80]);
        let negotiation = NegotiationEntry {
            seat: Arc::downgrade(&seat),
            memory: memory.memory(),
            ..entry(1)
        };
        let registration = add(&register, negotiation);
        let (socket, _peer) = connection();
        registration.add_server(&socket);
        register.seize().unwrap().end();
        let now = || {
            let budget = &limits.budget;
            (budget.used(), budget.reserved(), places.taken().0)
        };
        assert_eq!(now(), (0, 0, 0));
        // The thread continues.
        register.change_memory([40, 50], [80, 90]);
        register.end_session();
        register.begin_session();
        register.forget_memory();
        drop((seat, part, session, memory, registration));
        assert_eq!(now(), (0, 0, 0));
        assert!(add(&register, entry(2)).key.number() == u64::MAX);
        assert_eq!(register.len(), 0);
    }

    #[test]
    fn the_connection_in_hand_is_known() {
        let register = register();
        let registration = add(&register, entry(1));
        let usual = |port| Some(InHand::usual(request(port)));
        assert_eq!(register.take_in_hand(), None);
        register.put_in_hand(Some(&registration));
        register.put_opening_in_hand(usual(2));
        assert_eq!(register.take_in_hand(), usual(1));
        assert_eq!(register.take_in_hand(), None);
        register.put_opening_in_hand(usual(2));
        assert_eq!(register.take_in_hand(), usual(2));
        // An entry that does not exist any more is no suspect.
        register.put_in_hand(Some(&registration));
        drop(registration);
        assert_eq!(register.take_in_hand(), None);
        let registration = add(&register, entry(3));
        let plain = InHand {
            request: request(4),
            is_plain: true,
        };
        registration.set_request(plain);
        register.put_in_hand(Some(&registration));
        assert_eq!(register.seize().unwrap().in_hand, Some(plain));
    }
}
