//! Writing pcapng, as far as a capture of several interfaces needs it.

use std::io::{self, Write};
use std::time::Duration;

use super::{
    BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, LINK_LINUX_SLL,
    OPTION_TIME_RESOLUTION, SECTION_HEADER, SLL_HEADER,
};

/// Packets begin with the header of `LINKTYPE_LINUX_SLL`, which has the direction and fits all kinds of
/// interfaces. (`LINKTYPE_RAW` would fit too, but libpcap treats a second interface of that type as one
/// of another type than the first.)
const LINK_TYPE: u16 = LINK_LINUX_SLL as u16;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// No link-layer address (`ARPHRD_NONE`).
const NO_HARDWARE: u16 = 0xfffe;

const OPTION_NAME: u16 = 2;
const OPTION_DESCRIPTION: u16 = 3;
const OPTION_FLAGS: u16 = 2;
const OPTION_APPLICATION: u16 = 4;
/// Times in nanoseconds.
const NANOSECONDS: u8 = 9;

/// A packet to be written.
#[derive(Debug, Clone, Copy)]
pub struct InterfacePacket<'a> {
    /// Number of its interface, in the order in which they were described.
    pub interface: u32,
    /// When, since 1970.
    pub at: Duration,
    /// This machine sent it.
    pub is_outgoing: bool,
    /// Its length, from the IP header on.
    pub length: usize,
    /// As much of it as is kept, from the IP header on.
    pub bytes: &'a [u8],
}

/// Writes a file of one section.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    output: W,
    written: u64,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins the file.
    ///
    /// # Errors
    /// The output fails.
    pub fn begin(output: W) -> io::Result<Self> {
        let mut writer = Self { output, written: 0 };
        let mut body = Vec::new();
        body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        body.extend(1_u16.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
        // The section's length is not known.
        body.extend(u64::MAX.to_le_bytes());
        let application = concat!("Midspan ", env!("CARGO_PKG_VERSION"));
        put_option(&mut body, OPTION_APPLICATION, application.as_bytes());
        put_end(&mut body);
        writer.write_block(SECTION_HEADER, &body)?;
        Ok(writer)
    }

    /// Describes the next interface, of whose packets up to `snap` bytes are kept.
    ///
    /// # Errors
    /// The output fails.
    pub fn describe(&mut self, name: &str, description: &str, snap: u32) -> io::Result<()> {
        let mut body = Vec::new();
        body.extend(LINK_TYPE.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
        let snap = snap.saturating_add(SLL_HEADER as u32);
        body.extend(snap.to_le_bytes());
        put_option(&mut body, OPTION_NAME, name.as_bytes());
        put_option(&mut body, OPTION_DESCRIPTION, description.as_bytes());
        put_option(&mut body, OPTION_TIME_RESOLUTION, &[NANOSECONDS]);
        put_end(&mut body);
        self.write_block(INTERFACE_DESCRIPTION, &body)
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// The output fails.
    #[allow(clippy::cast_possible_truncation)]
    // Lengths are those of packets: far below 32 bits.
    pub fn write(&mut self, packet: &InterfacePacket<'_>) -> io::Result<()> {
        let time = packet.at.as_nanos() as u64;
        let mut body = Vec::with_capacity(packet.bytes.len() + 40);
        body.extend(packet.interface.to_le_bytes());
        body.extend(((time >> 32) as u32).to_le_bytes());
        body.extend((time as u32).to_le_bytes());
        body.extend(((packet.bytes.len() + SLL_HEADER) as u32).to_le_bytes());
        body.extend(((packet.length + SLL_HEADER) as u32).to_le_bytes());
        body.extend(link_header(packet));
        body.extend(packet.bytes);
        pad(&mut body);
        let direction = if packet.is_outgoing { 2_u32 } else { 1 };
        put_option(&mut body, OPTION_FLAGS, &direction.to_le_bytes());
        put_end(&mut body);
        self.write_block(ENHANCED_PACKET, &body)
    }

    /// Bytes written so far.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The output fails.
    pub fn finish(mut self) -> io::Result<()> {
        self.output.flush()
    }

    #[allow(clippy::cast_possible_truncation)]
    fn write_block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let length = (body.len() + 12) as u32;
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&length.to_le_bytes())?;
        self.output.write_all(body)?;
        self.output.write_all(&length.to_le_bytes())?;
        self.written += u64::from(length);
        Ok(())
    }
}

/// In network byte order: direction, kind of hardware, length of the address and the address
/// (none), protocol.
fn link_header(packet: &InterfacePacket<'_>) -> [u8; SLL_HEADER] {
    let direction: u16 = if packet.is_outgoing { 4 } else { 0 };
    let protocol = match packet.bytes.first().map(|byte| byte >> 4) {
        Some(6) => ETHERTYPE_IPV6,
        _ => ETHERTYPE_IPV4,
    };
    let mut header = [0; SLL_HEADER];
    header[..2].copy_from_slice(&direction.to_be_bytes());
    header[2..4].copy_from_slice(&NO_HARDWARE.to_be_bytes());
    header[14..].copy_from_slice(&protocol.to_be_bytes());
    header
}

#[allow(clippy::cast_possible_truncation)]
fn put_option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // Names here are short; a longer one is cut.
    let value = &value[..value.len().min(1024)];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

/// The end of the options.
fn put_end(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

/// Fills up to a multiple of four bytes.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte for byte as the format's draft has it.
    #[test]
    fn a_packet_is_written_as_the_format_says() {
        let mut bytes = Vec::new();
        let mut writer = PcapngWriter::begin(&mut bytes).unwrap();
        let start = writer.written() as usize;
        writer
            .write(&InterfacePacket {
                interface: 1,
                at: Duration::new(1, 5),
                is_outgoing: true,
                length: 1500,
                bytes: &[0x45, 1, 2],
            })
            .unwrap();
        let written = writer.written() as usize;
        writer.finish().unwrap();
        assert_eq!(bytes.len(), written);
        let time = 1_000_000_005_u32.to_le_bytes();
        let mut expected = vec![6, 0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        expected.extend(time);
        expected.extend([19, 0, 0, 0, 0xec, 5, 0, 0]);
        expected.extend([0, 4, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        expected.extend([0x45, 1, 2, 0]);
        expected.extend([2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0]);
        assert_eq!(bytes[start..], expected);
    }
}
