//! The writer's thread, and the state that it shares with the threads that log.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::captured;
use crate::queue::{Entry, Queue};

/// A write without progress for this time is stuck: nothing reads the log.
const STUCK_AFTER: Duration = Duration::from_millis(250);

/// After a line, the writer rests for this time before it waits to be woken for the next line. So a
/// thread that logs many lines need not wake the writer for each of them.
const REST: Duration = Duration::from_millis(2);

/// Makes the line with the number of missing lines.
pub type Notice = fn(u64) -> Vec<u8>;

/// A log, and the connection to its thread.
pub struct Log {
    state: Mutex<State>,
    /// There is something to write.
    wanted: Condvar,
    /// Something has been written, or has failed.
    done: Condvar,
    lost: AtomicU64,
    notice: Mutex<Notice>,
}

struct State {
    queue: Queue,
    /// Time since which the current write has made no progress; `None` if there is no write.
    still_since: Option<Instant>,
    /// The writer waits for something to write. Waking it is a system call even if it does not wait,
    /// and most lines arrive while it writes.
    writer_waits: bool,
    /// The writer rests. It is woken only by a thread that waits for it, or if the queue is full to a
    /// quarter.
    writer_rests: bool,
    /// Threads that wait for the writer.
    waiting: usize,
}

impl Log {
    /// Starts the thread, which first calls `begin` and then writes to `descriptor` until the process
    /// ends.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(
        descriptor: impl AsFd + Send + 'static,
        begin: fn(),
        notice: Notice,
    ) -> io::Result<Arc<Self>> {
        let log = Arc::new(Self {
            state: Mutex::new(State {
                queue: Queue::default(),
                still_since: None,
                writer_waits: false,
                writer_rests: false,
                waiting: 0,
            }),
            wanted: Condvar::new(),
            done: Condvar::new(),
            lost: AtomicU64::new(0),
            notice: Mutex::new(notice),
        });
        let shared = Arc::clone(&log);
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                captured::mark_writer();
                begin();
                shared.write_all(descriptor.as_fd());
            })?;
        Ok(log)
    }

    /// Changes how missing lines are reported from now on.
    pub fn set_notice(&self, notice: Notice) {
        *self.notice.lock().unwrap_or_else(PoisonError::into_inner) = notice;
    }

    /// Queues a line. Returns `false` if there is no room, which is counted. Never waits for the
    /// writer.
    pub fn put(&self, entry: Entry) -> bool {
        self.put_until(entry, None)
    }

    /// As [`put`](Self::put), but waits for room until then, or until nothing reads the log.
    pub fn put_until(&self, mut entry: Entry, limit: Option<Instant>) -> bool {
        let mut state = self.lock();
        loop {
            entry = match state.queue.put(entry) {
                Ok(()) => {
                    let is_wanted =
                        state.writer_waits || state.writer_rests && state.queue.is_quarter_full();
                    drop(state);
                    if is_wanted {
                        self.wanted.notify_one();
                    }
                    return true;
                }
                Err(entry) => entry,
            };
            let waits = limit.filter(|_| !captured::is_writer());
            let Some(waiting) = waits.and_then(|limit| state.waiting_time(limit)) else {
                state.queue.mark_lost();
                drop(state);
                self.lost.fetch_add(1, Ordering::Relaxed);
                return false;
            };
            state = self.wait(state, waiting);
        }
    }

    /// Returns when all lines are written, or nothing reads the log, or the time is over.
    pub fn finish(&self, limit: Instant) {
        // The writer's thread would wait for itself.
        if captured::is_writer() {
            return;
        }
        let mut state = self.lock();
        while !state.queue.is_empty() || state.still_since.is_some() {
            let Some(waiting) = state.waiting_time(limit) else {
                return;
            };
            state = self.wait(state, waiting);
        }
    }

    /// Lines that were not written, because there was no room or no reader.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        state.waiting += 1;
        if state.writer_rests {
            self.wanted.notify_one();
        }
        let waited = self.done.wait_timeout(state, time);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.waiting -= 1;
        state
    }

    fn note_done(&self, state: &State) {
        if state.waiting > 0 {
            self.done.notify_all();
        }
    }

    /// The protected data is consistent in any case: nothing panics while the lock is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next thing to write; waits for it.
    fn next(&self) -> Entry {
        let mut state = self.lock();
        state.still_since = None;
        self.note_done(&state);
        let mut is_rested = false;
        loop {
            if let Some(entry) = state.queue.take() {
                state.still_since = Some(Instant::now());
                return entry;
            }
            if is_rested || state.waiting > 0 {
                state.writer_waits = true;
                let waited = self.wanted.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                state.writer_waits = false;
            } else {
                state.writer_rests = true;
                let waited = self.wanted.wait_timeout(state, REST);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.writer_rests = false;
                is_rested = true;
            }
        }
    }

    fn note_progress(&self) {
        let mut state = self.lock();
        state.still_since = Some(Instant::now());
        self.note_done(&state);
    }

    fn write_all(&self, descriptor: BorrowedFd<'_>) {
        let mut pen = Pen {
            log: self,
            descriptor,
            missing: 0,
            is_broken: false,
        };
        loop {
            match self.next() {
                Entry::Line(line) => pen.write_line(&line),
                Entry::Later(make) => {
                    // A line that cannot be made is lost; the panic has been reported.
                    let (result, lines) =
                        captured::capture(|| catch_unwind(AssertUnwindSafe(make)));
                    for line in lines {
                        pen.write_line(&line);
                    }
                    if result.is_err() {
                        pen.count_lost();
                    }
                }
                Entry::Lost(count) => {
                    pen.missing = pen.missing.saturating_add(count);
                    pen.tell_missing();
                }
            }
        }
    }
}

