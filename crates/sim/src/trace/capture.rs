//! A packet capture that Wireshark and tcpdump can read. It contains what a capture at the sender
//! of each leg would show, headers only.
//!
//! Format: libpcap with nanoseconds (magic `0xa1b23c4d`), link type 101 (raw IP). A node's address
//! is 10.0.0.0 plus its number and one; a leg's ports are 5001 at the receiver and, at the sender,
//! 10000 plus its number.

use std::io::{self, Write};

use midspan_units::Time;

use super::legs::{LegName, legs};
use crate::observer::Observer;
use crate::packet::{Acknowledgement, Data, DataKind, Packet, Segment};
use crate::scenario::{Scenario, ScenarioError};

const MAGIC: u32 = 0xa1b2_3c4d;
const RAW_IP: u32 = 101;
const IP_HEADER: u32 = 20;
const TCP_HEADER: u32 = 20;
const RECEIVER_PORT: u16 = 5001;
/// Bits by which advertised windows are shifted (RFC 7323): the largest possible number.
const WINDOW_SCALE: u32 = 14;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PUSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Writes a capture while a simulation runs.
#[derive(Debug)]
pub struct Capture<W> {
    output: W,
    legs: Vec<LegName>,
    /// For each leg, whether the next ACK answers a SYN.
    answers_syn: Vec<bool>,
    identification: u16,
    error: Option<io::Error>,
}

/// The fields of a TCP header that differ from packet to packet.
struct Header {
    from_sender: bool,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    options: Vec<u8>,
}

impl<W: Write> Capture<W> {
    /// A capture of all legs of a scenario.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn new(scenario: &Scenario, output: W) -> Result<Self, ScenarioError> {
        let legs = legs(scenario)?;
        let mut capture = Self {
            output,
            answers_syn: vec![false; legs.len()],
            legs,
            identification: 0,
            error: None,
        };
        let mut header = Vec::new();
        header.extend(MAGIC.to_le_bytes());
        header.extend(2_u16.to_le_bytes()); // Version 2.4.
        header.extend(4_u16.to_le_bytes());
        header.extend([0; 8]); // Time zone, accuracy: unused.
        header.extend(65_535_u32.to_le_bytes());
        header.extend(RAW_IP.to_le_bytes());
        capture.write(&header);
        Ok(capture)
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// The first error in writing.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.output.flush()
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.output.write_all(bytes).err();
        }
    }

    /// One packet of a leg, of `size` bytes on the wire.
    fn packet(&mut self, now: Time, connection: u32, size: u32, header: &Header) {
        let Some(leg) = self.legs.get(connection as usize) else {
            return;
        };
        let (sender, receiver) = (address(leg.from.0), address(leg.to.0));
        let port = u16::try_from(10_000 + connection % 50_000).unwrap_or(u16::MAX);
        let (from, to, ports) = if header.from_sender {
            (sender, receiver, [port, RECEIVER_PORT])
        } else {
            (receiver, sender, [RECEIVER_PORT, port])
        };
        self.identification = self.identification.wrapping_add(1);
        let options = u32::try_from(header.options.len()).unwrap_or(0);
        let captured = IP_HEADER + TCP_HEADER + options;
        let size = size.max(captured);
        let mut bytes = Vec::with_capacity(16 + captured as usize);
        let nanoseconds = now.nanoseconds();
        bytes.extend(low(nanoseconds / 1_000_000_000).to_le_bytes());
        bytes.extend(low(nanoseconds % 1_000_000_000).to_le_bytes());
        bytes.extend(captured.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(ip_header(from, to, size, self.identification));
        for port in ports {
            bytes.extend(port.to_be_bytes());
        }
        bytes.extend(header.sequence.to_be_bytes());
        bytes.extend(header.acknowledgement.to_be_bytes());
        let words = u8::try_from((TCP_HEADER + options) / 4).unwrap_or(5);
        bytes.extend([words << 4, header.flags]);
        bytes.extend(header.window.to_be_bytes());
        bytes.extend([0; 4]); // Checksum (left out), urgent pointer.
        bytes.extend(&header.options);
        self.write(&bytes);
    }

    fn data(&mut self, now: Time, packet: &Packet, data: &Data) {
        let syn = data.kind == DataKind::Synchronise;
        let mss = self.legs.get(packet.connection as usize);
        let mss = mss.map_or(0, |leg| leg.segment_size);
        let header = Header {
            from_sender: true,
            // The SYN has the number before the first byte.
            sequence: low(data.sequence).wrapping_add(u32::from(!syn)),
            acknowledgement: u32::from(!syn),
            flags: match data.kind {
                DataKind::Synchronise => SYN,
                DataKind::Probe => ACK,
                DataKind::Payload => ACK | PUSH,
            },
            window: u16::MAX,
            options: if syn { syn_options(mss) } else { Vec::new() },
        };
        self.packet(now, packet.connection, packet.size, &header);
    }

    /// The answer to the SYN of a refused connection.
    fn reset(&mut self, now: Time, packet: &Packet) {
        let header = Header {
            from_sender: false,
            sequence: 0,
            acknowledgement: 1,
            flags: RST | ACK,
            window: 0,
            options: Vec::new(),
        };
        self.packet(now, packet.connection, packet.size, &header);
    }

    fn acknowledgement(&mut self, now: Time, packet: &Packet, ack: &Acknowledgement) {
        let answers = self.answers_syn.get_mut(packet.connection as usize);
        let answers = answers.is_some_and(std::mem::take);
        let mss = self.legs.get(packet.connection as usize);
        let mss = mss.map_or(0, |leg| leg.segment_size);
        let window = ack.window_edge - ack.number;
        // The window of a SYN is never shifted.
        let window = if answers {
            window
        } else {
            window >> WINDOW_SCALE
        };
        let header = Header {
            from_sender: false,
            sequence: u32::from(!answers),
            acknowledgement: low(ack.number).wrapping_add(1),
            flags: if answers { SYN | ACK } else { ACK },
            window: u16::try_from(window).unwrap_or(u16::MAX),
            options: if answers {
                syn_options(mss)
            } else {
                sack_option(ack)
            },
        };
        self.packet(now, packet.connection, packet.size, &header);
    }
}

