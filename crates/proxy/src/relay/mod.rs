//! The relay: joins the two legs of each session and moves the bytes between them.
//!
//! One thread per core, each with a loop of its own over listening sockets of its own
//! (`SO_REUSEPORT`) and the sessions accepted from them; threads share nothing but a command.
//!
//! | module | job | pure |
//! | --- | --- | --- |
//! | `direction` | one direction of data: what to do next | yes |
//! | `lifecycle` | a session: go on, close, settle or reset | yes |
//! | `transfer` | carries a direction out: read, write, splice | |
//! | `session` | two sockets, two transfers, events, failures | |
//! | `opening` | accept, ask the policy, set up, connect | |
//! | `destination` | which server, and how its leg comes about | |
//! | `worker` | the loop of one thread | |
//! | `table`, `timers`, `pipes` | its sessions, deadlines and pipes | |
//! | `statistics`, `control`, `settings` | numbers out, commands in, what it starts with | |
//!
//! # Moving data
//!
//! Small data is read into one buffer per thread and written at once. When a read fills that
//! buffer, the direction goes over to splice through a pipe taken from a bounded pool and given
//! back when it is empty; where no pipe of full size is to be had, it copies. A direction reads
//! only when it holds nothing, so it never holds more than one read: back-pressure is the
//! kernel's buffers. A session that is idle holds neither buffer nor pipe.
//!
//! # Life of a session
//!
//! `connecting` (the client is accepted, the server called) → `relaying` → closed or, when a leg
//! has failed, `settling` → reset. Both sockets have `SO_LINGER {1, 0}` until the session closes
//! in good order: whatever else closes them, a crash included, is a reset and never looks like a
//! clean end.
//!
//! | happens | while connecting | while relaying |
//! | --- | --- | --- |
//! | data | stays in the kernel | forwarded |
//! | FIN of a leg | passed on once connected | after the last byte, `shutdown` on the other leg; the other direction goes on. When both directions have ended: `SO_LINGER` off, close both |
//! | reset, time-out or other error of the client leg | nothing to forward: reset the server leg. Else connect, forward, settle | what it had delivered is forwarded; settle the server leg |
//! | the same of the server leg | refused, unreachable or timed out: reset the client leg | what it had delivered is forwarded; settle the client leg |
//! | reset after a FIN | as above | the FIN is passed on too, then settle |
//! | both legs failed | | close both |
//! | `connect_timeout` | reset the client leg | |
//! | process dies | both legs reset | both legs reset |
//!
//! **Settling** a leg: as soon as its peer has acknowledged everything (`SIOCOUTQ` = 0), or after
//! [`Settings::reset_timeout`], both sockets are closed, by a reset. A reset sent earlier would
//! take back what the peer's kernel has not received yet; without a proxy, too, a receiver can
//! read what had arrived before the reset. Data towards the failed leg is dropped.
//!
//! **Was it a FIN?** A socket gives its error once, to whoever asks first, and from then on reads
//! 0 as after a FIN. So the first error of a leg is kept, and an end that is read later is one
//! only if the FIN surely came first: the kernel's error was EPIPE, or epoll had reported the FIN
//! before. A splice may even swallow the error; so at an end the relay asks whether the socket
//! still has a peer, which only a reset takes away.
//!
//! # The policy
//!
//! For each connection [`Policy::admit`] is called when it is accepted, [`Policy::start`] when
//! both sockets exist and before the server is called (what is offered in the SYN depends on it),
//! and [`Policy::sample`] at most every [`Policy::sampling_interval`] while data flows. Carried
//! out: all of [`LegStart`](midspan_policy::LegStart) that [`midspan_linux::tcp::apply`] can set;
//! pacing rate and send buffer of a [`Decision`](midspan_policy::Decision). Not carried out yet: its segment size and in-flight
//! cap; the initial-window class (set by whoever opens the listener); the handshake (that of a
//! transparent listener is its configuration's, carried out by the gate before there is a
//! session); a bypass (`Bypass` relays without any set-up).
//!
//! SIGPIPE must be ignored, as the Rust runtime does at start: `splice` has no `MSG_NOSIGNAL`.

mod control;
mod destination;
mod direction;
mod lifecycle;
mod opening;
mod pipes;
mod session;
mod settings;
mod statistics;
mod table;
mod timers;
mod transfer;
mod worker;

pub use settings::{Destination, Error, Listener, Settings};
pub use statistics::Statistics;

use std::sync::Arc;
use std::thread::JoinHandle;

use midspan_policy::{Configured, Policy};
use midspan_units::Time;

