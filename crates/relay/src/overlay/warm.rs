//! Warm connections to other nodes: opened in advance, and over each at least one exchange has passed. The next hop
//! uses one instead of a new connection.
//!
//! Sessions [take](WarmPool::take) them, on any thread. One other thread keeps the pool full: it gets [work](WarmWork),
//! does it, and [puts](WarmPool::put) the connections into the pool. A connection that has been idle gets
//! another exchange before the node at its other end closes it.
//!
//! The connections belong to one listener and one node, because the options of their sockets are those of the
//! listener's server legs. Each has a descriptor and memory of the relay's limits.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midspan_policy::LegStart;
use midspan_policy::memory_share::LEAST_OF_SESSION;
use midspan_policy::overlay::{LegKeys, NextHop, NodeKind, NodeName, Warmth};
use midspan_units::{Dscp, Time, TimeSpan};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::leg_socket::LegSocket;
use crate::legs::connect_to_node;
use crate::limits::{Limits, SetAside, Spare};
use crate::listener::Listener;
use crate::system;

/// A connection is replaced this long after a session has taken it: the session is set up first, on the processors of
/// this node and of the next one.
const REPLACED_AFTER: TimeSpan = TimeSpan::from_milliseconds(2);
/// A connection that has been idle for this long gets another exchange. The other end closes it after two minutes.
const REFRESH: TimeSpan = TimeSpan::from_seconds(90);
/// Pauses after connections that cannot be opened, or that the node has closed: the first one, and how often it doubles.
const FIRST_PAUSE: TimeSpan = TimeSpan::from_seconds(1);
const MOST_DOUBLINGS: u32 = 5;
/// How often connections that have ended are looked for, which takes a system call for each. Sessions take none of these.
const LOOK_INTERVAL: TimeSpan = TimeSpan::from_milliseconds(250);
/// Most pairs of a listener and a node, and most connections of all of them.
const MOST_PAIRS: usize = 256;
const MOST_CONNECTIONS: usize = 512;

/// Whose connections these are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WarmPair {
    /// The name of the listener whose sessions use them.
    pub listener: String,
    /// The leg to the node at the other end.
    pub node: NodeName,
}

/// Where a connection to a node begins and ends: the node's address, and the address of this machine, if the kernel
/// does not choose it.
pub type WarmEnds = (SocketAddr, Option<IpAddr>);

/// What a connection occupies within the relay's limits.
#[derive(Debug)]
pub struct Reserve {
    _memory: SetAside,
    _descriptor: Spare,
    /// For a large receive window.
    window: Option<SetAside>,
}

/// A warm connection.
#[derive(Debug)]
pub struct WarmLeg {
    /// Its socket.
    pub socket: LegSocket,
    /// When the last exchange was.
    asked: Time,
    reserve: Reserve,
}

/// What the thread that keeps the pool full has to do for a pair; then it calls [`WarmPool::put`] or
/// [`WarmPool::give_up`].
#[derive(Debug)]
pub enum WarmWork {
    /// Open a connection with the options of this listener's server legs, and exchange something over it.
    Open(Arc<Listener>, WarmEnds, Option<LegKeys>),
    /// Exchange something over this connection.
    Refresh(WarmEnds, LegSocket, Reserve),
}

/// The connections to one node, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmCounts {
    /// Connections that sessions can use now.
    pub ready: u64,
    /// Sessions that have used one.
    pub used: u64,
    /// Sessions for which there was none.
    pub missed: u64,
    /// Connections that have ended before a session used them, or when one did.
    pub ended: u64,
}

/// All warm connections of a relay.
#[derive(Debug)]
pub struct WarmPool {
    kept: Mutex<BTreeMap<WarmPair, Kept>>,
    /// A timer: becomes readable when there may be work; `None` if the kernel has refused it.
    wake_up: Option<OwnedFd>,
    /// Whether the timer runs, or the other thread has not yet noted that it is readable.
    will_wake: AtomicBool,
}

