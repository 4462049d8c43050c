//! The relay's main thread watches over the relay threads, and over the gate, which has a part on each
//! of them.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use midspan_relay::Relay;
use midspan_units::TimeSpan;
use tracing::{error, warn};

use crate::Error;
use crate::control::FromRelay;
use crate::gate::Gate;
use crate::health::Health;
use crate::late::{LateThread, ThreadName};
use midspan_service::liveness::{Remedy, StuckThreads, Watch};
use midspan_service::message;

/// How often the threads are checked while there is a gate: connections pass untouched soon after it is stuck.
const INTERVAL_WITH_GATE: Duration = Duration::from_millis(150);
/// The same while no connections arrive at the gate: the helper gets signs of life often enough.
const INTERVAL_WITH_IDLE_GATE: Duration = Duration::from_millis(340);
/// The same without a gate, where only stuck threads matter. Most of the processor time of an idle relay is for this.
const INTERVAL: Duration = Duration::from_millis(450);
/// How often relay threads are woken, which may have nothing to do, at most. Then a thread that has been stopped while
/// it waits is found.
const WAKE_INTERVAL: Duration = Duration::from_secs(3);

/// Watches over the threads of one relay.
pub(crate) struct ThreadWatch {
    limit: TimeSpan,
    interval: Duration,
    threads: Vec<Watch>,
    /// The gate's turns at the last message to the helper.
    gate_turns: u64,
    woken_at: Option<Instant>,
    /// Threads that are already in the log.
    known: Vec<ThreadName>,
    stuck: StuckThreads,
    /// Whether a thread was replaced: the one before may still run, for example in an endless loop.
    has_replaced: bool,
    /// A new process is to take over, because this thread was stuck; the helper has no message yet.
    renewal: Option<ThreadName>,
    health: Health,
}

/// The result of a check.
pub(crate) struct Look {
    /// The message for the helper.
    pub message: FromRelay,
    /// A thread that will not continue, so it has to be [replaced](ThreadWatch::replace).
    pub stuck: Option<ThreadName>,
}

impl ThreadWatch {
    /// A watch over this number of relay threads.
    pub fn new(threads: usize, limit: TimeSpan, health: Health) -> Self {
        let now = Instant::now();
        let watch = Watch::of_woken(now, INTERVAL, limit.into());
        Self {
            limit,
            interval: INTERVAL,
            threads: vec![watch; threads],
            gate_turns: 0,
            woken_at: None,
            known: Vec::new(),
            stuck: StuckThreads::default(),
            has_replaced: false,
            renewal: None,
            health,
        }
    }

    /// How often to [check](Self::look) the threads.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// The `watchdog_timeout`.
    pub const fn limit(&self) -> TimeSpan {
        self.limit
    }

    /// Sets another `watchdog_timeout`.
    pub fn set_limit(&mut self, limit: TimeSpan) {
        self.limit = limit;
        for watch in &mut self.threads {
            watch.set_limit(limit.into());
        }
    }

    /// Replaces a stuck thread by `replace`, which returns the number of connections that were reset.
    /// Returns whether the relay continues; otherwise it has to end.
    pub fn replace(
        &mut self,
        thread: ThreadName,
        replace: impl FnOnce(usize) -> Result<usize, Error>,
    ) -> bool {
        let now = Instant::now();
        let remedy = self.stuck.remedy(now);
        if remedy == Remedy::End {
            error!(
                "thread {thread} is stuck, the sixth one in ten minutes: the relay ends; please \
                 report it (midspan bugreport)"
            );
            return false;
        }
        match replace(thread.0) {
            Ok(count) => {
                self.has_replaced = true;
                error!(
                    "a fault of Midspan: thread {thread} is stuck, and a new thread replaces it after \
                     {:.1} ms; its {count} sessions have been reset; please report it (midspan \
                     bugreport)",
                    now.elapsed().as_secs_f64() * 1_000.0
                );
            }
            Err(error) => {
                error!("thread {thread} is stuck: the relay ends, because {error}");
                return false;
            }
        }
        if let Some(watch) = self.threads.get_mut(thread.0) {
            *watch = Watch::of_woken(Instant::now(), self.interval, self.limit.into());
        }
        if remedy == Remedy::Renew {
            self.renewal = Some(thread);
        }
        true
    }

    /// Whether a stuck thread was replaced. It ends with the process only.
    pub const fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    /// Requests a new process of the helper, if there were too many stuck threads.
    ///
    /// # Errors
    /// The helper has ended.
    pub fn request_renewal(&mut self, helper: &OwnedFd) -> Result<(), Error> {
        if let Some(thread) = self.renewal
            && message::try_send(helper, &FromRelay::Renew(thread))?
        {
            self.renewal = None;
        }
        Ok(())
    }

    /// Checks all threads.
    pub fn look(&mut self, relay: &Relay, gate: Option<&Gate>) -> Look {
        let now = Instant::now();
        // A thread that has begun to wait meanwhile has made a turn.
        let (turns, waiting) = (relay.turns(), relay.waiting());
        let all = turns.into_iter().zip(&waiting).enumerate();
        for (watch, (thread, (turns, waits))) in self.threads.iter_mut().zip(all) {
            match waits {
                true => watch.look_at_waiting(now, turns),
                false => watch.look(now, turns),
            }
            relay.note_late(thread, watch.is_late());
        }
        self.interval = match gate {
            Some(gate) if gate.is_idle(now) => INTERVAL_WITH_IDLE_GATE,
            Some(_) => INTERVAL_WITH_GATE,
            None => INTERVAL,
        };
        for watch in &mut self.threads {
            watch.set_pause(self.interval);
        }
        let gate_moves = gate.is_none_or(|gate| {
            gate.note_watched(now);
            let turns = gate.statistics().turns;
            let has_turned = std::mem::replace(&mut self.gate_turns, turns) != turns;
            // A packet for the gate is an event, and wakes a thread that waits.
            has_turned || gate.is_running() && waiting.contains(&true)
        });
        if self
            .woken_at
            .is_none_or(|then| now.saturating_duration_since(then) >= WAKE_INTERVAL)
        {
            self.woken_at = Some(now);
            relay.wake();
            self.threads.iter_mut().for_each(Watch::note_woken);
        }
        let late: Vec<LateThread> = self
            .named()
            .filter_map(|(name, watch)| LateThread::of(name, watch))
            .collect();
        let stuck = self.named().find(|(_, watch)| watch.must_end());
        let stuck = stuck.map(|(name, _)| name);
        self.health.set_late(late.clone());
        self.log(&late);
        Look {
            message: FromRelay::Alive { gate_moves, late },
            stuck,
        }
    }

    fn named(&self) -> impl Iterator<Item = (ThreadName, &Watch)> {
        let threads = self.threads.iter().enumerate();
        threads.map(|(number, watch)| (ThreadName(number), watch))
    }

    fn log(&mut self, late: &[LateThread]) {
        for thread in late
            .iter()
            .filter(|late| !self.known.contains(&late.thread))
        {
            warn!("{thread}");
        }
        self.known = late.iter().map(|late| late.thread).collect();
    }
}