/// The low 32 bits of a number, as on the wire.
#[allow(clippy::cast_possible_truncation)]
const fn low(number: u64) -> u32 {
    number as u32
}

fn address(node: usize) -> [u8; 4] {
    let number = u32::try_from(node).unwrap_or(u32::MAX).wrapping_add(1);
    (0x0a00_0000 | (number & 0x00ff_ffff)).to_be_bytes()
}

fn ip_header(from: [u8; 4], to: [u8; 4], size: u32, identification: u16) -> [u8; 20] {
    let [size_high, size_low] = u16::try_from(size).unwrap_or(u16::MAX).to_be_bytes();
    let [id_high, id_low] = identification.to_be_bytes();
    let mut header = [0_u8; 20];
    header[..10].copy_from_slice(&[0x45, 0, size_high, size_low, id_high, id_low, 0, 0, 64, 6]);
    header[12..16].copy_from_slice(&from);
    header[16..].copy_from_slice(&to);
    let sum: u32 = header
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let [.., high, low] = (!folded).to_be_bytes();
    header[10..12].copy_from_slice(&[high, low]);
    header
}

/// Segment size, SACK permitted, window scale.
fn syn_options(mss: u32) -> Vec<u8> {
    let [high, low] = u16::try_from(mss).unwrap_or(u16::MAX).to_be_bytes();
    #[allow(clippy::cast_possible_truncation)] // 14.
    let scale = WINDOW_SCALE as u8;
    vec![2, 4, high, low, 4, 2, 1, 3, 3, scale, 1, 1]
}

fn sack_option(ack: &Acknowledgement) -> Vec<u8> {
    let blocks = ack.blocks.as_slice();
    if blocks.is_empty() {
        return Vec::new();
    }
    let mut option = vec![1, 1, 5, u8::try_from(2 + 8 * blocks.len()).unwrap_or(2)];
    for block in blocks {
        for offset in [block.start, block.end] {
            let number = low(ack.number).wrapping_add(offset).wrapping_add(1);
            option.extend(number.to_be_bytes());
        }
    }
    option
}

impl<W: Write> Observer for Capture<W> {
    fn sent(&mut self, now: Time, packet: &Packet) {
        if let Segment::Data(data) = &packet.segment {
            self.data(now, packet, data);
        }
    }

    fn delivered(&mut self, now: Time, packet: &Packet) {
        match &packet.segment {
            Segment::Data(data) if data.kind == DataKind::Synchronise => {
                if let Some(answers) = self.answers_syn.get_mut(packet.connection as usize) {
                    *answers = true;
                }
            }
            Segment::Acknowledgement(ack) => self.acknowledgement(now, packet, ack),
            Segment::Reset => self.reset(now, packet),
            Segment::Data(_) | Segment::Datagram | Segment::Echo(_) => {}
        }
    }
}
