//! Writing pcap, with times in nanoseconds.

use std::io::{self, Write};
use std::time::Duration;

use super::{LINK_RAW, NANOSECOND_MAGIC};

/// Most bytes of a packet, as the file header states it.
const SNAP_LENGTH: u32 = 65_535;
/// Bytes before each packet.
pub const RECORD_HEADER: usize = 16;

/// Writes a file of packets that begin with their IP header.
#[derive(Debug)]
pub struct PcapWriter<W> {
    output: W,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file header.
    ///
    /// # Errors
    /// The output fails.
    pub fn begin(mut output: W) -> io::Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend(NANOSECOND_MAGIC.to_le_bytes());
        header.extend(2_u16.to_le_bytes()); // Version 2.4.
        header.extend(4_u16.to_le_bytes());
        header.extend([0; 8]); // Time zone, accuracy: unused.
        header.extend(SNAP_LENGTH.to_le_bytes());
        header.extend(LINK_RAW.to_le_bytes());
        output.write_all(&header)?;
        Ok(Self { output })
    }

    /// Writes a packet: when it was captured (the format has 32 bits for the seconds), its length in
    /// bytes from the IP header on, and its first bytes.
    ///
    /// # Errors
    /// The output fails.
    #[allow(clippy::cast_possible_truncation)] // Lengths are those of packets.
    pub fn write(&mut self, at: Duration, length: u32, bytes: &[u8]) -> io::Result<()> {
        let numbers = [
            at.as_secs() as u32,
            at.subsec_nanos(),
            bytes.len() as u32,
            length,
        ];
        let mut header = [0; RECORD_HEADER];
        for (place, number) in header.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        self.output.write_all(&header)?;
        self.output.write_all(bytes)
    }

    /// The output, for example a buffer that is written elsewhere and emptied.
    pub const fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The output fails.
    pub fn finish(mut self) -> io::Result<()> {
        self.output.flush()
    }
}
