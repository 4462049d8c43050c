//! The queue before the narrow link, with ACK filtering and priority of ACKs.

use std::collections::VecDeque;

use super::{AckFilter, AckFirst, Class};
use crate::AckSample;

/// A waiting packet, with the facts about it that the queue needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedPacket<F, P> {
    /// The flow it belongs to.
    pub flow: F,
    /// The contents of the ACK, if the packet is a pure ACK.
    pub ack: Option<AckSample>,
    /// Its size in bytes at the network layer.
    pub size: u32,
    /// The packet itself.
    pub packet: P,
}

/// A packet that found no room, or that a newer ACK replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused<P> {
    /// The queue is full.
    Full(P),
    /// A newer ACK replaced it.
    Superseded(P),
}

/// A first-in, first-out queue for a bounded number of packets. With an [`AckFilter`], a newer ACK
/// replaces an older one of its flow; with [`AckFirst`], pure ACKs have a queue of their own.
#[derive(Debug, Clone)]
pub struct AckQueue<F, P> {
    limit: usize,
    filter: Option<AckFilter>,
    first: Option<AckFirst>,
    /// All packets, or all except the ACKs.
    data: VecDeque<QueuedPacket<F, P>>,
    /// The ACKs, if they are sent first.
    acknowledgements: VecDeque<QueuedPacket<F, P>>,
}

impl<F: PartialEq, P> AckQueue<F, P> {
    /// An empty queue for at most `limit` packets; if ACKs are sent first, for `limit` packets in
    /// each of its two queues.
    #[must_use]
    pub const fn new(limit: usize, filter: Option<AckFilter>, first: Option<AckFirst>) -> Self {
        Self {
            limit,
            filter,
            first,
            data: VecDeque::new(),
            acknowledgements: VecDeque::new(),
        }
    }

    /// Adds a packet. Returns a packet that is refused: the new one if the queue is full, or an
    /// older ACK that the new one replaces: “a new ACK always takes the place of an older ACK in
    /// the transmission queue” (Tam §4.2).
    pub fn enqueue(&mut self, packet: QueuedPacket<F, P>) -> Option<Refused<P>> {
        let queue = match (&self.first, &packet.ack) {
            (Some(_), Some(_)) => &mut self.acknowledgements,
            _ => &mut self.data,
        };
        if let (Some(filter), Some(newer)) = (self.filter, &packet.ack) {
            let kept = usize::try_from(filter.kept).unwrap_or(usize::MAX);
            // A newer ACK replaces the newest one that it supersedes, not counting those that are
            // kept. No ACK of the flow that must stay may lie in between, because ACKs would change
            // their order.
            let place = queue
                .iter()
                .enumerate()
                .rev()
                .filter(|(_, waiting)| waiting.flow == packet.flow)
                .take_while(|(_, waiting)| {
                    let older = waiting.ack.as_ref();
                    older.is_some_and(|older| AckFilter::supersedes(newer, older))
                })
                .map(|(at, _)| at)
                .nth(kept);
            if let Some(at) = place {
                return Some(Refused::Superseded(replace(queue, at, packet)));
            }
        }
        if queue.len() >= self.limit {
            return Some(Refused::Full(packet.packet));
        }
        queue.push_back(packet);
        None
    }

    /// Removes the next packet to be sent.
    pub fn dequeue(&mut self) -> Option<QueuedPacket<F, P>> {
        let Some(first) = &mut self.first else {
            return self.data.pop_front();
        };
        let class = first.next(!self.acknowledgements.is_empty(), !self.data.is_empty())?;
        let packet = match class {
            Class::Acknowledgement => self.acknowledgements.pop_front(),
            Class::Data => self.data.pop_front(),
        }?;
        first.handle_sent(class, packet.size.into(), !self.data.is_empty());
        Some(packet)
    }

    /// Number of waiting packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len() + self.acknowledgements.len()
    }

    /// Whether no packet waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Removes the packet at `at`. Each later packet of the same flow moves to the place of the one
