//! One end of a connection: a socket that records its actions and its results.
//!
//! Every step ends within a time limit, by default [`LIMIT`]. If something expected has not happened by then, this is
//! recorded as an event.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use midspan_linux::tcp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::Socket;

use crate::error::{Error, Played, Stop};
use crate::pattern::{self, Direction};
use crate::transcript::{Event, Log, errno};

/// Time limit of a step unless another is given, long enough for a machine that is busy with other work.
pub const LIMIT: Duration = Duration::from_secs(40);

/// If nothing happens for this long, the end records that nothing happens.
pub const WHILE: Duration = Duration::from_millis(300);

/// More than all buffers on the path can hold. If a sender has sent this much and still does not fail
/// or block, this is a fault.
const MOST_BUFFERED: u64 = 256 << 20;

/// Half of the answers to single bytes must arrive within this time; a corked socket delays them by
/// 0.2 s.
const IN_TIME: Duration = Duration::from_millis(100);

const CHUNK: usize = 64 << 10;

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    socket: Socket,
    sends: Direction,
    sent: u64,
    received: u64,
    log: Log,
    limit: Duration,
}

/// How one stretch of receiving ended.
enum Reached {
    Count,
    Fin,
    Failed(Errno),
}

impl End {
    /// An end that uses the socket of an existing connection, and this time limit for each step.
    pub fn new(socket: Socket, sends: Direction, log: Log, limit: Duration) -> Result<Self, Error> {
        for result in [
            socket.set_read_timeout(Some(limit)),
            socket.set_write_timeout(Some(limit)),
        ] {
            result.map_err(Error::system("set a time limit"))?;
        }
        Ok(Self {
            socket,
            sends,
            sent: 0,
            received: 0,
            log,
            limit,
        })
    }

    /// The same end, with another log.
    #[must_use]
    pub fn with_log(mut self, log: Log) -> Self {
        self.log = log;
        self
    }

    /// Records an event.
    pub fn note(&self, event: Event) {
        self.log.add(event);
    }