#[derive(Debug)]
struct Kept {
    listener: Arc<Listener>,
    ends: WarmEnds,
    /// As in [`NextHop`].
    keys: Option<LegKeys>,
    warmth: Warmth,
    /// The one that was used for an exchange last is the last one.
    ready: VecDeque<WarmLeg>,
    /// When ended connections are looked for next.
    next_look: Time,
    /// Connections with which the other thread is busy.
    busy: usize,
    counts: WarmCounts,
    /// Failures since a session used a connection, and no new connection until then.
    failures: u32,
    pause_until: Time,
}

impl Default for WarmPool {
    fn default() -> Self {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Self {
            kept: Mutex::default(),
            wake_up: timerfd_create(TimerfdClockId::Monotonic, flags).ok(),
            will_wake: AtomicBool::new(false),
        }
    }
}

impl Reserve {
    /// Room for one connection; `None` if memory or descriptors are short.
    #[must_use]
    pub fn take(limits: &Arc<Limits>) -> Option<Self> {
        Some(Self {
            _memory: limits.set_aside_to_open(LEAST_OF_SESSION)?,
            _descriptor: limits.take_descriptor()?,
            window: None,
        })
    }
}

/// Begins to open a connection to a node, with the options of this listener's server legs. The memory for a large
/// receive window becomes a part of its reserve.
///
/// # Errors
/// Those of [`connect_to_node`]; `EINVAL` if the private key cannot be used.
pub fn open_warm(
    listener: &Listener,
    (ends, keys): (WarmEnds, Option<&LegKeys>),
    limits: &Arc<Limits>,
    reserve: &mut Reserve,
) -> rustix::io::Result<LegSocket> {
    let mut start = LegStart::from(&listener.session.server);
    reserve.window = limits.offer_window(&mut start);
    let connecting = connect_to_node(ends, listener, &start, Dscp::default())?;
    connecting.socket.encrypt_to(keys)?;
    Ok(connecting.socket)
}

impl WarmPool {
    /// A connection for a session of this listener that goes to this node next, if there is one. The pool notes that
    /// the listener's sessions use the node.
    pub fn take(&self, now: Time, listener: &Arc<Listener>, next: &NextHop) -> Option<WarmLeg> {
        if next.kind != NodeKind::Midspan {
            return None;
        }
        let pair = WarmPair {
            listener: listener.name.clone(),
            node: next.leg.clone(),
        };
        let (ends, keys) = ((next.address, next.from), next.keys.as_deref().copied());
        let mut all = self.lock();
        if all.len() >= MOST_PAIRS && !all.contains_key(&pair) {
            return None;
        }
        let kept = all
            .entry(pair)
            .or_insert_with(|| Kept::new(Arc::clone(listener), ends, keys));
        if !Arc::ptr_eq(&kept.listener, listener) {
            kept.listener = Arc::clone(listener);
        }
        if kept.ends != ends || kept.keys != keys {
            kept.ready.clear();
            (kept.ends, kept.keys) = (ends, keys);
        }
        kept.warmth.note_session(now);
        let leg = kept.take(now);
        drop(all);
        self.wake_soon();
        leg
    }

    /// A connection to this node was dead: the others are probably dead, too.
    pub fn end(&self, listener: &str, node: &NodeName) {
        let pair = WarmPair {
            listener: listener.to_owned(),
            node: node.clone(),
        };
        if let Some(kept) = self.lock().get_mut(&pair) {
            kept.counts.ended += 1 + kept.ready.len() as u64;
            kept.ready.clear();
        }
    }

    /// All connections end, because members or listeners have changed. The numbers stay.
    pub fn end_all(&self) {
        for kept in self.lock().values_mut() {
            kept.ready.clear();
            kept.warmth = Warmth::default();
        }
    }

