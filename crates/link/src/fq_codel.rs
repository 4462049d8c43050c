//! FlowQueue-CoDel (RFC 8290): a queue for each flow, served in turn, and CoDel in each.

use std::collections::VecDeque;

use midspan_units::Time;

use crate::codel::CoDel;
use crate::drop_reason::DropReason;
use crate::packet::Packet;
use crate::queue::{Queue, QueueLimit};
use crate::queue_management::QueueManagement;
use crate::stage::Outputs;

/// Number of queues (RFC 8290 §5.2.2).
const QUEUES: usize = 1024;
/// Bytes that a queue sends before it is another queue's turn: a full packet (RFC 8290 §5.2.4,
/// without the header of Ethernet, because sizes are those of IP packets).
const QUANTUM: i64 = 1500;

/// The queues of all flows.
///
/// A flow has the queue [`index`] of its identity. The limit is one for all queues together: if a
/// packet finds no room, the oldest packets of the queue with the most bytes are dropped.
#[derive(Debug, Clone)]
pub(crate) struct FqCoDel<P> {
    limit: QueueLimit,
    perturbation: u64,
    queues: Vec<FlowQueue<P>>,
    /// Queues that began to wait a short time ago, by their index; they come first.
    new: VecDeque<usize>,
    /// The other queues with packets.
    old: VecDeque<usize>,
    packets: usize,
    bytes: u64,
}

/// The packets of the flows with one index.
#[derive(Debug, Clone)]
struct FlowQueue<P> {
    codel: CoDel<P>,
    /// Bytes that the queue may still send in its turn.
    credits: i64,
    /// Whether the queue is in one of the two lists.
    is_listed: bool,
}

impl<P: Packet> FqCoDel<P> {
    /// Empty queues with room for `limit` together.
    pub(crate) fn new(management: QueueManagement, limit: QueueLimit, perturbation: u64) -> Self {
        let queue = |_| FlowQueue {
            codel: CoDel::new(management),
            credits: 0,
            is_listed: false,
        };
        Self {
            limit,
            perturbation,
            queues: (0..QUEUES).map(queue).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: 0,
        }
    }

    fn add(&mut self, now: Time, packet: P) {
        let index = index(packet.flow(), self.perturbation);
        self.packets += 1;
        self.bytes += u64::from(packet.size());
        let queue = &mut self.queues[index];
        queue.codel.enqueue(now, packet);
        if !queue.is_listed {
            queue.is_listed = true;
            queue.credits = QUANTUM;
            self.new.push_back(index);
        }
    }

    fn count_removed(&mut self, packet: &P) {
        self.packets -= 1;
        self.bytes -= u64::from(packet.size());
    }

    fn is_too_full(&self) -> bool {
        match self.limit {
            QueueLimit::Packets(limit) => self.packets > limit as usize,
            // Packets without bytes would not be bounded.
            QueueLimit::Bytes(limit) => {
                self.bytes > limit.bytes() || self.packets as u64 > limit.bytes()
            }
        }
    }

    /// The queue with the most bytes; of several, the first.
    fn fattest(&self) -> Option<usize> {
        let listed = self.new.iter().chain(&self.old).copied();
        listed.max_by_key(|index| {
            let bytes = self.queues[*index].codel.bytes();
            (bytes, std::cmp::Reverse(*index))
        })
    }
}

impl<P: Packet> Queue<P> for FqCoDel<P> {
    fn enqueue(&mut self, now: Time, packet: P, outputs: &mut Outputs<P>) {
        self.add(now, packet);
        while self.is_too_full()
            && let Some(index) = self.fattest()
            && let Some((_, packet)) = self.queues[index].codel.remove_oldest()
        {
            self.count_removed(&packet);
            outputs.push_dropped(now, packet, DropReason::QueueFull);
        }
    }

    /// The packet uses credits of its flow, as if it had waited.
    fn pass(&mut self, now: Time, packet: P, outputs: &mut Outputs<P>) -> Option<P> {
        self.add(now, packet);
        self.dequeue(now, outputs)
    }