    /// The socket, to set its options.
    #[must_use]
    pub const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Bytes sent so far.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// The socket, to pass to a program.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.socket.into()
    }

    /// Sends `count` bytes.
    pub fn send(&mut self, count: u64) -> Played {
        let goal = self.sent + count;
        while self.sent < goal {
            let (socket, bytes) = (&self.socket, pattern::bytes_at(self.sends, self.sent));
            match write_some(socket, bytes, goal - self.sent) {
                Ok(count) => self.sent += count,
                Err(error) => return self.stop_sending(error),
            }
        }
        self.note(Event::Sends(count));
        Ok(())
    }

    /// Sends `count` bytes, each with a system call of its own.
    pub fn send_singly(&mut self, count: u64) -> Played {
        self.set_no_delay()?;
        for _ in 0..count {
            self.send(1)?;
        }
        Ok(())
    }

    /// Sends a byte of urgent data (RFC 9293, 3.8.5).
    pub fn send_urgent(&mut self) -> Played {
        let byte = &pattern::bytes_at(self.sends, self.sent)[..1];
        if let Err(error) = self.socket.send_out_of_band(byte) {
            return self.stop_sending(errno(&error));
        }
        self.sent += 1;
        self.note(Event::SendsUrgent);
        Ok(())
    }

    /// Sends until sending fails.
    pub fn flood(&mut self) -> Played {
        let begin = Instant::now();
        while begin.elapsed() < self.limit {
            let (socket, bytes) = (&self.socket, pattern::bytes_at(self.sends, self.sent));
            match write_some(socket, bytes, u64::MAX) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    self.note(Event::SendFailed(error));
                    return Ok(());
                }
            }
        }
        self.overdue("end of sending")
    }

    /// Sends until the kernel accepts no data for a while.
    pub fn fill(&mut self) -> Played {
        self.set_nonblocking(true)?;
        while self.sent < MOST_BUFFERED {
            let (socket, bytes) = (&self.socket, pattern::bytes_at(self.sends, self.sent));
            match write_some(socket, bytes, u64::MAX) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => {
                    if !self.wait(PollFlags::OUT, 2 * WHILE)? {
                        self.note(Event::Blocked);
                        return self.set_nonblocking(false);
                    }
                }
                Err(error) => return self.stop_sending(error),
            }
        }
        self.overdue("back-pressure")
    }

    /// Sends `count` bytes and ends its data; at the same time it receives the other end's data to
    /// the end.
    pub fn exchange(&mut self, count: u64) -> Played {
        let socket = self.socket.try_clone();
        let mut sender = Self {
            socket: socket.map_err(Error::system("copy a descriptor"))?,
            sends: self.sends,
            sent: self.sent,
            received: 0,
            log: Log::default(),
            limit: self.limit,
        };
        let sent = std::thread::scope(|scope| {
            let sent = scope.spawn(|| sender.send(count).and_then(|()| sender.finish()));
            let received = self.receive_to_end();
            let sent = sent
                .join()
                .map_err(|_| Error::Unknown("a thread panicked".to_owned()))?;
            received.and(sent)
        });
        self.sent = sender.sent;
        // The events of sending follow those of receiving, because their real order is random.
        for event in sender.log.events() {
            self.note(event);
        }
        sent
    }

    /// Receives exactly `count` bytes.
    pub fn receive(&mut self, count: u64) -> Played {
        let from = self.received;
        let reached = self.receive_until(Some(from + count))?;
        if self.received > from {
            self.note(Event::Received(self.received - from));
        }
        let complete = matches!(reached, Reached::Count);
        self.note_reached(reached);
        if complete { Ok(()) } else { Err(Stop::Here) }
    }

    /// Receives at least one byte, and all data that arrived together with it.
    pub fn receive_some(&mut self) -> Played {
        let reached = self.receive_until(Some(self.received + 1))?;
        if matches!(reached, Reached::Count) {
            self.note(Event::ReceivedSome);
            return Ok(());
        }
        self.note_reached(reached);
        Err(Stop::Here)
    }

    /// Receives until the other end has ended its data or the connection fails.
    pub fn receive_to_end(&mut self) -> Played {
        let from = self.received;
        let reached = self.receive_until(None)?;
        if self.received > from {
            self.note(Event::Received(self.received - from));
        }
        self.note_reached(reached);
        Ok(())
    }

    /// Like [`Self::receive_to_end`], for a number of bytes that depends on timing.
    pub fn drain_to_end(&mut self) -> Played {
        let from = self.received;
        let reached = self.receive_until(None)?;
        if self.received > from {
            self.note(Event::ReceivedSome);
        }
        self.note_reached(reached);
        Ok(())
    }

    /// Like [`Self::receive_to_end`]; exactly `count` bytes must arrive. The event does not contain
    /// the number.
    pub fn receive_all_to_end(&mut self, count: u64) -> Played {
        let from = self.received;
        let reached = self.receive_until(None)?;
        self.note(match self.received - from {
            received if received == count => Event::ReceivedAll,
            received => Event::Received(received),
        });
        self.note_reached(reached);
        Ok(())
    }

    /// Receives until the end without comparing the bytes, because another program sent them.
    pub fn drain_foreign_to_end(&mut self) -> Played {
        let mut buffer = vec![0; CHUNK];
        loop {
            match self.read(&mut buffer) {
                Ok(0) => self.note(Event::Fin),
                Ok(_) => {
                    self.note(Event::ReceivedSome);
                    continue;
                }
                Err(Errno::AGAIN) => return self.overdue("end of the data"),
                Err(error) => self.note(Event::Failed(error)),
            }
            return Ok(());
        }
    }

    /// Checks whether urgent data is announced, and returns the result.
    pub fn expect_urgent(&mut self) -> Result<bool, Stop> {
        let announced = self.wait(PollFlags::PRI, 2 * WHILE)?;
        if announced {
            self.note(Event::UrgentAnnounced);
        }
        Ok(announced)
    }

    /// Receives urgent data outside the stream (`MSG_OOB`).
    pub fn receive_urgent(&mut self) -> Played {
        if !self.expect_urgent()? {
            return Ok(());
        }
        let received = rustix::net::recv(&self.socket, &mut [0_u8; 1][..], RecvFlags::OOB);
        if matches!(received, Ok((_, 1))) {
            // The urgent byte has a position in the sent data, although it is not part of the
            // received stream.
            self.received += 1;
            self.note(Event::ReceivedUrgent);
        }
        Ok(())
    }

    /// Answers each of `count` bytes with one byte.
    pub fn echo(&mut self, count: u64) -> Played {
        self.set_no_delay()?;
        for _ in 0..count {
            if !matches!(self.receive_until(Some(self.received + 1))?, Reached::Count) {
                return self.overdue("byte to answer");
            }
            self.send_silently()?;
        }
        Ok(())
    }

    /// Sends single bytes, each after the answer to the last one, and judges the time that the
    /// answers took.
    pub fn ping(&mut self, count: u64) -> Played {
        self.set_no_delay()?;
        let mut late = 0;
        for _ in 0..count {
            let begin = Instant::now();
            self.send_silently()?;
            if !matches!(self.receive_until(Some(self.received + 1))?, Reached::Count) {
                return self.overdue("answer to a byte");
            }
            late += u64::from(begin.elapsed() > IN_TIME);
        }
        self.note(Event::Sends(count));
        self.note(Event::Received(count));
        self.note(if late * 2 > count {
            Event::Late
        } else {
            Event::InTime
        });
        Ok(())
    }

    /// For this time, neither data nor an end of the data must arrive.
    pub fn expect_silence(&mut self, time: Duration) -> Played {
        if !self.wait(PollFlags::IN | PollFlags::RDHUP, time)? {
            self.note(Event::Silence);
        }
        Ok(())
    }

    /// Waits until a reset or another failure has arrived, but does not fetch it from the socket.
    /// If a FIN arrives instead, the next step shows that.
    pub fn wait_until_failed(&self) -> Played {
        if !self.wait(PollFlags::RDHUP, self.limit)? {
            return self.overdue("failure");
        }
        // So far only the end of the data has arrived; the failure may follow directly.
        self.wait(PollFlags::empty(), 10 * WHILE)?;
        Ok(())
    }

    /// Whether data or its end can be read within this time.
    pub fn has_data_within(&self, time: Duration) -> Result<bool, Stop> {
        self.wait(PollFlags::IN, time)
    }

    /// Waits until data or its end can be read.
    pub fn wait_until_readable(&self) -> Played {
        match self.wait(PollFlags::IN, self.limit)? {
            true => Ok(()),
            false => self.overdue("data"),
        }
    }

    /// Waits until the kernel holds `count` unread bytes, without reading them.
    pub fn wait_until_held(&self, count: usize) -> Played {
        let begin = Instant::now();
        let mut buffer = vec![0; count];
        while begin.elapsed() < self.limit {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            match rustix::net::recv(&self.socket, &mut buffer[..], flags) {
                Ok((_, held)) if held >= count => return Ok(()),
                Ok((_, 0)) => return self.overdue("data before the end"),
                Ok(_) | Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => {
                    self.note(Event::Failed(error));
                    return Err(Stop::Here);
                }
            }
        }
        self.overdue("data")
    }

    /// Waits until all sent data is acknowledged.
    pub fn wait_until_acknowledged(&self) -> Played {
        let begin = Instant::now();
        while begin.elapsed() < self.limit {
            let left = tcp::unacknowledged_bytes(&self.socket);
            if left
                .map_err(Error::system("read the number of unacknowledged bytes"))?
                .bytes()
                == 0
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.overdue("acknowledgement")
    }

    /// Ends its data and continues to receive.
    pub fn finish(&mut self) -> Played {
        match self.socket.shutdown(Shutdown::Write) {
            Ok(()) => {
                self.note(Event::EndsSending);
                Ok(())
            }
            Err(error) => self.stop_sending(errno(&error)),
        }
    }

    /// Closes the socket like a program that has finished.
    pub fn close(self) {
        self.note(Event::Closes);
    }

    /// Closes the socket with a reset.
    pub fn reset(self) -> Played {
        self.note(Event::Resets);
        let linger = self.socket.set_linger(Some(Duration::ZERO));
        Ok(linger.map_err(Error::system("set SO_LINGER"))?)
    }

    /// Receives up to a position in the stream, or to its end. Records only faults.
    fn receive_until(&mut self, goal: Option<u64>) -> Result<Reached, Stop> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let left = goal.map_or(u64::MAX, |goal| goal - self.received);
            if left == 0 {
                return Ok(Reached::Count);
            }
            let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let bytes = match self.read(&mut buffer[..most]) {
                Ok(0) => return Ok(Reached::Fin),
                Ok(count) => &buffer[..count],
                Err(error) => return Ok(Reached::Failed(error)),
            };
            let sender = self.sends.other();
            if let Some(position) = pattern::first_difference(sender, self.received, bytes) {
                self.note(Event::Damaged { position });
                return Err(Stop::Here);
            }
            self.received += bytes.len() as u64;
        }
    }

    fn note_reached(&self, reached: Reached) {
        match reached {
            Reached::Count => {}
            Reached::Fin => self.note(Event::Fin),
            Reached::Failed(Errno::AGAIN) => self.note(Event::Overdue("data and no end")),
            Reached::Failed(error) => self.note(Event::Failed(error)),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match (&self.socket).read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result.map_err(|error| errno(&error)),
            }
        }
    }

    /// Sends one byte at once, without recording an event.
    fn send_silently(&mut self) -> Played {
        let bytes = pattern::bytes_at(self.sends, self.sent);
        match write_some(&self.socket, bytes, 1) {
            Ok(count) => self.sent += count,
            Err(error) => return self.stop_sending(error),
        }
        Ok(())
    }

    fn stop_sending(&self, error: Errno) -> Played {
        self.note(match error {
            Errno::AGAIN => Event::Overdue("room to send"),
            error => Event::SendFailed(error),
        });
        Err(Stop::Here)
    }

    fn overdue(&self, what: &'static str) -> Played {
        self.note(Event::Overdue(what));
        Err(Stop::Here)
    }

    /// Whether one of `events`, or a failure, occurs within `time`.
    fn wait(&self, events: PollFlags, time: Duration) -> Result<bool, Stop> {
        let mut descriptors = [PollFd::new(&self.socket, events)];
        let limit = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let ready = poll(&mut descriptors, Some(&limit));
        Ok(ready.map_err(Error::system("wait for a socket"))? > 0)
    }

    fn set_no_delay(&self) -> Played {
        // This fails only if the connection has ended, which the next step shows.
        let _ = self.socket.set_tcp_nodelay(true);
        Ok(())
    }

    fn set_nonblocking(&self, nonblocking: bool) -> Played {
        let result = self.socket.set_nonblocking(nonblocking);
        Ok(result.map_err(Error::system("change a socket's mode"))?)
    }
}

/// Writes as much of `bytes` as the kernel accepts, at most `most` bytes.
fn write_some(socket: &Socket, bytes: &[u8], most: u64) -> Result<u64, Errno> {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    let mut socket = socket;
    loop {
        match socket.write(&bytes[..length]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(count) => return Ok(count as u64),
            Err(error) => return Err(errno(&error)),
        }
    }
}
