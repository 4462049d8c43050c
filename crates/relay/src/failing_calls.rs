//! System calls that fail in tests, controlled by a seed (feature `failing-calls`).
//!
//! The result of a call depends on the seed, the rates, the kind of the call, the session, and the number of
//! the session's earlier calls in this thread. So the order in which the sessions of a thread are handled
//! does not change their results. Calls without a session, such as accepting, are counted together for each
//! thread. Calls fail only between [`begin`] and [`end`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::{Errno, Result};

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Reading a socket.
    Receive,
    /// Writing a socket.
    Send,
    /// Socket to pipe, pipe to socket.
    Splice,
    /// Making a pipe.
    Pipe,
    /// Accepting.
    Accept,
    /// Making a socket.
    Socket,
    /// Connecting to a server.
    Connect,
    /// Watching a socket by epoll.
    Watch,
}

/// For each kind of failure: how many of a thousand calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// EAGAIN although there is data or room; calls that move data.
    pub blocked: u64,
    /// EINTR; calls that move data, and accepting.
    pub interrupted: u64,
    /// Fewer bytes than possible; calls that move data.
    pub short: u64,
    /// ENOMEM and ENOBUFS; calls that move data.
    pub no_memory: u64,
    /// EMFILE, ENFILE, ENOBUFS or ENOMEM; accepting, sockets, connecting and watching.
    pub refused: u64,
    /// EMFILE; making a pipe.
    pub no_pipe: u64,
    /// Delayed by up to 200 µs, in addition to any other failure.
    pub late: u64,
}

/// The decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is made.
    Made,
    /// It is made for this many bytes at most.
    Short(usize),
    /// It fails.
    Fails(Errno),
}

static PLAN: Mutex<(u64, Option<Rates>)> = Mutex::new((0, None));
/// The number of plans so far; a thread compares it to notice a new plan.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SESSION: Cell<u64> = const { Cell::new(0) };
    static PRETENCE: Cell<bool> = const { Cell::new(false) };
    static THREAD: RefCell<Thread> = const { RefCell::new(Thread::new()) };
}

struct Thread {
    generation: u64,
    seed: u64,
    rates: Option<Rates>,
    /// Calls made so far, by session.
    calls: BTreeMap<u64, u64>,
}

impl Thread {
    const fn new() -> Self {
        Self {
            generation: 0,
            seed: 0,
            rates: None,
            calls: BTreeMap::new(),
        }
    }
}

/// From now on, calls of all relays of this process fail.
pub fn begin(seed: u64, rates: Rates) {
    *PLAN.lock().unwrap_or_else(PoisonError::into_inner) = (seed, Some(rates));
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

/// From now on, no call fails. Returns how many have failed or were short since the process began.
pub fn end() -> u64 {
    *PLAN.lock().unwrap_or_else(PoisonError::into_inner) = (0, None);
    GENERATION.fetch_add(1, Ordering::SeqCst);
    FAILED.load(Ordering::SeqCst)
}

/// The decision about call number `count` of a session, and its delay.
#[must_use]
pub fn decide(
    seed: u64,
    rates: &Rates,
    session: u64,
    count: u64,
    call: Call,
    most: usize,
) -> (Fate, Duration) {
    let random = mix(mix(mix(seed) ^ session) ^ count);
    let wait = match mix(random) % 1000 < rates.late {
        true => Duration::from_micros(mix(random ^ 1) % 200),
        false => Duration::ZERO,
    };
    let mut left = random % 1000;
    let mut falls = |rate: u64| {
        let does = left < rate;
        left = left.saturating_sub(rate);
        // A kind of failure that was passed over does not occur later.
        if does {
            left = u64::MAX;
        }
        does
    };
    let pick =
        |errors: &[Errno]| Fate::Fails(errors[(mix(random ^ 2) % errors.len() as u64) as usize]);
    let fate = match call {
        Call::Receive | Call::Send | Call::Splice => {
            if falls(rates.blocked) {
                Fate::Fails(Errno::AGAIN)
            } else if falls(rates.interrupted) {
                Fate::Fails(Errno::INTR)
            } else if falls(rates.short) {
                Fate::Short(1 + (mix(random ^ 3) % most.max(1) as u64) as usize)
            } else if falls(rates.no_memory) {
                pick(&[Errno::NOMEM, Errno::NOBUFS])
            } else {
                Fate::Made
            }
        }
        Call::Pipe if falls(rates.no_pipe) => Fate::Fails(Errno::MFILE),
        Call::Accept if falls(rates.interrupted) => Fate::Fails(Errno::INTR),
        Call::Accept | Call::Socket if falls(rates.refused) => {
            pick(&[Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM])
        }
        Call::Connect if falls(rates.refused) => pick(&[Errno::NOBUFS, Errno::NOMEM]),
        Call::Watch if falls(rates.refused) => pick(&[Errno::NOMEM, Errno::NOSPC]),
        _ => Fate::Made,
    };
    (fate, wait)
}

/// SplitMix64.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

pub(super) fn before(call: Call) -> Result<()> {
    before_moving(call, 1).map(|_| ())
}

/// The number of bytes for which to make the call.
pub(super) fn before_moving(call: Call, most: usize) -> Result<usize> {
    let decided = THREAD.with_borrow_mut(|thread| {
        let generation = GENERATION.load(Ordering::SeqCst);
        if thread.generation != generation {
            let (seed, rates) = *PLAN.lock().unwrap_or_else(PoisonError::into_inner);
            let calls = BTreeMap::new();
            *thread = Thread {
                generation,
                seed,
                rates,
                calls,
            };
        }
        let rates = thread.rates?;
        let session = SESSION.get();
        let count = thread.calls.entry(session).or_insert(0);
        *count += 1;
        Some(decide(thread.seed, &rates, session, *count, call, most))
    });
    let Some((fate, wait)) = decided else {
        return Ok(most);
    };
    if !wait.is_zero() {
        std::thread::sleep(wait);
    }
    if fate != Fate::Made {
        FAILED.fetch_add(1, Ordering::SeqCst);
    }
    match fate {
        Fate::Made => Ok(most),
        Fate::Short(count) => {
            PRETENCE.set(true);
            Ok(count.min(most))
        }
        Fate::Fails(error) => {
            PRETENCE.set(PRETENCE.get() || error == Errno::AGAIN);
            Err(error)
        }
    }
}

/// Whether a call since the last query has reported less data or room than there was: no event will
/// follow.
pub(super) fn take_pretence() -> bool {
    PRETENCE.replace(false)
}

/// The next calls belong to this session; 0: to none.
pub(super) fn enter_session(session: u64) {
    SESSION.set(session);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_same_again_and_another_otherwise() {
        let rates = Rates {
            blocked: 200,
            short: 300,
            refused: 100,
            late: 100,
            ..Rates::default()
        };
        let all = |seed| -> Vec<(Fate, Duration)> {
            (0..1000)
                .map(|count| decide(seed, &rates, count % 7, count, Call::Splice, 100))
                .collect()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        let blocked = |fate: &&(Fate, Duration)| fate.0 == Fate::Fails(Errno::AGAIN);
        let count = all(1).iter().filter(blocked).count();
        assert!((100..300).contains(&count), "{count}");
        assert!(
            all(1)
                .iter()
                .any(|(fate, _)| matches!(fate, Fate::Short(1..=100)))
        );
    }
}
