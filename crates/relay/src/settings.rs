//! The settings with which a relay starts.

use std::io;
use std::os::fd::OwnedFd;

use midspan_policy::Offered;
use midspan_units::{ByteSize, Time, TimeSpan};
use thiserror::Error;

use super::limits::RelayLimits;
use super::listener::Listener;
use super::remembered::Remembered;

/// Settings of the whole relay, which do not change.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Number of threads, each with a loop of its own; at least 1. Best: one per core.
    pub threads: usize,
    /// Whether each thread runs on one processor only, the thread with the number n on the n-th one that the
    /// process may use.
    pub pin_threads: bool,
    /// Size of one pipe, rounded up by the kernel to a power of two of pages. Without
    /// `CAP_SYS_RESOURCE` at most `fs.pipe-max-size` (1 MiB by default). Zero: always copy.
    pub pipe_size: ByteSize,
    /// Limit of all pipes together. Without `CAP_SYS_RESOURCE` the kernel permits one user at most
    /// `fs.pipe-user-pages-soft` (64 MiB by default). Sessions without a pipe copy.
    pub pipe_memory: ByteSize,
    /// After a leg has failed: the time for the other leg's peer to acknowledge the failed leg's
    /// data, before the other leg is reset too.
    pub reset_timeout: TimeSpan,
    /// How often some of the sessions that move data are read for the counters of their listener.
    /// `None`: only at their end.
    pub sampling_interval: Option<TimeSpan>,
    /// Limits of sessions, memory and descriptors.
    pub limits: RelayLimits,
    /// Congestion controls that policies may choose.
    pub offered: Offered,
    /// Verdicts about clients; sessions add to them.
    pub verdicts: Remembered,
    /// The time of the relay's clock at its start: zero, or that of the relay whose sessions it continues.
    pub begins_at: Time,
}

impl Default for Settings {
    /// One thread per core, which may run on every core, 64 pipes of 1 MiB, 30 s, no sampling, no limits, no BBR.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads,
            pin_threads: false,
            pipe_size: ByteSize::from_bytes(1 << 20),
            pipe_memory: ByteSize::from_bytes(64 << 20),
            reset_timeout: TimeSpan::from_seconds(30),
            sampling_interval: None,
            limits: RelayLimits::default(),
            offered: Offered::default(),
            verdicts: Remembered::default(),
            begins_at: Time::ZERO,
        }
    }
}

impl Settings {
    /// Size of one pipe as the kernel makes it; 0 for none.
    pub(super) fn real_pipe_size(&self) -> usize {
        let page = rustix::param::page_size() as u64;
        match self.pipe_size.bytes() {
            0 => 0,
            size => size
                .max(page)
                .checked_next_power_of_two()
                .and_then(|size| usize::try_from(size).ok())
                .unwrap_or(0),
        }
    }

    /// Number of pipes of one thread.
    pub(super) fn pipes_per_thread(&self) -> usize {
        let each = self.real_pipe_size() as u64 * self.threads.max(1) as u64;
        let count = self.pipe_memory.bytes().checked_div(each).unwrap_or(0);
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}

/// A listener with its sockets.
#[derive(Debug)]
pub struct OpenListener {
    /// The listener.
    pub listener: Listener,
    /// Listening, non-blocking sockets of the same address (`SO_REUSEPORT`): one for each thread, or
    /// fewer, each of which neighbouring threads share.
    pub sockets: Vec<OwnedFd>,
}

impl OpenListener {
    /// A listener whose sockets another relay has, which hands them over.
    #[must_use]
    pub const fn without_sockets(listener: Listener) -> Self {
        Self {
            listener,
            sockets: Vec::new(),
        }
    }
}

/// Why a relay cannot start.
#[derive(Debug, Error)]
pub enum Error {
    /// No thread to run on.
    #[error("threads = 0: the relay needs at least one thread")]
    NoThreads,
    /// A listener has no socket, or more than one per thread.
    #[error(
        "listener \"{listener}\" has {sockets} sockets and the relay {threads} threads: \
         open at least one and at most one per thread (SO_REUSEPORT)"
    )]
    SocketCount {
        /// Name of the listener.
        listener: String,
        /// Its sockets.
        sockets: usize,
        /// Threads of the relay.
        threads: usize,
    },
    /// A stuck thread cannot be replaced.
    #[error(
        "relay thread {thread} cannot be replaced: it is stuck where its connections are listed"
    )]
    NotReplaceable {
        /// Its number, from 0.
        thread: usize,
    },
    /// The kernel refused a call.
    #[error("cannot {action}: {source}")]
    Kernel {
        /// What the call was for.
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn kernel<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self::Kernel {
            action: action.into(),
            source: source.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_shared_out_to_the_threads() {
        let settings = |size: u64, memory: u64| Settings {
            threads: 2,
            pipe_size: ByteSize::from_bytes(size),
            pipe_memory: ByteSize::from_bytes(memory),
            ..Settings::default()
        };
        assert_eq!(settings(1 << 20, 64 << 20).pipes_per_thread(), 32);
        // 1 MB becomes 1 MiB.
        assert_eq!(settings(1_000_000, 64 << 20).pipes_per_thread(), 32);
        assert_eq!(settings(1 << 20, 1 << 20).pipes_per_thread(), 0);
        assert_eq!(settings(0, 64 << 20).pipes_per_thread(), 0);
        assert_eq!(settings(u64::MAX, u64::MAX).pipes_per_thread(), 0);
    }
}
