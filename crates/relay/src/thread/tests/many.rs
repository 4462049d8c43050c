//! One relay thread with as many sessions as a large gateway has, above a kernel without sockets: how long its turns
//! take, and how much memory and time a session costs.
//!
//! A short run is a test. `make many` has 400,000 sessions (`MIDSPAN_MANY`), and judges what it measures.

mod kernel;

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ipnet::IpNet;
use midspan_units::ByteSize;
use rustix::time::{ClockId, clock_gettime};

use super::bench::{Made, SERVER, make_limited_thread};
use super::*;
use crate::control::{Command, Control};
use crate::kick::Target;
use crate::limits::{ListenerLimits, RelayLimits, SessionLimits};
use crate::observation::{Inquiry, Mailbox, Question};
use crate::scripted;
use crate::sharing::ListeningSocket;
use kernel::{Many, Number, Sent, World};

/// Sessions of the test.
const FEW: usize = 2_000;
/// With more, descriptors are only numbers.
const MOST_REAL: usize = 4_000;
/// How often all sessions are opened.
const ROUNDS: usize = 4;
/// Connections that wait at a time.
const WAITING: usize = 64;
/// Sessions that end, and begin, in each turn at a steady rate; and how many such turns there are.
const CHANGED: usize = 8;
const TURNS: usize = 2_000;
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Longer than a session has to be idle before it may be evicted.
const CROWDED_AFTER: Duration = Duration::from_secs(90);
/// The time of each group of connections then: 12,800 a second.
const CROWDED_PACE: Duration = Duration::from_millis(5);
const IDLE_TIME: Duration = Duration::from_secs(60);

/// The longest turn of a thread with many sessions.
const LONGEST_TURN: Duration = Duration::from_millis(10);
/// The most own memory of a session.
const MOST_BYTES: u64 = 512;
/// The share of a core in which sessions are idle.
const IDLE_SHARE: f64 = 0.001;

/// Time of the processor that this thread has used.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Anonymous memory of this process in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.unwrap().split_whitespace().next().unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

/// What one part of the run has used.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    turns: u64,
    time: Duration,
    longest: Duration,
}

struct Load {
    world: Rc<RefCell<World>>,
    thread: RelayThread,
    events: Vec<Event>,
    updates: mpsc::Sender<Update>,
    control: Arc<Control>,
    mailbox: Arc<Mailbox>,
    part: Part,
    longest: Duration,
}

impl Load {
    fn new(sessions: usize) -> Self {
        let socket = File::open("/dev/null").unwrap();
        let all = ROUNDS * sessions + TURNS * CHANGED;
        let is_real = sessions <= MOST_REAL;
        let world = World::new(socket.as_raw_fd(), all, is_real);
        let world = Rc::new(RefCell::new(world));
        scripted::install(Box::new(Many(Rc::clone(&world))));
        let socket = ListeningSocket {
            socket: Arc::new(std::os::fd::OwnedFd::from(socket).into()),
            sharing: None,
        };
        let of_listener = ListenerLimits {
            idle_timeout: Some(IDLE_TIMEOUT.into()),
            ..ListenerLimits::default()
        };
        let to = SERVER.parse::<std::net::SocketAddr>().unwrap().into();
        let limits = Limits::with_descriptors(&limits(), u64::MAX / 4);
        let made = make_limited_thread(
            socket,
            to,
            Loads::of(1),
            Pipes::new(0, 0),
            (limits, of_listener),
        );
        let Made {
            thread,
            updates,
            control,
            mailbox,
            ..
        } = made;
        Self {
            world,
            thread,
            events: Vec::with_capacity(EVENTS),
            updates,
            control,
            mailbox,
            part: Part::default(),
            longest: Duration::ZERO,
        }
    }

    fn sessions(&self) -> usize {
        self.thread.counters.sessions_active.get() as usize
    }

    /// One turn; returns whether the thread continues.
    fn turn(&mut self) -> bool {
        let before = used();
        let goes_on = self.thread.turn(&mut self.events).unwrap();
        let took = used() - before;
        self.part.turns += 1;
        self.part.time += took;
        self.part.longest = self.part.longest.max(took);
        goes_on
    }

    /// Ends a part of the run, and shows what it used for each of `count`.
    fn show(&mut self, what: &str, count: usize) -> Part {
        let part = std::mem::take(&mut self.part);
        self.longest = self.longest.max(part.longest);
        println!(
            "  {what}: {} turns, {:.1?} of the processor, {:.0?} each; longest turn {:.2?}",
            part.turns,
            part.time,
            part.time / u32::try_from(count.max(1)).unwrap_or(u32::MAX),
            part.longest
        );
        part
    }

    fn work_off(&mut self) {
        while self.world.borrow().has_events() {
            assert!(self.turn());
        }
    }

    /// Opens this many connections, and carries a byte each way.
    fn open(&mut self, count: usize) {
        let wanted = self.sessions() + count;
        let mut left = count;
        while left > 0 {
            let now = left.min(WAITING);
            left -= now;
            let first = self.world.borrow().accepted();
            self.world.borrow_mut().waiting = now;
            self.work_off();
            let last = self.world.borrow().accepted();
            for session in first..last {
                for leg in legs(session) {
                    self.world.borrow_mut().send(leg, Sent::Byte);
                }
            }
            self.work_off();
        }
        assert_eq!(self.sessions(), wanted);
    }