    /// What there is to do now. `round_trip` is that of a node, as far as it is known; it may not use the pool.
    pub fn work(
        &self,
        now: Time,
        round_trip: impl Fn(&NodeName) -> TimeSpan,
    ) -> Vec<(WarmPair, WarmWork)> {
        let mut all = self.lock();
        let mut count: usize = all.values().map(|kept| kept.ready.len() + kept.busy).sum();
        let mut work = Vec::new();
        for (pair, kept) in &mut *all {
            kept.drop_dead(now);
            let until_replaced = REPLACED_AFTER + round_trip(&pair.node);
            let wanted = kept.warmth.wanted(now, until_replaced);
            while kept.ready.len() > wanted {
                // The one with the oldest exchange.
                kept.ready.pop_front();
            }
            while let Some(oldest) = kept.ready.front()
                && now.since(oldest.asked) >= REFRESH
                && let Some(leg) = kept.ready.pop_front()
            {
                kept.busy += 1;
                let todo = WarmWork::Refresh(kept.ends, leg.socket, leg.reserve);
                work.push((pair.clone(), todo));
            }
            if now < kept.pause_until {
                continue;
            }
            while kept.ready.len() + kept.busy < wanted && count < MOST_CONNECTIONS {
                kept.busy += 1;
                count += 1;
                let todo = WarmWork::Open(Arc::clone(&kept.listener), kept.ends, kept.keys);
                work.push((pair.clone(), todo));
            }
        }
        work
    }

    /// A connection is warm.
    pub fn put(&self, now: Time, pair: &WarmPair, (socket, reserve): (LegSocket, Reserve)) {
        if let Some(kept) = self.lock().get_mut(pair) {
            kept.busy = kept.busy.saturating_sub(1);
            kept.ready.push_back(WarmLeg {
                socket,
                asked: now,
                reserve,
            });
        }
    }

    /// A connection could not be opened, or has ended.
    pub fn give_up(&self, now: Time, pair: &WarmPair) {
        if let Some(kept) = self.lock().get_mut(pair) {
            kept.busy = kept.busy.saturating_sub(1);
            kept.pause(now);
        }
    }

    /// The numbers of each leg to another node, over all listeners.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<NodeName, WarmCounts> {
        let mut counts: BTreeMap<NodeName, WarmCounts> = BTreeMap::new();
        for (pair, kept) in &*self.lock() {
            let sum = counts.entry(pair.node.clone()).or_default();
            sum.ready += kept.ready.len() as u64;
            sum.used += kept.counts.used;
            sum.missed += kept.counts.missed;
            sum.ended += kept.counts.ended;
        }
        counts
    }

    /// A descriptor that becomes readable when there may be work.
    #[must_use]
    pub fn wake_up(&self) -> Option<BorrowedFd<'_>> {
        self.wake_up.as_ref().map(AsFd::as_fd)
    }

    /// The thread that keeps the pool full is awake.
    pub fn note_awake(&self) {
        if let Some(wake_up) = &self.wake_up {
            // This fails if it is not readable: then the timer may still run.
            if rustix::io::read(wake_up, &mut [0_u8; 8][..]).is_ok() {
                self.will_wake.store(false, Ordering::SeqCst);
            }
        }
    }

    /// The other thread looks for work soon.
    fn wake_soon(&self) {
        if let Some(wake_up) = &self.wake_up
            && !self.will_wake.swap(true, Ordering::SeqCst)
        {
            let none = Timespec::default();
            let once = Itimerspec {
                it_interval: none,
                it_value: Timespec {
                    tv_nsec: REPLACED_AFTER.nanoseconds().cast_signed(),
                    ..none
                },
            };
            // The kernel refuses only wrong arguments; the other thread also looks for work from time to time.
            let _ = timerfd_settime(wake_up, TimerfdTimerFlags::empty(), &once);
        }
    }

    /// No code panics while it holds this lock, so the content is always consistent.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WarmPair, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn new(listener: Arc<Listener>, ends: WarmEnds, keys: Option<LegKeys>) -> Self {
        Self {
            listener,
            ends,
            keys,
            warmth: Warmth::default(),
            ready: VecDeque::new(),
            next_look: Time::ZERO,
            busy: 0,
            counts: WarmCounts::default(),
            failures: 0,
            pause_until: Time::ZERO,
        }
    }

    /// A connection that lives, the newest one first.
    fn take(&mut self, now: Time) -> Option<WarmLeg> {
        let before = self.counts.ended;
        while let Some(leg) = self.ready.pop_back() {
            if leg.lives() {
                self.counts.used += 1;
                self.failures = 0;
                return Some(leg);
            }
            self.counts.ended += 1;
        }
        self.counts.missed += 1;
        if self.counts.ended > before {
            self.pause(now);
        }
        None
    }

    /// Removes connections that the node has closed. Perhaps it keeps no more of them: without a pause, they would be
    /// opened and closed without end.
    fn drop_dead(&mut self, now: Time) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_INTERVAL;
        let before = self.ready.len();
        self.ready.retain(WarmLeg::lives);
        let ended = before.saturating_sub(self.ready.len());
        self.counts.ended += ended as u64;
        if ended > 0 {
            self.pause(now);
        }
    }

    /// Opens no connection for a while, which is longer after each failure.
    fn pause(&mut self, now: Time) {
        let pause = FIRST_PAUSE * (1_u64 << self.failures.min(MOST_DOUBLINGS));
        self.failures = self.failures.saturating_add(1);
        self.pause_until = now + pause;
    }
}