/// before it, and the new packet gets the last of these places. So the flow keeps its places and
/// its order.
fn replace<F: PartialEq, P>(
    queue: &mut VecDeque<QueuedPacket<F, P>>,
    at: usize,
    mut packet: QueuedPacket<F, P>,
) -> P {
    for waiting in queue.range_mut(at..).rev() {
        if waiting.flow == packet.flow {
            std::mem::swap(waiting, &mut packet);
        }
    }
    packet.packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ack(flow: u8, number: u32) -> QueuedPacket<u8, u32> {
        QueuedPacket {
            flow,
            ack: Some(AckSample {
                number,
                newly_covered: 1,
                arrived: 1,
                ..AckSample::default()
            }),
            size: 40,
            packet: number,
        }
    }

    fn duplicate(flow: u8, number: u32, name: u32) -> QueuedPacket<u8, u32> {
        let mut packet = ack(flow, number);
        let sample = packet.ack.as_mut().unwrap();
        (sample.duplicate, sample.newly_covered) = (true, 0);
        packet.packet = name;
        packet
    }

    fn data(flow: u8, name: u32) -> QueuedPacket<u8, u32> {
        QueuedPacket {
            flow,
            ack: None,
            size: 1500,
            packet: name,
        }
    }

    fn drain(queue: &mut AckQueue<u8, u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.dequeue().map(|packet| packet.packet)).collect()
    }

    #[test]
    fn the_newest_ack_of_a_flow_takes_the_place_of_the_one_that_waits() {
        let mut queue = AckQueue::new(10, Some(AckFilter::default()), None);
        assert_eq!(queue.enqueue(ack(1, 10)), None);
        assert_eq!(queue.enqueue(data(1, 777)), None);
        assert_eq!(queue.enqueue(ack(2, 20)), None);
        assert_eq!(queue.enqueue(ack(2, 21)), Some(Refused::Superseded(20)));
    }

    #[test]
    fn duplicates_stay_and_nothing_passes_them() {
        let mut queue = AckQueue::new(10, Some(AckFilter::default()), None);
        queue.enqueue(ack(1, 10));
        assert_eq!(queue.enqueue(duplicate(1, 10, 100)), None);
        assert_eq!(queue.enqueue(duplicate(1, 10, 101)), None);
        // 20 supersedes neither a duplicate nor an ACK before one.
        assert_eq!(queue.enqueue(ack(1, 20)), None);
        assert_eq!(queue.enqueue(ack(1, 30)), Some(Refused::Superseded(20)));
        assert_eq!(drain(&mut queue), [10, 100, 101, 30]);
    }

    #[test]
    fn some_may_be_kept_beside_the_newest() {
        let mut queue = AckQueue::new(10, Some(AckFilter { kept: 2 }), None);
        for number in [1, 2, 3] {
            assert_eq!(queue.enqueue(ack(1, number)), None);
        }
        assert_eq!(queue.enqueue(ack(1, 4)), Some(Refused::Superseded(1)));
        assert_eq!(queue.enqueue(ack(1, 5)), Some(Refused::Superseded(2)));
        assert_eq!(drain(&mut queue), [3, 4, 5]);
    }

    #[test]
    fn acks_go_before_data_and_data_is_not_starved() {
        let mut queue = AckQueue::new(10, None, Some(AckFirst::new(80)));
        for number in 0..3 {
            queue.enqueue(data(1, 100 + number));
        }
        for number in 1..=6 {
            queue.enqueue(ack(1, number));
        }
        assert_eq!(drain(&mut queue), [1, 2, 100, 3, 4, 101, 5, 6, 102]);
    }

    #[test]
    fn a_full_queue_refuses_what_supersedes_nothing() {
        let mut queue = AckQueue::new(1, Some(AckFilter::default()), None);
        queue.enqueue(ack(1, 1));
        assert_eq!(queue.enqueue(ack(2, 9)), Some(Refused::Full(9)));
        assert_eq!(queue.enqueue(ack(1, 2)), Some(Refused::Superseded(1)));
        assert_eq!(queue.len(), 1);
    }

    proptest! {
        /// The newest ACK of a flow is never lost, and the ACKs of a flow leave in order.
        #[test]
        fn the_newest_survives_and_order_is_kept(
            arrivals in prop::collection::vec((0_u8..3, 0_u8..4), 1..200),
            kept in 0_u32..3,
            first in any::<bool>(),
        ) {
            let mut queue = AckQueue::new(1000, Some(AckFilter { kept }), first.then(|| AckFirst::new(200)));
            let mut number = 0;
            let mut newest = [None; 3];
            for (flow, kind) in arrivals {
                number += 1;
                let packet = match kind {
                    0 => data(flow, number),
                    1 => duplicate(flow, number, number),
                    _ => ack(flow, number),
                };
                if packet.ack.is_some() {
                    newest[usize::from(flow)] = Some(number);
                }
                let refused = queue.enqueue(packet);
                prop_assert!(!matches!(refused, Some(Refused::Full(_))));
                prop_assert_ne!(refused, Some(Refused::Superseded(number)));
            }
            let mut last = [None; 3];
            while let Some(packet) = queue.dequeue() {
                if packet.ack.is_some() {
                    let last = &mut last[usize::from(packet.flow)];
                    prop_assert!(*last < Some(packet.packet));
                    *last = Some(packet.packet);
                }
            }
            prop_assert_eq!(last, newest);
        }
    }
}