impl State {
    /// How long to wait for the writer before the next check; `None`: stop waiting.
    fn waiting_time(&self, limit: Instant) -> Option<Duration> {
        let now = Instant::now();
        let stuck = self.still_since.map(|since| since + STUCK_AFTER);
        let until = stuck.map_or(limit, |stuck| stuck.min(limit));
        let time = until.saturating_duration_since(now);
        (!time.is_zero()).then_some(time)
    }
}

/// Writes whole lines and counts the lines that cannot be written.
struct Pen<'a> {
    log: &'a Log,
    descriptor: BorrowedFd<'a>,
    /// Missing lines that the log has not yet reported.
    missing: u64,
    /// The last line was written only in part.
    is_broken: bool,
}

impl Pen<'_> {
    fn write_line(&mut self, line: &[u8]) {
        if !self.tell_missing() || self.write(line).is_err() {
            self.count_lost();
        }
    }

    fn count_lost(&mut self) {
        self.missing = self.missing.saturating_add(1);
        self.log.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports missing lines, if there are any. Returns whether the log is complete then.
    fn tell_missing(&mut self) -> bool {
        if self.missing == 0 {
            return true;
        }
        let notice = *self
            .log
            .notice
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let told = self.write(&notice(self.missing)).is_ok();
        if told {
            self.missing = 0;
        }
        told
    }

    fn write(&mut self, line: &[u8]) -> rustix::io::Result<()> {
        if self.is_broken {
            self.write_bytes(b"\n")?;
        }
        self.write_bytes(line)
    }

    fn write_bytes(&mut self, mut bytes: &[u8]) -> rustix::io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(self.descriptor, bytes) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => {
                    self.log.note_progress();
                    bytes = bytes.get(count..).unwrap_or_default();
                    self.is_broken = !bytes.is_empty();
                }
                Err(Errno::INTR) => {}
                // A process that shares the descriptor has made it non-blocking.
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self) -> rustix::io::Result<()> {
        match poll(&mut [PollFd::new(&self.descriptor, PollFlags::OUT)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
