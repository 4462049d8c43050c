//! A packet capture that Wireshark and tcpdump can read. It contains what a capture at the sender
//! of each leg would show, headers only, without TCP checksums.
//!
//! Format: libpcap with nanoseconds (magic `0xa1b23c4d`), link type 101 (raw IP). A node's address
//! is 10.0.0.0 plus its number and one. A leg's port at the receiver is 5001. Its port at the sender is
//! 10000 plus the leg's number; numbers from 50,000 on use the same ports again.

use std::io::{self, Write};
use std::time::Duration;

use etherparse::{IpNumber, Ipv4Header, TcpHeader, TcpOptionElement, TcpOptions};
use midspan_units::Time;
use midspan_wire::capture::PcapWriter;

use super::legs::{LegName, legs};
use crate::observer::Observer;
use crate::packet::{Acknowledgement, Data, DataKind, Packet, Segment};
use crate::scenario::{Scenario, ScenarioError};

/// Most bytes of options in a header, and the option that only fills (RFC 9293 §3.1).
const MOST_OPTIONS: usize = 40;
const NO_OPERATION: u8 = 1;
const RECEIVER_PORT: u16 = 5001;
/// Bits by which advertised windows are shifted (RFC 7323): the largest possible number.
const WINDOW_SCALE: u8 = 14;

/// Writes a capture while a simulation runs.
#[derive(Debug)]
pub struct Capture<W> {
    /// Or the first error in writing.
    writer: io::Result<PcapWriter<W>>,
    legs: Vec<LegName>,
    /// For each leg, whether the next ACK answers a SYN.
    answers_syn: Vec<bool>,
    identification: u16,
}

/// Who sends a packet of a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Sender,
    Receiver,
}

impl<W: Write> Capture<W> {
    /// A capture of all legs of a scenario.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn new(scenario: &Scenario, output: W) -> Result<Self, ScenarioError> {
        let legs = legs(scenario)?;
        Ok(Self {
            writer: PcapWriter::begin(output),
            answers_syn: vec![false; legs.len()],
            legs,
            identification: 0,
        })
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// The first error in writing.
    pub fn finish(self) -> io::Result<()> {
        self.writer?.finish()
    }

    /// One packet of a leg, of `size` bytes on the wire.
    fn packet(&mut self, now: Time, packet: &Packet, from: From, mut tcp: TcpHeader) {
        let connection = packet.connection;
        let Some(leg) = self.legs.get(connection as usize) else {
            return;
        };
        let (sender, receiver) = (address(leg.from.0), address(leg.to.0));
        let port = u16::try_from(10_000 + connection % 50_000).unwrap_or(u16::MAX);
        let (source, destination) = match from {
            From::Sender => (sender, receiver),
            From::Receiver => (receiver, sender),
        };
        (tcp.source_port, tcp.destination_port) = match from {
            From::Sender => (port, RECEIVER_PORT),
            From::Receiver => (RECEIVER_PORT, port),
        };
        let length = match &packet.segment {
            Segment::Data(data) => data.length,
            _ => 0,
        };
        tcp.options = filled(&tcp, packet.size, length);
        self.identification = self.identification.wrapping_add(1);
        let captured = u32::try_from(Ipv4Header::MIN_LEN + tcp.header_len()).unwrap_or(u32::MAX);
        let size = packet.size.max(captured);
        let Ok(mut ip) = Ipv4Header::new(0, 64, IpNumber::TCP, source, destination) else {
            return;
        };
        ip.total_len = u16::try_from(size).unwrap_or(u16::MAX);
        ip.identification = self.identification;
        ip.dont_fragment = false;
        ip.header_checksum = ip.calc_header_checksum();
        // The TCP checksum is left out.
        let bytes = [&ip.to_bytes()[..], &tcp.to_bytes()].concat();
        let at = Duration::from_nanos(now.nanoseconds());
        if let Ok(writer) = &mut self.writer
            && let Err(error) = writer.write(at, size, &bytes)
        {
            self.writer = Err(error);
        }
    }

    fn data(&mut self, now: Time, packet: &Packet, data: &Data) {
        let syn = data.kind == DataKind::Synchronise;
        let mss = self.legs.get(packet.connection as usize);
        let mss = mss.map_or(0, |leg| leg.segment_size);
        let tcp = TcpHeader {
            // The SYN has the number before the first byte.
            sequence_number: low(data.sequence).wrapping_add(u32::from(!syn)),
            acknowledgment_number: u32::from(!syn),
            syn,
            ack: !syn,
            psh: data.kind == DataKind::Payload,
            window_size: u16::MAX,
            options: if syn {
                syn_options(mss)
            } else {
                TcpOptions::default()
            },
            ..TcpHeader::default()
        };
        self.packet(now, packet, From::Sender, tcp);
    }

    /// The answer to the SYN of a refused connection.
    fn reset(&mut self, now: Time, packet: &Packet) {
        let tcp = TcpHeader {
            acknowledgment_number: 1,
            rst: true,
            ack: true,
            ..TcpHeader::default()
        };
        self.packet(now, packet, From::Receiver, tcp);
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
        let tcp = TcpHeader {
            sequence_number: u32::from(!answers),
            acknowledgment_number: low(ack.number).wrapping_add(1),
            syn: answers,
            ack: true,
            window_size: u16::try_from(window).unwrap_or(u16::MAX),
            options: if answers {
                syn_options(mss)
            } else {
                sack_option(ack)
            },
            ..TcpHeader::default()
        };
        self.packet(now, packet, From::Receiver, tcp);
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

/// Segment size, SACK permitted, window scale.
fn syn_options(mss: u32) -> TcpOptions {
    let mss = u16::try_from(mss).unwrap_or(u16::MAX);
    let options = [
        TcpOptionElement::MaximumSegmentSize(mss),
        TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOptionElement::Noop,
        TcpOptionElement::WindowScale(WINDOW_SCALE),
        TcpOptionElement::Noop,
        TcpOptionElement::Noop,
    ];
    TcpOptions::try_from_elements(&options).unwrap_or_default()
}

/// The options of a header, filled up with no-operations to the size that the packet has without its data. The room is
/// that of options such as timestamps, whose values are not simulated.
fn filled(tcp: &TcpHeader, size: u32, length: u32) -> TcpOptions {
    let header = u32::try_from(Ipv4Header::MIN_LEN + tcp.header_len()).unwrap_or(u32::MAX);
    let room = size.saturating_sub(length).saturating_sub(header);
    let mut bytes = tcp.options.as_slice().to_vec();
    bytes.extend((0..room / 4 * 4).take(MOST_OPTIONS).map(|_| NO_OPERATION));
    TcpOptions::try_from_slice(&bytes).unwrap_or_else(|_| tcp.options.clone())
}

fn sack_option(ack: &Acknowledgement) -> TcpOptions {
    let blocks = ack.blocks.as_slice();
    let mut blocks = blocks.iter().map(|block| {
        [block.start, block.end]
            .map(|offset| low(ack.number).wrapping_add(offset).wrapping_add(1))
            .into()
    });
    let Some(first) = blocks.next() else {
        return TcpOptions::default();
    };
    let others = [blocks.next(), blocks.next(), blocks.next()];
    let options = [
        TcpOptionElement::Noop,
        TcpOptionElement::Noop,
        TcpOptionElement::SelectiveAcknowledgement(first, others),
    ];
    TcpOptions::try_from_elements(&options).unwrap_or_default()
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
