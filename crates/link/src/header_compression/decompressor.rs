//! The decompressor at the far end of a link.

use super::compressor::Frame;
use super::header::{Header, PROTOCOL, PSH, TCP, URG};
use super::{CONNECTIONS, change};

/// A frame from which no header can be restored: it is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// The frame ends in the middle of a field.
    #[error("a compressed header is cut short")]
    Short,
    /// The frame belongs to a connection whose headers are unknown.
    #[error("connection {number} of a compressed header is unknown")]
    Unknown {
        /// The connection's number.
        number: u8,
    },
    /// The frame belongs to the same connection as the previous frame, which is unknown after an
    /// error.
    #[error("a frame before this one was damaged")]
    AfterError,
    /// The frame's kind is uncompressed, but it has no IPv4 and TCP header.
    #[error("no IPv4 and TCP header")]
    NoHeader,
}

/// Restores headers at the far end of a link.
#[derive(Debug, Clone)]
pub struct Decompressor {
    kept: Vec<Option<Header>>,
    last: Option<u8>,
}

impl Default for Decompressor {
    fn default() -> Self {
        Self::new(CONNECTIONS)
    }
}

impl Decompressor {
    /// Keeps the headers of `connections` connections, as the compressor does.
    #[must_use]
    pub fn new(connections: u8) -> Self {
        Self {
            kept: vec![None; usize::from(connections.max(1))],
            last: None,
        }
    }

    /// The link layer has noticed an error: frames without a connection number are dropped until
    /// one with a number arrives (RFC 1144 §4.1).
    pub const fn handle_error(&mut self) {
        self.last = None;
    }

    /// The headers that a frame replaces, for a packet with `data` bytes of data. Only their TCP
    /// checksum shows whether they are right.
    ///
    /// # Errors
    /// The frame cannot be decoded, and its packet is dropped.
    pub fn decompress(&mut self, frame: &Frame, data: u16) -> Result<Vec<u8>, Undecodable> {
        match frame {
            Frame::Plain(bytes) => Ok(bytes.clone()),
            Frame::Uncompressed(bytes) => self.keep_whole(bytes),
            Frame::Compressed(bytes) => self.restore(bytes, data),
        }
    }

    fn keep_whole(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Undecodable> {
        self.last = None;
        let number = *bytes.get(PROTOCOL).ok_or(Undecodable::Short)?;
        let mut whole = bytes.to_vec();
        if let Some(protocol) = whole.get_mut(PROTOCOL) {
            *protocol = TCP;
        }
        let header = Header::read(&whole).ok_or(Undecodable::NoHeader)?;
        let slot = self.kept.get_mut(usize::from(number));
        *slot.ok_or(Undecodable::Unknown { number })? = Some(header);
        self.last = Some(number);
        Ok(whole)
    }

    fn restore(&mut self, bytes: &[u8], data: u16) -> Result<Vec<u8>, Undecodable> {
        let mut reader = Reader(bytes);
        let bits = reader.byte()?;
        if bits & change::CONNECTION != 0 {
            self.last = Some(reader.byte()?);
        }
        let number = self.last.ok_or(Undecodable::AfterError)?;
        let unknown = Undecodable::Unknown { number };
        let slot = self.kept.get_mut(usize::from(number)).ok_or(unknown)?;
        let header = slot.as_mut().ok_or(unknown)?;
        let before = header.data();
        header.set_checksum([reader.byte()?, reader.byte()?]);
        header.set_flag(PSH, bits & change::PUSH != 0);
        let sequence = header.sequence();
        let acknowledgement = header.acknowledgement();
        let grown = |from: u32, by: u16| from.wrapping_add(u32::from(by));
        match bits & change::SPECIAL {
            change::ECHO => {
                header.set_acknowledgement(grown(acknowledgement, before));
                header.set_sequence(grown(sequence, before));
            }
            change::ONE_WAY => header.set_sequence(grown(sequence, before)),
            _ => {
                header.set_flag(URG, bits & change::URGENT != 0);
                if bits & change::URGENT != 0 {
                    header.set_urgent(reader.difference()?);
                }
                if bits & change::WINDOW != 0 {
                    header.set_window(header.window().wrapping_add(reader.difference()?));
                }
                if bits & change::ACKNOWLEDGEMENT != 0 {
                    header.set_acknowledgement(grown(acknowledgement, reader.difference()?));
                }
                if bits & change::SEQUENCE != 0 {
                    header.set_sequence(grown(sequence, reader.difference()?));
                }
            }
        }
        let step = if bits & change::IDENTIFICATION != 0 {
            reader.difference()?
        } else {
            1
        };
        header.set_identification(header.identification().wrapping_add(step));
        header.finish(data);
        Ok(header.bytes().to_vec())
    }
}

/// Reads the fields of a compressed header.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, Undecodable> {
        let (first, rest) = self.0.split_first().ok_or(Undecodable::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    fn difference(&mut self) -> Result<u16, Undecodable> {
        match self.byte()? {
            0 => Ok(u16::from_be_bytes([self.byte()?, self.byte()?])),
            small => Ok(u16::from(small)),
        }
    }
}
