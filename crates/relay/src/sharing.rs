//! Listening sockets that threads share, and the number of sessions of each thread.
//!
//! Two parts use these numbers. A thread with many sessions [passes](super::passing) connections of a shared
//! listening socket on. The gate chooses for each connection the thread that accepts it.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use midspan_policy::accept_share::{self, Churn};
use midspan_units::{Time, TimeSpan};

use super::register::SharedSocket;

/// A thread whose turn lasts longer does not count among those that accept connections: it may hang.
const LATE: TimeSpan = TimeSpan::from_milliseconds(300);
/// The thread waits for events.
const WAITS: u64 = 0;

/// The number of sessions of each thread. Each thread writes its own and reads the others.
#[derive(Debug, Clone)]
pub struct Loads(Arc<[Load]>);

/// On a cache line of its own, because threads write these numbers often.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Load {
    /// Only the thread itself writes this number.
    sessions: AtomicU64,
    /// When its present turn began, in nanoseconds on the relay's clock, at least 1; otherwise [`WAITS`].
    turn: AtomicU64,
    /// Whether the owner of the relay has found it late: it may hang while it waits for events, too.
    is_late: AtomicBool,
    /// Connections for which the thread was chosen ([for a SYN](Loads::choose), or [after another thread had
    /// accepted them](Loads::taker)), and which are not its sessions yet.
    expected: AtomicU64,
}

impl Load {
    fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Whether the thread would accept a connection: it waits for events, or its turn has lasted only
    /// briefly.
    fn moves(&self, now: Time) -> bool {
        match self.turn.load(Ordering::Relaxed) {
            WAITS => !self.is_late.load(Ordering::Relaxed),
            began => now.since(Time::from_nanoseconds(began)) <= LATE,
        }
    }

    fn with_expected(&self) -> u64 {
        (self.sessions()).saturating_add(self.expected.load(Ordering::Relaxed))
    }
}

/// A connection that a thread is expected to accept, or to serve; dropped when it does, or when no thread will.
#[derive(Debug)]
pub struct Expected {
    loads: Loads,
    thread: usize,
}

