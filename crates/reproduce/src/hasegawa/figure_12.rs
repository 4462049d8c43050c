//! Fig. 12: time and sequence number at the start, client 2, 64 kbit/s up, 500 ms.

use midspan_policy::oversized_segments::OversizedStart;
use midspan_report::{Axis, LinePlot, Series};
use midspan_sim::{DataKind, Observer, Packet, Segment};
use midspan_units::{Time, TimeSpan};

use super::testbed::{CLIENT_LEG, Client, Testbed, Windows};
use crate::run::{Points, number, simulated};
use crate::{Effort, Error, FigurePlot, Simulated};

/// The first windows that the client advertises (§6.1), in bytes.
const WINDOWS: [f64; 4] = [5840.0, 5840.0, 8816.0, 13_224.0];
/// Segments at 0.5, 1.1 and 1.6 s with TGW, and at those times with WSO (§6.1).
const TGW: [f64; 3] = [2.0, 4.0, 8.0];
const WSO: [f64; 3] = [1.0, 1.0, 2.0];
/// A pause of at least this length separates two flights.
const PAUSE: TimeSpan = TimeSpan::from_milliseconds(200);
/// Seconds that are drawn.
const DRAWN: f64 = 4.0;

/// Data and ACKs of the client leg.
#[derive(Debug, Default)]
struct Watch {
    /// Time in seconds and end of each segment.
    sent: Points,
    /// Segments of each flight.
    flights: Vec<u32>,
    last: Option<Time>,
    windows: Vec<u64>,
}

impl Observer for Watch {
    fn sent(&mut self, now: Time, packet: &Packet) {
        if packet.connection != CLIENT_LEG {
            return;
        }
        match &packet.segment {
            Segment::Data(data) if data.kind == DataKind::Payload => {
                let end = data.sequence + u64::from(data.length);
                let at = now.since(Time::ZERO).as_seconds();
                self.sent.push((at, number(end)));
                if self.last.is_none_or(|last| now.since(last) >= PAUSE) {
                    self.flights.push(0);
                }
                self.last = Some(now);
                if let Some(flight) = self.flights.last_mut() {
                    *flight += 1;
                }
            }
            Segment::Acknowledgement(ack) => self.windows.push(ack.window_edge - ack.number),
            _ => {}
        }
    }
}

/// Fig. 12.
pub(super) fn figure_12(_: &Effort, progress: &mut dyn FnMut(&str)) -> Result<Simulated, Error> {
    progress("figure 12");
    let item = "figure 12";
    let mut out = Simulated::default();
    let mut series = Vec::new();
    let ways = [("WSO", Windows::Wso, WSO), ("TGW", Windows::Tgw, TGW)];
    for (name, windows, printed) in ways {
        let bed = Testbed::new(Client::Two, 64_000, windows).oversized(OversizedStart::SynAck);
        let (_, watch) = bed.watched(Watch::default())?;
        for (index, printed) in printed.into_iter().enumerate() {
            let sent = watch.flights.get(index).copied().unwrap_or(0);
            let case = format!("{name}, flight {}", index + 1);
            let mut record = simulated(item, &case, "segments", "", f64::from(sent));
            record.paper = Some(printed);
            out.records.push(record);
        }
        if windows == Windows::Wso {
            for (index, printed) in WINDOWS.into_iter().enumerate() {
                let window = number(watch.windows.get(index).copied().unwrap_or(0));
                let case = format!("{name}, advertisement {}", index + 1);
                let mut record = simulated(item, &case, "window", "bytes", window);
                record.paper = Some(printed);
                out.records.push(record);
            }
        }
        let mut points = watch.sent;
        points.retain(|(at, _)| *at <= DRAWN);
        series.push(Series {
            name: name.to_owned(),
            points,
        });
    }
    let plot = LinePlot {
        title: "client 2, 64 kbit/s up, 500 ms, oversized segments".to_owned(),
        x: Axis::new("time", "s"),
        y: Axis::new("sequence number", "bytes"),
        series,
    };
    out.figures.push(FigurePlot::new(item, plot));
    Ok(out)
}
