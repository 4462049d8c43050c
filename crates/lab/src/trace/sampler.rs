//! A thread that reads the sockets of a run.
//!
//! The sockets belong to the programs under test, so the kernel is asked for them (sock_diag(7)); the
//! programs do not notice. A reading takes a socket's lock for about a microsecond. After a reading, the
//! thread pauses for at least [`PAUSE`] times as long as the reading took, so it never uses more than a
//! fiftieth of one processor, however many connections there are.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_linux::tcp::{Information, TcpSocket, TcpSockets};
use midspan_path::{NodeIndex, Path};
use midspan_units::{Time, TimeSpan};

use super::LegName;
use super::legs::{SendingEnd, sending_ends};
use crate::topology::Topology;
use crate::{CaseKind, LabError};

/// The pause after a reading, at least, as a multiple of the time that the reading took.
const PAUSE: u32 = 49;
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
    /// Number of readings.
    pub readings: u64,
    /// The longest time between the beginnings of two readings.
    pub longest_gap: TimeSpan,
}

/// A running thread.
pub struct Sampler {
    /// Dropped to stop it.
    stop: Sender<()>,
    thread: JoinHandle<io::Result<SocketSeries>>,
}

impl Sampler {
    /// Opens the lists of sockets for the flows `group` under a case, and notes the connections that exist
    /// already, which do not belong to the run.
    pub fn prepare(
        topology: &Topology,
        path: &Path,
        case: CaseKind,
        group: &[usize],
    ) -> Result<Prepared, LabError> {
        let ends = sending_ends(path, case, group, |node| topology.address(node));
        let mut nodes: Vec<NodeIndex> = ends.iter().map(|end| end.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut watched = Vec::new();
        for node in nodes {
            let sockets = topology.node(node).run(TcpSockets::open)?;
            watched.push(Watched {
                sockets: sockets.map_err(failed)?,
                ends: ends
                    .iter()
                    .filter(|end| end.node == node)
                    .cloned()
                    .collect(),
            });
        }
        let mut known = HashMap::new();
        for node in &watched {
            let mut note = |socket: TcpSocket| {
                known.insert(socket.cookie, None);
            };
            node.sockets.each(&mut note).map_err(failed)?;
        }
        let flows = path.flows.iter().map(|flow| flow.name.clone()).collect();
        Ok(Prepared {
            watched,
            readings: Readings {
                flows,
                known,
                last: Vec::new(),
                made: SocketSeries::default(),
            },
        })
    }

    /// Ends the thread. All that it has read.
    pub fn finish(self) -> Result<SocketSeries, LabError> {
        drop(self.stop);
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map_err(failed)
    }
}

/// A sampler before the start of the run.
pub struct Prepared {
    watched: Vec<Watched>,
    readings: Readings,
}

impl Prepared {
    /// Starts to read, at most once in `interval`. The run begins now.
    pub fn start(mut self, interval: TimeSpan) -> Result<Sampler, LabError> {
        let (stop, stopped) = channel();
        let start = Instant::now();
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || self.read_until(&stopped, start, interval.into()))
            .map_err(failed)?;
        Ok(Sampler { stop, thread })
    }

    fn read_until(
        &mut self,
        stopped: &Receiver<()>,
        start: Instant,
        interval: Duration,
    ) -> io::Result<SocketSeries> {
        let mut before = start;
        loop {
            let begin = Instant::now();
            let at = Time::ZERO + TimeSpan::from(begin.duration_since(start));
            for node in &self.watched {
                node.sockets
                    .each(|socket| self.readings.add(at, &node.ends, &socket))?;
            }
            let made = &mut self.readings.made;
            made.readings += 1;
            made.longest_gap = made.longest_gap.max(begin.duration_since(before).into());
            before = begin;
            match stopped.recv_timeout(pause(interval, begin.elapsed())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(std::mem::take(&mut self.readings.made));
                }
            }
        }
    }
}

/// The pause after a reading that took `cost`.
fn pause(interval: Duration, cost: Duration) -> Duration {
    interval.saturating_sub(cost).max(cost * PAUSE)
}

/// The sockets of a node.
struct Watched {
    sockets: TcpSockets,
    ends: Vec<SendingEnd>,
}

/// The samples so far, and the sockets that are known.
struct Readings {
    /// The names of the flows.
    flows: Vec<String>,
    /// The leg of each socket, by the kernel's number; `None` for a socket that is not recorded.
    known: HashMap<u64, Option<usize>>,
    /// The last sample of each leg.
    last: Vec<Option<SocketSample>>,
    made: SocketSeries,
}

impl Readings {
    fn add(&mut self, at: Time, ends: &[SendingEnd], socket: &TcpSocket) {
        let leg = match self.known.get(&socket.cookie) {
            Some(leg) => *leg,
            None => self.meet(ends, socket),
        };
        let Some(leg) = leg else {
            return;
        };
        let sample = sample(at, leg, &socket.information);
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

fn failed(source: io::Error) -> LabError {
    LabError::Program {
        program: "sampler of sockets".into(),
        reason: source.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_takes_long_makes_the_pause_long() {
        let ms = Duration::from_millis;
        let us = Duration::from_micros;
        assert_eq!(pause(ms(10), us(100)), us(9_900));
        assert_eq!(pause(ms(10), us(200)), us(9_800));
        // A fiftieth of the time.
        assert_eq!(pause(ms(10), ms(1)), ms(49));
        assert_eq!(pause(ms(1), ms(3)), ms(147));
    }
}
