//! The worker: the queue, the arriving packets, and the agent between them.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use midspan_linux::capability::{self, Capability};
use midspan_linux::descriptor_passing::PassingError;
use midspan_linux::packet_queue::{Batch, PacketQueue, Verdict, WHOLE};
use midspan_linux::packet_socket::{PacketSocket, Sight};
use midspan_linux::{descriptor_passing, packet_filter, process, sandbox};
use midspan_units::{Time, TimeSpan};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::{Agent, Error, Settings, Status};

/// How often the worker sends a report.
pub(crate) const ALIVE_INTERVAL: Duration = Duration::from_millis(100);
/// The number of the user `nobody` on Linux.
const USER: u32 = 65_534;
/// Frames whose headers may wait; the ring takes 2 KiB for each.
const TAP_FRAMES: usize = 1024;
/// Bytes of a frame that are read: Ethernet, IP and TCP headers with options.
const TAP_BYTES: u32 = 192;
/// Batches from the queue before other events are handled.
const BATCHES: usize = 16;

/// The worker's messages to the helper.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// The queue is there; rules may lead to it.
    Ready,
    /// The worker is alive; its counters.
    Alive(Box<Status>),
}

/// The worker process, to be called by the program that [`run`](crate::run) starts. Its standard
/// input is the connection to the helper.
///
/// # Errors
/// It cannot thin ACKs. It returns without an error when the helper has ended.
pub fn worker_main() -> Result<(), Error> {
    midspan_log::report_panics(midspan_log::say);
    let result = work();
    midspan_log::finish();
    result
}

fn work() -> Result<(), Error> {
    let helper = descriptor_passing::inherited(0).map_err(|_| Error::NotStartedByHelper)?;
    let Ok(Some(message)) = descriptor_passing::receive(&helper) else {
        return Err(Error::NotStartedByHelper);
    };
    let settings: Settings =
        serde_json::from_slice(&message.bytes).map_err(|_| Error::NotStartedByHelper)?;
    ignore_terminal()?;
    let queue =
        PacketQueue::bind(settings.queue, settings.queue_length, WHOLE).map_err(|source| {
            Error::Queue {
                number: settings.queue,
                source,
            }
        })?;
    let filter = packet_filter::tcp_headers(TAP_BYTES);
    let tap =
        PacketSocket::open_filtered(&settings.interface, TAP_FRAMES, Sight::Incoming, &filter)
            .map_err(|source| Error::Tap {
                interface: settings.interface.clone(),
                source,
            })?;
    give_up_rights()?;
    say(&helper, &FromWorker::Ready)?;
    // From here on the worker does not wait for the helper.
    rustix::io::ioctl_fionbio(&helper, true).map_err(Error::system("set up a socket pair"))?;
    Worker {
        agent: Agent::new(settings),
        queue,
        tap,
        helper,
        start: Instant::now(),
    }
    .run()
}

/// The terminal's signals go to the helper, which ends the worker.
pub(crate) fn ignore_terminal() -> Result<(), Error> {
    rustix::process::setsid()
        .map(|_| ())
        .or_else(|error| match error {
            // The process already leads a group.
            rustix::io::Errno::PERM => Ok(()),
            error => Err(error),
        })
        .map_err(Error::system("leave the terminal"))
}

/// In a user namespace there may be no such user.
pub(crate) fn become_nobody() -> Result<(), Error> {
    if rustix::process::getuid().is_root() && has_user(USER) {
        capability::become_user(USER, USER)?;
        process::end_with_parent().map_err(Error::system("follow the helper"))?;
    }
    Ok(())
}

fn give_up_rights() -> Result<(), Error> {
    become_nobody()?;
    capability::give_up_all_but(&[Capability::CAP_NET_ADMIN])?;
    sandbox::enter()?;
    Ok(())
}

/// Whether a number is mapped into this user namespace (user_namespaces(7)).
fn has_user(id: u32) -> bool {
    let map = File::open("/proc/self/uid_map").and_then(std::io::read_to_string);
    map.unwrap_or_default().lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), _, Some(Ok(count))) = (fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(id))
    })
}

fn say(helper: &OwnedFd, message: &FromWorker) -> Result<(), Error> {
    let bytes = serde_json::to_vec(message)
        .map_err(|error| Error::system("write a message")(std::io::Error::other(error)))?;
    match descriptor_passing::send(helper, &bytes, &[]) {
        // The helper has not read the last reports yet; the next report includes them.
        Err(PassingError::Io(error)) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        result => Ok(result?),
    }
}

struct Worker {
    agent: Agent,
    queue: PacketQueue,
    tap: PacketSocket,
    helper: OwnedFd,
    start: Instant,
}

impl Worker {
    fn run(mut self) -> Result<(), Error> {
        let mut batch = Batch::new();
        let mut verdicts = Vec::new();
        let mut next_alive = Time::ZERO;
        let mut headers_lost = 0;
        loop {
            if self.wait(next_alive)? {
                return Ok(());
            }
            let now = self.now();
            // First the packets that arrived: the verdicts need their round trips.
            for _ in 0..TAP_FRAMES {
                let agent = &mut self.agent;
                let received = self.tap.receive(|received| {
                    let packet = received.frame.get(received.network..);
                    agent.handle_incoming(now, packet.unwrap_or_default());
                });
                if received.is_none() {
                    break;
                }
            }
            for _ in 0..BATCHES {
                let now = self.now();
                let agent = &mut self.agent;
                agent.handle_timeout(now);
                let more = self
                    .queue
                    .receive_batch(&mut batch, |packet| {
                        agent.handle_packet(now, packet.id, packet.payload);
                    })
                    .map_err(Error::system("read the packet queue"))?;
                self.agent.take_verdicts(&mut verdicts);
                for (id, passes) in verdicts.drain(..) {
                    let verdict = match passes {
                        true => Verdict::Accept { mark: None },
                        false => Verdict::Drop,
                    };
                    self.queue
                        .decide(id, verdict)
                        .map_err(Error::system("give verdicts"))?;
                }
                self.queue.flush().map_err(Error::system("give verdicts"))?;
                if !more {
                    break;
                }
            }
            let now = self.now();
            if next_alive <= now {
                next_alive = now + TimeSpan::from(ALIVE_INTERVAL);
                headers_lost += u64::from(self.tap.take_drops().unwrap_or(0));
                let status = Status {
                    headers_lost,
                    ..self.agent.status(now)
                };
                say(&self.helper, &FromWorker::Alive(Box::new(status)))?;
            }
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + TimeSpan::from(self.start.elapsed())
    }

    /// Waits until there is something to do; returns whether the helper has ended.
    fn wait(&self, next_alive: Time) -> Result<bool, Error> {
        let next = self
            .agent
            .poll_timeout()
            .map_or(next_alive, |due| due.min(next_alive));
        let span = Duration::from(next.since(self.now()));
        let timeout = Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: span.subsec_nanos().into(),
        };
        let mut descriptors = [
            PollFd::new(&self.helper, PollFlags::IN),
            PollFd::from_borrowed_fd(self.queue.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.tap.as_fd(), PollFlags::IN),
        ];
        match poll(&mut descriptors, Some(&timeout)) {
            // The helper sends nothing to the worker: readable input means that the helper has ended.
            Ok(_) => Ok(!descriptors[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Error::system("wait for packets")(error)),
        }
    }
}
