//! Simulated packets: small headers without payload.

mod headers;

use midspan_link::{FRAGMENT_HEADER, Headers, Packet as LinkPacket, Piece, PureAck, Reassemble};
use midspan_units::Time;

/// A simulated packet: the header of a TCP segment, and the packet's position on its route.
///
/// Sequence numbers are 64 bits wide and start at 0 with the first byte of data, so they never
/// wrap. The SYN has a separate kind instead of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The connection (leg) that it belongs to, numbered over the whole simulation. The sources of
    /// traffic without TCP are numbered after all connections.
    pub connection: u32,
    /// Bytes at the network layer, IP and TCP headers included.
    pub size: u32,
    /// Its direction, its position on the route, and which part of an IP packet it is.
    pub(crate) passage: Passage,
    /// The contents of its options and its ECN bits.
    pub signals: Signals,
    /// Its content.
    pub segment: Segment,
}

/// The fields of a segment in addition to data and acknowledgements: timestamps (RFC 7323), ECN
/// bits, and the option of Tam's ECWA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signals {
    /// On an ACK, the receiver's clock in milliseconds; on data, the clock value of the latest ACK.
    pub timestamp: u32,
    /// On data, the sender's cwnd in segments.
    pub window: u16,
    /// On an ACK: a queue on its path was long. On data: the sender got such an ACK.
    pub marked: bool,
}

impl Packet {
    /// The direction of the packet.
    #[inline]
    #[must_use]
    pub const fn direction(&self) -> PacketDirection {
        if self.passage.0 & BACK == 0 {
            PacketDirection::Forward
        } else {
            PacketDirection::Back
        }
    }

    /// Which part of an IP packet it is; the whole, unless a link's MTU led to fragmentation.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // Takes apart what `with_piece` put together.
    pub const fn piece(&self) -> Piece {
        Piece {
            identification: (self.passage.0 >> 16) as u16,
            offset: (self.passage.0 >> 32) as u16,
            more: self.passage.0 & MORE != 0,
        }
    }
}

/// Direction, hop and fragment of a packet in one word. Separate fields would be written one by one
/// and read as a whole when the packet is copied, which stalls the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passage(u64);

const HOP: u64 = 0xff;
const BACK: u64 = 1 << 8;
const MORE: u64 = 1 << 48;
/// The offset: not zero in all fragments except the first.
const OFFSET: u64 = 0xffff << 32;

impl Passage {
    /// The beginning of a route.
    #[inline]
    pub(crate) const fn new(direction: PacketDirection) -> Self {
        match direction {
            PacketDirection::Forward => Self(0),
            PacketDirection::Back => Self(BACK),
        }
    }

    /// Number of links of its route that the packet was handed to, minus one.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // 8 bits.
    pub(crate) const fn hop(self) -> usize {
        (self.0 & HOP) as usize
    }

    /// Moves on to the next link. A route has at most 255.
    #[inline]
    pub(crate) const fn advance(&mut self) {
        debug_assert!(self.0 & HOP != HOP);
        self.0 += 1;
    }

    #[inline]
    pub(crate) const fn is_fragment(self) -> bool {
        self.0 & (MORE | OFFSET) != 0
    }

    fn with_piece(self, piece: Piece) -> Self {
        let more = if piece.more { MORE } else { 0 };
        let numbers = u64::from(piece.identification) << 16 | u64::from(piece.offset) << 32;
        Self(self.0 & (HOP | BACK) | numbers | more)
    }
}

/// The direction of a packet on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketDirection {
    /// From the sender of data to its receiver.
    Forward,
    /// From the receiver back to the sender.
    Back,
}

/// A TCP segment of a connection that carries data in one direction, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// From sender to receiver.
    Data(Data),
    /// From receiver to sender.
    Acknowledgement(Acknowledgement),
    /// From receiver to sender: the connection is refused.
    Reset,
    /// No TCP: traffic that only uses capacity.
    Datagram,
    /// An ICMP echo request from the receiver; it is returned with the same number.
    Echo(u16),
}

/// A segment of the sender of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// Its purpose.
    pub kind: DataKind,
    /// Number of the first byte.
    pub sequence: u64,
    /// Bytes of data.
    pub length: u32,
}

