//! Traces as tables of comma-separated values, one line for each event.

use std::io::{self, Write};

use midspan_link::{DropReason, RateMeter, RateSample};
use midspan_units::{Time, TimeSpan};

use super::legs::{LegName, legs};
use super::lines::{CwndLine, Field, QueueLine, RateLine, RttLine, Seconds, direction};
use crate::observer::Observer;
use crate::packet::{DataKind, Packet, Segment};
use crate::scenario::{LinkId, Scenario, ScenarioError};
use crate::tcp::Sender;

/// The intervals of [`Kind::Rate`].
pub const RATE_INTERVAL: TimeSpan = TimeSpan::from_milliseconds(100);

/// The events that a trace contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// cwnd, ssthresh and the data in flight, whenever cwnd or ssthresh has changed.
    Cwnd,
    /// The smoothed round-trip time, whenever it has changed.
    Rtt,
    /// Segments as they are sent and ACKs as they arrive.
    Sequence,
    /// The packets in a link's queue after each arrival.
    Queue,
    /// The rate of the packets that come out of a link, in intervals of [`RATE_INTERVAL`].
    Rate,
    /// Dropped packets, with the link and the reason.
    Drops,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Cwnd,
        Self::Rtt,
        Self::Sequence,
        Self::Queue,
        Self::Rate,
        Self::Drops,
    ];

    /// The name by which users select it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cwnd => "cwnd",
            Self::Rtt => "rtt",
            Self::Sequence => "sequence",
            Self::Queue => "queue",
            Self::Rate => "rate",
            Self::Drops => "drops",
        }
    }

    /// The first line of the table: the names of its columns, with their units.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Cwnd => "time_s,flow,leg,cwnd_bytes,ssthresh_bytes,in_flight_bytes,rtt_s",
            Self::Rtt => "time_s,flow,leg,rtt_s",
            Self::Sequence => "time_s,flow,leg,event,sequence,bytes",
            Self::Queue => "time_s,link,direction,packets,bytes",
            Self::Rate => "time_s,link,direction,bytes,rate_bits_per_second",
            Self::Drops => "time_s,link,direction,reason,flow,leg,bytes",
        }
    }
}

/// Writes tables while a simulation runs. Use it with
/// [`Simulation::link_by_link`](crate::Simulation::link_by_link): queues are observed only if each
/// link has its own event.
#[derive(Debug)]
pub struct Trace<W> {
    /// For each leg, its flow's name and its number.
    legs: Vec<(Field, usize)>,
    links: Vec<Field>,
    /// By [`Kind`].
    outputs: [Option<W>; Kind::ALL.len()],
    /// For each leg, cwnd and ssthresh when they were last written.
    last: Vec<(u64, Option<u64>)>,
    /// For each leg, the round-trip time that was last written.
    last_round_trip: Vec<Option<TimeSpan>>,
    /// For each link, its direction up and its direction down.
    rates: Vec<[RateMeter; 2]>,
    error: Option<io::Error>,
}

impl<W: Write> Trace<W> {
    /// A trace of a scenario. `output` returns the output for each kind, or `None` to leave that
    /// kind out.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn new(
        scenario: &Scenario,
        output: impl FnMut(Kind) -> Option<W>,
    ) -> Result<Self, ScenarioError> {
        let legs: Vec<(Field, usize)> = legs(scenario)?
            .iter()
            .map(|LegName { flow, leg, .. }| (Field::new(flow), *leg))
            .collect();
        let links = scenario.links.iter();
        let mut trace = Self {
            last: vec![(0, None); legs.len()],
            last_round_trip: vec![None; legs.len()],
            legs,
            rates: links
                .clone()
                .map(|_| [true, false].map(|_| RateMeter::new(RATE_INTERVAL)))
                .collect(),
            links: links.map(|link| Field::new(&link.name)).collect(),
            outputs: Kind::ALL.map(output),
            error: None,
        };
        for kind in Kind::ALL {
            trace.line(kind, |output, _| writeln!(output, "{}", kind.heading()));
        }
        Ok(trace)
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The first error in writing.
    pub fn finish(mut self) -> io::Result<()> {
        for (link, meters) in std::mem::take(&mut self.rates).into_iter().enumerate() {
            for (meter, up) in meters.into_iter().zip([true, false]) {
                let mut samples = Vec::new();
                meter.finish(|sample| samples.push(sample));
                self.write_rates(LinkId(link), up, &samples);
            }
        }
        for kind in Kind::ALL {
            self.line(kind, |output, _| output.flush());
        }
        self.error.map_or(Ok(()), Err)
    }

    fn line(&mut self, kind: Kind, write: impl FnOnce(&mut W, &Names<'_>) -> io::Result<()>) {
        let names = Names {
            legs: &self.legs,
            links: &self.links,
            none: &Field::default(),
        };
        if let Some(output) = self.outputs.get_mut(kind as usize).and_then(Option::as_mut)
            && self.error.is_none()
        {
            self.error = write(output, &names).err();
        }
    }

    const fn writes(&self, kind: Kind) -> bool {
        self.outputs[kind as usize].is_some()
    }

    fn write_round_trip(&mut self, now: Time, connection: u32, measured: Option<TimeSpan>) {
        let known = self.last_round_trip.get_mut(connection as usize);
        let changed = known.is_some_and(|known| std::mem::replace(known, measured) != measured);
        let Some(round_trip) = measured.filter(|_| changed) else {
            return;
        };
        self.line(Kind::Rtt, |output, names| {
            let (flow, leg) = names.leg(connection);
            let line = RttLine {
                at: now,
                flow,
                leg,
                round_trip,
            };
            writeln!(output, "{line}")
        });
    }

    fn write_rates(&mut self, link: LinkId, up: bool, samples: &[RateSample]) {
        for sample in samples {
            self.line(Kind::Rate, |output, names| {
                let line = RateLine {
                    at: sample.end,
                    link: names.link(link),
                    up,
                    bytes: sample.bytes,
                    bits_per_second: sample.bits_per_second,
                };
                writeln!(output, "{line}")
            });
        }
    }
}

struct Names<'a> {
    legs: &'a [(Field, usize)],
    links: &'a [Field],
    none: &'a Field,
}

