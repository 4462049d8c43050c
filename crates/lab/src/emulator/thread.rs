//! The thread that serves one link.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use midspan_linux::packet_socket::PacketSocket;
use midspan_linux::scheduling;
use midspan_units::Time;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::ClockId;

use super::direction::{Departed, Direction};
use super::frame::{Kind, classify, to_monotonic};
use super::{CaptureCounts, Command, EndCapture, LinkReport, Recorded};

/// Frames read from one tap before the thread does anything else.
const BATCH: usize = 64;
/// Longest sleep, so that a lost wake-up cannot stop a link for good.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// State of one link's thread.
pub(super) struct LinkThread {
    first: PacketSocket,
    second: PacketSocket,
    up: Direction,
    down: Direction,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    /// The monotonic clock at the start of the run.
    start: Duration,
    kernel_drops: u64,
    /// Captures at the ends of the first and of the second node.
    captures: Option<[EndCapture; 2]>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
}

impl LinkThread {
    pub(super) fn new(
        directions: Box<(Direction, Direction)>,
        first: PacketSocket,
        second: PacketSocket,
        wake: Arc<OwnedFd>,
        commands: Receiver<Command>,
    ) -> Self {
        let (up, down) = *directions;
        Self {
            first,
            second,
            up,
            down,
            wake,
            commands,
            start: clock(ClockId::Monotonic),
            kernel_drops: 0,
            captures: None,
            spare: Vec::new(),
        }
    }

    /// Serves the link until the command to stop arrives.
    pub(super) fn run(mut self) -> std::io::Result<()> {
        // Without this setting, a sleep may end 50 µs late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        // Without this setting, the programs under test may keep the processor for a tick or more.
        let _ = scheduling::prefer_latency();
        loop {
            let more_first = self.take(true);
            let more_second = self.take(false);
            self.deliver();
            if !self.obey()? {
                return Ok(());
            }
            if !(more_first || more_second) {
                self.sleep()?;
            }
        }
    }

    /// Reads a batch of frames from one tap. Returns whether more frames wait.
    fn take(&mut self, from_first: bool) -> bool {
        let (tap, direction) = if from_first {
            (&mut self.first, &mut self.up)
        } else {
            (&mut self.second, &mut self.down)
        };
        let realtime = clock(ClockId::Realtime);
        let monotonic = clock(ClockId::Monotonic);
        let captures = self.captures.as_mut();
        let mut capture = captures.map(|[first, second]| if from_first { first } else { second });
        for _ in 0..BATCH {
            let spare = &mut self.spare;
            let Some(taken) = tap.receive(|received| {
                let kind = classify(received.frame);
                if kind == Kind::NotCarried || received.frame.len() < received.length {
                    return None;
                }
                if let Some(capture) = &mut capture {
                    capture.frame(received.at, received.frame);
                }
                let mut bytes = spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(received.frame);
                Some((to_monotonic(received.at, realtime, monotonic), kind, bytes))
            }) else {
                return false;
            };
            if let Some((at, kind, bytes)) = taken {
                direction.arrive(since(at, self.start), kind, bytes);
            }
        }
        true
    }

    /// Sends all frames that are due.
    fn deliver(&mut self) {
        let (first, second) = match &mut self.captures {
            Some([first, second]) => (Some(first), Some(second)),
            None => (None, None),
        };
        let ends = [
            (&mut self.up, &self.second, second),
            (&mut self.down, &self.first, first),
        ];
        for (direction, tap, mut capture) in ends {
            let now = since(clock(ClockId::Monotonic), self.start);
            while let Some(departed) = direction.depart(now) {
                let bytes = match departed {
                    Departed::Delivered(bytes) => bytes,
                    Departed::Dropped(bytes) => {
                        keep(&mut self.spare, bytes);
                        continue;
                    }
                };
                // The kernel refuses only frames that are larger than the device's MTU, and such a
                // frame cannot come from the other device of the pair. An interface that is down
                // loses frames, as a real one does.
                let _ = tap.send(&bytes);
                let sent = since(clock(ClockId::Monotonic), self.start);
                direction.sent(sent);
                if let Some(capture) = &mut capture {
                    capture.frame(clock(ClockId::Realtime), &bytes);
                }
                keep(&mut self.spare, bytes);
            }
        }
    }

    /// Carries out waiting commands; returns `false` for the command to stop.
    fn obey(&mut self) -> std::io::Result<bool> {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Reset(directions, recording, done)) => {
                    while self.first.receive(|_| ()).is_some() {}
                    while self.second.receive(|_| ()).is_some() {}
                    self.count_drops()?;
                    self.kernel_drops = 0;
                    (self.up, self.down) = *directions;
                    self.captures = recording.captures;
                    self.start = clock(ClockId::Monotonic);
                    let _ = done.send(());
                }
                Ok(Command::Report(report)) => {
                    self.count_drops()?;
                    let _ = report.send(LinkReport {
                        up: self.up.report(),
                        down: self.down.report(),
                        kernel_drops: self.kernel_drops,
                    });
                }
                Ok(Command::Recorded(recorded)) => {
                    let captures = self.captures.take();
                    let _ = recorded.send(Recorded {
                        up: self.up.recorded(),
                        down: self.down.recorded(),
                        captures: captures.map_or([CaptureCounts::default(); 2], |ends| {
                            ends.map(EndCapture::finish)
                        }),
                    });
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return Ok(false),
                Err(TryRecvError::Empty) => return Ok(true),
            }
        }
    }

    fn count_drops(&mut self) -> std::io::Result<()> {
        self.kernel_drops += u64::from(self.first.take_drops()?);
        self.kernel_drops += u64::from(self.second.take_drops()?);
        Ok(())
    }

    /// Sleeps until a frame or a command arrives or the next frame is due.
    fn sleep(&self) -> std::io::Result<()> {
        let now = since(clock(ClockId::Monotonic), self.start);
        let deadline = [self.up.deadline(), self.down.deadline()]
            .into_iter()
            .flatten()
            .min();
        let timeout = deadline.map_or(LONGEST_SLEEP, |deadline| {
            Duration::from(deadline.since(now)).min(LONGEST_SLEEP)
        });
        if timeout.is_zero() {
            return Ok(());
        }
        let timeout = Timespec::try_from(timeout).map_err(std::io::Error::other)?;
        let mut waited = [
            PollFd::from_borrowed_fd(self.first.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.second.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut waited, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let wakes = !waited[2].revents().is_empty();
        let has_error = waited
            .each_ref()
            .map(|fd| fd.revents().contains(PollFlags::ERR));
        for (tap, has_error) in [&self.first, &self.second].into_iter().zip(has_error) {
            if has_error {
                // An interface went down or was removed. Until the error is read from the socket,
                // every sleep ends at once.
                let _ = rustix::net::sockopt::socket_error(tap);
            }
        }
        if wakes {
            let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        }
        Ok(())
    }
}

/// Buffers kept for reuse; more would waste memory.
const SPARE_LIMIT: usize = 4096;

fn keep(spare: &mut Vec<Vec<u8>>, bytes: Vec<u8>) {
    if spare.len() < SPARE_LIMIT {
        spare.push(bytes);
    }
}

fn clock(id: ClockId) -> Duration {
    let now = rustix::time::clock_gettime(id);
    Duration::try_from(now).unwrap_or_default()
}

fn since(at: Duration, start: Duration) -> Time {
    let span = at.saturating_sub(start);
    Time::from_nanoseconds(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
