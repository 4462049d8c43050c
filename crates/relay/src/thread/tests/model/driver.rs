//! Random clients and servers, and the turns of the relay thread between their actions.

use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::kernel::{PIPE_SIZE, Simulated, World};
use super::random::Random;
use super::socket::{SocketId, State};
use crate::limits::Places;
use crate::pipes::Pipes;
use crate::scripted;
use crate::sharing::{ListeningSocket, Loads};
use crate::statistics::Counters;
use crate::thread::tests::bench::{MOMENT, Made, RESET_TIMEOUT, SERVER, make_thread};
use crate::thread::{EVENTS, Event, RelayThread, Update};

/// Connections at a time.
const CONNECTIONS: usize = 12;
/// Pipes of the thread: fewer than there are directions.
const PIPES: usize = 3;
/// All sessions end, and the thread is looked at, after this many steps.
const PERIOD: u64 = 2_000;
/// Turns in which the thread may have nothing to do, although it does not wait.
const IDLE_TURNS: u32 = 100;
/// Turns within which sessions end whose peers have ended and read everything.
const LAST_TURNS: u32 = 400;

pub struct Driver {
    world: Rc<RefCell<World>>,
    thread: RelayThread,
    counters: Arc<Counters>,
    places: Arc<Places>,
    events: Vec<Event>,
    idle_turns: u32,
    // The thread's owner.
    _updates: mpsc::Sender<Update>,
}

impl Driver {
    pub fn new(seed: u64) -> Self {
        let (socket, _) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let world = Rc::new(RefCell::new(World::new(seed, socket.as_raw_fd())));
        scripted::install(Box::new(Simulated {
            start: Instant::now(),
            world: Rc::clone(&world),
        }));
        let socket = ListeningSocket {
            socket: Arc::new(socket.into()),
            sharing: None,
        };
        let to = SERVER.parse::<std::net::SocketAddr>().unwrap().into();
        let pipes = Pipes::new(PIPES, PIPE_SIZE);
        let Made {
            thread,
            places,
            updates,
            ..
        } = make_thread(socket, to, Loads::of(1), pipes);
        Self {
            world,
            counters: thread.counters(),
            thread,
            places,
            events: Vec::with_capacity(EVENTS),
            idle_turns: 0,
            _updates: updates,
        }
    }

