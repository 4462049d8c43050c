//! Packets that wait for the transmitter.

use std::collections::VecDeque;

use midspan_units::{ByteSize, Time};

use crate::drop_reason::DropReason;
use crate::packet::Packet;
use crate::stage::Outputs;

/// A queue discipline: which packets wait, in which order they are sent, and which are dropped.
///
/// The transmitter enqueues only packets that have to wait: a packet that finds the transmitter
/// idle is sent at once ([`pass`](Self::pass)). A discipline may drop any packet that it holds, in
/// any call; each dropped packet goes to `outputs`.
pub trait Queue<P> {
    /// Adds `packet`, which arrived at `now`, or drops it or other packets instead.
    fn enqueue(&mut self, now: Time, packet: P, outputs: &mut Outputs<P>);

    /// A packet arrives at `now`, while no packet waits and the transmitter is idle. Returns the
    /// packet to send. A discipline that counts what each flow sends counts it here.
    fn pass(&mut self, now: Time, packet: P, outputs: &mut Outputs<P>) -> Option<P> {
        let _ = (now, outputs);
        Some(packet)
    }

    /// Removes the next packet to send, at `now`; `None` if no packet waits.
    fn dequeue(&mut self, now: Time, outputs: &mut Outputs<P>) -> Option<P>;

    /// Number of waiting packets.
    fn packets(&self) -> usize;

    /// Number of waiting bytes, at the network layer.
    fn bytes(&self) -> u64;
}

/// Room for waiting packets. A packet for which there is no room is dropped (drop-tail).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// This number of packets, whatever their size.
    Packets(u32),
    /// This number of bytes, overhead not counted.
    Bytes(ByteSize),
}

impl Default for QueueLimit {
    /// 1,000 packets, the default of Linux devices.
    fn default() -> Self {
        Self::Packets(1000)
    }
}

/// First in, first out; a packet for which there is no room is dropped.
#[derive(Debug, Clone)]
pub struct DropTail<P> {
    room: Room,
    waiting: VecDeque<P>,
}

impl<P: Packet> DropTail<P> {
    /// An empty queue with room for `limit`.
    #[must_use]
    pub const fn new(limit: QueueLimit) -> Self {
        Self {
            room: Room::new(limit),
            waiting: VecDeque::new(),
        }
    }
}

impl<P: Packet> Queue<P> for DropTail<P> {
    fn enqueue(&mut self, now: Time, packet: P, outputs: &mut Outputs<P>) {
        if self.room.take(packet.size()) {
            self.waiting.push_back(packet);
        } else {
            outputs.push_dropped(now, packet, DropReason::QueueFull);
        }
    }

    fn dequeue(&mut self, _now: Time, _outputs: &mut Outputs<P>) -> Option<P> {
        let packet = self.waiting.pop_front()?;
        self.room.give_back(packet.size());
        debug_assert_eq!(self.room.packets, self.waiting.len());
        Some(packet)
    }

    fn packets(&self) -> usize {
        self.room.packets
    }

    fn bytes(&self) -> u64 {
        self.room.bytes
    }
}

/// How much of a limit is in use.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    limit: QueueLimit,
    packets: usize,
    bytes: u64,
}

impl Room {
    pub(crate) const fn new(limit: QueueLimit) -> Self {
        Self {
            limit,
            packets: 0,
            bytes: 0,
        }
    }

    /// Reserves room for a packet of `size` bytes; `false` if there is none.
    pub(crate) fn take(&mut self, size: u32) -> bool {
        let bytes = self.bytes.saturating_add(Self::counted(size));
        let fits = match self.limit {
            QueueLimit::Packets(limit) => self.packets < limit as usize,
            QueueLimit::Bytes(limit) => bytes <= limit.bytes(),
        };
        if fits {
            self.packets += 1;
            self.bytes = bytes;
        }
        fits
    }

    /// Frees the room of a packet that has reserved it.
    pub(crate) fn give_back(&mut self, size: u32) {
        debug_assert!(self.packets > 0 && self.bytes >= Self::counted(size));
        self.packets -= 1;
        self.bytes -= Self::counted(size);
    }

    pub(crate) const fn packets(&self) -> usize {
        self.packets
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An IP packet is never empty; if one were, a limit in bytes would not bound the queue.
    fn counted(size: u32) -> u64 {
        u64::from(size.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Output;

    fn offer(queue: &mut DropTail<Vec<u8>>, size: usize) -> bool {
        let mut outputs = Outputs::default();
        queue.enqueue(Time::ZERO, vec![0; size], &mut outputs);
        match outputs.pop() {
            None => true,
            Some(Output::Dropped { reason, packet, .. }) => {
                assert_eq!(reason, DropReason::QueueFull);
                assert_eq!(packet.len(), size);
                false
            }
            Some(Output::Delivered { .. }) => panic!("a queue delivers nothing"),
        }
    }

    fn take(queue: &mut DropTail<Vec<u8>>) -> Option<usize> {
        let mut outputs = Outputs::default();
        let packet = queue.dequeue(Time::ZERO, &mut outputs);
        assert!(outputs.is_empty());
        packet.map(|packet| packet.len())
    }

    #[test]
    fn a_packet_limit_counts_packets_whatever_their_size() {
        let mut queue = DropTail::new(QueueLimit::Packets(3));
        let taken: Vec<bool> = [40, 1500, 9000, 40]
            .into_iter()
            .map(|size| offer(&mut queue, size))
            .collect();
        assert_eq!(taken, [true, true, true, false]);
        assert_eq!((queue.packets(), queue.bytes()), (3, 10_540));
        assert_eq!(take(&mut queue), Some(40));
        assert!(offer(&mut queue, 41));
        let left: Vec<_> = std::iter::from_fn(|| take(&mut queue)).collect();
        assert_eq!(left, [1500, 9000, 41]);
        assert_eq!((queue.packets(), queue.bytes()), (0, 0));
    }

    #[test]
    fn a_byte_limit_is_exact_and_a_smaller_packet_may_still_fit() {
        let mut queue = DropTail::new(QueueLimit::Bytes(ByteSize::from_bytes(3000)));
        let taken: Vec<bool> = [1500, 1460, 41, 40, 1]
            .into_iter()
            .map(|size| offer(&mut queue, size))
            .collect();
        assert_eq!(taken, [true, true, false, true, false]);
        assert_eq!((queue.packets(), queue.bytes()), (3, 3000));
    }

    #[test]
    fn a_limit_of_zero_holds_nothing() {
        assert!(!offer(&mut DropTail::new(QueueLimit::Packets(0)), 40));
        let none = QueueLimit::Bytes(ByteSize::from_bytes(0));
        assert!(!offer(&mut DropTail::new(none), 40));
    }
}
