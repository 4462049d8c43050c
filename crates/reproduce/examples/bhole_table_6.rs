//! Readings of Bhole's Table 6: what a PTS node may do when the buffer of a session is full.
//!
//! The paper states that a small buffer "causes a PTS session to overflow quite frequently which ultimately
//! reduces the transmission rate of the sender", but not how. This program simulates four readings with a
//! model of its own, which is independent of Midspan's simulator: two Tahoe connections as in ns-2 over two
//! times four links, no queue except that of the first link of each, and a node with one server.
//!
//! ```sh
//! cargo run --release -p midspan-reproduce --example bhole_table_6
//! ```

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};
use std::io::Write;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// `C_max` of Table 6 in packets, and the packets that the paper prints.
const PAPER: [(u64, u64); 4] = [(10, 1948), (20, 2361), (30, 2602), (40, 2708)];
const WINDOW: f64 = 20.0;
const HOPS_OF_A_LEG: f64 = 4.0;
/// Delay of a link, in s.
const DELAY: f64 = 8e-3;
/// Time of a packet of 1,040 bytes, and of an ACK of 40 bytes, at 10 Mbit/s, in s.
const PACKET: f64 = 1040.0 * 8.0 / 10e6;
const ACK: f64 = 40.0 * 8.0 / 10e6;
const DURATION: f64 = 10.0;
const SEEDS: u64 = 8;

/// What happens to a packet that arrives while the buffer is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Packets wait for the advertised window, which is the free room.
    AdvertisedWindow,
    /// The packet is dropped. The buffer has all packets that the receiver has not acknowledged.
    Dropped,
    /// The packet is dropped. The buffer has the packets that the node has not yet sent.
    DroppedIfUnsent,
    /// The packet is forwarded, and acknowledged to the source when the buffer has room for it.
    AckHeld,
}

const READINGS: [(Reading, &str); 4] = [
    (Reading::AdvertisedWindow, "advertised window"),
    (Reading::Dropped, "dropped"),
    (
        Reading::DroppedIfUnsent,
        "dropped, only unsent packets count",
    ),
    (Reading::AckHeld, "forwarded, its ACK waits for room"),
];

/// What happens at some time. Connection 0 is that of the source, connection 1 that of the node.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Start,
    Arrival {
        connection: usize,
        packet: u64,
    },
    Ack {
        connection: usize,
        next: u64,
        room: u64,
    },
    Served,
    TimeOut {
        connection: usize,
        number: u64,
    },
}

/// An event with its time and its order among those of the same time.
#[derive(Debug, PartialEq)]
struct At(f64, u64, Event);

impl Eq for At {}

impl Ord for At {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap returns the greatest first.
        let earlier = other.0.total_cmp(&self.0);
        earlier.then(other.1.cmp(&self.1))
    }
}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A Tahoe sender with an ACK for each packet. Packets are numbered from 0.
#[derive(Debug)]
struct Sender {
    cwnd: f64,
    threshold: f64,
    /// The first packet without an ACK, the next to send, and the end of those ever sent.
    unacknowledged: u64,
    next: u64,
    end: u64,
    duplicates: u32,
    recover: Option<u64>,
    room: u64,
    link_free: f64,
    /// A packet and when it was sent, to measure the round trip.
    timed: Option<(u64, f64)>,
    /// The smoothed round trip and its variation, in s.
    round_trip: Option<(f64, f64)>,
    backoff: f64,
    timer: u64,
}

impl Sender {
    const fn new() -> Self {
        Self {
            cwnd: 2.0,
            threshold: WINDOW,
            unacknowledged: 0,
            next: 0,
            end: 0,
            duplicates: 0,
            recover: None,
            room: u64::MAX,
            link_free: 0.0,
            timed: None,
            round_trip: None,
            backoff: 1.0,
            timer: 0,
        }
    }

    fn time_out(&self) -> f64 {
        let time = self
            .round_trip
            .map_or(3.0, |(mean, variation)| (mean + 4.0 * variation).max(0.2));
        time * self.backoff
    }

    /// Slow start from one packet, and all packets again from the first one without an ACK.
    fn begin_again(&mut self) {
        self.threshold = (self.cwnd.min(WINDOW) / 2.0).max(2.0);
        self.cwnd = 1.0;
        self.next = self.unacknowledged;
        self.recover = Some(self.end);
        self.timed = None;
    }