    pub fn steps(&self) -> u64 {
        self.world.borrow().step
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn outcomes(&self) -> String {
        let of = &self.counters;
        format!(
            "{} sessions ended in order, {} reset, {} unconnected; {} bytes copied, {} spliced",
            of.sessions_closed.get(),
            of.sessions_reset.get(),
            of.sessions_unconnected.get(),
            of.bytes_copied.get(),
            of.bytes_spliced.get()
        )
    }

    /// Some actions of the peers, and one turn.
    pub fn step(&mut self) {
        let actions = self.world.borrow_mut().random.below(4);
        for _ in 0..actions {
            act(&mut self.world.borrow_mut());
        }
        self.turn();
        if self.steps().is_multiple_of(PERIOD) {
            self.settle();
        }
    }

    fn turn(&mut self) {
        let before = {
            let mut world = self.world.borrow_mut();
            world.step += 1;
            let late = Duration::from_micros(world.random.below(50));
            world.time += late;
            world.progress
        };
        assert!(self.thread.turn(&mut self.events).unwrap());
        let mut world = self.world.borrow_mut();
        world.note_closed();
        let is_idle = world.timeout == Some(Duration::ZERO) && world.progress == before;
        self.idle_turns = match is_idle {
            true => self.idle_turns + 1,
            false => 0,
        };
        if self.idle_turns > IDLE_TURNS {
            world.fail(&format!(
                "the thread does not wait, and does nothing: {:?}",
                self.thread.deadline()
            ));
        }
    }

    /// All peers end and read everything, no call fails any more, and nothing may be left.
    pub fn settle(&mut self) {
        self.world.borrow_mut().has_failures = false;
        for turn in 0..LAST_TURNS {
            let mut world = self.world.borrow_mut();
            if turn > 0 && world.open_sockets() == 0 && world.waiting == 0 {
                break;
            }
            // Longer than a time-out, now and then.
            world.time += match turn % 50 {
                49 => RESET_TIMEOUT,
                _ => MOMENT * 10,
            };
            for id in open(&world) {
                end(&mut world, id);
            }
            drop(world);
            self.turn();
        }
        let mut world = self.world.borrow_mut();
        if world.open_sockets() > 0 {
            let sockets: Vec<_> = world.sockets.values().collect();
            let count = world.open_sockets();
            world.fail(&format!("{count} sockets are open: {sockets:?}"));
        }
        let counters = &self.counters;
        for (what, count) in [
            ("sessions", counters.sessions_active.get()),
            ("pipes are in use", counters.pipes_in_use.get()),
            ("places are taken", self.places.taken().0.into()),
            (
                "entries are in the register",
                self.thread.register.len() as u64,
            ),
        ] {
            if count > 0 {
                world.fail(&format!("without connections, {count} {what}"));
            }
        }
        drop(world);
        // A deadline that belongs to no session passes.
        self.world.borrow_mut().time += RESET_TIMEOUT;
        self.turn();
        world = self.world.borrow_mut();
        if let Some(deadline) = self.thread.deadline() {
            world.fail(&format!(
                "without connections, the thread waits for {deadline:?}"
            ));
        }
        world.has_failures = true;
    }
}

fn open(world: &World) -> Vec<SocketId> {
    let sockets = world.sockets.iter();
    sockets
        .filter(|(_, socket)| !socket.is_closed)
        .map(|(id, _)| *id)
        .collect()
}

/// The peer of a socket accepts, reads everything, and ends.
fn end(world: &mut World, id: SocketId) {
    let now = world.time;
    let Some(socket) = world.sockets.get_mut(&id) else {
        return;
    };
    let is_event = match socket.state {
        State::Connecting => socket.connect(now),
        State::Connected => {
            let has_room = socket.acknowledge(u64::MAX);
            has_room | (socket.can_send() && socket.handle_end())
        }
        State::Gone => false,
    };
    world.note_event(id, is_event);
}

/// One action of a peer, or time that passes.
fn act(world: &mut World) {
    match world.random.below(16) {
        0 | 1 => call(world),
        2 => pass_time(world),
        _ => {
            let open = open(world);
            if open.is_empty() {
                return call(world);
            }
            let id = open[world.random.below(open.len() as u64) as usize];
            act_on(world, id);
        }
    }
}

/// A client connects.
fn call(world: &mut World) {
    if world.waiting + world.open_sockets() / 2 < CONNECTIONS {
        world.waiting += 1;
        world.note_listener();
    }
}

/// Up to a millisecond, or until the thread's next deadline.
fn pass_time(world: &mut World) {
    world.time += match (world.timeout, world.random.is_one_in(4)) {
        (Some(timeout), true) => timeout,
        _ => Duration::from_micros(world.random.below(1000)),
    };
}

fn act_on(world: &mut World, id: SocketId) {
    let now = world.time;
    let mut random = Random(world.random.number());
    let Some(socket) = world.sockets.get_mut(&id) else {
        return;
    };
    let mut is_reset = false;
    let is_event = match socket.state {
        State::Gone => false,
        State::Connecting => match random.below(12) {
            0 => {
                is_reset = true;
                let errors = [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::CONNRESET];
                socket.refuse(errors[random.below(3) as usize])
            }
            1..4 => false,
            _ => socket.connect(now),
        },
        State::Connected => match random.below(40) {
            0 => {
                is_reset = true;
                socket.reset(now)
            }
            1 => {
                // It takes effect only if the relay splices into this socket.
                socket.is_reset_in_splice = random.is_one_in(4);
                false
            }
            2..6 => socket.can_send() && socket.handle_end(),
            6..20 => {
                let most = match random.below(8) {
                    0 => 200_000,
                    1 | 2 => 20_000,
                    _ => 300,
                };
                let count = (1 + random.below(most)).min(socket.window());
                socket.can_send() && count > 0 && socket.handle_data(count)
            }
            20..28 => {
                let count = 1 + random.below(socket.unacknowledged().max(1));
                socket.acknowledge(count)
            }
            _ => socket.acknowledge(u64::MAX),
        },
    };
    if is_reset {
        world.permit_reset(id);
    }
    world.note_event(id, is_event);
}
