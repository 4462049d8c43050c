//! Traces as tables of comma-separated values, one line for each event.

use std::io::{self, Write};

use midspan_link::DropReason;
use midspan_units::Time;

use super::legs::{LegName, legs};
use crate::observer::Observer;
use crate::packet::{DataKind, Packet, Segment};
use crate::scenario::{LinkId, Scenario, ScenarioError};
use crate::tcp::Sender;

/// The events that a trace contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// cwnd, ssthresh and the data in flight, whenever cwnd or ssthresh has changed.
    Cwnd,
    /// Segments as they are sent and ACKs as they arrive.
    Sequence,
    /// The packets in a link's queue after each arrival.
    Queue,
    /// Dropped packets, with the link and the reason.
    Drops,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Cwnd, Self::Sequence, Self::Queue, Self::Drops];

    /// The name by which users select it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cwnd => "cwnd",
            Self::Sequence => "sequence",
            Self::Queue => "queue",
            Self::Drops => "drops",
        }
    }

    const fn heading(self) -> &'static str {
        match self {
            Self::Cwnd => "time_s,flow,leg,cwnd_bytes,ssthresh_bytes,in_flight_bytes,rtt_s",
            Self::Sequence => "time_s,flow,leg,event,sequence,bytes",
            Self::Queue => "time_s,link,direction,packets,bytes",
            Self::Drops => "time_s,link,direction,reason,flow,leg,bytes",
        }
    }
}

/// Writes tables while a simulation runs. Use it with
/// [`Simulation::link_by_link`](crate::Simulation::link_by_link): queues are observed only if each
/// link has its own event.
#[derive(Debug)]
pub struct Trace<W> {
    legs: Vec<LegName>,
    links: Vec<String>,
    /// By [`Kind`].
    outputs: [Option<W>; 4],
    /// For each leg, cwnd and ssthresh when they were last written.
    last: Vec<(u64, Option<u64>)>,
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
        let legs = legs(scenario)?;
        let mut trace = Self {
            last: vec![(0, None); legs.len()],
            legs,
            links: scenario
                .links
                .iter()
                .map(|link| quoted(&link.name))
                .collect(),
            outputs: Kind::ALL.map(output),
            error: None,
        };
        for leg in &mut trace.legs {
            leg.flow = quoted(&leg.flow);
        }
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
        for kind in Kind::ALL {
            self.line(kind, |output, _| output.flush());
        }
        self.error.map_or(Ok(()), Err)
    }

    fn line(&mut self, kind: Kind, write: impl FnOnce(&mut W, &Names<'_>) -> io::Result<()>) {
        let names = Names {
            legs: &self.legs,
            links: &self.links,
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
}

struct Names<'a> {
    legs: &'a [LegName],
    links: &'a [String],
}

impl Names<'_> {
    /// The flow and the leg; empty for traffic without TCP.
    fn leg(&self, connection: u32) -> (&str, usize) {
        let leg = self.legs.get(connection as usize);
        leg.map_or(("", 0), |leg| (&leg.flow, leg.leg))
    }

    fn link(&self, link: LinkId) -> &str {
        self.links.get(link.0).map_or("", String::as_str)
    }
}

/// A name as a field: quoted if necessary (RFC 4180).
fn quoted(name: &str) -> String {
    if name.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

const fn direction(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

fn seconds(time: Time) -> String {
    let nanoseconds = time.nanoseconds();
    format!(
        "{}.{:09}",
        nanoseconds / 1_000_000_000,
        nanoseconds % 1_000_000_000
    )
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
            let (at, sequence, bytes) = (seconds(now), data.sequence, data.length);
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
            let at = seconds(now);
            writeln!(output, "{at},{flow},{leg},ack,{},{window}", ack.number)
        });
    }

    fn dropped(&mut self, at: Time, link: LinkId, up: bool, packet: &Packet, reason: DropReason) {
        self.line(Kind::Drops, |output, names| {
            let (flow, leg) = names.leg(packet.connection);
            let (link, direction) = (names.link(link), direction(up));
            let (at, size) = (seconds(at), packet.size);
            writeln!(
                output,
                "{at},{link},{direction},{reason},{flow},{leg},{size}"
            )
        });
    }

    fn given_up(&mut self, at: Time, fragment: &Packet) {
        self.line(Kind::Drops, |output, names| {
            let (flow, leg) = names.leg(fragment.connection);
            let (at, size) = (seconds(at), fragment.size);
            writeln!(output, "{at},,,incomplete,{flow},{leg},{size}")
        });
    }

    fn queue(&mut self, now: Time, link: LinkId, up: bool, packets: usize, bytes: u64) {
        self.line(Kind::Queue, |output, names| {
            let (link, direction) = (names.link(link), direction(up));
            writeln!(
                output,
                "{},{link},{direction},{packets},{bytes}",
                seconds(now)
            )
        });
    }

    fn sender(&mut self, now: Time, connection: u32, sender: &Sender) {
        let state = (sender.cwnd(), sender.ssthresh());
        let known = self.last.get_mut(connection as usize);
        let changed = known.is_some_and(|known| std::mem::replace(known, state) != state);
        if !changed || !self.writes(Kind::Cwnd) {
            return;
        }
        self.line(Kind::Cwnd, |output, names| {
            let (flow, leg) = names.leg(connection);
            let ssthresh = state.1.map_or_else(String::new, |bytes| bytes.to_string());
            let flight = sender.highest() - sender.unacknowledged();
            let rtt = sender
                .round_trip_time()
                .map_or_else(String::new, |time| time.as_seconds().to_string());
            let (at, cwnd) = (seconds(now), state.0);
            writeln!(output, "{at},{flow},{leg},{cwnd},{ssthresh},{flight},{rtt}")
        });
    }
}
