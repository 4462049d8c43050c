//! The state that the gate's parts on the relay's threads share.
//!
//! Any of the threads may read the next packet: a SYN, its copies and the client's later packets may reach
//! different threads. So everything that one packet leaves for the next one is here, or in [`Openings`]. A
//! thread holds each lock only for one look-up, and never two locks at a time, except
//! [waking](Shared::waking).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use midspan_log::LogRate;
use midspan_policy::Request;
use midspan_relay::{Clock, Limits, Loads, Openings, Relay, SharedOverlay, SharedSuspects};

use super::held::HeldSyns;
use super::in_hand::InHand;
use super::locking::lock;
use super::settled::SettledSyns;
use super::statistics::Counters;
use super::tracked::TrackedEntries;

/// If all threads and the watch over them wake later than this, the process had been stopped: the packets in the
/// queue are old. Their clients have repeated them meanwhile, perhaps past the gate: most of them after a second.
const STALE: Duration = Duration::from_millis(700);
/// Without a packet for this long, the gate is idle. All connections have been accepted or have expired by then.
const IDLE_AFTER: Duration = Duration::from_secs(6);
/// Least time between two log lines about the same trouble.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Log lines about broken routes: this many at once, and one more each interval.
const BROKEN_AT_ONCE: u32 = 50;
const BROKEN_INTERVAL: Duration = Duration::from_millis(100);
/// Tokens of held SYNs have 48 bits.
const TOKENS: u64 = 1 << 48;

/// The rates of log lines, each of which may have a reason in every packet.
pub(super) struct Logs {
    /// Too many connections are being opened.
    pub full: LogRate,
    /// A server's answers do not come back this way.
    pub routes: LogRate,
    /// The kernel has refused something.
    pub trouble: LogRate,
    /// A route of the overlay cannot be used.
    pub broken: LogRate,
}

/// What the parts share.
pub(super) struct Shared {
    /// The connections for the relay's threads.
    pub openings: Arc<Openings>,
    /// The limits of the relay's sessions.
    pub limits: Arc<Limits>,
    /// The number of sessions of each thread.
    pub loads: Loads,
    /// Connections that may have caused a fault.
    pub suspects: SharedSuspects,
    /// What is known of the overlay.
    pub overlay: SharedOverlay,
    /// The relay's clock.
    pub clock: Clock,
    /// Whether connection tracking has room.
    pub tracked: TrackedEntries,
    held: Mutex<HeldSyns>,
    settled: Mutex<SettledSyns>,
    logs: Mutex<Logs>,
    next_token: AtomicU64,
    start: Instant,
    /// The last turn of each thread, in nanoseconds since the start.
    last_turns: Box<[AtomicU64]>,
    /// When the threads were checked last, and when packets were read last; the same.
    watched: AtomicU64,
    last_packet: AtomicU64,
    /// The number of updates for the parts.
    updates: AtomicU64,
    /// How often each thread has been replaced.
    terms: Box<[AtomicU64]>,
    /// What each part has in hand.
    in_hand: Box<[Mutex<InHand>]>,
    waking: Mutex<()>,
    /// When connections that were not accepted expire next.
    next_expiry: Mutex<Instant>,
    has_failed: AtomicBool,
}

impl Shared {
    /// Nothing is held yet. The counters get the occupancy of connection tracking.
    pub fn new(relay: &Relay, tracked: Arc<Counters>) -> Self {
        let start = Instant::now();
        let rate = || LogRate::new(1, LOG_INTERVAL);
        let (_, clock) = relay.learned();
        Self {
            openings: relay.openings(),
            limits: relay.limits(),
            loads: relay.loads(),
            suspects: relay.suspects(),
            overlay: relay.overlay(),
            clock,
            tracked: TrackedEntries::new(start, tracked),
            held: Mutex::default(),
            settled: Mutex::default(),
            logs: Mutex::new(Logs {
                full: rate(),
                routes: rate(),
                trouble: rate(),
                broken: LogRate::new(BROKEN_AT_ONCE, BROKEN_INTERVAL),
            }),
            next_token: AtomicU64::new(0),
            start,
            last_turns: (0..relay.thread_count())
                .map(|_| AtomicU64::new(0))
                .collect(),
            watched: AtomicU64::new(0),
            last_packet: AtomicU64::new(0),
            updates: AtomicU64::new(0),
            terms: (0..relay.thread_count())
                .map(|_| AtomicU64::new(0))
                .collect(),
            in_hand: (0..relay.thread_count())
                .map(|_| Mutex::default())
                .collect(),
            waking: Mutex::new(()),
            next_expiry: Mutex::new(start),
            has_failed: AtomicBool::new(false),
        }
    }