impl WarmLeg {
    /// Its socket, and the memory that is set aside for its receive window. A session or a call has them from now on.
    #[must_use]
    pub fn into_parts(self) -> (LegSocket, Option<SetAside>) {
        (self.socket, self.reserve.window)
    }

    /// Whether the other end has neither closed nor reset it. A node sends nothing without a request, and TLS sends
    /// nothing by itself after the handshake.
    fn lives(&self) -> bool {
        matches!(system::peek(self.socket.as_fd()), Err(Errno::AGAIN))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::limits::RelayLimits;
    use crate::listener::Destination;

    struct Bench {
        pool: WarmPool,
        limits: Arc<Limits>,
        listener: Arc<Listener>,
        server: TcpListener,
        next: NextHop,
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    impl Bench {
        fn new() -> Self {
            let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = server.local_addr().unwrap();
            Self {
                pool: WarmPool::default(),
                limits: Arc::new(Limits::new(&RelayLimits::default(), 0)),
                listener: Arc::new(Listener::new("socks", Destination::Fixed(address))),
                server,
                next: NextHop {
                    node: "fra".parse().unwrap(),
                    leg: "fra".parse().unwrap(),
                    address,
                    from: None,
                    kind: NodeKind::Midspan,
                    keys: None,
                    rest: Vec::new(),
                },
            }
        }

        fn take(&self, now: Time) -> Option<WarmLeg> {
            self.pool.take(now, &self.listener, &self.next)
        }

        /// Does all work that is due; returns the other ends of new connections, and the number of exchanges.
        fn work(&self, now: Time) -> (Vec<TcpStream>, usize) {
            let (mut opened, mut refreshed) = (Vec::new(), 0);
            for (pair, work) in self.pool.work(now, |_| TimeSpan::ZERO) {
                let parts = match work {
                    WarmWork::Open(listener, ends, keys) => {
                        let mut reserve = Reserve::take(&self.limits).unwrap();
                        let socket =
                            open_warm(&listener, (ends, keys.as_ref()), &self.limits, &mut reserve);
                        let socket = socket.unwrap();
                        opened.push(self.server.accept().unwrap().0);
                        (socket, reserve)
                    }
                    WarmWork::Refresh(_, socket, reserve) => {
                        refreshed += 1;
                        (socket, reserve)
                    }
                };
                self.pool.put(now, &pair, parts);
            }
            (opened, refreshed)
        }

        fn counts(&self) -> WarmCounts {
            let counts = self.pool.counts();
            counts.get(&self.next.node).copied().unwrap_or_default()
        }
    }

    #[test]
    fn a_session_without_a_connection_makes_the_pool_open_some() {
        let bench = Bench::new();
        assert!(bench.work(at(0)).0.is_empty());
        assert!(bench.take(at(0)).is_none());
        let (opened, _) = bench.work(at(0));
        assert_eq!((opened.len(), bench.counts().ready), (3, 3));
        let leg = bench.take(at(1)).unwrap();
        assert!(leg.lives());
        // It is replaced.
        assert_eq!(bench.work(at(1)).0.len(), 1);
        let counts = bench.counts();
        assert_eq!((counts.ready, counts.used, counts.missed), (3, 1, 1));
        assert!(bench.pool.wake_up().is_some());
    }

    #[test]
    fn the_other_thread_wakes_up_after_each_session() {
        let bench = Bench::new();
        let is_readable = |seconds| {
            let wait = Timespec {
                tv_sec: seconds,
                tv_nsec: 0,
            };
            let wake_up = bench.pool.wake_up().unwrap();
            let mut watched = [PollFd::from_borrowed_fd(wake_up, PollFlags::IN)];
            poll(&mut watched, Some(&wait)).unwrap() > 0
        };
        assert!(!is_readable(0));
        for session in 0..3 {
            bench.take(at(session));
            // The timer is set already.
            bench.take(at(session));
            assert!(is_readable(60), "{session}");
            bench.pool.note_awake();
            assert!(!is_readable(0), "{session}");
        }
    }

    #[test]
    fn idle_connections_get_an_exchange_and_end_when_no_session_comes() {
        let bench = Bench::new();
        assert!(bench.take(at(0)).is_none());
        let (_opened, _) = bench.work(at(0));
        assert_eq!(bench.work(at(89)).1, 0);
        assert_eq!(bench.work(at(90)).1, 2);
        assert_eq!(bench.work(at(91)).1, 0);
        bench.work(at(299));
        assert_eq!(bench.counts().ready, 2);
        bench.work(at(300));
        assert_eq!(bench.counts().ready, 0);
    }

    #[test]
    fn a_dead_connection_is_not_used() {
        let bench = Bench::new();
        assert!(bench.take(at(0)).is_none());
        let (opened, _) = bench.work(at(0));
        drop(opened);
        // Loopback delivers the ends at once.
        assert!(bench.take(at(1)).is_none());
        assert_eq!(bench.counts().ended, 3);
        let (_opened, _) = bench.work(at(1));
        bench.pool.end("socks", &bench.next.node);
        assert_eq!(bench.counts().ready, 0);
    }

    #[test]
    fn a_node_that_closes_what_it_has_answered_is_left_in_peace_for_longer_and_longer() {
        let bench = Bench::new();
        assert!(bench.take(at(0)).is_none());
        let opened: Vec<u64> = (0..120)
            .filter(|second| {
                // The other ends are dropped at once.
                let (opened, _) = bench.work(at(*second));
                // The first session counts for ten seconds.
                let wanted = if *second < 10 { 3 } else { 2 };
                assert!(opened.is_empty() || opened.len() == wanted, "{second}");
                !opened.is_empty()
            })
            .collect();
        // A second is needed to see that they have ended.
        assert_eq!(opened, [0, 2, 5, 10, 19, 36, 69, 102]);
        // A connection that stays and is used is no failure: the next pause is short again.
        let (_kept, _) = bench.work(at(135));
        assert!(bench.take(at(136)).is_some());
    }

    #[test]
    fn a_node_that_refuses_is_left_in_peace_for_longer_and_longer() {
        let bench = Bench::new();
        assert!(bench.take(at(0)).is_none());
        let mut now = 0;
        // Each failure doubles the pause, which is 32 s at most; the first session counts for ten seconds.
        for (pause, wanted) in [(4, 3), (32, 3), (32, 2)] {
            let work = bench.pool.work(at(now), |_| TimeSpan::ZERO);
            assert_eq!(work.len(), wanted, "{now}");
            for (pair, _) in work {
                bench.pool.give_up(at(now), &pair);
            }
            let early = bench.pool.work(at(now + pause - 1), |_| TimeSpan::ZERO);
            assert!(early.is_empty(), "{now}");
            now += pause;
        }
    }

    #[test]
    fn other_proxies_get_no_exchanges() {
        let mut bench = Bench::new();
        bench.next.kind = NodeKind::Connect;
        assert!(bench.take(at(0)).is_none());
        assert!(bench.pool.work(at(0), |_| TimeSpan::ZERO).is_empty());
    }
}
