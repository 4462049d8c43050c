//! A link that compresses TCP/IP headers (RFC 1144).

use std::collections::BTreeMap;

use midspan_units::Time;

use crate::counters::{Count, Counters};
use crate::drop_reason::DropReason;
use crate::fixed::{FixedLink, Verdict};
use crate::header_compression::{Compressor, Decompressor, Frame};
use crate::loss_process::LossProcess;
use crate::packet::{Headers, Packet};
use crate::stage::Waiting;

/// Flows whose IP identifications are counted; beyond that, those of the lowest identity start
/// again.
const FLOWS: usize = 65_536;

/// A fixed link with a compressor at its near end and a decompressor at its far end.
///
/// A driver compresses a packet when it sends it, so a packet that the queue drops is never
/// compressed. Here, packets are compressed when they arrive at the link: the result is the same,
/// because packets neither overtake each other nor change their fate. The counters have bytes as
/// sent on the link.
#[derive(Debug, Clone)]
pub struct CompressedLink {
    link: FixedLink<LossProcess>,
    compressor: Compressor,
    decompressor: Decompressor,
    /// IP identifications count up in each flow.
    identifications: BTreeMap<u64, u16>,
    /// Packets whose headers were restored wrongly.
    damaged: Count,
}

/// The size of a packet on the link, in bytes.
struct OnLink(u32);

impl Packet for OnLink {
    fn size(&self) -> u32 {
        self.0
    }
}

impl CompressedLink {
    pub(super) fn new(link: FixedLink<LossProcess>) -> Self {
        Self {
            link,
            compressor: Compressor::default(),
            decompressor: Decompressor::default(),
            identifications: BTreeMap::new(),
            damaged: Count::default(),
        }
    }

    /// A packet arrives at `now`.
    pub fn handle<P: Packet>(&mut self, now: Time, packet: &P) -> Verdict {
        let Some(headers) = self.headers(now, packet) else {
            return self.link.handle(now, packet);
        };
        let mut compressor = self.compressor.clone();
        let frame = compressor.compress(&headers.bytes);
        let length = u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX);
        let size = length.saturating_add(u32::from(headers.data));
        let verdict = self.link.handle(now, &OnLink(size));
        let refused = matches!(
            verdict,
            Verdict::Dropped {
                reason: DropReason::QueueFull,
                ..
            }
        );
        if !refused {
            self.compressor = compressor;
        }
        match verdict {
            Verdict::Delivered { due } if !self.arrives(&frame, &headers) => {
                self.damaged.add(size);
                Verdict::Dropped {
                    due,
                    reason: DropReason::Damaged,
                }
            }
            verdict => verdict,
        }
    }

    /// The headers of a packet that arrives at `now`.
    fn headers<P: Packet>(&mut self, now: Time, packet: &P) -> Option<Headers> {
        let flow = packet.flow();
        let last = self.identifications.get(&flow).copied().unwrap_or(0);
        let identification = last.wrapping_add(1);
        let headers = packet.headers(now, identification)?;
        self.identifications.insert(flow, identification);
        if self.identifications.len() > FLOWS {
            self.identifications.pop_first();
        }
        Some(headers)
    }

    /// Whether the far end restores the headers that were compressed. Otherwise the receiver's TCP
    /// checksum is wrong.
    fn arrives(&mut self, frame: &Frame, headers: &Headers) -> bool {
        let made = self.decompressor.decompress(frame, headers.data);
        made.is_ok_and(|made| made == headers.bytes)
    }

    /// The packets that wait, as of the last packet that was handed over.
    pub(super) const fn waiting(&self) -> Waiting {
        Waiting {
            packets: self.link.queue_packets(),
            bytes: self.link.queue_bytes(),
        }
    }

    /// The link's counters.
    pub(super) fn counters(&self) -> Counters {
        let mut counters = self.link.counters();
        counters.delivered.packets -= self.damaged.packets;
        counters.delivered.bytes -= self.damaged.bytes;
        counters.damaged = self.damaged;
        counters
    }
}
