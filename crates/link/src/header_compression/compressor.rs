//! The compressor at the near end of a link.

use super::header::{ACK, FIN, Header, PSH, RST, SYN, URG};
use super::{CONNECTIONS, change};

/// The bytes that replace a packet's headers; its data follows unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The headers unchanged: not TCP, a fragment, or a segment that opens or closes a connection.
    Plain(Vec<u8>),
    /// The headers unchanged, except that the connection's number replaces the protocol: both ends
    /// keep them.
    Uncompressed(Vec<u8>),
    /// The changes since the previous header.
    Compressed(Vec<u8>),
}

impl Frame {
    /// The bytes that replace the headers. The link's framing transmits which of the three kinds
    /// they are.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) | Self::Uncompressed(bytes) | Self::Compressed(bytes) => bytes,
        }
    }
}

/// Compresses headers at the near end of a link.
#[derive(Debug, Clone)]
pub struct Compressor {
    /// The last header of each connection, by the connection's number, and when it was used.
    kept: Vec<(Header, u64)>,
    limit: usize,
    /// The connection of the last packet: its number need not be sent again.
    last: Option<usize>,
    /// Counts packets.
    turn: u64,
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new(CONNECTIONS)
    }
}

impl Compressor {
    /// Keeps the headers of `connections` connections (at least one). A further connection takes
    /// the place of the one that was silent for longest.
    #[must_use]
    pub fn new(connections: u8) -> Self {
        Self {
            kept: Vec::new(),
            limit: usize::from(connections.max(1)),
            last: None,
            turn: 0,
        }
    }

    /// The frame to send instead of the headers at the start of `packet`. Packets must be
    /// compressed in the order in which they are sent.
    pub fn compress(&mut self, packet: &[u8]) -> Frame {
        let plain = |header: Option<Header>| {
            Frame::Plain(header.map_or_else(|| packet.to_vec(), Header::into_bytes))
        };
        let Some(header) = Header::read(packet) else {
            return plain(None);
        };
        if header.is_fragment() || header.flags() & (SYN | FIN | RST | ACK) != ACK {
            return plain(Some(header));
        }
        self.turn += 1;
        let known = self
            .kept
            .iter()
            .position(|(kept, _)| kept.is_of_same_connection(&header));
        let Some(number) = known else {
            let number = self.place();
            return self.uncompressed(number, header);
        };
        let Some(changes) = self
            .kept
            .get(number)
            .and_then(|(kept, _)| differences(kept, &header))
        else {
            return self.uncompressed(number, header);
        };
        let (mut bits, deltas) = changes;
        let mut bytes = Vec::with_capacity(4 + deltas.len());
        if header.flags() & PSH != 0 {
            bits |= change::PUSH;
        }
        if self.last == Some(number) {
            bytes.push(bits);
        } else {
            bytes.push(bits | change::CONNECTION);
            bytes.push(u8::try_from(number).unwrap_or(u8::MAX));
        }
        bytes.extend(header.checksum());
        bytes.extend(deltas);
        self.keep(number, header);
        Frame::Compressed(bytes)
    }

    /// The number for a new connection.
    fn place(&self) -> usize {
        if self.kept.len() < self.limit {
            return self.kept.len();
        }
        let oldest = (0..).zip(&self.kept).min_by_key(|(_, (_, used))| *used);
        oldest.map_or(0, |(number, _)| number)
    }

    fn uncompressed(&mut self, number: usize, header: Header) -> Frame {
        let mut sent = header.clone();
        sent.set_protocol(u8::try_from(number).unwrap_or(u8::MAX));
        self.keep(number, header);
        Frame::Uncompressed(sent.into_bytes())
    }

    fn keep(&mut self, number: usize, header: Header) {
        self.last = Some(number);
        let kept = (header, self.turn);
        match self.kept.get_mut(number) {
            Some(slot) => *slot = kept,
            None => self.kept.push(kept),
        }
    }
}

/// Which fields have changed, and by how much; `None` if the header must be sent uncompressed.
fn differences(kept: &Header, header: &Header) -> Option<(u8, Vec<u8>)> {
    if !header.has_same_frame(kept) {
        return None;
    }
    let mut bits = 0;
    let mut deltas = Vec::with_capacity(15);
    if header.flags() & URG != 0 {
        bits |= change::URGENT;
        encode(&mut deltas, header.urgent());
    } else if header.urgent() != kept.urgent() {
        return None;
    }
    let window = header.window().wrapping_sub(kept.window());
    if window != 0 {
        bits |= change::WINDOW;
        encode(&mut deltas, window);
    }
    // A number that goes back differs by more than 16 bits.
    let grown = |new: u32, old: u32| u16::try_from(new.wrapping_sub(old)).ok();
    let acknowledged = grown(header.acknowledgement(), kept.acknowledgement())?;
    if acknowledged != 0 {
        bits |= change::ACKNOWLEDGEMENT;
        encode(&mut deltas, acknowledged);
    }
    let before_sequence = deltas.len();
    let sent = grown(header.sequence(), kept.sequence())?;
    if sent != 0 {
        bits |= change::SEQUENCE;
        encode(&mut deltas, sent);
    }
    match bits {
        // Data after an ACK without data. Otherwise it is a retransmission: the other end may have
        // missed the first one.
        0 if kept.data() == 0 && header.data() > 0 => {}
        0 | change::ECHO | change::ONE_WAY => return None,
        both if both == change::SEQUENCE | change::ACKNOWLEDGEMENT
            && sent == acknowledged
            && sent == kept.data() =>
        {
            bits = change::ECHO;
            deltas.clear();
        }
        change::SEQUENCE if sent == kept.data() => {
            bits = change::ONE_WAY;
            deltas.truncate(before_sequence);
        }
        _ => {}
    }
    let identification = header.identification().wrapping_sub(kept.identification());
    if identification != 1 {
        bits |= change::IDENTIFICATION;
        encode(&mut deltas, identification);
    }
    Some((bits, deltas))
}

/// Encodes a difference: 1 to 255 as one byte, 0 and larger values as three.
fn encode(deltas: &mut Vec<u8>, difference: u16) {
    match u8::try_from(difference) {
        Ok(small) if small > 0 => deltas.push(small),
        _ => {
            deltas.push(0);
            deltas.extend(difference.to_be_bytes());
        }
    }
}
