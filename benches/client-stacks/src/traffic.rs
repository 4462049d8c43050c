//! The traffic at the access router.

use std::collections::HashMap;

use etherparse::{
    EtherType, Ethernet2HeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice,
    Ipv6HeaderSlice, TcpHeaderSlice,
};
use midspan_lab::capture::Captured;

use crate::network::PORT;

const ETHERNET_HEADER: usize = 14;

/// The traffic of one download.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The client's segments without data: ACKs, without SYN and FIN.
    pub acknowledgements: usize,
    /// Those of these ACKs that follow the first oversized segment.
    pub later_acknowledgements: usize,
    /// Bytes of data in each segment that arrived in fragments.
    pub oversized: Vec<usize>,
    /// Bytes of data in all other segments of the server.
    pub normal_bytes: usize,
    /// Number of fragments.
    pub fragments: usize,
}

impl Traffic {
    /// Evaluates a capture, whose packets may be cut at their ends.
    #[must_use]
    pub fn of(packets: &[Captured]) -> Self {
        let mut this = Self::default();
        // The TCP headers of datagrams whose first fragment has arrived.
        let mut begun = HashMap::new();
        for packet in packets {
            if let Some(piece) = Piece::of(packet) {
                this.add(&piece, &mut begun);
            }
        }
        this
    }

    fn add(&mut self, piece: &Piece<'_>, begun: &mut HashMap<u32, usize>) {
        let header = TcpHeaderSlice::from_slice(piece.bytes);
        let Some(fragment) = &piece.fragment else {
            let Ok(tcp) = header else { return };
            let data = piece.length.saturating_sub(tcp.slice().len());
            if tcp.source_port() == PORT {
                self.normal_bytes += data;
            } else if data == 0 && !(tcp.syn() || tcp.fin() || tcp.rst()) {
                self.acknowledgements += 1;
                self.later_acknowledgements += usize::from(!self.oversized.is_empty());
            }
            return;
        };
        self.fragments += 1;
        match header {
            Ok(tcp) if fragment.offset == 0 => {
                begun.insert(fragment.identification, tcp.slice().len());
            }
            _ if !fragment.is_last => {}
            _ => {
                if let Some(header) = begun.remove(&fragment.identification) {
                    let end = fragment.offset + piece.length;
                    self.oversized.push(end.saturating_sub(header));
                }
            }
        }
    }

    /// Bytes of data in the largest segment that arrived in fragments.
    #[must_use]
    pub fn largest(&self) -> Option<usize> {
        self.oversized.iter().max().copied()
    }

    /// Share of the data that arrived in fragments.
    #[must_use]
    pub fn oversized_share(&self) -> f64 {
        let oversized: usize = self.oversized.iter().sum();
        oversized as f64 / (oversized + self.normal_bytes).max(1) as f64
    }

    /// ACKs per segment that arrived in fragments, from the first such segment on.
    #[must_use]
    pub fn acknowledgements_each(&self) -> Option<f64> {
        let count = self.oversized.len();
        (count > 0).then(|| self.later_acknowledgements as f64 / count as f64)
    }
}

struct Fragment {
    identification: u32,
    /// The fragment's position in the datagram's payload, in bytes.
    offset: usize,
    is_last: bool,
}

/// The payload of an IP packet.
struct Piece<'a> {
    fragment: Option<Fragment>,
    /// The captured first bytes.
    bytes: &'a [u8],
    /// The length in bytes, including what the capture has cut.
    length: usize,
}

impl<'a> Piece<'a> {
    fn of(packet: &'a Captured) -> Option<Self> {
        let ethernet = Ethernet2HeaderSlice::from_slice(&packet.bytes).ok()?;
        let bytes = packet.bytes.get(ETHERNET_HEADER..)?;
        if ethernet.ether_type() == EtherType::IPV4 {
            let header = Ipv4HeaderSlice::from_slice(bytes).ok()?;
            let size = header.slice().len();
            let fragment = header.is_fragmenting_payload().then(|| Fragment {
                identification: header.identification().into(),
                offset: usize::from(header.fragments_offset().value()) * 8,
                is_last: !header.more_fragments(),
            });
            let piece = Self {
                fragment,
                bytes: bytes.get(size..)?,
                length: packet.length.checked_sub(size)?,
            };
            return (header.protocol() == IpNumber::TCP).then_some(piece);
        }
        let header = Ipv6HeaderSlice::from_slice(bytes).ok()?;
        let size = header.slice().len();
        let piece = Self {
            fragment: None,
            bytes: bytes.get(size..)?,
            length: packet.length.checked_sub(size)?,
        };
        match header.next_header() {
            IpNumber::TCP => Some(piece),
            IpNumber::IPV6_FRAGMENTATION_HEADER => {
                let header = Ipv6FragmentHeaderSlice::from_slice(piece.bytes).ok()?;
                let size = header.slice().len();
                let fragment = Fragment {
                    identification: header.identification(),
                    offset: usize::from(header.fragment_offset().value()) * 8,
                    is_last: !header.more_fragments(),
                };
                Some(Self {
                    fragment: Some(fragment),
                    bytes: piece.bytes.get(size..)?,
                    length: piece.length.checked_sub(size)?,
                })
            }
            _ => None,
        }
    }
}
