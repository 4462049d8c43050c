//! The worker: the queue, the arriving packets, and the agent between them.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use midspan_linux::capability::{self, Capability};
use midspan_linux::packet_queue::{Batch, PacketQueue, Verdict, WHOLE};
use midspan_linux::packet_socket::{PacketSocket, Sight};
use midspan_linux::{packet_filter, sandbox};
use midspan_service::logging::{self, LogSettings};
use midspan_service::{child, message};
use midspan_units::{Time, TimeSpan};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::{Agent, Error, QUEUES, Settings, Status};

/// How often the worker sends a report.
pub(crate) const ALIVE_INTERVAL: Duration = Duration::from_millis(100);
/// Frames whose headers may wait; the ring takes 2 KiB for each.
const TAP_FRAMES: usize = 1024;
/// Bytes of a frame that are read: Ethernet, IP and TCP headers with options.
const TAP_BYTES: u32 = 192;
/// Batches from the queue before other events are handled.
const BATCHES: usize = 16;

/// The worker's messages to the helper.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// The queue with this number is there; rules may lead to it.
    Ready(u16),
    /// The worker is alive; its counters.
    Alive(Box<Status>),
}

/// The worker process, to be called by the program that [`run`](crate::run) starts. Its standard
/// input is the connection to the helper.
///
/// # Errors
/// It cannot thin ACKs. It returns without an error when the helper has ended.
pub fn worker_main() -> Result<(), Error> {
    logging::report_panics();
    let result = work();
    midspan_log::finish();
    result
}

fn work() -> Result<(), Error> {
    let helper = helper()?;
    let Ok(Some((settings, _))) = message::receive::<Settings>(&helper) else {
        return Err(Error::NotStartedByHelper);
    };
    let (number, queue) = bind(&settings)?;
    let filter = packet_filter::tcp_headers(TAP_BYTES);
    let tap =
        PacketSocket::open_filtered(&settings.interface, TAP_FRAMES, Sight::Incoming, &filter)
            .map_err(|source| Error::Tap {
                interface: settings.interface.clone(),
                source,
            })?;
    give_up_rights(&[Capability::CAP_NET_ADMIN])?;
    message::send(&helper, &FromWorker::Ready(number), &[])?;
    Worker {
        agent: Agent::new(settings),
        queue,
        tap,
        helper,
        start: Instant::now(),
    }
    .run()
}

/// The queue of the settings, or the first that no other process has.
fn bind(settings: &Settings) -> Result<(u16, PacketQueue), Error> {
    let numbers = settings.queue.map_or(QUEUES, |number| number..=number);
    let mut number = *numbers.start();
    loop {
        match PacketQueue::bind(number, settings.queue_length, WHOLE) {
            Ok(queue) => return Ok((number, queue)),
            // The kernel has this error for another process's queue and for a missing capability.
            Err(source)
                if source.kind() == ErrorKind::PermissionDenied && number < *numbers.end() =>
            {
                number += 1;
            }
            Err(source) => return Err(Error::Queue { number, source }),
        }
    }
}

/// In a process that the helper has started, before anything is read from others: becomes the user
/// that the helper has named, and keeps these capabilities alone.
pub(crate) fn give_up_rights(kept: &[Capability]) -> Result<(), Error> {
    child::become_user()?;
    capability::give_up_all_but(kept)?;
    sandbox::enter()?;
    // Not before: the user and the sandbox are those of one thread.
    logging::start(LogSettings::default()).map_err(Error::system("start the thread of the log"))
}

/// The connection to the helper. Signals of the terminal or the service manager go to the helper,
/// which ends this process after it has removed the rules.
pub(crate) fn helper() -> Result<OwnedFd, Error> {
    let helper = child::parent().map_err(|_| Error::NotStartedByHelper)?;
    child::ignore_signals().map_err(Error::system("set up signals"))?;
    child::leave_terminal().map_err(Error::system("leave the terminal"))?;
    Ok(helper)
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
                // A helper that has not read the last reports gets all of it with the next one.
                message::try_send(&self.helper, &FromWorker::Alive(Box::new(status)))?;
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
            Ok(_) => {
                // The interface went down. The kernel shows headers again when the interface is up
                // again; until the error is taken, each wait would end at once.
                if descriptors[2].revents().contains(PollFlags::ERR) {
                    self.tap
                        .take_error()
                        .map_err(Error::system("read packets"))?;
                }
                // The helper sends nothing to the worker: readable input means that the helper has
                // ended.
                Ok(!descriptors[0].revents().is_empty())
            }
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Error::system("wait for packets")(error)),
        }
    }
}
