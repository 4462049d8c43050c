//! The model: what two ends joined by a relay may see, given their actions.
//!
//! Each direction is a queue of bytes with a begin and an end; only counts are stored, because the
//! byte at a position follows from the position. The model does not predict when data arrives, only
//! which data may have arrived by now and which must have arrived in the end.

/// The state of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Reads and writes.
    Open,
    /// Has sent its FIN; still reads.
    HalfClosed,
    /// Has reset the connection.
    HasReset,
    /// Closed completely: by a FIN, and with unread data by a reset.
    Closed,
    /// Has found its connection reset.
    WasReset,
}

/// The actions and results of one end.
#[derive(Debug, Clone)]
pub struct Side {
    pub state: State,
    /// Bytes that its kernel has accepted.
    pub sent: u64,
    /// Bytes that it has read.
    pub received: u64,
    /// It has read the end.
    pub end_read: bool,
    /// Its FIN may have been sent.
    pub finished: bool,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Bytes(u64),
    End,
    Reset,
}

/// A session as seen by its two ends: client, server.
#[derive(Debug, Clone)]
pub struct Session {
    pub sides: [Side; 2],
    /// The relay may reset the session, because a call that it needs failed.
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

    /// Whether a reset can arrive at a side.
    fn may_be_reset(&self, side: usize) -> bool {
        let other = &self.sides[1 - side];
        // A side that has closed answers further data with a reset.
        self.may_fail || !matches!(other.state, State::Open | State::HalfClosed)
    }

    /// Whether the other side has ended its data with a FIN.
    fn may_end(&self, side: usize) -> bool {
        let other = &self.sides[1 - side];
        other.finished && other.sent == self.sides[side].received
    }

    /// Records the result of a side's read.
    ///
    /// # Errors
    /// Why this result is impossible.
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

    /// Bytes that were sent to a side and not yet read.
    pub fn queued_to(&self, side: usize) -> u64 {
        self.sides[1 - side].sent - self.sides[side].received
    }

    /// Whether a side must finally have read everything and the end.
    pub fn must_complete(&self, side: usize) -> bool {
        let here = &self.sides[side];
        let other = &self.sides[1 - side];
        !self.may_fail
            && matches!(here.state, State::Open | State::HalfClosed)
            && other.state == State::HalfClosed
    }
}