    /// An ACK for all packets before `next`. Returns whether it is the first one for these.
    fn handle_ack(&mut self, now: f64, next: u64) -> bool {
        if next > self.unacknowledged {
            if let Some((_, sent)) = self.timed.take_if(|(packet, _)| *packet < next) {
                let sample = now - sent;
                let (mean, variation) = self.round_trip.unwrap_or((sample, sample));
                let variation = 0.75 * variation + 0.25 * (mean - sample).abs();
                self.round_trip = Some((0.875 * mean + 0.125 * sample, variation));
                self.backoff = 1.0;
            }
            self.unacknowledged = next;
            self.next = self.next.max(next);
            self.duplicates = 0;
            self.cwnd += if self.cwnd < self.threshold {
                1.0
            } else {
                1.0 / self.cwnd
            };
            return true;
        }
        if next == self.unacknowledged && self.end > next {
            self.duplicates += 1;
            let is_new = self.recover.is_none_or(|recover| next > recover);
            if self.duplicates == 3 && is_new {
                self.begin_again();
            }
        }
        false
    }
}

/// The two connections and the node.
struct Model {
    reading: Reading,
    /// `C_max` in packets, and the mean service time in s.
    most: u64,
    service: f64,
    random: Pcg64Mcg,
    now: f64,
    events: BinaryHeap<At>,
    count: u64,
    senders: [Sender; 2],
    /// The next packet in order that each receiver expects, and those that came too early.
    expected: [u64; 2],
    early: [BTreeSet<u64>; 2],
    /// When the server is free, and how many packets it has served.
    server_free: f64,
    served: u64,
    /// The highest ACK that the node has sent.
    acknowledged: u64,
}

impl Model {
    fn new(reading: Reading, most: u64, service: f64, seed: u64) -> Self {
        Self {
            reading,
            most,
            service,
            random: Pcg64Mcg::seed_from_u64(seed),
            now: 0.0,
            events: BinaryHeap::new(),
            count: 0,
            senders: [Sender::new(), Sender::new()],
            expected: [0; 2],
            early: Default::default(),
            server_free: 0.0,
            served: 0,
            acknowledged: 0,
        }
    }

    /// The packets that the receiver has after [`DURATION`]; the SYN counts as one.
    fn run(mut self) -> u64 {
        // After the handshake of the first leg.
        self.at(0.1 + HOPS_OF_A_LEG * 2.0 * (DELAY + ACK), Event::Start);
        while let Some(At(time, _, event)) = self.events.pop() {
            if time > DURATION {
                break;
            }
            self.now = time;
            match event {
                Event::Start => self.send(0),
                Event::Served => {
                    self.served += 1;
                    self.send(1);
                }
                Event::Arrival {
                    connection: 0,
                    packet,
                } => self.arrive_at_node(packet),
                Event::Arrival { packet, .. } => {
                    self.receive(1, packet);
                    self.acknowledge(1, self.expected[1], u64::MAX);
                }
                Event::Ack {
                    connection,
                    next,
                    room,
                } => self.handle_ack(connection, next, room),
                Event::TimeOut { connection, number } => self.handle_time_out(connection, number),
            }
        }
        self.expected[1] + 1
    }

    fn at(&mut self, time: f64, event: Event) {
        self.count += 1;
        self.events.push(At(time, self.count, event));
    }

    fn send(&mut self, connection: usize) {
        let available = if connection == 0 {
            u64::MAX
        } else {
            self.served
        };
        loop {
            let sender = &mut self.senders[connection];
            let window = (sender.cwnd.min(WINDOW) as u64).min(sender.room);
            if sender.next >= (sender.unacknowledged + window).min(available) {
                break;
            }
            let packet = sender.next;
            sender.next += 1;
            if packet >= sender.end && sender.timed.is_none() {
                sender.timed = Some((packet, self.now));
            }
            sender.end = sender.end.max(sender.next);
            sender.link_free = sender.link_free.max(self.now) + PACKET;
            let rest = HOPS_OF_A_LEG * DELAY + (HOPS_OF_A_LEG - 1.0) * PACKET;
            let (arrives, has_timer) = (sender.link_free + rest, sender.timer > 0);
            self.at(arrives, Event::Arrival { connection, packet });
            if !has_timer {
                self.set_timer(connection);
            }
        }
    }

    fn set_timer(&mut self, connection: usize) {
        let sender = &mut self.senders[connection];
        sender.timer += 1;
        let (number, time) = (sender.timer, self.now + sender.time_out());
        self.at(time, Event::TimeOut { connection, number });
    }

