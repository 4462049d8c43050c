//! A thread of the relay process that requests the rows of the other nodes of the overlay, and keeps warm connections
//! to those that sessions use.
//!
//! The nodes' answers show which of them can be reached, and how long that takes, on the path that
//! sessions use too. No other thread waits for this one.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_policy::overlay::{Health, NodeKind, NodeName, Overlay};
use midspan_relay::observation::Observer;
use midspan_relay::{Clock, Limits, SharedOverlay};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use tracing::{debug, info};

use super::exchange::{Exchange, Happened};
use super::warming::Warming;

/// How soon changed members and a changed interval are noticed, and how often the own load is read.
const TICK: Duration = Duration::from_millis(500);

/// The exchanges with all other nodes.
struct Exchanges {
    overlay: SharedOverlay,
    clock: Clock,
    observer: Observer,
    members: Option<Arc<Overlay>>,
    exchanges: Vec<Exchange>,
    warming: Warming,
    /// The health of each node in the log.
    logged: BTreeMap<NodeName, Health>,
    load_read: Instant,
    /// The CPU time of the process at that moment.
    cpu_time: Duration,
}

/// Starts the thread. It exchanges nothing until the members are set.
///
/// # Errors
/// Those of starting a thread.
pub(crate) fn start(
    overlay: SharedOverlay,
    limits: Arc<Limits>,
    clock: Clock,
    observer: Observer,
) -> io::Result<()> {
    let mut exchanges = Exchanges {
        warming: Warming::new(overlay.clone(), limits, clock),
        overlay,
        clock,
        observer,
        members: None,
        exchanges: Vec::new(),
        logged: BTreeMap::new(),
        load_read: Instant::now(),
        cpu_time: cpu_time(),
    };
    let thread = std::thread::Builder::new().name("overlay".to_owned());
    let _: JoinHandle<()> = thread.spawn(move || {
        loop {
            exchanges.turn();
        }
    })?;
    Ok(())
}

