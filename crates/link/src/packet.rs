//! What the stages of a link ask of a packet.

use midspan_units::Time;

use crate::seed::Fnv1a;

/// The unit that a link carries: a header in a simulator, a frame in an emulator.
///
/// Every packet has a size. The other methods are for single stages, and their defaults describe
/// a packet to which such a stage does nothing: no pure ACK, not a fragment, headers that cannot
/// be compressed.
pub trait Packet: Sized {
    /// Bytes at the network layer, IP header included.
    fn size(&self) -> u32;

    /// Identifies the connection and the direction in which the packet travels on it. Only
    /// equality has a meaning.
    fn flow(&self) -> u64 {
        0
    }

    /// Its fields, if it is a TCP segment that only acknowledges.
    fn acknowledgement(&self) -> Option<PureAck> {
        None
    }

    /// Marks the packet, because it met a long queue (ACC, Tam §2.2).
    fn mark(&mut self) {}

    /// Which part of an IP packet it is.
    fn piece(&self) -> Piece {
        Piece::default()
    }

    /// Sizes of IP headers in bytes: that of this packet, and that of a fragment made of it.
    fn fragment_headers(&self) -> [u32; 2] {
        [FRAGMENT_HEADER; 2]
    }

    /// A fragment of this packet with `bytes` of its payload, from the byte `skip` on; `None` if
    /// the packet cannot be cut. The identification of `piece` is used if this packet is whole.
    fn cut(&self, piece: Piece, skip: u32, bytes: u32) -> Option<Self> {
        let _ = (piece, skip, bytes);
        None
    }

    /// Its IPv4 and TCP headers, when it arrives at the link at `now`; `None` if it has others, or
    /// is a fragment. A packet without an identification of its own has this `identification`.
    fn headers(&self, now: Time, identification: u16) -> Option<Headers> {
        let _ = (now, identification);
        None
    }
}

/// An IP packet, from the first byte of its IP header.
impl Packet for Vec<u8> {
    fn size(&self) -> u32 {
        u32::try_from(self.len()).unwrap_or(u32::MAX)
    }
}

/// The identity of a flow of real packets ([`Packet::flow`]): FNV-1a (64 bits) over the number of
/// the protocol (1 byte), the source address, the destination address, the source port and the
/// destination port, as they are on the wire. A packet without ports, such as a fragment, has the
/// identity without them.
#[must_use]
pub fn flow_identity(
    protocol: u8,
    source: &[u8],
    destination: &[u8],
    ports: Option<[u16; 2]>,
) -> u64 {
    let mut hash = Fnv1a::new();
    hash.add(&[protocol]);
    hash.add(source);
    hash.add(destination);
    for port in ports.iter().flatten() {
        hash.add(&port.to_be_bytes());
    }
    hash.0
}

/// Size of the IP header of a fragment, in bytes (IPv4 without options).
pub const FRAGMENT_HEADER: u32 = 20;

/// The fields of a TCP segment that only acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PureAck {
    /// The acknowledgement number, as on the wire.
    pub number: u32,
    /// The advertised window, in the units of its connection.
    pub window: u64,
    /// Whether it has SACK blocks.
    pub selective: bool,
    /// Whether a queue has marked it.
    pub marked: bool,
}

/// The headers of a TCP segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers {
    /// IPv4 and TCP headers with their options.
    pub bytes: Vec<u8>,
    /// Number of bytes of data that follow.
    pub data: u16,
}

/// Which part of an IP packet a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Piece {
    /// The same in all fragments of one packet.
    pub identification: u16,
    /// Where the fragment's payload begins in the payload of the whole packet, in units of 8 bytes.
    pub offset: u16,
    /// Whether another fragment follows.
    pub more: bool,
}

impl Piece {
    /// Whether the packet is a fragment.
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        self.more || self.offset > 0
    }
}
