//! Reads a pcapng file, without the code that wrote it.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};

#[derive(Debug, Default)]
pub struct CaptureFile {
    pub interfaces: Vec<String>,
    pub packets: Vec<Packet>,
}

#[derive(Debug)]
pub struct Packet {
    pub interface: usize,
    pub is_outgoing: bool,
    pub nanoseconds: u64,
    pub length: usize,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
pub struct Segment {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub sequence: u32,
    pub payload: u32,
    pub is_end: bool,
}

fn u32_at(bytes: &[u8], place: usize) -> usize {
    u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap()) as usize
}

fn options(mut bytes: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let mut options = BTreeMap::new();
    while bytes.len() >= 4 {
        let code = u16::from_le_bytes([bytes[0], bytes[1]]);
        let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        if code == 0 {
            break;
        }
        options.insert(code, bytes[4..4 + length].to_vec());
        bytes = &bytes[4 + length.next_multiple_of(4)..];
    }
    options
}

impl CaptureFile {
    pub fn read(file: &Path) -> Self {
        let all = std::fs::read(file).unwrap();
        let mut rest = &all[..];
        let mut content = Self::default();
        while !rest.is_empty() {
            let (kind, length) = (u32_at(rest, 0), u32_at(rest, 4));
            assert_eq!(length % 4, 0);
            assert_eq!(u32_at(rest, length - 4), length);
            content.add(kind, &rest[8..length - 4]);
            rest = &rest[length..];
        }
        content
    }

    fn add(&mut self, kind: usize, body: &[u8]) {
        match kind {
            0x0a0d_0d0a => assert_eq!(u32_at(body, 0), 0x1a2b_3c4d),
            1 => {
                assert_eq!(u16::from_le_bytes([body[0], body[1]]), 113);
                let options = options(&body[8..]);
                assert_eq!(options[&9], [9]);
                self.interfaces
                    .push(String::from_utf8(options[&2].clone()).unwrap());
            }
            6 => {
                let captured = u32_at(body, 12);
                let options = options(&body[20 + captured.next_multiple_of(4)..]);
                self.packets.push(Packet {
                    interface: u32_at(body, 0),
                    nanoseconds: ((u32_at(body, 4) as u64) << 32) | u32_at(body, 8) as u64,
                    length: u32_at(body, 16) - 16,
                    bytes: body[36..20 + captured].to_vec(),
                    is_outgoing: options[&2] == [2, 0, 0, 0],
                });
                let version = body[36] >> 4;
                let protocol = if version == 6 { [0x86, 0xdd] } else { [8, 0] };
                assert_eq!(body[34..36], protocol);
                let is_outgoing = options[&2] == [2, 0, 0, 0];
                assert_eq!(body[21], if is_outgoing { 4 } else { 0 });
            }
            other => panic!("block {other}"),
        }
    }

    /// The segments of one interface in one direction.
    pub fn segments(&self, interface: usize, is_outgoing: bool) -> Vec<Segment> {
        self.packets
            .iter()
            .filter(|packet| (packet.interface, packet.is_outgoing) == (interface, is_outgoing))
            .map(Packet::segment)
            .collect()
    }

    /// The range of a direction's sequence numbers. It is larger than the sent data if the capture
    /// contains segments of another connection.
    pub fn reach(&self, interface: usize, is_outgoing: bool) -> u32 {
        let segments = self.segments(interface, is_outgoing);
        let Some(first) = segments.first() else {
            return 0;
        };
        // A capture begins while no data is in flight, so the first segment has the lowest number.
        let ends = segments
            .iter()
            .map(|segment| segment.sequence.wrapping_sub(first.sequence) + segment.payload);
        ends.max().unwrap_or(0)
    }

    /// Checks that tcpdump, if it is installed, reads the same number of packets.
    pub fn is_read_by_tcpdump(&self, file: &Path) {
        let output = Command::new("tcpdump")
            .args(["-nn", "-r"])
            .arg(file)
            .output();
        let Ok(output) = output else {
            return midspan_testbed::skip_part("there is no tcpdump to read the file with");
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let lines = String::from_utf8_lossy(&output.stdout);
        let segments = lines
            .lines()
            .filter(|line| line.contains("Flags ["))
            .count();
        assert_eq!(segments, self.packets.len(), "{lines}{said}");
    }
}

impl Packet {
    pub fn segment(&self) -> Segment {
        let packet = LaxSlicedPacket::from_ip(&self.bytes).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
            panic!("no TCP: {:?}", self.bytes);
        };
        let (source, destination, header): (std::net::IpAddr, std::net::IpAddr, usize) =
            match packet.net.unwrap() {
                LaxNetSlice::Ipv4(four) => {
                    let header = four.header();
                    (
                        header.source_addr().into(),
                        header.destination_addr().into(),
                        usize::from(header.ihl()) * 4,
                    )
                }
                LaxNetSlice::Ipv6(six) => {
                    let header = six.header();
                    (
                        header.source_addr().into(),
                        header.destination_addr().into(),
                        40,
                    )
                }
                other => panic!("{other:?}"),
            };
        let payload = self.length - header - usize::from(tcp.data_offset()) * 4;
        Segment {
            source: SocketAddr::new(source, tcp.source_port()),
            destination: SocketAddr::new(destination, tcp.destination_port()),
            sequence: tcp.sequence_number(),
            payload: u32::try_from(payload).unwrap(),
            is_end: tcp.fin(),
        }
    }
}