impl Exchanges {
    /// Waits for an event or the next deadline, and handles it.
    fn turn(&mut self) {
        let now = Instant::now();
        self.follow_members(now);
        self.warming.advance(now);
        let all = || self.exchanges.iter().chain(self.warming.exchanges());
        let next = all().map(Exchange::next).min();
        let wait = next.map_or(TICK, |next| next.saturating_duration_since(now).min(TICK));
        let awaited = all().enumerate();
        let awaited = awaited.filter_map(|(place, exchange)| Some((place, exchange.awaited()?)));
        let (places, mut watched): (Vec<usize>, Vec<PollFd<'_>>) = awaited
            .map(|(place, (socket, flags))| (place, PollFd::from_borrowed_fd(socket, flags)))
            .unzip();
        // Behind the last place.
        let wake_up = self.overlay.warm().wake_up();
        watched.extend(wake_up.map(|wake_up| PollFd::from_borrowed_fd(wake_up, PollFlags::IN)));
        let timeout = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(1),
            tv_nsec: wait.subsec_nanos().into(),
        };
        if poll(&mut watched, Some(&timeout)).is_err() {
            // Interrupted, or no memory: the next turn comes soon.
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_ready = |watched: &PollFd<'_>| !watched.revents().is_empty();
        let ready: Vec<bool> = watched.iter().map(is_ready).collect();
        drop(watched);
        self.overlay.warm().note_awake();
        let now = Instant::now();
        let ready = places.into_iter().zip(ready);
        let ready = ready.filter_map(|(place, is_ready)| is_ready.then_some(place));
        // The last one first: handling one may change the places after it.
        for place in ready.collect::<Vec<_>>().into_iter().rev() {
            if let Some(exchange) = self.exchanges.get_mut(place) {
                let happened = exchange.handle_event(now);
                self.note(place, happened);
            } else if let Some(place) = place.checked_sub(self.exchanges.len()) {
                self.warming.handle_event(place, now);
            }
        }
        for place in 0..self.exchanges.len() {
            if let Some(exchange) = self.exchanges.get_mut(place) {
                let interval = self
                    .overlay
                    .known()
                    .interval(self.clock.now(), &exchange.node);
                let happened = exchange.advance(now, interval.into());
                self.note(place, happened);
            }
        }
        let elapsed = now.saturating_duration_since(self.load_read);
        if elapsed >= TICK {
            self.load_read = now;
            self.note_load(elapsed);
            self.log_health();
        }
    }

    /// Begins exchanges with new members, and ends those with former ones.
    fn follow_members(&mut self, now: Instant) {
        let members = self.overlay.members();
        let members = members.filter(|members| members.choice.exchange);
        let is_same = match (&members, &self.members) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        let mut wanted = Vec::new();
        if let Some(overlay) = &members {
            let others = overlay.nodes.iter().filter(|node| node.name != overlay.own);
            for node in others.filter(|node| node.kind == NodeKind::Midspan) {
                let Some(address) = node.address else {
                    continue;
                };
                for leg in overlay.legs_to(&node.name) {
                    let keys = overlay.keys_to(&leg);
                    wanted.push(((overlay.source_of(&leg), keys), leg, address));
                }
            }
        }
        self.exchanges.retain(|exchange| {
            wanted.iter().any(|((from, keys), leg, address)| {
                let has_begun_so = *from == exchange.from && *keys == exchange.keys;
                has_begun_so && *leg == exchange.node && *address == exchange.address
            })
        });
        for ((from, keys), leg, address) in wanted {
            if !self.exchanges.iter().any(|exchange| exchange.node == leg) {
                self.exchanges
                    .push(Exchange::new(leg, address, now).begun_at(from, keys));
            }
        }
        self.members = members;
    }

    fn note(&self, place: usize, happened: Happened) {
        let Some(exchange) = self.exchanges.get(place) else {
            return;
        };
        let node = &exchange.node;
        match happened {
            Happened::Nothing => {}
            Happened::Answered(time, row) => {
                let now = self.clock.now();
                self.overlay.known().note_row(now, node, time.into(), row);
            }
            Happened::Refused => {
                debug!(%node, "the node has refused an exchange");
                self.overlay
                    .known()
                    .note_refused_exchange(self.clock.now(), node);
            }
            Happened::Failed(why) => debug!(%node, why, "an exchange has failed"),
        }
    }

    /// The load of this node: the used share of its memory budget, and of the time of its threads since the load
    /// was read before.
    fn note_load(&mut self, elapsed: Duration) {
        let memory = self.observer.memory();
        let memory = memory
            .budget
            .map_or(0, |budget| memory.used * 1000 / budget.max(1));
        let cpu_time = cpu_time();
        let used = cpu_time.saturating_sub(std::mem::replace(&mut self.cpu_time, cpu_time));
        let possible = elapsed.as_micros() * self.observer.thread_count().max(1) as u128;
        let time = used.as_micros() * 1000 / possible.max(1);
        let shares = (share(memory.into()), share(time));
        let is_ending = self.overlay.is_ending();
        let now = self.clock.now();
        self.overlay.known().note_own_load(now, shares, is_ending);
    }

    /// Logs nodes that go down or come up; nodes that have never answered are not news.
    fn log_health(&mut self) {
        for exchange in &self.exchanges {
            let node = &exchange.node;
            let health = self.overlay.known().health(self.clock.now(), node);
            let before = self.logged.insert(node.clone(), health);
            match (before.unwrap_or(Health::Unknown), health) {
                (before, Health::Up) if before != Health::Up => info!(%node, "node is up"),
                (Health::Up | Health::Suspect, Health::Down) => info!(%node, "node is down"),
                _ => {}
            }
        }
    }
}

/// A share in 1/1000, at most the whole.
fn share(share: u128) -> u16 {
    u16::try_from(share.min(1000)).unwrap_or(1000)
}

/// The CPU time of this process, of all its threads.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