impl Expected {
    /// The thread.
    #[must_use]
    pub const fn thread(&self) -> usize {
        self.thread
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        if let Some(load) = self.loads.0.get(self.thread) {
            load.expected.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Loads {
    /// Threads without sessions.
    pub fn of(threads: usize) -> Self {
        Self(
            std::iter::repeat_with(Load::default)
                .take(threads)
                .collect(),
        )
    }

    /// Sets the number of a thread's sessions; returns whether it was another one.
    pub fn set(&self, thread: usize, sessions: u64) -> bool {
        let Some(load) = self.0.get(thread) else {
            return false;
        };
        let is_new = load.sessions() != sessions;
        if is_new {
            load.sessions.store(sessions, Ordering::Relaxed);
        }
        is_new
    }

    /// A thread begins a turn at this time, or waits for events from now on.
    pub fn note_turn(&self, thread: usize, begin: Option<Time>) {
        if let Some(load) = self.0.get(thread) {
            let turn = begin.map_or(WAITS, |begin| begin.nanoseconds().max(1));
            load.turn.store(turn, Ordering::Relaxed);
        }
    }

    /// The number of each thread's sessions.
    pub fn all(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(Load::sessions)
    }

    /// Whether a thread waits for events.
    pub fn waits(&self, thread: usize) -> bool {
        let load = self.0.get(thread);
        load.is_some_and(|load| load.turn.load(Ordering::Relaxed) == WAITS)
    }

    /// The owner of the relay has found a thread late, or not.
    pub fn note_late(&self, thread: usize, is_late: bool) {
        if let Some(load) = self.0.get(thread) {
            load.is_late.store(is_late, Ordering::Relaxed);
        }
    }

    /// Chooses the thread for a new connection: `own`, which has the connection already, unless it
    /// has [more sessions than the others](accept_share::keeps); then the thread with the fewest.
    /// A thread that hangs gets no connection of another one.
    #[must_use]
    pub fn choose(&self, own: usize, now: Time) -> Expected {
        let all = || self.moving(0..self.0.len(), own, now);
        let load = self.0.get(own).map(Load::with_expected);
        let keeps = |load| accept_share::keeps(load, all().map(|(_, load)| load));
        let thread = match load.is_none_or(keeps) {
            true => own,
            false => least_of(all()).unwrap_or(own),
        };
        self.expect(thread)
    }

    /// The numbers of these threads and of their sessions, without threads that hang. `own` does not hang.
    fn moving(
        &self,
        threads: Range<usize>,
        own: usize,
        now: Time,
    ) -> impl Iterator<Item = (usize, u64)> {
        let loads = self.0.get(threads.clone()).unwrap_or_default();
        let all = threads.zip(loads);
        let moving = all.filter(move |(thread, load)| *thread == own || load.moves(now));
        moving.map(|(thread, load)| (thread, load.with_expected()))
    }

    fn expect(&self, thread: usize) -> Expected {
        if let Some(load) = self.0.get(thread) {
            load.expected.fetch_add(1, Ordering::Relaxed);
        }
        Expected {
            loads: self.clone(),
            thread,
        }
    }

    /// The thread that is to serve a connection that this `thread` has accepted from a socket that these threads
    /// share; `None`: this thread itself. It is the one with the fewest sessions if this thread has [clearly more
    /// than the mean](accept_share::keeps_accepted). A thread that hangs gets no connection of another one.
    #[must_use]
    pub fn taker(
        &self,
        (thread, churn): (usize, Churn),
        sharing: &Range<usize>,
        now: Time,
    ) -> Option<Expected> {
        let own = self.0.get(thread).map(Load::with_expected)?;
        let all = || self.moving(sharing.clone(), thread, now);
        if accept_share::keeps_accepted(own, all().map(|(_, load)| load), churn) {
            return None;
        }
        let other = least_of(all()).filter(|other| *other != thread)?;
        Some(self.expect(other))
    }
}

/// The thread with the fewest sessions.
fn least_of(loads: impl Iterator<Item = (usize, u64)>) -> Option<usize> {
    loads
        .min_by_key(|(_, load)| *load)
        .map(|(thread, _)| thread)
}

/// A thread's descriptor of a listening socket.
#[derive(Debug, Clone)]
pub struct ListeningSocket {
    /// The descriptor.
    pub socket: SharedSocket,
    /// The threads that accept from the same socket, if there are several.
    pub sharing: Option<Range<usize>>,
}

/// Deals a listener's sockets out to the threads: one each, or one for several neighbours. There are
/// at least one socket and at most as many as threads.
///
/// # Errors
/// Those of `fcntl(2)`.
pub fn deal(sockets: Vec<OwnedFd>, threads: usize) -> rustix::io::Result<Vec<ListeningSocket>> {
    if sockets.len() == threads {
        let own = |socket: OwnedFd| ListeningSocket {
            socket: Arc::new(socket.into()),
            sharing: None,
        };
        return Ok(sockets.into_iter().map(own).collect());
    }
    let group = |thread: usize| thread * sockets.len() / threads.max(1);
    let first_of = |group: usize| (group * threads).div_ceil(sockets.len().max(1));
    (0..threads)
        .map(|thread| {
            let group = group(thread);
            let sharing = first_of(group)..first_of(group + 1);
            Ok(ListeningSocket {
                socket: Arc::new(rustix::io::fcntl_dupfd_cloexec(&sockets[group], 0)?.into()),
                sharing: (sharing.len() > 1).then_some(sharing),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharing(sockets: usize, threads: usize) -> Vec<Option<Range<usize>>> {
        let socket = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let sockets: Vec<OwnedFd> = (0..sockets).map(|_| socket()).collect();
        let dealt = deal(sockets, threads).unwrap();
        dealt.into_iter().map(|it| it.sharing).collect()
    }

    #[test]
    fn neighbours_share_a_socket_and_each_thread_is_of_one_group() {
        assert_eq!(sharing(2, 2), [None, None]);
        assert_eq!(sharing(1, 2), [Some(0..2), Some(0..2)]);
        assert_eq!(sharing(1, 1), [None]);
        let [low, high] = [Some(0..3), Some(3..5)];
        let expected = [&low, &low, &low, &high, &high].map(Clone::clone);
        assert_eq!(sharing(2, 5), expected);
        for (sockets, threads) in [(1, 7), (2, 7), (3, 7), (4, 7), (7, 7), (16, 61)] {
            for (thread, group) in sharing(sockets, threads).into_iter().enumerate() {
                assert!(group.is_none_or(|group| group.contains(&thread)));
            }
        }
    }

    #[test]
    fn a_thread_keeps_its_connections_until_it_has_more_than_the_others() {
        let loads = Loads::of(2);
        let now = Time::from_nanoseconds(1) + TimeSpan::from_seconds(1);
        let choose = |own| loads.choose(own, now);
        // All arrive at thread 0 before any of them is accepted.
        let expected: Vec<Expected> = (0..100).map(|_| choose(0)).collect();
        let of_first = |expected: &[Expected]| {
            let first = expected.iter().filter(|it| it.thread() == 0);
            first.count()
        };
        assert_eq!(of_first(&expected[..3]), 3);
        assert!(of_first(&expected[..16]) <= 10);
        let all = of_first(&expected);
        assert!((50..=60).contains(&all), "{all}");
        // They become sessions, and are not expected any more.
        loads.set(0, 2);
        loads.set(1, 40);
        drop(expected);
        assert_eq!([choose(0).thread(), choose(1).thread()], [0, 0]);
        // A thread that hangs gets none.
        loads.note_turn(0, Some(Time::from_nanoseconds(1)));
        assert_eq!([loads.waits(0), loads.waits(1)], [false, true]);
        assert_eq!(choose(1).thread(), 1);
        loads.note_turn(0, None);
        assert_eq!(choose(1).thread(), 0);
        loads.note_late(0, true);
        assert_eq!(choose(1).thread(), 1);
        loads.note_late(0, false);
        assert_eq!(Loads::of(1).choose(0, now).thread(), 0);
        assert_eq!(Loads::of(0).choose(7, now).thread(), 7);
    }

    /// The thread that serves a connection that the first one has accepted.
    fn taker(loads: &Loads, sharing: Range<usize>, milliseconds: u64) -> Option<usize> {
        let now = Time::ZERO + TimeSpan::from_milliseconds(milliseconds);
        let taker = loads.taker((sharing.start, Churn::default()), &sharing, now);
        taker.map(|expected| expected.thread())
    }

    #[test]
    fn only_threads_that_share_the_socket_count() {
        let loads = Loads::of(4);
        assert!(loads.set(0, 9) && !loads.set(0, 9));
        assert_eq!(taker(&loads, 0..2, 0), Some(1));
        loads.set(2, 100);
        loads.set(3, 90);
        // The other group's sessions do not matter.
        assert_eq!(taker(&loads, 0..2, 0), Some(1));
        assert_eq!(taker(&loads, 2..4, 0), None);
        assert_eq!(loads.all().collect::<Vec<_>>(), [9, 0, 100, 90]);
        assert!(!loads.set(7, 1));
        assert_eq!(taker(&loads, 7..9, 0), None);
    }

    #[test]
    fn connections_that_are_passed_on_count_before_they_are_sessions() {
        let loads = Loads::of(2);
        let churn = Churn::default();
        let taker = || loads.taker((0, churn), &(0..2), Time::ZERO);
        let mut kept = 0;
        let passed: Vec<Expected> = (0..16)
            .filter_map(|_| {
                taker().or_else(|| {
                    kept += 1;
                    loads.set(0, kept);
                    None
                })
            })
            .collect();
        assert_eq!((kept, passed.len()), (10, 6));
        drop(passed);
        assert!(taker().is_some());
    }

    #[test]
    fn no_connection_is_passed_to_a_thread_that_hangs() {
        let loads = Loads::of(2);
        let at = |milliseconds| Time::ZERO + TimeSpan::from_milliseconds(milliseconds);
        loads.set(0, 9);
        // The other thread waits for events, for however long.
        assert_eq!(taker(&loads, 0..2, 60_000), Some(1));
        loads.note_turn(1, Some(at(60_000)));
        assert_eq!(taker(&loads, 0..2, 60_300), Some(1));
        assert_eq!(taker(&loads, 0..2, 60_301), None);
        loads.note_turn(1, None);
        assert_eq!(taker(&loads, 0..2, 60_302), Some(1));
        // Its own turn does not matter.
        loads.note_turn(0, Some(at(0)));
        assert_eq!(taker(&loads, 0..2, 60_302), Some(1));
        loads.note_late(1, true);
        assert_eq!(taker(&loads, 0..2, 60_302), None);
    }
}