/// The purpose of a sender's segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataKind {
    /// Opens the connection; carries no data.
    Synchronise,
    /// Carries data.
    Payload,
    /// Carries no data and requests an acknowledgement: the window was zero (RFC 9293 §3.8.6.1).
    Probe,
}

/// A segment of the receiver of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The next expected byte; all bytes before it have arrived.
    pub number: u64,
    /// The end of the advertised window: the number of the first byte that must not be sent.
    pub window_edge: u64,
    /// Data that has arrived beyond [`number`](Self::number) (RFC 2018), newest first.
    pub blocks: SelectiveBlocks,
}

/// At most three SACK blocks: as many as fit into the header together with timestamps (RFC 2018
/// §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SelectiveBlocks {
    /// The first empty block ends the list.
    blocks: [SelectiveBlock; 3],
}

/// A range of bytes that has arrived out of order, as offsets from the acknowledgement number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SelectiveBlock {
    /// The first byte of the range.
    pub start: u32,
    /// The first byte after the range, which is missing.
    pub end: u32,
}

impl SelectiveBlocks {
    /// The largest number of blocks in a segment.
    pub const LIMIT: usize = 3;

    /// Adds a block; does nothing if there is no room or the block is empty.
    pub fn push(&mut self, block: SelectiveBlock) {
        let count = self.count();
        if let Some(free) = self.blocks.get_mut(count)
            && !block.is_empty()
        {
            *free = block;
        }
    }

    /// The blocks, in the order in which they were added.
    #[must_use]
    pub fn as_slice(&self) -> &[SelectiveBlock] {
        self.blocks.get(..self.count()).unwrap_or(&[])
    }

    /// Whether there is no block.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.blocks[0].is_empty()
    }

    #[inline]
    fn count(&self) -> usize {
        let empty = self.blocks.iter().position(|block| block.is_empty());
        empty.unwrap_or(Self::LIMIT)
    }
}

impl SelectiveBlock {
    const fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

impl LinkPacket for Packet {
    fn size(&self) -> u32 {
        self.size
    }

    fn flow(&self) -> u64 {
        u64::from(self.connection) << 1 | u64::from(self.direction() == PacketDirection::Back)
    }

    fn acknowledgement(&self) -> Option<PureAck> {
        let Segment::Acknowledgement(ack) = &self.segment else {
            return None;
        };
        Some(PureAck {
            // The low 32 bits, as on the wire.
            #[allow(clippy::cast_possible_truncation)]
            number: ack.number as u32,
            window: ack.window_edge.saturating_sub(ack.number),
            selective: !ack.blocks.is_empty(),
            marked: self.signals.marked,
        })
    }

    fn mark(&mut self) {
        self.signals.marked = true;
    }

    fn piece(&self) -> Piece {
        Self::piece(self)
    }

    fn cut(&self, piece: Piece, _: u32, bytes: u32) -> Option<Self> {
        Some(Self {
            size: FRAGMENT_HEADER + bytes,
            passage: self.passage.with_piece(piece),
            ..*self
        })
    }

    fn headers(&self, now: Time, identification: u16) -> Option<Headers> {
        self.build_headers(now, identification)
    }
}

impl Reassemble for Packet {
    type Key = (u32, PacketDirection, u16);

    fn key(&self) -> Self::Key {
        let identification = Self::piece(self).identification;
        (self.connection, self.direction(), identification)
    }

    fn join(pieces: Vec<Self>) -> Option<Self> {
        let payload = pieces.iter().map(|piece| piece.size - FRAGMENT_HEADER);
        let size = FRAGMENT_HEADER + payload.sum::<u32>();
        let first = pieces.first()?;
        Some(Self {
            size,
            passage: first.passage.with_piece(Piece::default()),
            ..*first
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_small() {
        assert!(size_of::<Packet>() <= 72, "{}", size_of::<Packet>());
    }

    #[test]
    fn a_fourth_block_is_left_out() {
        let mut blocks = SelectiveBlocks::default();
        for start in 0..4 {
            blocks.push(SelectiveBlock {
                start,
                end: start + 1,
            });
        }
        let starts: Vec<u32> = blocks.as_slice().iter().map(|block| block.start).collect();
        assert_eq!(starts, [0, 1, 2]);
    }
}
