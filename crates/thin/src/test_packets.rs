//! Packets for tests.

use crate::segment::flags;

/// A TCP packet to be made.
#[derive(Debug, Clone)]
pub struct Packet {
    pub six: bool,
    pub flags: u16,
    pub options: Vec<u8>,
    pub data: usize,
    pub sequence: u32,
    pub number: u32,
    pub window: u16,
    /// Port of this host; the other end's is 49153.
    pub port: u16,
    /// From the other end to this host.
    pub incoming: bool,
}

/// A pure ACK with this number.
pub fn ack(number: u32) -> Packet {
    Packet {
        six: false,
        flags: flags::ACK,
        options: Vec::new(),
        data: 0,
        sequence: 1,
        number,
        window: 0x200,
        port: 8080,
        incoming: false,
    }
}

/// The timestamps option.
pub fn timestamps(value: u32, echo: u32) -> Vec<u8> {
    let mut option = vec![1, 1, 8, 10];
    option.extend(value.to_be_bytes());
    option.extend(echo.to_be_bytes());
    option
}

impl Packet {
    pub fn bytes(&self) -> Vec<u8> {
        assert!(self.options.len().is_multiple_of(4));
        let (here, there) = (self.port.to_be_bytes(), 49_153_u16.to_be_bytes());
        let ports = if self.incoming {
            [there, here]
        } else {
            [here, there]
        };
        let mut tcp = ports.concat();
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.number.to_be_bytes());
        let words = u16::try_from((20 + self.options.len()) / 4).unwrap();
        tcp.extend((words << 12 | self.flags).to_be_bytes());
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&self.options);
        tcp.resize(tcp.len() + self.data, 0xaa);
        let length = u16::try_from(tcp.len()).unwrap();
        let mut addresses = if self.six {
            [[0x20; 16], [0x30; 16]].map(Vec::from)
        } else {
            [[192, 0, 2, 1], [198, 51, 100, 1]].map(Vec::from)
        };
        if self.incoming {
            addresses.reverse();
        }
        let mut packet = if self.six {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend(length.to_be_bytes());
            header.extend([6, 64]);
            header
        } else {
            let mut header = vec![0x45, 0];
            header.extend((length + 20).to_be_bytes());
            header.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            header
        };
        packet.extend(addresses.concat());
        packet.extend(tcp);
        packet
    }
}
