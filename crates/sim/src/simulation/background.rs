//! Traffic without TCP.

use midspan_link::Stream;
use midspan_units::{Time, TimeSpan};

use super::Simulation;
use super::application::seconds;
use crate::observer::Observer;
use crate::packet::{Packet, PacketDirection, Segment};
use crate::random::{draw, stream_for};
use crate::scenario::{Pattern, Scenario, Traffic};

/// One source of traffic.
#[derive(Debug)]
pub(super) struct TrafficSource {
    /// The traffic that it belongs to, by its index in the scenario.
    pub(super) traffic: u32,
    /// Its route, as the number of a leg.
    connection: u32,
    size: u32,
    /// Time from one packet to the next.
    gap: TimeSpan,
    pattern: Pattern,
    stream: Stream,
    pub(super) start: Time,
    end: Time,
    /// When the present on phase ends.
    on_until: Time,
    pub(super) sent: u64,
    pub(super) delivered: u64,
}

impl TrafficSource {
    /// All sources of a traffic, the `number`th of the scenario. Their routes are numbered from
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
                // The off-phase comes first.
                Pattern::OnOff { .. } => Time::ZERO,
            },
            sent: 0,
            delivered: 0,
        })
    }

    /// Whether the source sends now, and when to call again; `None`: never.
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
        // An on-phase has ended (or the first has not begun): an off-phase, then the next on-phase.
        let begin = now + seconds(draw(&mut self.stream, off));
        self.on_until = begin + seconds(draw(&mut self.stream, on));
        // Even a phase of zero length moves time on.
        let begin = begin.max(now + TimeSpan::from_nanoseconds(1));
        (false, before_end(begin))
    }
}

impl<O: Observer> Simulation<O> {
    /// A source of traffic sends, or stops sending.
    pub(super) fn send_traffic(&mut self, index: u32) {
        let source = &mut self.traffic[index as usize];
        let (sends, next) = source.next(self.now);
        let (connection, size) = (source.connection, source.size);
        source.sent += u64::from(sends);
        if let Some(at) = next {
            self.schedule.wake(self.places.traffic(index), at);
        }
        if sends {
            self.send(
                connection,
                PacketDirection::Forward,
                size,
                Segment::Datagram,
            );
        }
    }

    pub(super) fn deliver_traffic(&mut self, packet: &Packet) {
        let index = packet.connection as usize - self.senders.len();
        if let Some(source) = self.traffic.get_mut(index) {
            source.delivered += 1;
        }
    }
}