    fn dequeue(&mut self, now: Time, outputs: &mut Outputs<P>) -> Option<P> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let queue = &mut self.queues[index];
            if queue.credits <= 0 {
                queue.credits += QUANTUM;
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let (mut packets, mut bytes) = (0, 0);
            let packet = queue.codel.dequeue(now, &mut |dropped: P| {
                packets += 1;
                bytes += u64::from(dropped.size());
                outputs.push_dropped(now, dropped, DropReason::Early);
            });
            self.packets -= packets;
            self.bytes -= bytes;
            if let Some(packet) = packet {
                queue.credits -= i64::from(packet.size());
                self.count_removed(&packet);
                return Some(packet);
            }
            list.pop_front();
            if is_new {
                // The queue waits for its turn once more, so that a flow cannot stay a new one.
                self.old.push_back(index);
            } else {
                queue.is_listed = false;
            }
        }
    }

    fn packets(&self) -> usize {
        self.packets
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The index of a flow's queue: the exclusive or of the flow's identity and the perturbation, mixed
/// by the finalizer of SplitMix64, modulo the number of queues.
pub(crate) fn index(flow: u64, perturbation: u64) -> usize {
    let mut mixed = flow ^ perturbation;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    // The remainder is below 1,024.
    usize::try_from(mixed % QUEUES as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::queue_management::Management;
    use crate::stage::Output;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct OfFlow {
        flow: u64,
        number: usize,
        size: u32,
    }

    impl Packet for OfFlow {
        fn size(&self) -> u32 {
            self.size
        }

        fn flow(&self) -> u64 {
            self.flow
        }
    }

    fn empty(limit: QueueLimit) -> FqCoDel<OfFlow> {
        FqCoDel::new(QueueManagement::new(Management::FqCoDel), limit, 0)
    }

    fn packet(flow: u64, number: usize, size: u32) -> OfFlow {
        OfFlow { flow, number, size }
    }

    /// Adds packets (flow, size), and returns the numbers of those that were dropped.
    fn add(queue: &mut FqCoDel<OfFlow>, packets: &[(u64, u32)]) -> Vec<usize> {
        let mut outputs = Outputs::default();
        for (number, (flow, size)) in packets.iter().enumerate() {
            queue.enqueue(Time::ZERO, packet(*flow, number, *size), &mut outputs);
        }
        std::iter::from_fn(|| outputs.pop())
            .map(|output| match output {
                Output::Dropped { packet, reason, .. } => {
                    assert_eq!(reason, DropReason::QueueFull);
                    packet.number
                }
                Output::Delivered { .. } => panic!("a queue delivers nothing"),
            })
            .collect()
    }

    fn taken(queue: &mut FqCoDel<OfFlow>) -> Vec<usize> {
        let mut outputs = Outputs::default();
        std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut outputs))
            .map(|packet| packet.number)
            .collect()
    }

    #[test]
    fn the_index_of_a_flow_is_that_of_an_independent_program() {
        // Computed by a Python program from the description in docs/link-model.md.
        assert_eq!(index(0, 0), 0);
        assert_eq!(index(1, 0), 485);
        assert_eq!(index(3, 0x1234_5678_9abc_def0), 408);
        assert_eq!(index(u64::MAX, 1), 258);
        assert_eq!(index(0xdead_beef, 42), 49);
    }

    #[test]
    fn flows_take_turns_of_one_quantum() {
        let mut queue = empty(QueueLimit::Packets(100));
        // Two full packets of each of two flows, and five small ones of a third.
        let packets = [
            (1, 1500),
            (1, 1500),
            (2, 1500),
            (2, 1500),
            (3, 700),
            (3, 700),
            (3, 700),
            (3, 700),
        ];
        assert_eq!(add(&mut queue, &packets), []);
        assert_eq!((queue.packets(), queue.bytes()), (8, 8800));
        // Credits may be exceeded by a part of a packet: three of 700 bytes fit into a turn.
        assert_eq!(taken(&mut queue), [0, 2, 4, 5, 6, 1, 3, 7]);
        assert_eq!((queue.packets(), queue.bytes()), (0, 0));
    }

    #[test]
    fn a_new_flow_comes_before_those_that_have_sent() {
        let mut queue = empty(QueueLimit::Packets(100));
        let mut outputs = Outputs::default();
        add(&mut queue, &[(1, 1500); 4]);
        for expected in [0, 1] {
            let sent = queue.dequeue(Time::ZERO, &mut outputs).unwrap();
            assert_eq!(sent.number, expected);
        }
        queue.enqueue(Time::ZERO, packet(2, 10, 40), &mut outputs);
        assert_eq!(taken(&mut queue), [10, 2, 3]);
        // A flow that sent all its packets a moment ago is not new as long as others wait.
        add(&mut queue, &[(1, 1500), (1, 1500), (2, 1500)]);
        assert_eq!(queue.dequeue(Time::ZERO, &mut outputs).unwrap().number, 0);
        assert_eq!(queue.dequeue(Time::ZERO, &mut outputs).unwrap().number, 2);
        queue.enqueue(Time::ZERO, packet(2, 11, 40), &mut outputs);
        assert_eq!(taken(&mut queue), [1, 11]);
    }

    #[test]
    fn a_packet_that_does_not_wait_uses_credits() {
        let mut queue = empty(QueueLimit::Packets(100));
        let mut outputs = Outputs::default();
        let passed = queue.pass(Time::ZERO, packet(1, 9, 1500), &mut outputs);
        assert_eq!(passed, Some(packet(1, 9, 1500)));
        assert_eq!((queue.packets(), queue.bytes()), (0, 0));
        // While that packet is sent, flow 2 gets its turn before flow 1 has a second one.
        add(&mut queue, &[(1, 1500), (2, 1500)]);
        assert_eq!(taken(&mut queue), [1, 0]);
        // Even if the queue may not hold anything, a packet passes.
        let mut none = empty(QueueLimit::Packets(0));
        assert!(
            none.pass(Time::ZERO, packet(1, 0, 40), &mut outputs)
                .is_some()
        );
        assert_eq!(add(&mut none, &[(1, 40)]), [0]);
    }

    #[test]
    fn a_full_queue_drops_the_oldest_packet_of_the_fattest_flow() {
        let mut queue = empty(QueueLimit::Packets(3));
        let dropped = add(
            &mut queue,
            &[(1, 500), (1, 500), (2, 800), (2, 100), (3, 40)],
        );
        // 1,000 bytes of flow 1 against 900 of flow 2; then 900 of flow 2 against 500.
        assert_eq!(dropped, [0, 2]);
        assert_eq!((queue.packets(), queue.bytes()), (3, 640));
        assert_eq!(taken(&mut queue), [1, 3, 4]);
        let mut queue = empty(QueueLimit::Bytes("2000 B".parse().unwrap()));
        // As many as needed: 600 bytes of flow 1 do not suffice.
        let dropped = add(&mut queue, &[(1, 600), (1, 600), (2, 700), (3, 1100)]);
        assert_eq!(dropped, [0, 3]);
        assert_eq!(queue.bytes(), 1300);
    }

    #[test]
    fn codel_drops_in_the_flow_that_waits_only() {
        let mut queue = empty(QueueLimit::Packets(10_000));
        let mut outputs = Outputs::default();
        let mut dropped: BTreeMap<u64, usize> = BTreeMap::new();
        let (mut sent, mut budget) = (0, 0_i64);
        // In each ms flow 1 brings two full packets, flow 2 a small one; one and a half leave.
        for millisecond in 0..3_000u64 {
            let now = Time::from_nanoseconds(millisecond * 1_000_000);
            for (flow, size) in [(1, 1500), (1, 1500), (2, 100)] {
                queue.enqueue(now, packet(flow, 0, size), &mut outputs);
            }
            budget += 2_250;
            while budget > 0
                && let Some(packet) = queue.dequeue(now, &mut outputs)
            {
                budget -= i64::from(packet.size);
                sent += 1;
            }
            while let Some(Output::Dropped { packet, reason, .. }) = outputs.pop() {
                assert_eq!(reason, DropReason::Early);
                *dropped.entry(packet.flow).or_default() += 1;
            }
        }
        let all: usize = dropped.values().sum();
        assert_eq!(sent + all + queue.packets(), 9_000);
        assert!(dropped.keys().eq([&1]) && all > 100, "{dropped:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn every_packet_comes_out_once_and_each_flow_in_its_order(
            limit in 0u32..60,
            events in proptest::collection::vec(
                (0u64..6, 40u32..3_000, 0u64..40_000_000, 0usize..3),
                1..300,
            ),
        ) {
            let mut queue = empty(QueueLimit::Packets(limit));
            let mut outputs = Outputs::default();
            let mut out: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            let (mut now, mut seen) = (Time::ZERO, 0);
            let events = events.into_iter().enumerate();
            for (number, (flow, size, gap, takes)) in events {
                now += midspan_units::TimeSpan::from_nanoseconds(gap);
                queue.enqueue(now, packet(flow, number, size), &mut outputs);
                prop_assert!(queue.packets() <= limit as usize);
                seen += 1;
                let mut left = Vec::new();
                for _ in 0..takes {
                    left.extend(queue.dequeue(now, &mut outputs));
                }
                let dropped = std::iter::from_fn(|| outputs.pop());
                seen -= left.len();
                for packet in &left {
                    out.entry(packet.flow).or_default().push(packet.number);
                }
                seen -= dropped.count();
                prop_assert_eq!(queue.packets(), seen);
                let bytes: u64 = queue.queues.iter().map(|queue| queue.codel.bytes()).sum();
                prop_assert_eq!(queue.bytes(), bytes);
            }
            for packet in std::iter::from_fn(|| queue.dequeue(now, &mut outputs)) {
                out.entry(packet.flow).or_default().push(packet.number);
            }
            prop_assert_eq!((queue.packets(), queue.bytes()), (0, 0));
            prop_assert!(queue.queues.iter().all(|queue| !queue.is_listed));
            for sent in out.values() {
                prop_assert!(sent.is_sorted_by(|one, other| one < other), "{sent:?}");
            }
        }
    }
}
