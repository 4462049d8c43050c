//! A socket of the simulated kernel, with the peer behind it: one leg of a session.
//!
//! The results of the calls and the events are those of Linux (`tcp_recvmsg`, `tcp_sendmsg`, `tcp_poll`,
//! `tcp_reset` and `inet_getname` of Linux 6.x). Data has no content here: only its length counts.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::{Errno, Result};

/// The number of a socket, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The SYN is sent.
    Connecting,
    Connected,
    /// TCP_CLOSE: after a reset, after a refusal, or after both ends have been acknowledged.
    Gone,
}

#[derive(Debug)]
pub struct Socket {
    /// The write end of a pipe whose read end is the relay's descriptor. It shows when the relay has closed
    /// the descriptor.
    pub keeper: OwnedFd,
    /// The other leg of the session.
    pub partner: Option<SocketId>,
    pub state: State,
    pub begun_at: Duration,
    pub connected_at: Option<Duration>,
    /// When the peer has reset the connection.
    pub reset_at: Option<Duration>,
    /// Bytes from the peer, and how many of them the relay has read.
    pub arrived: u64,
    pub read: u64,
    /// The peer's FIN has arrived.
    pub is_ended: bool,
    /// Bytes from the relay, and how many of them the peer has acknowledged.
    pub written: u64,
    pub acknowledged: u64,
    /// The relay has sent its FIN.
    pub has_sent_end: bool,
    /// The size of the send buffer.
    capacity: u64,
    /// A write or a query has found too little room, so the kernel reports when there is room.
    waits_for_room: bool,
    error: Option<Errno>,
    pub is_reset_on_close: bool,
    /// The next splice into this socket meets the peer's reset, and swallows its error.
    pub is_reset_in_splice: bool,
    /// The relay may reset this leg: a peer has reset, a server has refused, or a call has failed.
    pub may_be_reset: bool,
    /// A call of the relay has failed for good, so that data may be lost.
    pub is_broken: bool,
    pub is_closed: bool,
}

impl Socket {
    pub fn new(keeper: OwnedFd, state: State, capacity: u64, now: Duration) -> Self {
        Self {
            keeper,
            partner: None,
            state,
            begun_at: now,
            connected_at: (state == State::Connected).then_some(now),
            reset_at: None,
            arrived: 0,
            read: 0,
            is_ended: false,
            written: 0,
            acknowledged: 0,
            has_sent_end: false,
            capacity,
            waits_for_room: false,
            error: None,
            // As inherited from the listening socket, or set on the server leg.
            is_reset_on_close: true,
            is_reset_in_splice: false,
            may_be_reset: false,
            is_broken: false,
            is_closed: false,
        }
    }
}

/// The relay's calls.
impl Socket {
    /// Bytes that have arrived and are not read.
    pub const fn waiting(&self) -> u64 {
        self.arrived - self.read
    }

    /// Bytes that can be read, at most `most`; 0 at the end. Reads them if `is_read`.
    pub fn receive(&mut self, most: u64, is_read: bool) -> Result<u64> {
        let count = (self.arrived - self.read).min(most);
        if count > 0 {
            if is_read {
                self.read += count;
            }
            return Ok(count);
        }
        if self.is_ended {
            return Ok(0);
        }
        match (self.error.take(), self.state) {
            (Some(error), _) => Err(error),
            (None, State::Gone) => Ok(0),
            (None, _) => Err(Errno::AGAIN),
        }
    }

    /// Takes some of the bytes.
    pub fn send(&mut self, most: u64) -> Result<u64> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.state == State::Gone || self.has_sent_end {
            return Err(Errno::PIPE);
        }
        let count = match self.state {
            State::Connected => self.room().min(most),
            _ => 0,
        };
        self.waits_for_room |= count < most;
        if count == 0 {
            return Err(Errno::AGAIN);
        }
        self.written += count;
        Ok(count)
    }

    pub fn end_writing(&mut self) -> Result<()> {
        if self.state != State::Connected {
            return Err(Errno::NOTCONN);
        }
        self.has_sent_end = true;
        self.finish();
        Ok(())
    }

    pub const fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }

    pub const fn has_peer(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// What epoll reports now.
    pub fn events(&mut self) -> EventFlags {
        let mut flags = EventFlags::empty();
        if self.error.is_some() {
            flags |= EventFlags::ERR;
        }
        if self.state == State::Connecting {
            return flags;
        }
        let is_gone = self.state == State::Gone;
        let (no_more_data, no_more_room) = (is_gone || self.is_ended, is_gone || self.has_sent_end);
        if no_more_data && no_more_room {
            flags |= EventFlags::HUP;
        }
        if no_more_data {
            flags |= EventFlags::IN | EventFlags::RDHUP;
        }
        if self.arrived > self.read {
            flags |= EventFlags::IN;
        }
        if no_more_room || self.has_much_room() {
            flags |= EventFlags::OUT;
        } else {
            self.waits_for_room = true;
        }
        flags
    }

    const fn room(&self) -> u64 {
        self.capacity - (self.written - self.acknowledged)
    }

    const fn has_much_room(&self) -> bool {
        self.room() * 3 >= self.capacity
    }
}

/// The peer's actions. Each returns whether epoll has an event for the relay.
impl Socket {
    /// Whether the peer can still send data.
    pub const fn can_send(&self) -> bool {
        matches!(self.state, State::Connected) && !self.is_ended
    }

    /// Bytes that the peer may send before the receive window is full.
    pub const fn window(&self) -> u64 {
        const WINDOW: u64 = 256 << 10;
        WINDOW.saturating_sub(self.arrived - self.read)
    }

    pub const fn unacknowledged(&self) -> u64 {
        self.written - self.acknowledged
    }

    pub const fn handle_data(&mut self, count: u64) -> bool {
        self.arrived += count;
        true
    }

    pub fn handle_end(&mut self) -> bool {
        self.is_ended = true;
        self.finish();
        true
    }

    pub fn acknowledge(&mut self, count: u64) -> bool {
        self.acknowledged += count.min(self.unacknowledged());
        let is_awaited = self.waits_for_room && self.has_much_room();
        if is_awaited {
            self.waits_for_room = false;
        }
        self.finish() || is_awaited
    }

    /// The server accepts.
    pub fn connect(&mut self, now: Duration) -> bool {
        self.state = State::Connected;
        self.connected_at = Some(now);
        true
    }

    /// The server refuses, or the network does.
    pub fn refuse(&mut self, error: Errno) -> bool {
        self.error = Some(error);
        self.state = State::Gone;
        true
    }

    /// The peer resets the connection.
    pub fn reset(&mut self, now: Duration) -> bool {
        self.error = Some(match self.is_ended {
            true => Errno::PIPE,
            false => Errno::CONNRESET,
        });
        self.state = State::Gone;
        self.reset_at = Some(now);
        true
    }

    /// The peer resets the connection during a splice, which returns its bytes and swallows the error.
    pub fn reset_in_splice(&mut self, now: Duration) {
        self.reset(now);
        self.error = None;
        self.is_reset_in_splice = false;
    }

    /// Both ends have been sent and acknowledged: no connection is left. Returns whether this is so now.
    fn finish(&mut self) -> bool {
        let is_over = self.state == State::Connected
            && self.has_sent_end
            && self.is_ended
            && self.unacknowledged() == 0;
        if is_over {
            self.state = State::Gone;
        }
        is_over
    }
}
