//! The queue before a transmitter: which packets wait, and in which order they are sent.

use std::collections::BTreeMap;

use midspan_link::{DropReason, DropTail, Outputs, Packet as _, Queue, QueueLimit};
use midspan_policy::AckSample;
use midspan_policy::ack_thinning::{AckFilter, AckFirst, AckQueue, QueuedPacket, Refused};
use midspan_units::Time;

use crate::packet::{Acknowledgement, Packet, Segment};

/// How a queue treats pure ACKs. By default like other packets: first in, first out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueDiscipline {
    /// A newer ACK replaces an older one (ACK filtering, Tam §2.3).
    pub filter: Option<AckFilter>,
    /// ACKs go before data (Tam §5.2).
    pub first: Option<AckFirst>,
    /// An ACK that finds this many packets waiting is marked (ACC, Tam §2.2).
    pub mark_from: Option<u32>,
}

impl QueueDiscipline {
    /// First in, first out.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// A queue with a [`QueueDiscipline`].
#[derive(Debug)]
pub(crate) enum Discipline {
    Plain(DropTail<Packet>),
    Acknowledgements(Box<Acknowledgements>),
}

/// A queue that treats ACKs differently from data.
#[derive(Debug)]
pub(crate) struct Acknowledgements {
    queue: AckQueue<u32, Packet>,
    mark_from: usize,
    bytes: u64,
    /// The previous ACK of each connection.
    before: BTreeMap<u32, Acknowledgement>,
}

impl Discipline {
    pub(crate) fn new(discipline: QueueDiscipline, limit: QueueLimit) -> Self {
        let packets = match limit {
            QueueLimit::Packets(packets) if !discipline.is_plain() => packets as usize,
            // A limit in bytes has no such discipline: the scenario was checked.
            QueueLimit::Packets(_) | QueueLimit::Bytes(_) => {
                return Self::Plain(DropTail::new(limit));
            }
        };
        Self::Acknowledgements(Box::new(Acknowledgements {
            queue: AckQueue::new(packets, discipline.filter, discipline.first),
            mark_from: discipline
                .mark_from
                .map_or(usize::MAX, |packets| packets as usize),
            bytes: 0,
            before: BTreeMap::new(),
        }))
    }
}

impl Acknowledgements {
    fn enqueue(&mut self, now: Time, mut packet: Packet, outputs: &mut Outputs<Packet>) {
        let acknowledgement = match &packet.segment {
            Segment::Acknowledgement(ack) => {
                let before = self.before.insert(packet.connection, *ack);
                if self.queue.len() >= self.mark_from {
                    packet.signals.marked = true;
                }
                Some(sample(before.as_ref(), ack, packet.signals.marked))
            }
            _ => None,
        };
        let size = packet.size();
        self.bytes += u64::from(size);
        let refused = self.queue.enqueue(QueuedPacket {
            flow: packet.connection,
            ack: acknowledgement,
            size,
            packet,
        });
        let (packet, reason) = match refused {
            None => return,
            Some(Refused::Full(packet)) => (packet, DropReason::QueueFull),
            Some(Refused::Superseded(packet)) => (packet, DropReason::Filtered),
        };
        self.bytes -= u64::from(packet.size());
        outputs.push_dropped(now, packet, reason);
    }
}

/// The properties of an ACK that a queue on the path sees, compared with the previous ACK of the
/// connection.
fn sample(before: Option<&Acknowledgement>, ack: &Acknowledgement, marked: bool) -> AckSample {
    let same = before.is_some_and(|before| before.number == ack.number);
    let moved = before.is_some_and(|before| before.window_edge != ack.window_edge);
    let more = before.map_or(0, |before| ack.number.saturating_sub(before.number));
    AckSample {
        // The low 32 bits, as on the wire.
        #[allow(clippy::cast_possible_truncation)]
        number: ack.number as u32,
        newly_covered: u32::from(more > 0),
        arrived: 1,
        duplicate: same && !moved,
        selective: !ack.blocks.is_empty(),
        selection_grows: false,
        fills_gap: before.is_some_and(|before| !before.blocks.is_empty()),
        window_update: same && moved,
        congestion_echo: marked,
        // The first ACK cannot be compared with another.
        other: before.is_none(),
    }
}

impl Queue<Packet> for Discipline {
    fn enqueue(&mut self, now: Time, packet: Packet, outputs: &mut Outputs<Packet>) {
        match self {
            Self::Plain(queue) => queue.enqueue(now, packet, outputs),
            Self::Acknowledgements(queue) => queue.enqueue(now, packet, outputs),
        }
    }

    fn dequeue(&mut self, now: Time, outputs: &mut Outputs<Packet>) -> Option<Packet> {
        match self {
            Self::Plain(queue) => queue.dequeue(now, outputs),
            Self::Acknowledgements(queue) => {
                let packet = queue.queue.dequeue()?.packet;
                queue.bytes -= u64::from(packet.size());
                Some(packet)
            }
        }
    }

    fn packets(&self) -> usize {
        match self {
            Self::Plain(queue) => queue.packets(),
            Self::Acknowledgements(queue) => queue.queue.len(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Plain(queue) => queue.bytes(),
            Self::Acknowledgements(queue) => queue.bytes,
        }
    }
}
