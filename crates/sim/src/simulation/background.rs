//! Traffic without TCP.

use midspan_link::Stream;
use midspan_units::{Time, TimeSpan};

use super::Simulation;
use super::application::seconds;
use crate::observer::Observer;
use crate::packet::{Packet, Segment, Way};
use crate::random::{draw, stream_for};
use crate::scenario::{Pattern, Scenario, Traffic};

/// One source of traffic.
#[derive(Debug)]
pub(super) struct TrafficSource {
    /// Whose it is, in the order of the scenario.
    pub(super) traffic: u32,
    /// Its way, among the legs.
    connection: u32,
    size: u32,
    /// From one packet to the next.
    gap: TimeSpan,
    pattern: Pattern,
    stream: Stream,
    pub(super) start: Time,
    end: Time,
    /// Until when it sends in this turn.
    on_until: Time,
    pub(super) sent: u64,
    pub(super) delivered: u64,
}

impl TrafficSource {
    /// All sources of a traffic, the `number`th of the scenario, with the ways from
    /// `connection` on.
    pub(super) fn of(
        scenario: &Scenario,
        traffic: &Traffic,
        number: u32,
        connection: u32,
    ) -> impl Iterator<Item = Self> {
        let start = Time::ZERO + traffic.start;
        (0..traffic.sources).map(move |source| Self {
            traffic: number,
            connection: connection + source,
            size: traffic.packet_size,
            gap: traffic
                .rate
                .transmission_time(u64::from(traffic.packet_size)),
            pattern: traffic.pattern,
            stream: stream_for(
                scenario.seed,
                "traffic",
                &format!("{}/{source}", traffic.name),
            ),
            start,
            end: Time::ZERO + traffic.end.unwrap_or(TimeSpan::from_nanoseconds(u64::MAX)),
            on_until: match traffic.pattern {
                Pattern::Constant => Time::from_nanoseconds(u64::MAX),
                // First off.
                Pattern::OnOff { .. } => Time::ZERO,
            },
            sent: 0,
            delivered: 0,
        })
    }

    /// Whether it sends now, and when to ask again; `None` for never.
    fn next(&mut self, now: Time) -> (bool, Option<Time>) {
        let before_end = |at: Time| (at < self.end).then_some(at);
        if now >= self.end {
            return (false, None);
        }
        if now < self.on_until {
            return (true, before_end(now + self.gap));
        }
        let Pattern::OnOff { on, off } = self.pattern else {
            return (false, None);
        };
        // A turn is over (or the first has not begun): silence, then the next turn.
        let begin = now + seconds(draw(&mut self.stream, off));
        self.on_until = begin + seconds(draw(&mut self.stream, on));
        // Even one without any length moves on.
        let begin = begin.max(now + TimeSpan::from_nanoseconds(1));
        (false, before_end(begin))
    }
}

impl<O: Observer> Simulation<O> {
    /// A source of traffic sends, or falls silent.
    pub(super) fn send_traffic(&mut self, index: u32) {
        let source = &mut self.traffic[index as usize];
        let (sends, next) = source.next(self.now);
        let (connection, size) = (source.connection, source.size);
        source.sent += u64::from(sends);
        if let Some(at) = next {
            self.schedule.wake(self.places.traffic(index), at);
        }
        if sends {
            self.send(connection, Way::Forward, size, Segment::Datagram);
        }
    }

    pub(super) fn deliver_traffic(&mut self, packet: &Packet) {
        let index = packet.connection as usize - self.senders.len();
        if let Some(source) = self.traffic.get_mut(index) {
            source.delivered += 1;
        }
    }
}
