//! Frames, and their kinds for the lab's counters.

use std::time::Duration;

use etherparse::{IpNumber, Ipv6ExtensionSlice, NetSlice, SlicedPacket, TcpSlice, TransportSlice};

/// Bytes of an Ethernet header.
pub const ETHERNET_HEADER: usize = 14;

/// An Ethernet frame on a link; the link counts the packet inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The frame's bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
    /// The frame's kind for the lab's counters.
    pub kind: Kind,
}

/// The kind of a frame for the lab's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A TCP segment without data that only acknowledges.
    PureAck,
    /// A TCP segment with this many bytes of data, or its first fragment.
    Data(u32),
    /// A later fragment of a TCP segment, with this many bytes of data.
    Rest(u32),
    /// Any other IP packet.
    Other,
    /// Not unicast IP, for example neighbour discovery; a link does not carry such frames.
    NotCarried,
}

/// Reads the headers of a frame; anything malformed is [`Kind::Other`].
pub fn classify(frame: &[u8]) -> Kind {
    let Some(&first) = frame.first() else {
        return Kind::NotCarried;
    };
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else {
        return Kind::Other;
    };
    let multicast = first & 1 == 1;
    let is_ip = matches!(packet.net, Some(NetSlice::Ipv4(_) | NetSlice::Ipv6(_)));
    if multicast || !is_ip {
        return Kind::NotCarried;
    }
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
        return packet
            .net
            .as_ref()
            .and_then(fragment)
            .unwrap_or(Kind::Other);
    };
    match tcp.payload().len() {
        0 if tcp.ack() && !tcp.syn() && !tcp.fin() && !tcp.rst() => Kind::PureAck,
        0 => Kind::Other,
        length => Kind::Data(u32::try_from(length).unwrap_or(u32::MAX)),
    }
}

/// The kind of a fragment of a TCP segment; `None` for any other packet.
fn fragment(net: &NetSlice<'_>) -> Option<Kind> {
    let (payload, offset) = match net {
        NetSlice::Ipv4(four) => (four.payload(), four.header().fragments_offset()),
        NetSlice::Ipv6(six) => (
            six.payload(),
            six.extensions()
                .clone()
                .into_iter()
                .find_map(|extension| match extension {
                    Ipv6ExtensionSlice::Fragment(fragment) => Some(fragment.fragment_offset()),
                    _ => None,
                })?,
        ),
        _ => return None,
    };
    if !payload.fragmented || payload.ip_number != IpNumber::TCP {
        return None;
    }
    let length = u32::try_from(payload.payload.len()).unwrap_or(u32::MAX);
    if offset.value() > 0 {
        return Some(Kind::Rest(length));
    }
    let tcp = TcpSlice::from_slice(payload.payload).ok()?;
    let data = u32::try_from(tcp.payload().len()).unwrap_or(u32::MAX);
    Some(Kind::Data(data))
}

impl Kind {
    /// The kind of a fragment of a packet of this kind. The fragment has `bytes` of the `payload`
    /// bytes behind the IP header, from the byte `skip` on.
    pub(super) fn of_part(self, payload: u32, skip: u32, bytes: u32) -> Self {
        match self {
            Self::Data(data) if skip == 0 => {
                let headers = payload.saturating_sub(data);
                Self::Data(bytes.saturating_sub(headers))
            }
            Self::Data(_) | Self::Rest(_) => Self::Rest(bytes),
            other => other,
        }
    }
}

/// Converts a real-time stamp of the kernel to the monotonic clock, given the present time of both
/// clocks.
pub fn to_monotonic(stamp: Duration, realtime: Duration, monotonic: Duration) -> Duration {
    // A stamp cannot lie in the future: if the clock was set meanwhile, the result is the present
    // time.
    let age = realtime
        .saturating_sub(stamp)
        .min(Duration::from_millis(100));
    monotonic.saturating_sub(age)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn frame(
        payload: &[u8],
        build: impl FnOnce(
            etherparse::PacketBuilderStep<etherparse::TcpHeader>,
        ) -> etherparse::PacketBuilderStep<etherparse::TcpHeader>,
    ) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1, 2, 3, 1000);
        let mut bytes = Vec::new();
        build(builder).write(&mut bytes, payload).unwrap();
        bytes
    }

    #[test]
    fn only_bare_acknowledgements_are_pure() {
        assert_eq!(classify(&frame(b"", |tcp| tcp.ack(9))), Kind::PureAck);
        assert_eq!(classify(&frame(b"x", |tcp| tcp.ack(9))), Kind::Data(1));
        assert_eq!(classify(&frame(b"", |tcp| tcp.ack(9).fin())), Kind::Other);
        assert_eq!(classify(&frame(b"", |tcp| tcp.syn())), Kind::Other);
    }

    #[test]
    fn what_is_not_unicast_ip_is_not_carried() {
        let mut broadcast = frame(b"", |tcp| tcp.ack(9));
        broadcast[..6].fill(0xff);
        assert_eq!(classify(&broadcast), Kind::NotCarried);
        assert_eq!(classify(&[2; 60]), Kind::NotCarried);
        assert_eq!(classify(&[]), Kind::NotCarried);
    }

    #[test]
    fn stamps_are_bounded_by_now() {
        let s = Duration::from_secs;
        let ms = Duration::from_millis;
        assert_eq!(to_monotonic(s(1000) - ms(2), s(1000), s(50)), s(50) - ms(2));
        assert_eq!(to_monotonic(s(1001), s(1000), s(50)), s(50));
        assert_eq!(to_monotonic(s(900), s(1000), s(50)), s(50) - ms(100));
    }
}
