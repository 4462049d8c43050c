//! One direction of data as a state machine: what to do next, and what became of it.
//!
//! Pure: no socket, no clock. The shell ([`super::transfer`]) asks [`Direction::next`], does what
//! it says on the kernel's sockets and reports with one of the `handle_*` functions.
//!
//! A direction reads only when it holds nothing, so what it holds is bounded by one read, and
//! a slow receiver stops the sender through the kernel's own buffers.

#[cfg(test)]
mod tests;

/// A read that brings this much starts bulk mode, one that brings less ends it: for so little,
/// one copy costs less than two splices. Below the first flight of today's senders (RFC 6928: 10
/// segments), so that a download is spliced from its second read on.
pub const BULK_AT_LEAST: u32 = 8 << 10;

/// How bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Through memory of the relay.
    Copy,
    /// Through a pipe, within the kernel.
    Splice,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Read from the inbound leg.
    Read(Method),
    /// Write what is held to the outbound leg.
    Write,
    /// Pass the end on: shut the outbound leg down for writing.
    Finish,
    /// Wait until the inbound leg is readable.
    WaitReadable,
    /// Wait until the outbound leg is writable.
    WaitWritable,
    /// Nothing, now or ever.
    Nothing,
}

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Bytes, at least one; `full` if it was as much as was asked for.
    Bytes {
        /// How many.
        count: u32,
        /// As many as were asked for: there may be more.
        full: bool,
    },
    /// The peer's FIN: all has been read.
    End,
    /// Nothing there yet.
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Open,
    /// FIN read.
    Ended,
    /// Failed, and what it had delivered has been read.
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    Open,
    /// FIN passed on.
    Finished,
    /// Failed: nothing can be written any more.
    Broken,
}

/// One direction of a session: from its inbound leg to its outbound leg.
#[derive(Debug)]
pub struct Direction {
    held: u32,
    inbound: Inbound,
    outbound: Outbound,
    readable: bool,
    writable: bool,
    /// Reads bring much: splice.
    bulk: bool,
    /// A short read does not mean that nothing is left.
    thorough: bool,
    /// Urgent data was seen; splice stops at it for ever.
    urgent: bool,
    /// The inbound leg failed without a FIN: an end that is read now is none.
    no_end: bool,
}

impl Direction {
    /// A direction between two open legs, of which nothing is known yet.
    pub const fn new() -> Self {
        Self {
            held: 0,
            inbound: Inbound::Open,
            outbound: Outbound::Open,
            readable: false,
            writable: false,
            bulk: false,
            thorough: false,
            urgent: false,
            no_end: false,
        }
    }

    /// What to do next.
    pub const fn next(&self) -> Action {
        if !matches!(self.outbound, Outbound::Open) {
            return Action::Nothing;
        }
        if self.held > 0 {
            return match self.writable {
                true => Action::Write,
                false => Action::WaitWritable,
            };
        }
        match self.inbound {
            Inbound::Ended => Action::Finish,
            Inbound::Broken => Action::Nothing,
            Inbound::Open if !self.writable => Action::WaitWritable,
            Inbound::Open if !self.readable => Action::WaitReadable,
            Inbound::Open if self.bulk && !self.urgent => Action::Read(Method::Splice),
            Inbound::Open => Action::Read(Method::Copy),
        }
    }

    /// Whether its end has been read, or its inbound leg has failed.
    pub const fn has_ended(&self) -> bool {
        !matches!(self.inbound, Inbound::Open)
    }

    /// Whether its end has been read, and was one in good order.
    pub const fn has_ended_in_order(&self) -> bool {
        matches!(self.inbound, Inbound::Ended)
    }

    /// Bytes that were read and not yet written.
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// Whether the inbound leg has an end or an error behind its data.
    pub const fn is_end_ahead(&self) -> bool {
        self.thorough
    }

    /// Whether it will never do anything again.
    pub const fn is_done(&self) -> bool {
        matches!(self.next(), Action::Nothing)
    }

    /// Whether the end was read and passed on, with every byte before it.
    #[cfg(test)]
    pub const fn is_finished(&self) -> bool {
        matches!(self.outbound, Outbound::Finished)
    }

    /// The inbound leg may have something to read.
    pub const fn handle_readable(&mut self) {
        self.readable = true;
    }

    /// The outbound leg may have room.
    pub const fn handle_writable(&mut self) {
        self.writable = true;
    }

    /// The inbound leg has an end or an error behind its data: read until that shows.
    pub const fn handle_end_ahead(&mut self) {
        self.readable = true;
        self.thorough = true;
    }

    /// The inbound leg has urgent data. It is read in line, by copying: splice stops at it, and
    /// a read stops short of it.
    pub const fn handle_urgent(&mut self) {
        self.readable = true;
        self.thorough = true;
        self.urgent = true;
    }

    /// A read by `method` brought this.
    pub const fn handle_read(&mut self, method: Method, reading: Reading) {
        match reading {
            Reading::Bytes { count, full } => {
                self.held = self.held.saturating_add(count);
                match method {
                    Method::Copy => self.readable = full || self.thorough,
                    // A pipe is full by segments, not by bytes: a short splice says nothing.
                    Method::Splice => {}
                }
                self.bulk = count >= BULK_AT_LEAST;
            }
            Reading::End if self.no_end => self.inbound = Inbound::Broken,
            Reading::End => self.inbound = Inbound::Ended,
            Reading::Blocked => self.readable = false,
        }
    }

    /// Instead of all that is held, so many bytes are to be written.
    pub const fn handle_replaced(&mut self, count: u32) {
        self.held = count;
    }

    /// A write took `count` of the held bytes; `full` if the outbound leg has no room for more.
    pub const fn handle_written(&mut self, count: u32, full: bool) {
        self.held = self.held.saturating_sub(count);
        if full {
            self.writable = false;
        }
    }

    /// A splice read nothing, which is what it says at urgent data before an end as well: a copy
    /// will tell.
    pub const fn handle_splice_exhausted(&mut self) {
        self.bulk = false;
        self.thorough = true;
    }

    /// The end was passed on.
    pub const fn handle_finished(&mut self) {
        self.outbound = Outbound::Finished;
    }

    /// The inbound leg failed. Its data is still read; `after_end` says that its FIN had come
    /// before, so that the end is still passed on.
    pub const fn handle_inbound_failed(&mut self, after_end: bool) {
        self.handle_end_ahead();
        self.no_end = !after_end;
    }

    /// A read of the inbound leg, which [has failed](Self::handle_inbound_failed), has shown that
    /// nothing is left in it.
    pub const fn handle_inbound_exhausted(&mut self) {
        if matches!(self.inbound, Inbound::Open) {
            self.handle_read(Method::Copy, Reading::End);
        }
    }

    /// The outbound leg failed: what is held has nowhere to go.
    pub const fn handle_outbound_failed(&mut self) {
        self.held = 0;
        self.outbound = Outbound::Broken;
    }
}
