//! CoDel (RFC 8289): packets are dropped if they have waited for too long, for too long a time.

use std::collections::VecDeque;

use midspan_units::{Time, TimeSpan};

use crate::drop_reason::DropReason;
use crate::packet::Packet;
use crate::queue::{Queue, QueueLimit, Room};
use crate::queue_management::QueueManagement;
use crate::stage::Outputs;

/// A queue without a limit, and the state of CoDel. The names are those of the pseudocode in RFC
/// 8289 §5.
///
/// That pseudocode sends every packet through the queue. Here, a packet that finds the transmitter
/// idle does not enter the queue. It would not wait, and CoDel left its dropping state when
/// [`dequeue`](Self::dequeue) found the queue empty, so the result is the same.
#[derive(Debug, Clone)]
pub(crate) struct CoDel<P> {
    target: TimeSpan,
    interval: TimeSpan,
    largest_packet: u64,
    /// Each packet with the time of its arrival.
    waiting: VecDeque<(Time, P)>,
    bytes: u64,
    /// When the sojourn time will have been above the target for an interval.
    first_above_time: Option<Time>,
    /// When the next packet is dropped.
    drop_next: Time,
    /// Packets dropped since the dropping state was entered.
    count: u32,
    /// `count` when the dropping state was entered last.
    last_count: u32,
    dropping: bool,
}

