//! One direction of data as a state machine: the next action, and the results of actions.
//!
//! Pure: no socket, no clock. The module [`super::transfer`] calls [`Direction::next`], carries the action
//! out on the kernel's sockets, and reports the result by one of the `handle_*` functions.
//!
//! A direction reads only when it holds nothing. So it never holds more than one read, and a slow receiver
//! stops the sender through the kernel's buffers.

mod handed;
#[cfg(test)]
mod tests;

/// A read of at least this many bytes starts bulk mode, and two shorter ones in a row end it: for fewer bytes, one
/// copy costs less than two splices, but a single short read may be the rest of a burst. The limit is below the first
/// flight of today's senders (RFC 6928: 10 segments), so that a download is spliced from its second read on.
pub const BULK_AT_LEAST: u32 = 8 << 10;

/// A read of at least this many bytes is large.
const LARGE_READ: u32 = 128 << 10;

/// Actions of a direction before the other sessions have their turn: about 16 reads and writes.
const ACTIONS_PER_TURN: u32 = 32;

/// Actions in bulk mode after a large read: eight reads and writes. Data that has just arrived is still in the caches of
/// the processor, so it is moved at once.
const LARGE_ACTIONS_PER_TURN: u32 = 16;

/// Actions in bulk mode after a smaller read: a read and a write. Until the next turn of this session, more of its data
/// arrives, and fewer, larger pieces cost less CPU time.
const BULK_ACTIONS_PER_TURN: u32 = 2;

/// How bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Through memory of the relay.
    Copy,
    /// Through a pipe, within the kernel.
    Splice,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Read from the inbound leg.
    Read(Method),
    /// Write the held data to the outbound leg.
    Write,
    /// Pass the end on: shut down the outbound leg for writing.
    Finish,
    /// Wait until the inbound leg is readable.
    WaitReadable,
    /// Wait until the outbound leg is writable.
    WaitWritable,
    /// Nothing; the direction has ended.
    Nothing,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// At least one byte.
    Bytes {
        /// Number of bytes.
        count: u32,
        /// The read returned as many bytes as requested, so there may be more.
        full: bool,
    },
    /// The peer's FIN: all data has been read.
    End,
    /// No data yet.
    Blocked,
}

/// Whether the direction is in bulk mode, in which it splices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bulk {
    /// Reads return few bytes.
    No,
    /// The last read was shorter than [`BULK_AT_LEAST`], the one before was not.
    Doubtful,
    Yes,
    /// The last read was at least [`LARGE_READ`].
    Large,
}

impl Bulk {
    /// The mode after a read of `count` bytes.
    const fn after(self, count: u32) -> Self {
        match (count, self) {
            (LARGE_READ.., _) => Self::Large,
            (BULK_AT_LEAST..LARGE_READ, _) => Self::Yes,
            (..BULK_AT_LEAST, Self::Yes | Self::Large) => Self::Doubtful,
            (..BULK_AT_LEAST, Self::No | Self::Doubtful) => Self::No,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Open,
    /// The FIN has been read.
    Ended,
    /// The leg failed, and all data that had arrived before has been read.
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    Open,
    /// The FIN has been passed on.
    Finished,
    /// The leg failed: nothing can be written any more.
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
    bulk: Bulk,
    /// After a short read, there may still be data.
    thorough: bool,
    /// Urgent data has arrived. The direction never splices again, because splice stops at urgent
    /// data.
    urgent: bool,
    /// The inbound leg failed without a FIN, so an end that is read from now on is no FIN.
    no_end: bool,
}

impl Direction {
    /// A direction between two open legs.
    pub const fn new() -> Self {
        Self {
            held: 0,
            inbound: Inbound::Open,
            outbound: Outbound::Open,
            readable: false,
            writable: false,
            bulk: Bulk::No,
            thorough: false,
            urgent: false,
            no_end: false,
        }
    }

    /// The next action.
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
            Inbound::Open if self.is_bulk() && !self.urgent => Action::Read(Method::Splice),
            Inbound::Open => Action::Read(Method::Copy),
        }
    }

