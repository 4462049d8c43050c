//! The model: what two ends joined by a relay may see, given what they did.
//!
//! Each direction is a queue of bytes with a begin and an end; what a direction has taken is
//! counted, since the byte at a place is known from the place. The model does not say when
//! something arrives, only what may have arrived by now and what must have in the end.

/// How an end, or a direction of it, is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Reads and writes.
    Open,
    /// Has sent its FIN; still reads.
    HalfClosed,
    /// Has been reset by itself.
    HasReset,
    /// Closed in whole: by a FIN, and with unread data by a reset.
    Closed,
    /// Has found its connection reset.
    WasReset,
}

/// What one end has done and seen.
#[derive(Debug, Clone)]
pub struct Side {
    pub state: State,
    /// Bytes that its kernel has taken.
    pub sent: u64,
    /// Bytes that it has read.
    pub received: u64,
    /// It has read the end.
    pub end_read: bool,
    /// Its FIN may have been sent.
    pub finished: bool,
}

/// What an end reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Bytes(u64),
    End,
    Reset,
}

/// A session as its two ends may see it: client, server.
#[derive(Debug, Clone)]
pub struct Session {
    pub sides: [Side; 2],
    /// The relay may end it by a reset of its own: what was needed was refused.
    pub may_fail: bool,
}

impl Session {
    pub fn new() -> Self {
        let side = Side {
            state: State::Open,
            sent: 0,
            received: 0,
            end_read: false,
            finished: false,
        };
        Self {
            sides: [side.clone(), side],
            may_fail: false,
        }
    }

    /// Whether a side may write.
    pub fn may_write(&self, side: usize) -> bool {
        self.sides[side].state == State::Open
    }

    /// Whether a side may read.
    pub fn may_read(&self, side: usize) -> bool {
        let Side {
            state, end_read, ..
        } = self.sides[side];
        matches!(state, State::Open | State::HalfClosed) && !end_read
    }

    /// Whether a reset can come to a side.
    fn may_be_reset(&self, side: usize) -> bool {
        let other = &self.sides[1 - side];
        // A side that has gone answers what is still sent to it by a reset.
        self.may_fail || !matches!(other.state, State::Open | State::HalfClosed)
    }

    /// Whether the other side has ended what it sends in good order.
    fn may_end(&self, side: usize) -> bool {
        let other = &self.sides[1 - side];
        other.finished && other.sent == self.sides[side].received
    }

    /// A side has read this.
    ///
    /// # Errors
    /// Why that cannot be.
    pub fn read(&mut self, side: usize, outcome: Outcome) -> Result<(), String> {
        let sent = self.sides[1 - side].sent;
        match outcome {
            Outcome::Bytes(count) => {
                self.sides[side].received += count;
                if self.sides[side].received > sent {
                    return Err(format!("side {side} read more than was sent"));
                }
            }
            Outcome::End => {
                if !self.may_end(side) {
                    return Err(format!("side {side} read an end that was none"));
                }
                self.sides[side].end_read = true;
            }
            Outcome::Reset => {
                if !self.may_be_reset(side) {
                    return Err(format!("side {side} was reset by nobody"));
                }
                self.sides[side].state = State::WasReset;
            }
        }
        Ok(())
    }

    /// Bytes that are on their way to a side.
    pub fn queued_to(&self, side: usize) -> u64 {
        self.sides[1 - side].sent - self.sides[side].received
    }

    /// Whether in the end a side must have read everything, and the end.
    pub fn must_complete(&self, side: usize) -> bool {
        let here = &self.sides[side];
        let other = &self.sides[1 - side];
        !self.may_fail
            && matches!(here.state, State::Open | State::HalfClosed)
            && other.state == State::HalfClosed
    }
}
