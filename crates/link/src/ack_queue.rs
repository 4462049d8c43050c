//! A queue that treats pure ACKs differently from data.

use std::collections::BTreeMap;

use midspan_policy::AckSample;
use midspan_policy::ack_thinning::{AckFilter, AckFirst, AckQueue, QueuedPacket, Refused};
use midspan_units::Time;

use crate::drop_reason::DropReason;
use crate::packet::{Packet, PureAck};
use crate::queue::Queue;
use crate::stage::Outputs;

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
    /// Whether it treats ACKs like other packets: first in, first out.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// Flows whose previous ACK is kept; beyond that, those of the lowest identity are forgotten.
const FLOWS: usize = 65_536;

/// A queue that treats ACKs differently from data.
#[derive(Debug, Clone)]
pub(crate) struct Acknowledgements<P> {
    queue: AckQueue<u64, P>,
    mark_from: usize,
    bytes: u64,
    /// The previous ACK of each flow.
    before: BTreeMap<u64, PureAck>,
}

impl<P: Packet> Acknowledgements<P> {
    /// An empty queue with room for `packets`.
    pub(crate) fn new(discipline: QueueDiscipline, packets: usize) -> Self {
        Self {
            queue: AckQueue::new(packets, discipline.filter, discipline.first),
            mark_from: discipline
                .mark_from
                .map_or(usize::MAX, |packets| packets as usize),
            bytes: 0,
            before: BTreeMap::new(),
        }
    }
}

/// The properties of an ACK that a queue on the path sees, compared with the previous ACK of the
/// connection.
fn sample(before: Option<&PureAck>, ack: &PureAck) -> AckSample {
    let same = before.is_some_and(|before| before.number == ack.number);
    let moved = before.is_some_and(|before| before.window != ack.window);
    // Sequence numbers wrap (RFC 9293 §3.4): half of the numbers are beyond a number.
    let beyond = |before: &PureAck| ack.number.wrapping_sub(before.number) < 1 << 31;
    let more = !same && before.is_some_and(beyond);
    AckSample {
        number: ack.number,
        newly_covered: u32::from(more),
        arrived: 1,
        duplicate: same && !moved,
        selective: ack.selective,
        selection_grows: false,
        fills_gap: before.is_some_and(|before| before.selective),
        window_update: same && moved,
        congestion_echo: ack.marked,
        // The first ACK cannot be compared with another.
        other: before.is_none(),
    }
}

impl<P: Packet> Queue<P> for Acknowledgements<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, outputs: &mut Outputs<P>) {
        let flow = packet.flow();
        let ack = packet.acknowledgement().map(|mut ack| {
            if self.queue.len() >= self.mark_from {
                packet.mark();
                ack.marked = true;
            }
            let before = self.before.insert(flow, ack);
            if self.before.len() > FLOWS {
                self.before.pop_first();
            }
            sample(before.as_ref(), &ack)
        });
        let size = packet.size();
        self.bytes += u64::from(size);
        let refused = self.queue.enqueue(QueuedPacket {
            flow,
            ack,
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

    fn dequeue(&mut self, _now: Time, _outputs: &mut Outputs<P>) -> Option<P> {
        let packet = self.queue.dequeue()?.packet;
        self.bytes -= u64::from(packet.size());
        Some(packet)
    }

    fn packets(&self) -> usize {
        self.queue.len()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
