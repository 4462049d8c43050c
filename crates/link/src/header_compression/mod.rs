//! Compression of TCP/IP headers (RFC 1144): at the near end of a link a [`Compressor`], at its
//! far end a [`Decompressor`].
//!
//! Before you change anything here, read RFC 1144 §3.2 and its appendix A. Both ends keep the last
//! header of each of up to [`CONNECTIONS`] connections. A compressed header contains only how the next header
//! differs from the kept one, usually 3 to 7 bytes instead of 40. A decompressor does not notice that a frame
//! was lost: it then restores headers whose TCP checksum is wrong, and the receiver drops these packets, until
//! a header arrives uncompressed. The compressor sends an uncompressed header when the sender retransmits: a
//! segment is never compressed if its sequence number goes back, or if it repeats the numbers and the window
//! of the previous one.
//!
//! Headers whose options change are not compressed either, so there is no gain with timestamps (RFC
//! 7323).

mod compressor;
mod decompressor;
mod header;
#[cfg(test)]
mod tests;

pub use compressor::{Compressor, Frame};
pub use decompressor::{Decompressor, Undecodable};

/// Number of connections whose headers are kept by default (RFC 1144 §3.2.1: 16).
pub const CONNECTIONS: u8 = 16;

/// The change bits of a compressed header (RFC 1144 §3.2.2).
mod change {
    /// A connection number follows.
    pub const CONNECTION: u8 = 0x40;
    /// The IP identification has not grown by exactly one.
    pub const IDENTIFICATION: u8 = 0x20;
    /// Not a change: the PSH flag.
    pub const PUSH: u8 = 0x10;
    pub const SEQUENCE: u8 = 0x08;
    pub const ACKNOWLEDGEMENT: u8 = 0x04;
    pub const WINDOW: u8 = 0x02;
    pub const URGENT: u8 = 0x01;
    /// The sequence and acknowledgement numbers grow by the data of the previous packet: an echo.
    pub const ECHO: u8 = SEQUENCE | WINDOW | URGENT;
    /// The sequence number grows by the data of the previous packet: data in one direction.
    pub const ONE_WAY: u8 = SEQUENCE | ACKNOWLEDGEMENT | WINDOW | URGENT;
    /// The bits that encode the two special cases.
    pub const SPECIAL: u8 = ONE_WAY;
}
