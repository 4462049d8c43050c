//! The messages of the moving sessions.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use midspan_testbed::loopback::Ends;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::Failure;

/// Bytes of a message: the number of the session, and the number of the message in it.
const LENGTH: usize = 16;
/// Time between two turns of the thread that sends.
const TURN: Duration = Duration::from_millis(1);
/// The longest gap that is distinguished from longer ones, in microseconds.
const LONGEST: u64 = 60_000_000;

/// The gaps of one run, in microseconds.
pub type Gaps = Histogram<u64>;

/// The moving sessions; messages are sent until this value is dropped.
pub struct Messages {
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<()>>,
    gaps: Receiver<Result<(Instant, Duration), String>>,
}

impl Messages {
    /// Servers of these sessions send messages from now on.
    ///
    /// # Errors
    /// A socket or a thread cannot be set up.
    pub fn start(sessions: Vec<Ends>, interval: Duration) -> Result<Self, Failure> {
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for (client, server) in sessions {
            client.set_nonblocking(true)?;
            server.set_nonblocking(true)?;
            clients.push(client);
            servers.push(server);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (report, gaps) = channel();
        let (stopped, failures) = (Arc::clone(&stop), report.clone());
        let sender = std::thread::spawn(move || {
            if let Err(error) = send(&mut servers, interval, &stopped) {
                let _ = failures.send(Err(error));
            }
        });
        let stopped = Arc::clone(&stop);
        let receiver = std::thread::spawn(move || {
            let mut note = |at, gap| {
                // The receiver of this channel may have ended.
                let _ = report.send(Ok((at, gap)));
            };
            if let Err(error) = receive(&mut clients, &stopped, &mut note) {
                let _ = report.send(Err(error.to_string()));
            }
        });
        Ok(Self {
            stop,
            sender: Some(sender),
            receiver: Some(receiver),
            gaps,
        })
    }

    /// The gaps that end within this time from now on. `work` is done meanwhile.
    ///
    /// # Errors
    /// A session has ended, a message is wrong, or the work has failed.
    pub fn during(
        &self,
        time: Duration,
        work: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Gaps, Failure> {
        let start = Instant::now();
        work()?;
        std::thread::sleep((start + time).saturating_duration_since(Instant::now()));
        let end = Instant::now();
        let mut gaps = Gaps::new_with_bounds(1, LONGEST, 3)?;
        while let Ok(reported) = self.gaps.try_recv() {
            let (at, gap) = reported?;
            if at >= start && at <= end {
                gaps.saturating_record(u64::try_from(gap.as_micros()).unwrap_or(LONGEST).max(1));
            }
        }
        if gaps.is_empty() {
            return Err("no message has arrived".into());
        }
        Ok(gaps)
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in [self.sender.take(), self.receiver.take()] {
            // A panic of that thread has been printed.
            let _ = thread.map(JoinHandle::join);
        }
    }
}

/// Sends a message on each session once in each interval, spread over the time.
fn send(servers: &mut [TcpStream], interval: Duration, stop: &AtomicBool) -> Result<(), String> {
    let turns = usize::try_from(interval.as_micros() / TURN.as_micros()).unwrap_or(1);
    let mut counts = vec![0_u64; servers.len()];
    let mut turn = 0;
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let sessions = servers.iter_mut().zip(&mut counts).enumerate();
        for (number, (server, count)) in sessions.skip(turn).step_by(turns) {
            let mut message = [0; LENGTH];
            message[..8].copy_from_slice(&(number as u64).to_be_bytes());
            message[8..].copy_from_slice(&count.to_be_bytes());
            match server.write(&message) {
                Ok(LENGTH) => *count += 1,
                // This session's buffer is full: the gap shows that.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(_) => return Err(format!("session {number}: a message was cut")),
                Err(error) => return Err(format!("session {number} has ended: {error}")),
            }
        }
        turn = (turn + 1) % turns;
        // What is late is sent at once, except what would be later than a second.
        next = (next + TURN).max(Instant::now() - Duration::from_secs(1));
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Checks the messages that arrive, and notes the gap before each one.
fn receive(
    clients: &mut [TcpStream],
    stop: &AtomicBool,
    note: &mut impl FnMut(Instant, Duration),
) -> Result<(), Failure> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, client) in clients.iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&poll, client, data, epoll::EventFlags::IN)?;
    }
    let mut counts: Vec<(u64, Option<Instant>)> = vec![(0, None); clients.len()];
    let mut events = Vec::with_capacity(256);
    let mut buffer = [0; 64 * LENGTH];
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    while !stop.load(Ordering::Relaxed) {
        events.clear();
        epoll::wait(&poll, spare_capacity(&mut events), Some(&pause))?;
        let now = Instant::now();
        for event in &events {
            let number = usize::try_from(event.data.u64())?;
            let (client, (count, last)) = (&mut clients[number], &mut counts[number]);
            let bytes = match client.read(&mut buffer) {
                Ok(0) => return Err(format!("session {number} was closed").into()),
                Ok(bytes) if bytes % LENGTH == 0 => bytes,
                Ok(_) => return Err(format!("session {number}: a part of a message").into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(format!("session {number} has ended: {error}").into()),
            };
            for message in buffer[..bytes].chunks(LENGTH) {
                let mut expected = [0; LENGTH];
                expected[..8].copy_from_slice(&(number as u64).to_be_bytes());
                expected[8..].copy_from_slice(&count.to_be_bytes());
                if message != expected {
                    return Err(format!("session {number}: wrong bytes in message {count}").into());
                }
                *count += 1;
            }
            if let Some(before) = last.replace(now) {
                note(now, now.saturating_duration_since(before));
            }
        }
    }
    Ok(())
}