    /// Time passes, and the thread does what is due, until `time` is over or the thread has nothing to do any more.
    fn pass(&mut self, time: Duration) {
        let end = self.world.borrow().ahead + time;
        while self.world.borrow().ahead < end {
            let wait = self.world.borrow().timeout;
            let left = end - self.world.borrow().ahead;
            self.world.borrow_mut().ahead += wait.unwrap_or(left).min(left);
            assert!(self.turn());
        }
    }
}

/// The limits of the relay. Memory is measured.
fn limits() -> RelayLimits {
    RelayLimits {
        memory: Some(ByteSize::from_bytes(1 << 40)),
        ..RelayLimits::default()
    }
}

/// The numbers of both sockets of a session: no server leg is opened between them.
fn legs(session: u32) -> [Number; 2] {
    [2 * session, 2 * session + 1]
}

#[test]
fn turns_stay_short_with_many_sessions() {
    let asked = std::env::var("MIDSPAN_MANY").ok();
    let count = asked.as_ref().map_or(FEW, |text| text.parse().unwrap());
    midspan_linux::allocator::join_pieces_at_once();
    let mut load = Load::new(count);
    println!("{count} sessions on one thread");

    load.open(count / 4);
    let before = memory();
    load.open(count - count / 4);
    let each = (memory() - before.min(memory())) / (count - count / 4) as u64;
    load.show("opened", count);
    println!("  memory: {each} bytes each (at most {MOST_BYTES})");

    load.pass(IDLE_TIME);
    let idle = load.show("a minute idle", count);

    let (reply, mut parts) = tokio::sync::mpsc::unbounded_channel();
    assert!(load.mailbox.put(Inquiry::Survey(reply)));
    while !parts.is_closed() || !parts.is_empty() {
        assert!(load.turn());
        while parts.try_recv().is_ok() {}
    }
    load.show("all figures of all", count);
    let (reply, mut listed) = tokio::sync::mpsc::channel(1);
    let after = count as u64 / 2;
    let question = Question { after, limit: 1000 };
    assert!(load.mailbox.put(Inquiry::Sessions(question, reply)));
    while !listed.is_closed() {
        assert!(load.turn());
    }
    let (sessions, _) = listed.try_recv().unwrap();
    load.show("a list of 1,000", sessions.len());

    for turn in 0..TURNS {
        for place in 0..CHANGED {
            for leg in legs((turn * CHANGED + place) as u32) {
                load.world.borrow_mut().send(leg, Sent::End);
            }
        }
        load.world.borrow_mut().waiting = CHANGED;
        load.work_off();
    }
    assert_eq!(load.sessions(), count);
    load.show("ended and opened at a steady rate", TURNS * CHANGED);

    let (reply, kicked) = mpsc::channel();
    let network: IpNet = "0.0.0.0/0".parse().unwrap();
    let target = Target::Prefix(network.into());
    load.updates.send(Update::Kick(target, reply)).unwrap();
    while kicked.try_recv().is_err() {
        assert!(load.turn());
    }
    assert_eq!(load.sessions(), 0);
    load.show("kicked", count);
    // A command for a prefix includes connections of the next seconds.
    load.pass(Duration::from_secs(60));

    load.open(count);
    load.show("opened again", count);
    // The process was stopped for long: all deadlines have passed.
    load.world.borrow_mut().ahead += 2 * IDLE_TIMEOUT;
    while load.sessions() > 0 {
        assert!(load.turn());
    }
    load.show("all timed out at once", count);

    load.open(count);
    load.show("opened again", count);
    // There is little room for more, so idle sessions are evicted.
    load.world.borrow_mut().ahead += CROWDED_AFTER;
    let limits = RelayLimits {
        sessions: SessionLimits {
            sessions: u32::try_from(count + count / 16).ok(),
            ..SessionLimits::default()
        },
        ..limits()
    };
    load.thread.limits.change(&limits);
    let new = count / 20;
    for _ in 0..new / WAITING {
        load.world.borrow_mut().ahead += CROWDED_PACE;
        load.world.borrow_mut().waiting = WAITING;
        load.work_off();
    }
    let new = new / WAITING * WAITING;
    let evicted = (count + new).saturating_sub(load.sessions());
    println!("  {evicted} idle sessions evicted for {new} new ones");
    assert!(evicted > new / 4);
    load.show("opened while crowded", new);

    load.control.give(Command::Stop);
    while load.turn() {}
    load.show("stopped", count);
    let begin = used();
    drop(load.thread);
    println!("  sockets closed: {:.1?}", used() - begin);

    println!("  longest turn: {:.2?}", load.longest);
    if asked.is_some() {
        let share = idle.time.as_secs_f64() / IDLE_TIME.as_secs_f64();
        println!("  idle: {:.3} % of a core", share * 100.0);
        assert!(load.longest <= LONGEST_TURN, "{:?}", load.longest);
        assert!(share <= IDLE_SHARE, "{share}");
        assert!(each <= MOST_BYTES, "{each}");
    }
}