impl Names<'_> {
    /// The flow and the leg; empty for traffic without TCP.
    fn leg(&self, connection: u32) -> (&Field, usize) {
        let leg = self.legs.get(connection as usize);
        leg.map_or((self.none, 0), |(flow, leg)| (flow, *leg))
    }

    fn link(&self, link: LinkId) -> &Field {
        self.links.get(link.0).unwrap_or(self.none)
    }
}

impl<W: Write> Observer for Trace<W> {
    const WATCHES_QUEUES: bool = true;

    fn sent(&mut self, now: Time, packet: &Packet) {
        let Segment::Data(data) = &packet.segment else {
            return;
        };
        let event = match data.kind {
            DataKind::Synchronise => "syn",
            DataKind::Payload => "data",
            DataKind::Probe => "probe",
        };
        self.line(Kind::Sequence, |output, names| {
            let (flow, leg) = names.leg(packet.connection);
            let (at, sequence, bytes) = (Seconds(now), data.sequence, data.length);
            writeln!(output, "{at},{flow},{leg},{event},{sequence},{bytes}")
        });
    }

    fn delivered(&mut self, now: Time, packet: &Packet) {
        let Segment::Acknowledgement(ack) = &packet.segment else {
            return;
        };
        self.line(Kind::Sequence, |output, names| {
            let (flow, leg) = names.leg(packet.connection);
            let window = ack.window_edge - ack.number;
            let at = Seconds(now);
            writeln!(output, "{at},{flow},{leg},ack,{},{window}", ack.number)
        });
    }

    fn dropped(&mut self, at: Time, link: LinkId, up: bool, packet: &Packet, reason: DropReason) {
        self.line(Kind::Drops, |output, names| {
            let (flow, leg) = names.leg(packet.connection);
            let (link, direction) = (names.link(link), direction(up));
            let (at, size) = (Seconds(at), packet.size);
            writeln!(
                output,
                "{at},{link},{direction},{reason},{flow},{leg},{size}"
            )
        });
    }

    fn given_up(&mut self, at: Time, fragment: &Packet) {
        self.line(Kind::Drops, |output, names| {
            let (flow, leg) = names.leg(fragment.connection);
            let (at, size) = (Seconds(at), fragment.size);
            writeln!(output, "{at},,,incomplete,{flow},{leg},{size}")
        });
    }

    fn queue(&mut self, now: Time, link: LinkId, up: bool, packets: usize, bytes: u64) {
        self.line(Kind::Queue, |output, names| {
            let line = QueueLine {
                at: now,
                link: names.link(link),
                up,
                packets,
                bytes,
            };
            writeln!(output, "{line}")
        });
    }

    fn passed(&mut self, now: Time, link: LinkId, up: bool, packet: &Packet) {
        if !self.writes(Kind::Rate) {
            return;
        }
        let mut samples = Vec::new();
        if let Some([meter_up, meter_down]) = self.rates.get_mut(link.0) {
            let meter = if up { meter_up } else { meter_down };
            meter.add(now, packet.size, |sample| samples.push(sample));
        }
        self.write_rates(link, up, &samples);
    }

    fn sender(&mut self, now: Time, connection: u32, sender: &Sender) {
        self.write_round_trip(now, connection, sender.round_trip_time());
        let state = (sender.cwnd(), sender.ssthresh());
        let known = self.last.get_mut(connection as usize);
        let changed = known.is_some_and(|known| std::mem::replace(known, state) != state);
        if !changed || !self.writes(Kind::Cwnd) {
            return;
        }
        self.line(Kind::Cwnd, |output, names| {
            let (flow, leg) = names.leg(connection);
            let line = CwndLine {
                at: now,
                flow,
                leg,
                cwnd: state.0,
                ssthresh: state.1,
                in_flight: sender.highest() - sender.unacknowledged(),
                round_trip: sender.round_trip_time(),
            };
            writeln!(output, "{line}")
        });
    }
}
