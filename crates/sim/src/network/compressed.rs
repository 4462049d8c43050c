//! A link that compresses TCP/IP headers (RFC 1144).

use midspan_link::header_compression::{Compressor, Decompressor, Frame};
use midspan_link::{Counters, DropReason, FixedLink, Packet as LinkPacket, Verdict};
use midspan_units::Time;

use super::headers::Headers;
use super::loss::Loss;
use crate::packet::Packet;

/// A fixed link with a compressor at its near end and a decompressor at its far end.
///
/// A driver compresses a packet when it sends it, so a packet that the queue drops is never
/// compressed. Here, packets are compressed when they arrive at the link: the result is the same,
/// because packets neither overtake each other nor change their fate.
#[derive(Debug)]
pub(super) struct CompressedLink {
    pub(super) link: FixedLink<Loss>,
    compressor: Compressor,
    decompressor: Decompressor,
    headers: Headers,
    /// Packets whose header was restored wrongly, and their bytes.
    damaged: (u64, u64),
}

/// The size of a packet on the link, in bytes.
struct OnLink(u32);

impl LinkPacket for OnLink {
    fn size(&self) -> u32 {
        self.0
    }
}

impl CompressedLink {
    pub(super) fn new(link: FixedLink<Loss>) -> Self {
        Self {
            link,
            compressor: Compressor::default(),
            decompressor: Decompressor::default(),
            headers: Headers::default(),
            damaged: (0, 0),
        }
    }

    pub(super) fn handle(&mut self, now: Time, packet: &Packet) -> Verdict {
        let Some((header, data)) = self.headers.of(now, packet) else {
            return self.link.handle(now, packet);
        };
        let mut compressor = self.compressor.clone();
        let frame = compressor.compress(&header);
        let length = u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX);
        let verdict = self.link.handle(now, &OnLink(length + u32::from(data)));
        if !matches!(
            verdict,
            Verdict::Dropped {
                reason: DropReason::QueueFull,
                ..
            }
        ) {
            self.compressor = compressor;
        }
        match verdict {
            Verdict::Delivered { due } if !self.arrives(&frame, &header, data) => {
                self.damaged.0 += 1;
                self.damaged.1 += u64::from(length + u32::from(data));
                Verdict::Dropped {
                    due,
                    reason: DropReason::Damaged,
                }
            }
            verdict => verdict,
        }
    }

    /// Whether the far end restores the header that was compressed. Otherwise the receiver's TCP
    /// checksum is wrong.
    fn arrives(&mut self, frame: &Frame, header: &[u8], data: u16) -> bool {
        let made = self.decompressor.decompress(frame, data);
        made.is_ok_and(|made| made == header)
    }

    /// The link's counters, with bytes as sent on the link.
    pub(super) fn counters(&self) -> Counters {
        let mut counters = self.link.counters();
        let (packets, bytes) = self.damaged;
        counters.delivered.packets -= packets;
        counters.delivered.bytes -= bytes;
        counters.damaged.packets = packets;
        counters.damaged.bytes = bytes;
        counters
    }
}
