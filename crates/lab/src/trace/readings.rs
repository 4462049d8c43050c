//! Samples of sockets, leg by leg.

use std::collections::HashMap;
use std::time::Duration;

use midspan_linux::tcp::{Information, TcpSocket};
use midspan_units::{Time, TimeSpan};

use super::LegName;
use super::legs::SendingEnd;

/// Samples kept of all connections of a run.
const SAMPLE_LIMIT: usize = 1_000_000;
/// Connections of a run, each at its sending ends.
const CONNECTION_LIMIT: usize = 4_096;
/// Sockets whose numbers are kept, also those that belong to no flow.
const SOCKET_LIMIT: usize = 65_536;

/// The state of a sending socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketSample {
    /// When it was read, since the start of the run.
    pub at: Time,
    /// The leg, by its index in [`SocketSeries::legs`].
    pub leg: usize,
    /// The congestion window in bytes: segments times the segment size.
    pub cwnd: u64,
    /// The slow-start threshold in bytes; `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// Bytes of the segments that were sent and not acknowledged, as full segments.
    pub in_flight: u64,
    /// The smoothed round-trip time.
    pub round_trip: Option<TimeSpan>,
}

/// All that was read in a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketSeries {
    /// The legs; a flow with several connections has several with the same number.
    pub legs: Vec<LegName>,
    /// The samples, in order of time; none if nothing has changed since the last one of the same leg.
    pub samples: Vec<SocketSample>,
    /// Samples that found no room.
    pub left_out: u64,
    /// Whether connections are missing, because there were too many.
    pub has_left_out_connections: bool,
    /// The longest time between the beginnings of two readings.
    pub longest_gap: TimeSpan,
}

/// The samples so far, and the sockets that are known.
pub(super) struct Readings {
    /// The names of the flows.
    flows: Vec<String>,
    /// The leg of each socket, by the kernel's number; `None` for a socket that is not recorded.
    known: HashMap<u64, Option<usize>>,
    /// The last sample of each leg.
    last: Vec<Option<SocketSample>>,
    made: SocketSeries,
}

impl Readings {
    /// No samples yet, for flows of these names.
    pub(super) fn new(flows: Vec<String>) -> Self {
        Self {
            flows,
            known: HashMap::new(),
            last: Vec::new(),
            made: SocketSeries::default(),
        }
    }

    /// A socket does not belong to the run.
    pub(super) fn ignore(&mut self, socket: &TcpSocket) {
        self.known.insert(socket.cookie, None);
    }

    /// A socket is in a list. Returns its leg if it is seen for the first time and belongs to a flow.
    pub(super) fn list(
        &mut self,
        at: Time,
        ends: &[SendingEnd],
        socket: &TcpSocket,
    ) -> Option<usize> {
        let known = self.known.get(&socket.cookie).copied();
        if let Some(known) = known {
            if let Some(leg) = known {
                self.add(at, leg, &socket.information);
            }
            return None;
        }
        let leg = self.meet(ends, socket)?;
        self.add(at, leg, &socket.information);
        Some(leg)
    }

    /// A time between two readings.
    pub(super) fn gap(&mut self, gap: Duration) {
        self.made.longest_gap = self.made.longest_gap.max(gap.into());
    }

    /// All that was read.
    pub(super) fn finish(self) -> SocketSeries {
        self.made
    }

    /// The state of a leg's socket.
    pub(super) fn add(&mut self, at: Time, leg: usize, information: &Information) {
        let sample = sample(at, leg, information);
        let Some(last) = self.last.get_mut(leg) else {
            return;
        };
        if last.is_some_and(|last| SocketSample { at, ..last } == sample) {
            return;
        }
        *last = Some(sample);
        if self.made.samples.len() < SAMPLE_LIMIT {
            self.made.samples.push(sample);
        } else {
            self.made.left_out += 1;
        }
    }