    const fn is_bulk(&self) -> bool {
        !matches!(self.bulk, Bulk::No)
    }

    /// How many actions it may have before the other sessions have their turn.
    pub const fn actions_per_turn(&self) -> u32 {
        match self.bulk {
            Bulk::No => ACTIONS_PER_TURN,
            Bulk::Doubtful | Bulk::Yes => BULK_ACTIONS_PER_TURN,
            Bulk::Large => LARGE_ACTIONS_PER_TURN,
        }
    }

    /// Whether the end has been read, or the inbound leg has failed.
    pub const fn has_ended(&self) -> bool {
        !matches!(self.inbound, Inbound::Open)
    }

    /// Whether the end has been read and was a FIN.
    pub const fn has_ended_in_order(&self) -> bool {
        matches!(self.inbound, Inbound::Ended)
    }

    /// Number of bytes that were read and not yet written.
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// Whether there is an end or an error behind the data of the inbound leg.
    pub const fn is_end_ahead(&self) -> bool {
        self.thorough
    }

    /// Whether the next action is to read.
    pub const fn is_to_read(&self) -> bool {
        matches!(self.next(), Action::Read(_))
    }

    /// Whether no action will follow.
    pub const fn is_done(&self) -> bool {
        matches!(self.next(), Action::Nothing)
    }

    /// Whether the end was read and passed on, after all data.
    #[cfg(test)]
    pub const fn is_finished(&self) -> bool {
        matches!(self.outbound, Outbound::Finished)
    }

    /// The inbound leg may be readable.
    pub const fn handle_readable(&mut self) {
        self.readable = true;
    }

    /// The outbound leg may be writable.
    pub const fn handle_writable(&mut self) {
        self.writable = true;
    }

    /// There is an end or an error behind the data of the inbound leg, so reading continues until
    /// it appears.
    pub const fn handle_end_ahead(&mut self) {
        self.readable = true;
        self.thorough = true;
    }

    /// The inbound leg has urgent data. It is read in line, by copying, because splice stops at
    /// urgent data and a read stops before it.
    pub const fn handle_urgent(&mut self) {
        self.readable = true;
        self.thorough = true;
        self.urgent = true;
    }

    /// The result of a read by `method`.
    pub const fn handle_read(&mut self, method: Method, reading: Reading) {
        match reading {
            Reading::Bytes { count, full } => {
                self.held = self.held.saturating_add(count);
                match method {
                    Method::Copy => self.readable = full || self.thorough,
                    // A pipe is full by segments, not by bytes, so a short splice does not show
                    // that the socket is empty.
                    Method::Splice => {}
                }
                self.bulk = self.bulk.after(count);
            }
            Reading::End if self.no_end => self.inbound = Inbound::Broken,
            Reading::End => self.inbound = Inbound::Ended,
            Reading::Blocked => self.readable = false,
        }
    }

    /// Instead of the held bytes, this many bytes are to be written.
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

    /// A splice read nothing. This happens at an end, but also at urgent data before an end, so a
    /// copy follows to distinguish the two.
    pub const fn handle_splice_exhausted(&mut self) {
        self.bulk = Bulk::No;
        self.thorough = true;
    }

    /// The end was passed on.
    pub const fn handle_finished(&mut self) {
        self.outbound = Outbound::Finished;
    }

    /// The inbound leg failed. Its data is still read. `after_end`: its FIN had arrived before, so
    /// the end is still passed on.
    pub const fn handle_inbound_failed(&mut self, after_end: bool) {
        self.handle_end_ahead();
        self.no_end = !after_end;
    }

    /// A read of the inbound leg, which [has failed](Self::handle_inbound_failed), has shown that
    /// it has no more data.
    pub const fn handle_inbound_exhausted(&mut self) {
        if matches!(self.inbound, Inbound::Open) {
            self.handle_read(Method::Copy, Reading::End);
        }
    }

    /// The outbound leg failed, so the held data is dropped.
    pub const fn handle_outbound_failed(&mut self) {
        self.held = 0;
        self.outbound = Outbound::Broken;
    }
}
