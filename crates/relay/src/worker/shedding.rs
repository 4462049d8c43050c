//! Connections that cannot be taken: they are reset, or wait for a moment.

use midspan_units::TimeSpan;
use rustix::event::epoll;
use rustix::io::Errno;

use super::Worker;
use crate::limits::Shortage;

/// How long accepting rests when descriptors or memory are short.
const ACCEPT_PAUSE: TimeSpan = TimeSpan::from_milliseconds(100);

/// Descriptors that a thread keeps for shedding. While one is in use another thread may take it;
/// those that are left go on.
const RESERVE: usize = 4;

impl Worker {
    /// A connection was reset since there is no room for it.
    pub(super) fn count_shed(&self, shortage: Shortage) {
        let counter = match shortage {
            Shortage::Sessions => &self.counters.shed_sessions,
            Shortage::Client => &self.counters.shed_client,
            Shortage::Memory => &self.counters.shed_memory,
            Shortage::Descriptors => {
                self.limits.note_descriptors();
                &self.counters.shed_descriptors
            }
        };
        counter.add(1);
    }

    /// Resets a connection that cannot be taken, rather than let it wait; whether more may be
    /// taken at once. Old sessions go on.
    pub(super) fn shed(&mut self, index: usize, error: Errno) -> bool {
        let Some(acceptor) = self.acceptors.get(index) else {
            return false;
        };
        let shed = acceptor.shed(&mut self.reserve);
        let _ = self.keep_reserve();
        match shed {
            Ok(true) => self.count_shed(Shortage::Descriptors),
            Ok(false) => return false,
            Err(_) => self.pause_accepting(index, error),
        }
        shed.is_ok()
    }

    /// Makes the reserve full again, as far as there are descriptors.
    pub(super) fn keep_reserve(&mut self) -> rustix::io::Result<()> {
        while self.reserve.len() < RESERVE {
            let spare = rustix::io::fcntl_dupfd_cloexec(self.control.wake_up(), 0)?;
            self.reserve.push(spare);
        }
        Ok(())
    }

    /// Rests for a moment instead of failing in a circle; old sessions go on.
    pub(crate) fn pause_accepting(&mut self, index: usize, error: Errno) {
        self.counters.accept_errors.add(1);
        let Some(acceptor) = self.acceptors.get_mut(index) else {
            return;
        };
        if acceptor.paused_until.is_some() {
            return;
        }
        acceptor.paused_until = Some(self.now + ACCEPT_PAUSE);
        if let Some(socket) = &acceptor.socket {
            let _ = epoll::delete(&self.epoll, socket);
        }
        if self.counters.accept_pauses.get().is_power_of_two()
            || self.counters.accept_pauses.get() == 0
        {
            tracing::warn!(
                listener = acceptor.listener.name,
                "cannot accept, pausing: {error} (raise the limit of open files?)"
            );
        }
        self.counters.accept_pauses.add(1);
    }

    pub(super) fn resume_accepting(&mut self) {
        for index in 0..self.acceptors.len() {
            let acceptor = &mut self.acceptors[index];
            if acceptor.paused_until.is_none_or(|until| until > self.now) {
                continue;
            }
            acceptor.paused_until = None;
            if self.accepting
                && let Err(error) = self.watch_acceptor(index)
            {
                self.pause_accepting(index, error);
            }
        }
    }
}
