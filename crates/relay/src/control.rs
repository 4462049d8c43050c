//! Commands from the owner of a relay to its threads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use midspan_units::Time;
use rustix::event::{EventfdFlags, eventfd};

use super::system;

/// What the threads have to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Accept and relay.
    Run,
    /// Let the sessions finish, accept no more.
    Drain,
    /// End now.
    Stop,
}

/// The present command, and a descriptor that wakes all threads.
#[derive(Debug)]
pub struct Control {
    command: AtomicU8,
    wake_up: OwnedFd,
}

impl Control {
    /// Starts with the command to run.
    ///
    /// # Errors
    /// Those of `eventfd(2)`.
    pub fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            command: AtomicU8::new(0),
            wake_up: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The present command.
    pub fn command(&self) -> Command {
        match self.command.load(Ordering::Acquire) {
            0 => Command::Run,
            1 => Command::Drain,
            _ => Command::Stop,
        }
    }

    /// Gives a command. In [`Command`], each command comes later in a relay's life than the one
    /// before; an earlier one has no effect.
    pub fn give(&self, command: Command) {
        self.command.fetch_max(command as u8, Ordering::Release);
        self.wake();
    }

    /// Wakes all threads, so that they look for updates.
    pub fn wake(&self) {
        // This fails only if the descriptor is already readable.
        let _ = rustix::io::write(&self.wake_up, &1_u64.to_ne_bytes());
    }

    /// A descriptor that becomes readable when there is a command or a question, and remains
    /// readable.
    pub const fn wake_up(&self) -> &OwnedFd {
        &self.wake_up
    }
}

impl AsFd for Control {
    /// The [wake-up](Self::wake_up).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_up.as_fd()
    }
}

/// Wakes all threads of a relay, for what gives their [sources](crate::EventSource) commands.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Control>);

impl Waker {
    pub(super) const fn new(control: Arc<Control>) -> Self {
        Self(control)
    }

    /// Makes each thread begin a turn.
    pub fn wake(&self) {
        self.0.wake();
    }
}

/// The relay's clock: nanoseconds since its start, or since the start of the first relay if this relay continues the
/// sessions of others.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    /// The time at the start.
    base: Time,
}

impl Clock {
    /// Starts now, from this time.
    pub fn start_from(base: Time) -> Self {
        Self {
            start: system::now(),
            base,
        }
    }

    /// Starts now.
    #[cfg(test)]
    pub fn start() -> Self {
        Self::start_from(Time::ZERO)
    }

    /// The present time.
    pub fn now(self) -> Time {
        self.at(system::now())
    }

    /// The time at an instant; an instant before the start counts as the start.
    pub fn at(self, moment: Instant) -> Time {
        self.base + moment.saturating_duration_since(self.start).into()
    }
}
