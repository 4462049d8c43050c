//! Compression of TCP/IP headers (RFC 1144): at the near end of a link a [`Compressor`], at its
//! far end a [`Decompressor`].
//!
//! Before changing anything here, read RFC 1144 §3.2 and its appendix A. Both ends keep the last
//! header of each connection; what is sent is how the next one differs from it, usually 3 to 7
//! bytes instead of 40. Nothing tells a decompressor that a frame was lost: it then makes headers
//! whose TCP checksum is wrong, which the receiver drops, until a header comes uncompressed. That
//! is when the sender sends again: a sequence number that goes back, or an ACK that repeats the
//! one before, is never compressed.
//!
//! Headers whose options change are not compressed either, so timestamps (RFC 7323) leave nothing
//! to gain.

mod compressor;
mod decompressor;
mod header;
#[cfg(test)]
mod tests;

pub use compressor::{Compressor, Frame};
pub use decompressor::{Decompressor, Undecodable};

/// Connections whose headers are kept, unless told otherwise (RFC 1144 §3.2.1: 16).
pub const CONNECTIONS: u8 = 16;

/// What a compressed header says has changed (RFC 1144 §3.2.2).
mod change {
    /// A connection number follows.
    pub const CONNECTION: u8 = 0x40;
    /// The IP identification has not grown by one.
    pub const IDENTIFICATION: u8 = 0x20;
    /// Not a change: the PSH flag.
    pub const PUSH: u8 = 0x10;
    pub const SEQUENCE: u8 = 0x08;
    pub const ACKNOWLEDGEMENT: u8 = 0x04;
    pub const WINDOW: u8 = 0x02;
    pub const URGENT: u8 = 0x01;
    /// Sequence and acknowledgement number grow by the data of the packet before: an echo.
    pub const ECHO: u8 = SEQUENCE | WINDOW | URGENT;
    /// The sequence number grows by the data of the packet before: data one way.
    pub const ONE_WAY: u8 = SEQUENCE | ACKNOWLEDGEMENT | WINDOW | URGENT;
    /// The bits that the two special cases are made of.
    pub const SPECIAL: u8 = ONE_WAY;
}
