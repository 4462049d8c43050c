//! Captures: pcap and pcapng, as tcpdump, Wireshark and others read and write them
//! (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng).
//!
//! [`read`] takes both formats. [`PcapWriter`] writes pcap for packets without a link layer,
//! [`PcapngWriter`] writes pcapng for packets of several interfaces.

mod pcap;
mod pcapng;
mod read;

pub use pcap::{PcapWriter, RECORD_HEADER};
pub use pcapng::{InterfacePacket, PcapngWriter};
pub use read::{CaptureError, CapturedPacket, read};

/// The first bytes of a pcap file, as a number in the byte order of its writer; times in microseconds
/// or nanoseconds.
const MICROSECOND_MAGIC: u32 = 0xa1b2_c3d4;
const NANOSECOND_MAGIC: u32 = 0xa1b2_3c4d;

/// pcapng: types of blocks, and the number by which a section shows its byte order.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// pcapng: the option of an interface that has the unit of its clock.
const OPTION_TIME_RESOLUTION: u16 = 9;

/// Link types (registered by the tcpdump group): what is before the IP header.
const LINK_NULL: u32 = 0;
const LINK_ETHERNET: u32 = 1;
const LINK_RAW: u32 = 101;
const LINK_LOOP: u32 = 108;
const LINK_LINUX_SLL: u32 = 113;
const LINK_IPV4: u32 = 228;
const LINK_IPV6: u32 = 229;
const LINK_LINUX_SLL2: u32 = 276;
/// `DLT_RAW` of BSD systems, which some programs write.
const LINK_RAW_BSD: [u32; 2] = [12, 14];

/// Bytes of the header of `LINKTYPE_LINUX_SLL`.
const SLL_HEADER: usize = 16;