    fn handle_time_out(&mut self, connection: usize, number: u64) {
        let sender = &mut self.senders[connection];
        if number == sender.timer && sender.unacknowledged < sender.end {
            sender.begin_again();
            sender.duplicates = 0;
            sender.backoff = (sender.backoff * 2.0).min(64.0);
            self.set_timer(connection);
            self.send(connection);
        }
    }

    fn handle_ack(&mut self, connection: usize, next: u64, room: u64) {
        self.senders[connection].room = room;
        if self.senders[connection].handle_ack(self.now, next) {
            self.set_timer(connection);
        }
        self.send(connection);
        // A place in the node's buffer is free.
        if connection == 1 && matches!(self.reading, Reading::AdvertisedWindow | Reading::AckHeld) {
            self.answer(false);
        }
    }

    /// Packets that count for the buffer.
    fn used(&self) -> u64 {
        let held = self.expected[0] + self.early[0].len() as u64;
        match self.reading {
            Reading::DroppedIfUnsent => held - self.senders[1].end,
            _ => held - self.senders[1].unacknowledged,
        }
    }

    fn arrive_at_node(&mut self, packet: u64) {
        let mut is_dropped = matches!(self.reading, Reading::Dropped | Reading::DroppedIfUnsent)
            && self.used() >= self.most;
        // An earlier packet takes the place of a later one. Otherwise the packet that all others wait for would
        // never have room.
        if is_dropped && self.early[0].last().is_some_and(|last| packet < *last) {
            self.early[0].pop_last();
            is_dropped = false;
        }
        let before = self.expected[0];
        if !is_dropped {
            self.receive(0, packet);
        }
        for _ in before..self.expected[0] {
            let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let time = -self.service * libm::log1p(-uniform);
            self.server_free = self.server_free.max(self.now) + time;
            self.at(self.server_free, Event::Served);
        }
        self.answer(true);
    }

    fn receive(&mut self, connection: usize, packet: u64) {
        let expected = &mut self.expected[connection];
        if packet >= *expected {
            self.early[connection].insert(packet);
        }
        while self.early[connection].remove(expected) {
            *expected += 1;
        }
    }

    /// The node's ACK to the source, for a packet or because there is room.
    fn answer(&mut self, is_for_packet: bool) {
        let has_room_up_to = self.senders[1].unacknowledged + self.most;
        let (next, room) = match self.reading {
            Reading::AckHeld => (self.expected[0].min(has_room_up_to), u64::MAX),
            Reading::AdvertisedWindow => (
                self.expected[0],
                has_room_up_to.saturating_sub(self.expected[0]),
            ),
            _ => (self.expected[0], u64::MAX),
        };
        let is_new = next > self.acknowledged;
        self.acknowledged = self.acknowledged.max(next);
        let is_held = self.reading == Reading::AckHeld;
        if is_new || (is_for_packet && !is_held) || self.reading == Reading::AdvertisedWindow {
            self.acknowledge(0, next, room);
        }
    }

    fn acknowledge(&mut self, connection: usize, next: u64, room: u64) {
        let arrives = self.now + HOPS_OF_A_LEG * (DELAY + ACK);
        self.at(
            arrives,
            Event::Ack {
                connection,
                next,
                room,
            },
        );
    }
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    write!(
        out,
        "{:<40}{:>8}",
        "a full buffer: the packet is …", "T_s, ms"
    )?;
    for (most, _) in PAPER {
        write!(out, "{:>8}", format!("C={most}"))?;
    }
    writeln!(out, "{:>16}", "largest error")?;
    write!(out, "{:<40}{:>8}", "paper", 0.1)?;
    for (_, paper) in PAPER {
        write!(out, "{paper:>8}")?;
    }
    writeln!(out)?;
    for (reading, name) in READINGS {
        for milliseconds in [0.1, 1.0, 3.0, 3.6] {
            write!(out, "{name:<40}{milliseconds:>8}")?;
            let mut worst = 0.0_f64;
            for (most, paper) in PAPER {
                let of = |seed| Model::new(reading, most, milliseconds / 1e3, seed).run();
                let mean = (1..=SEEDS).map(of).sum::<u64>() as f64 / SEEDS as f64;
                write!(out, "{mean:>8.0}")?;
                worst = worst.max((mean / paper as f64 - 1.0).abs());
            }
            writeln!(out, "{:>14.1} %", worst * 100.0)?;
        }
    }
    Ok(())
}