impl<P: Packet> CoDel<P> {
    pub(crate) fn new(management: QueueManagement) -> Self {
        Self {
            target: management.target,
            interval: management.interval,
            largest_packet: u64::from(management.largest_packet),
            waiting: VecDeque::new(),
            bytes: 0,
            first_above_time: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a packet that arrives at `now`.
    pub(crate) fn enqueue(&mut self, now: Time, packet: P) {
        self.bytes += u64::from(packet.size());
        self.waiting.push_back((now, packet));
    }

    /// Removes the oldest packet, without a decision of CoDel.
    pub(crate) fn remove_oldest(&mut self) -> Option<(Time, P)> {
        let (arrived, packet) = self.waiting.pop_front()?;
        self.bytes -= u64::from(packet.size());
        Some((arrived, packet))
    }

    /// The next packet to send at `now`. Packets that CoDel drops before it go to `dropped`.
    pub(crate) fn dequeue(&mut self, now: Time, dropped: &mut impl FnMut(P)) -> Option<P> {
        let (mut packet, mut ok_to_drop) = self.next(now);
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                if let Some(packet) = packet.take() {
                    dropped(packet);
                }
                // Also if this drop is the last one: the next dropping state begins with the count.
                self.count = self.count.wrapping_add(1);
                (packet, ok_to_drop) = self.next(now);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if let Some(packet) = packet.take() {
                dropped(packet);
            }
            (packet, _) = self.next(now);
            self.dropping = true;
            // Soon after the last time, the queue begins with the rate of drops that it had then.
            let delta = self.count.wrapping_sub(self.last_count);
            let soon = now.since(self.drop_next) < self.interval * 16;
            self.count = if delta > 1 && soon { delta } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
        packet
    }

    /// The oldest packet, and whether it may be dropped: packets have waited for more than the
    /// target for an interval (`dodequeue`).
    fn next(&mut self, now: Time) -> (Option<P>, bool) {
        let Some((arrived, packet)) = self.remove_oldest() else {
            self.first_above_time = None;
            return (None, false);
        };
        let sojourn_time = now.since(arrived);
        let mut ok_to_drop = false;
        if sojourn_time < self.target || self.bytes <= self.largest_packet {
            self.first_above_time = None;
        } else {
            match self.first_above_time {
                None => self.first_above_time = Some(now + self.interval),
                Some(time) => ok_to_drop = now >= time,
            }
        }
        (Some(packet), ok_to_drop)
    }

    /// The time of the next drop after one at `time`: interval / √count later, rounded down to a
    /// nanosecond.
    fn control_law(&self, time: Time) -> Time {
        let interval = u128::from(self.interval.nanoseconds());
        let squared = interval * interval / u128::from(self.count.max(1));
        let later = u64::try_from(squared.isqrt()).unwrap_or(u64::MAX);
        time + TimeSpan::from_nanoseconds(later)
    }
}

/// One queue with a limit, managed by CoDel.
#[derive(Debug, Clone)]
pub(crate) struct CoDelQueue<P> {
    room: Room,
    queue: CoDel<P>,
}

impl<P: Packet> CoDelQueue<P> {
    /// An empty queue with room for `limit`.
    pub(crate) fn new(management: QueueManagement, limit: QueueLimit) -> Self {
        Self {
            room: Room::new(limit),
            queue: CoDel::new(management),
        }
    }
}

impl<P: Packet> Queue<P> for CoDelQueue<P> {
    fn enqueue(&mut self, now: Time, packet: P, outputs: &mut Outputs<P>) {
        if self.room.take(packet.size()) {
            self.queue.enqueue(now, packet);
        } else {
            outputs.push_dropped(now, packet, DropReason::QueueFull);
        }
    }

    fn dequeue(&mut self, now: Time, outputs: &mut Outputs<P>) -> Option<P> {
        let packet = self.queue.dequeue(now, &mut |dropped: P| {
            self.room.give_back(dropped.size());
            outputs.push_dropped(now, dropped, DropReason::Early);
        })?;
        self.room.give_back(packet.size());
        Some(packet)
    }

    fn packets(&self) -> usize {
        self.room.packets()
    }

    fn bytes(&self) -> u64 {
        self.room.bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::queue_management::Management;
    use crate::stage::Output;

    const TARGET: f64 = 5e6;
    const INTERVAL: f64 = 100e6;
    const MAXPACKET: u64 = 1500;

    /// The pseudocode of RFC 8289 §5, as it stands there, without the code above. Times are in
    /// nanoseconds, 0 is "no time", and packets are their number, size and time stamp.
    #[derive(Default)]
    struct Pseudocode {
        queue: VecDeque<(usize, u64, i64)>,
        bytes: u64,
        first_above_time: i64,
        drop_next: i64,
        count: u32,
        lastcount: u32,
        dropping: bool,
        dropped: Vec<usize>,
    }

    impl Pseudocode {
        fn enqueue(&mut self, packet: usize, size: u64, clock: i64) {
            self.queue.push_back((packet, size, clock));
            self.bytes += size;
        }

        fn dodequeue(&mut self, now: i64) -> (Option<usize>, bool) {
            let Some((packet, size, tstamp)) = self.queue.pop_front() else {
                self.first_above_time = 0;
                return (None, false);
            };
            self.bytes -= size;
            let sojourn_time = now - tstamp;
            if (sojourn_time as f64) < TARGET || self.bytes <= MAXPACKET {
                self.first_above_time = 0;
            } else if self.first_above_time == 0 {
                self.first_above_time = now + INTERVAL as i64;
            } else if now >= self.first_above_time {
                return (Some(packet), true);
            }
            (Some(packet), false)
        }

        fn control_law(t: i64, count: u32) -> i64 {
            t + (INTERVAL / f64::from(count).sqrt()) as i64
        }

        fn dequeue(&mut self, now: i64) -> Option<usize> {
            let mut r = self.dodequeue(now);
            if self.dropping {
                if !r.1 {
                    self.dropping = false;
                }
                while now >= self.drop_next && self.dropping {
                    self.dropped.push(r.0.unwrap());
                    self.count += 1;
                    r = self.dodequeue(now);
                    if !r.1 {
                        self.dropping = false;
                    } else {
                        self.drop_next = Self::control_law(self.drop_next, self.count);
                    }
                }
            } else if r.1 {
                self.dropped.push(r.0.unwrap());
                r = self.dodequeue(now);
                self.dropping = true;
                let delta = self.count.wrapping_sub(self.lastcount);
                self.count = 1;
                if delta > 1 && ((now - self.drop_next) as f64) < 16.0 * INTERVAL {
                    self.count = delta;
                }
                self.drop_next = Self::control_law(now, self.count);
                self.lastcount = self.count;
            }
            r.0
        }
    }

    fn packet(number: usize, size: u32) -> Vec<u8> {
        let mut packet = vec![0; size as usize];
        packet[..8].copy_from_slice(&(number as u64).to_le_bytes());
        packet
    }

    fn number(packet: &[u8]) -> usize {
        u64::from_le_bytes(packet[..8].try_into().unwrap()) as usize
    }

    fn queue(limit: u32) -> CoDelQueue<Vec<u8>> {
        let management = QueueManagement::new(Management::CoDel);
        CoDelQueue::new(management, QueueLimit::Packets(limit))
    }

    /// Sends packets (time since the one before, size) at a rate that changes with each packet, in
    /// ns for a byte. Returns the packets that were dropped, and how many were sent.
    fn compare(packets: &[(u64, u32)], pace: &[u64]) -> (Vec<usize>, usize) {
        let mut queue = queue(100_000);
        let mut pseudocode = Pseudocode::default();
        let mut outputs = Outputs::default();
        let (mut dropped, mut sent) = (Vec::new(), 0);
        // The clock of the pseudocode does not begin at 0, which is "no time".
        let mut arrival = 1_000_000_000;
        let mut free = arrival;
        let mut waiting = packets
            .iter()
            .enumerate()
            .map(|(number, (gap, size))| {
                arrival += gap;
                (number, *size, arrival)
            })
            .peekable();
        let mut paces = pace.iter().cycle();
        while waiting.peek().is_some() || queue.packets() > 0 {
            // A departure comes before an arrival at the same time.
            let next = waiting.peek().map_or(u64::MAX, |(.., at)| *at);
            if queue.packets() > 0 && free <= next {
                let taken = queue.dequeue(Time::from_nanoseconds(free), &mut outputs);
                let expected = pseudocode.dequeue(free as i64);
                assert_eq!(taken.as_deref().map(number), expected, "at {free} ns");
                let size = taken.map_or(0, |packet| packet.len()) as u64;
                free += size * paces.next().unwrap();
                sent += 1;
            } else if let Some((number, size, at)) = waiting.next() {
                free = free.max(at);
                queue.enqueue(
                    Time::from_nanoseconds(at),
                    packet(number, size),
                    &mut outputs,
                );
                pseudocode.enqueue(number, size.into(), at as i64);
            }
            while let Some(Output::Dropped { packet, reason, .. }) = outputs.pop() {
                assert_eq!(reason, DropReason::Early);
                dropped.push(number(&packet));
            }
            assert_eq!(queue.bytes(), pseudocode.bytes);
        }
        assert_eq!(dropped, pseudocode.dropped);
        (dropped, sent)
    }

    #[test]
    fn a_standing_queue_is_dropped_drop_for_drop_as_by_the_pseudocode() {
        // 12.5 Mbit/s arrive, 10 Mbit/s leave: 800 ns for a byte.
        let (dropped, sent) = compare(&[(960_000, 1500); 5_000], &[800]);
        assert!(dropped.len() > 100, "{} dropped", dropped.len());
        assert_eq!(dropped.len() + sent, 5_000);
        // Then the queue begins again with the rate that it had.
        let mut packets = [(960_000, 1500); 5_000];
        packets[2_500].0 = 400_000_000;
        compare(&packets, &[800]);
    }

    #[test]
    fn a_queue_below_the_target_or_of_one_packet_drops_nothing() {
        // 9.6 Mbit/s of 10 Mbit/s.
        assert_eq!(compare(&[(1_250_000, 1500); 2_000], &[800]).0, []);
        // A packet takes 120 ms, so each waits for longer than the target, but at most one waits.
        assert_eq!(compare(&[(119_000_000, 1500); 100], &[80_000]).0, []);
    }

    #[test]
    fn a_full_queue_drops_what_arrives() {
        let mut queue = queue(2);
        let mut outputs = Outputs::default();
        for index in 0..3 {
            queue.enqueue(Time::ZERO, packet(index, 100), &mut outputs);
        }
        let full = outputs.pop().unwrap();
        assert!(matches!(
            full,
            Output::Dropped {
                reason: DropReason::QueueFull,
                ..
            }
        ));
        assert_eq!(
            (number(full.packet()), queue.packets(), queue.bytes()),
            (2, 2, 200)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn drops_equal_those_of_the_pseudocode(
            bursts in proptest::collection::vec(
                (
                    prop_oneof![Just(0u64), 1u64..2_000_000, 1u64..300_000_000],
                    prop_oneof![Just(1500u32), Just(40), 40u32..1500],
                    1usize..200,
                    prop_oneof![Just(0u64), 100_000u64..2_000_000],
                ),
                1..15,
            ),
            pace in proptest::collection::vec(prop_oneof![Just(800u64), 80u64..8_000], 1..5),
        ) {
            let mut packets = Vec::new();
            for (pause, size, count, gap) in bursts {
                packets.push((pause, size));
                packets.extend(std::iter::repeat_n((gap, size), count));
            }
            compare(&packets, &pace);
        }
    }
}