    /// A socket is seen for the first time. Returns its leg, if it belongs to a flow.
    fn meet(&mut self, ends: &[SendingEnd], socket: &TcpSocket) -> Option<usize> {
        let end = ends.iter().find(|end| end.is(socket.local, socket.remote));
        let has_room = self.made.legs.len() < CONNECTION_LIMIT && self.known.len() < SOCKET_LIMIT;
        let leg = end.filter(|_| has_room).and_then(|end| self.add_leg(end));
        self.made.has_left_out_connections |= end.is_some() && !has_room;
        if self.known.len() < SOCKET_LIMIT {
            self.known.insert(socket.cookie, leg);
        }
        leg
    }

    fn add_leg(&mut self, end: &SendingEnd) -> Option<usize> {
        let name = self.flows.get(end.flow)?;
        let same = |leg: &&LegName| leg.flow == end.flow && leg.leg == end.leg;
        let connection = self.made.legs.iter().filter(same).count();
        self.made.legs.push(LegName {
            flow: end.flow,
            name: match connection {
                0 => name.clone(),
                _ => format!("{name}/{connection}"),
            },
            leg: end.leg,
        });
        self.last.push(None);
        Some(self.made.legs.len() - 1)
    }
}

fn sample(at: Time, leg: usize, information: &Information) -> SocketSample {
    let segment = u64::from(information.segment_size());
    let bytes = |segments: u32| u64::from(segments) * segment;
    SocketSample {
        at,
        leg,
        cwnd: bytes(information.congestion_window()),
        ssthresh: information.slow_start_threshold().map(bytes),
        in_flight: bytes(information.unacknowledged()),
        round_trip: information.round_trip_time(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use midspan_linux::tcp::TcpSockets;
    use midspan_path::Path;

    use super::super::legs::sending_ends;
    use super::*;
    use crate::CaseKind;

    fn at(milliseconds: u64) -> Time {
        Time::from_nanoseconds(milliseconds * 1_000_000)
    }

    #[test]
    fn a_connection_is_a_leg_once_and_only_changes_are_samples() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let connect = |_| {
            (
                TcpStream::connect(server).unwrap(),
                listener.accept().unwrap(),
            )
        };
        let connections: Vec<_> = (0..2).map(connect).collect();
        let mut found = Vec::new();
        let list = TcpSockets::open().unwrap();
        list.each(|socket| found.extend((socket.local == server).then_some(socket)))
            .unwrap();
        assert_eq!(found.len(), connections.len());
        let path = Path::load("geo").unwrap();
        let names: Vec<String> = path.flows.iter().map(|flow| flow.name.clone()).collect();
        let ends = sending_ends(&path, CaseKind::Direct, &[1], |_| server.ip());
        let mut readings = Readings::new(names.clone());
        assert_eq!(readings.list(at(1), &ends, &found[0]), Some(0));
        assert_eq!(readings.list(at(2), &ends, &found[0]), None);
        assert_eq!(readings.list(at(3), &ends, &found[1]), Some(1));
        readings.add(at(4), 1, &found[1].information);
        let series = readings.finish();
        let legs: Vec<_> = series.legs.iter().map(|leg| leg.name.clone()).collect();
        assert_eq!(legs, [names[1].clone(), format!("{}/1", names[1])]);
        // Nothing has changed after the first sample of each.
        let samples: Vec<_> = series.samples.iter().map(|one| (one.at, one.leg)).collect();
        assert_eq!(samples, [(at(1), 0), (at(3), 1)]);
        let known = &found[0].information;
        let window = u64::from(known.congestion_window()) * u64::from(known.segment_size());
        assert!(window > 0);
        assert_eq!(series.samples[0].cwnd, window);
    }

    #[test]
    fn a_connection_from_before_the_run_is_no_leg() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let _client = TcpStream::connect(server).unwrap();
        let path = Path::load("geo").unwrap();
        let ends = sending_ends(&path, CaseKind::Direct, &[0], |_| server.ip());
        let mut readings = Readings::new(vec!["flow".to_owned()]);
        let list = TcpSockets::open().unwrap();
        list.each(|socket| readings.ignore(&socket)).unwrap();
        let mut count = 0;
        list.each(|socket| {
            if socket.local == server {
                assert_eq!(readings.list(at(1), &ends, &socket), None);
                count += 1;
            }
        })
        .unwrap();
        assert_eq!(count, 1);
        assert_eq!(readings.finish(), SocketSeries::default());
    }
}