    /// The held SYNs.
    pub fn held(&self) -> MutexGuard<'_, HeldSyns> {
        lock(&self.held)
    }

    /// SYNs that passed untouched, or were refused, a moment ago.
    pub fn settled(&self) -> MutexGuard<'_, SettledSyns> {
        lock(&self.settled)
    }

    /// The rates of log lines.
    pub fn logs(&self) -> MutexGuard<'_, Logs> {
        lock(&self.logs)
    }

    /// A token for a held SYN, at least 1.
    pub fn next_token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed) % (TOKENS - 1) + 1
    }

    /// Whether no thread has made a turn, and the threads were not checked, for so long that the packets in the queue
    /// are old.
    pub fn is_stale(&self, now: Instant) -> bool {
        let mut all = self.last_turns.iter().chain([&self.watched]);
        all.all(|last| self.since(last, now) > STALE)
    }

    /// A thread makes a turn.
    pub fn note_turn(&self, thread: usize, now: Instant) {
        if let Some(last) = self.last_turns.get(thread) {
            self.note(last, now);
        }
    }

    /// The threads are checked now, which happens several times a second.
    pub fn note_watched(&self, now: Instant) {
        self.note(&self.watched, now);
    }

    /// Packets have been read.
    pub fn note_packets(&self, now: Instant) {
        self.note(&self.last_packet, now);
    }

    /// Whether no packets have arrived for so long that nothing waits for a time.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.since(&self.last_packet, now) > IDLE_AFTER
    }

    /// The number of updates that the parts have got.
    pub fn updates(&self) -> u64 {
        self.updates.load(Ordering::Acquire)
    }

    /// All parts have got an update.
    pub fn note_update(&self) {
        self.updates.fetch_add(1, Ordering::Release);
    }

    /// How often a thread has been replaced. The part of a thread that was replaced finds another number
    /// than at its own start.
    pub fn term(&self, thread: usize) -> u64 {
        let term = self.terms.get(thread);
        term.map_or(0, |term| term.load(Ordering::Acquire))
    }

    /// The thread is replaced now: its part has no say any more.
    pub fn end_term(&self, thread: usize) {
        if let Some(term) = self.terms.get(thread) {
            term.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The part on a thread handles this connection from now on, or none.
    pub fn put_in_hand(&self, thread: usize, connection: Option<Request>) {
        self.change_in_hand(thread, |in_hand| in_hand.connection = connection);
    }

    /// The part on a thread has to decide about these packets: it has just read them, or they are not held
    /// any more.
    pub fn take_up(&self, thread: usize, packets: impl IntoIterator<Item = u32>) {
        self.change_in_hand(thread, |in_hand| in_hand.take_up(packets));
    }

    /// A packet that the part on a thread had in hand is held from now on.
    pub fn put_down(&self, thread: usize, packet: u32) {
        self.change_in_hand(thread, |in_hand| in_hand.put_down(packet));
    }

    /// The part on a thread has sent the verdicts about all packets that it had in hand.
    pub fn note_sent(&self, thread: usize) {
        self.change_in_hand(thread, InHand::note_sent);
    }

    /// The connection and the packets that the part on a thread had in hand when it panicked, or when the
    /// thread was replaced.
    pub fn take_in_hand(&self, thread: usize) -> (Option<Request>, BTreeSet<u32>) {
        let place = self.in_hand.get(thread);
        place.map(|place| lock(place).take()).unwrap_or_default()
    }

    /// The connection that the part on a thread is handling; `None` if this cannot be found out at once.
    pub fn in_hand(&self, thread: usize) -> Option<Request> {
        self.in_hand.get(thread)?.try_lock().ok()?.connection
    }

    /// Whether any part is handling this connection.
    pub fn is_in_hand(&self, connection: Request) -> bool {
        let mut places = self.in_hand.iter();
        places.any(|place| lock(place).connection == Some(connection))
    }

    fn change_in_hand(&self, thread: usize, change: impl FnOnce(&mut InHand)) {
        if let Some(place) = self.in_hand.get(thread) {
            change(&mut lock(place));
        }
    }

    fn note(&self, last: &AtomicU64, now: Instant) {
        let since = now.saturating_duration_since(self.start).as_nanos();
        last.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn since(&self, last: &AtomicU64, now: Instant) -> Duration {
        let last = Duration::from_nanos(last.load(Ordering::Relaxed));
        (now.saturating_duration_since(self.start)).saturating_sub(last)
    }

    /// While one thread drops what is old, the others wait.
    pub fn waking(&self) -> MutexGuard<'_, ()> {
        lock(&self.waking)
    }

    /// Whether the caller is the one thread that looks, in each interval, for connections that were
    /// not accepted.
    pub fn is_expiry_due(&self, now: Instant, interval: Duration) -> bool {
        let mut next = lock(&self.next_expiry);
        let is_due = now >= *next;
        if is_due {
            *next = now + interval;
        }
        is_due
    }

    /// A part has ended without a command.
    pub fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether a part has ended without a command.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}