use control::{Clock, Command, Control};
use opening::Acceptor;
use pipes::Pipes;
use statistics::Counters;
use worker::Worker;

/// A running relay. Dropping it is [`Relay::stop`].
#[derive(Debug)]
pub struct Relay {
    control: Arc<Control>,
    counters: Vec<Arc<Counters>>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay that sets its sessions up as the listeners' settings say and nothing else.
    ///
    /// # Errors
    /// As [`Relay::start_with`].
    pub fn start(settings: &Settings, listeners: Vec<Listener>) -> Result<Self, Error> {
        Self::start_with(settings, listeners, |listener| {
            Box::new(Configured::new(listener.settings.clone()))
        })
    }

    /// Starts a relay whose sessions are decided on by `policy`, which is called once for each
    /// listener and thread.
    ///
    /// # Errors
    /// No threads, a listener without one socket per thread, or what the kernel refuses.
    pub fn start_with(
        settings: &Settings,
        listeners: Vec<Listener>,
        mut policy: impl FnMut(&Listener) -> Box<dyn Policy + Send>,
    ) -> Result<Self, Error> {
        if settings.threads == 0 {
            return Err(Error::NoThreads);
        }
        let mut acceptors: Vec<Vec<Acceptor>> = Vec::new();
        acceptors.resize_with(settings.threads, Vec::new);
        for mut listener in listeners {
            let sockets = std::mem::take(&mut listener.sockets);
            if sockets.len() != settings.threads {
                return Err(Error::SocketCount {
                    listener: listener.name,
                    sockets: sockets.len(),
                    threads: settings.threads,
                });
            }
            for (acceptors, socket) in acceptors.iter_mut().zip(sockets) {
                opening::prepare_listener(&socket, &listener)?;
                let policy = policy(&listener);
                acceptors.push(Acceptor::new(socket, &listener, policy));
            }
        }
        warn_without_pipes(settings);
        let control = Control::new().map_err(Error::kernel("make an event descriptor"))?;
        let mut relay = Self {
            control: Arc::new(control),
            counters: Vec::new(),
            threads: Vec::new(),
        };
        let clock = Clock::start();
        for (number, acceptors) in acceptors.into_iter().enumerate() {
            relay.start_thread(number, acceptors, settings, clock)?;
        }
        Ok(relay)
    }

    fn start_thread(
        &mut self,
        number: usize,
        acceptors: Vec<Acceptor>,
        settings: &Settings,
        clock: Clock,
    ) -> Result<(), Error> {
        let pipes = Pipes::new(settings.pipes_per_thread(), settings.real_pipe_size());
        let control = Arc::clone(&self.control);
        let worker = Worker::new(acceptors, pipes, settings.reset_timeout, control, clock)
            .map_err(Error::kernel("set up epoll"))?;
        let counters = worker.counters();
        counters.threads_running.set(1);
        self.counters.push(Arc::clone(&counters));
        let thread = std::thread::Builder::new()
            .name(format!("relay {number}"))
            .spawn(move || {
                let running = Running(counters);
                if let Err(error) = worker.run() {
                    tracing::error!("relay thread {number} ends, its sessions are reset: {error}");
                }
                drop(running);
            })
            .map_err(Error::kernel("start a thread"))?;
        self.threads.push(thread);
        Ok(())
    }

    /// The numbers of all threads together.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for counters in &self.counters {
            counters.add_to(&mut sum);
        }
        sum
    }

    /// Accepts what already waits, then no more, and lets the sessions finish. It returns at
    /// once; all is done when [`Statistics::sessions_active`] is 0.
    pub fn drain(&self) {
        self.control.give(Command::Drain);
    }

    /// Resets the sessions that are left and ends the threads.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.control.give(Command::Stop);
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened; its sessions have been reset.
            let _ = thread.join();
        }
    }
}

/// Counts a thread as running until this is dropped, by a panic too.
struct Running(Arc<Counters>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.threads_running.set(0);
    }
}

/// Says once, at the start, that bulk will be copied.
fn warn_without_pipes(settings: &Settings) {
    let size = settings.real_pipe_size();
    if settings.pipes_per_thread() == 0 {
        tracing::info!("no pipes are configured: bulk is copied, at twice the CPU time or more");
    } else if Pipes::new(1, size).take(Time::ZERO).is_none() {
        tracing::warn!(
            "the kernel gives no pipe of {size} bytes: bulk is copied, at twice the CPU time or \
             more (see fs.pipe-max-size and fs.pipe-user-pages-soft, or make pipe_size smaller)"
        );
    }
}
