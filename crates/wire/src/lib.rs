//! Packets as bytes: TCP segments in IP packets, their options, checksums, and captures.
//!
//! [`TcpPacket`] is the one reader of TCP headers for whole and for truncated packets; the headers
//! themselves are checked by `etherparse`. [`options`] walks over TCP options of any kind: the iterator
//! of `etherparse` stops at the first kind that it does not have.
//!
//! Every packet is hostile: a header with an impossible length is refused, and nothing panics.

pub mod capture;
mod checksum;
mod options;
mod packet;

pub use checksum::{checksum, set_checksums, updated_checksum};
pub use options::{DamagedOption, TcpOption, options};
pub use packet::{TcpPacket, destination, is_udp, source};

/// Bytes of a TCP header without options.
pub const TCP_HEADER: usize = 20;
/// Where the checksum is in a TCP header.
pub const TCP_CHECKSUM: usize = 16;
/// Bytes of an IPv6 header.
pub const IPV6_HEADER: usize = 40;

/// TCP's number in an IP header.
pub const TCP: u8 = 6;
