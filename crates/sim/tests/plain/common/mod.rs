//! Observers and links that several tests use.

#![allow(dead_code)] // Each test uses some.
#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

pub mod says;

use std::collections::BTreeMap;
use std::fmt::Write;

use midspan_link::{Configuration, DropReason, QueueLimit, State};
use midspan_sim::{LinkId, Observer, Packet, PacketDirection, Segment};
use midspan_units::{Probability, Time};

/// A link that does not change.
pub fn link(rate: &str, delay: &str, loss: &str, queue: u32) -> Configuration {
    Configuration {
        state: State {
            rate: Some(rate.parse().unwrap()),
            delay: delay.parse().unwrap(),
            loss: loss.parse::<Probability>().unwrap(),
        },
        queue: QueueLimit::Packets(queue),
        ..Configuration::default()
    }
}

/// All events as text, one line each.
#[derive(Debug, Default)]
pub struct Log(pub String);

impl Log {
    fn line(&mut self, now: Time, what: &str, packet: &Packet) {
        let microseconds = now.nanoseconds() / 1000;
        let _ = write!(self.0, "{microseconds} {what} {} ", packet.connection);
        let _ = match &packet.segment {
            Segment::Data(data) => {
                writeln!(self.0, "{:?} {}+{}", data.kind, data.sequence, data.length)
            }
            Segment::Reset => writeln!(self.0, "reset"),
            Segment::Datagram => writeln!(self.0, "datagram {}", packet.size),
            Segment::Echo(number) => writeln!(self.0, "echo {number}"),
            Segment::Acknowledgement(ack) => writeln!(
                self.0,
                "ack {} window {} {:?}",
                ack.number,
                ack.window_edge - ack.number,
                ack.blocks.as_slice()
            ),
        };
    }
}

impl Observer for Log {
    fn sent(&mut self, now: Time, packet: &Packet) {
        self.line(now, "sent", packet);
    }

    fn delivered(&mut self, now: Time, packet: &Packet) {
        self.line(now, "delivered", packet);
    }

    fn dropped(&mut self, at: Time, link: LinkId, up: bool, packet: &Packet, reason: DropReason) {
        self.line(at, &format!("dropped {} {up} {reason}", link.0), packet);
    }
}

/// Counts packets, and checks the properties that every packet must have.
#[derive(Debug, Default)]
pub struct Auditor {
    pub sent: u64,
    pub delivered: u64,
    pub dropped: u64,
    /// For each leg, the bytes that have arrived: the end of the data without a gap, and the ranges
    /// beyond.
    arrived: BTreeMap<u32, (u64, BTreeMap<u64, u64>)>,
    /// For each leg, the last ACK sent, and the window edge last delivered.
    acknowledged: BTreeMap<u32, u64>,
    edges: BTreeMap<u32, u64>,
    now: Time,
}

impl Auditor {
    fn tick(&mut self, now: Time) {
        assert!(
            now >= self.now,
            "time went back from {:?} to {now:?}",
            self.now
        );
        self.now = now;
    }

    /// The end of a leg's data that has arrived without a gap.
    pub fn whole(&self, leg: u32) -> u64 {
        self.arrived.get(&leg).map_or(0, |(whole, _)| *whole)
    }
}

impl Observer for Auditor {
    fn sent(&mut self, now: Time, packet: &Packet) {
        self.tick(now);
        self.sent += 1;
        match &packet.segment {
            Segment::Reset | Segment::Datagram | Segment::Echo(_) => {}
            Segment::Data(data) => {
                assert_eq!(packet.direction(), PacketDirection::Forward);
                if data.length > 0 {
                    let edge = self.edges.get(&packet.connection).copied();
                    let end = data.sequence + u64::from(data.length);
                    assert!(edge.is_none_or(|edge| end <= edge), "window exceeded");
                }
            }
            Segment::Acknowledgement(ack) => {
                assert_eq!(packet.direction(), PacketDirection::Back);
                // Only data that has arrived is acknowledged.
                assert!(ack.number <= self.whole(packet.connection));
                let last = self.acknowledged.entry(packet.connection).or_default();
                assert!(ack.number >= *last, "an ACK went back");
                *last = ack.number;
                for block in ack.blocks.as_slice() {
                    let start = ack.number + u64::from(block.start);
                    let end = ack.number + u64::from(block.end);
                    let (whole, beyond) = &self.arrived[&packet.connection];
                    let mut holding = beyond.range(..=start);
                    let held = holding.next_back().is_some_and(|(_, held)| *held >= end);
                    // If segments wait for service, more may have arrived in the meantime.
                    assert!(held || end <= *whole, "SACK of what has not arrived");
                }
            }
        }
    }

    fn delivered(&mut self, now: Time, packet: &Packet) {
        self.tick(now);
        self.delivered += 1;
        match &packet.segment {
            Segment::Reset | Segment::Datagram | Segment::Echo(_) => {}
            Segment::Data(data) => {
                let (whole, beyond) = self.arrived.entry(packet.connection).or_default();
                let mut start = data.sequence;
                let mut end = start + u64::from(data.length);
                // Merges the ranges that it touches.
                while let Some((&from, &to)) = beyond
                    .range(..=end)
                    .next_back()
                    .filter(|(_, to)| **to >= start)
                {
                    beyond.remove(&from);
                    start = start.min(from);
                    end = end.max(to);
                }
                if start <= *whole {
                    *whole = (*whole).max(end);
                } else if start < end {
                    beyond.insert(start, end);
                }
            }
            Segment::Acknowledgement(ack) => {
                let edge = self.edges.entry(packet.connection).or_default();
                *edge = (*edge).max(ack.window_edge);
            }
        }
    }

    fn dropped(&mut self, _: Time, _: LinkId, _: bool, _: &Packet, _: DropReason) {
        self.dropped += 1;
    }
}
