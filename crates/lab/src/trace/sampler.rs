//! A thread that reads the sockets of a run.
//!
//! The sockets belong to the programs under test, so the thread queries the kernel for them (sock_diag(7));
//! the programs do not notice. There are two queries: the list of all connections, which finds new ones and
//! takes the kernel up to two milliseconds for each host, because it looks through its whole table of connections;
//! and a single known connection, which takes some microseconds. After a list, the thread queries no list for at least
//! [`LIST_PAUSE`] times the processor time that the answers took, and after the single queries of all known connections no
//! connection for [`PAUSE`] times their time. So lists use at most 4 % of one processor and single queries 1 %, however many
//! connections there are. Of two answers of a kind that follow each other, the shorter time counts,
//! so a single long one may exceed these shares ([`Cost`]).

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_linux::tcp::{SocketName, TcpSockets};
use midspan_path::{NodeIndex, Path};
use midspan_units::{Time, TimeSpan};
use rustix::time::{ClockId, clock_gettime};

use super::legs::{SendingEnd, sending_ends};
use super::readings::{Readings, SocketSeries};
use crate::topology::Topology;
use crate::{CaseKind, LabError};

/// The pause after the queries of all known connections, at least, as a multiple of the processor time that the answers took.
const PAUSE: u32 = 99;
/// The same after a list. With the factor above, three hosts would be listed twice a second, and short runs not seen.
const LIST_PAUSE: u32 = 24;
/// The shortest time between two lists of all connections.
const LIST_INTERVAL: Duration = Duration::from_millis(50);

/// What the answers of one kind of query cost.
///
/// A single answer may take many times as long as the others: it finds cold caches, or the host of a virtual machine
/// runs another machine meanwhile. The pause after it would be longer than a short run, of which nothing would be read.
#[derive(Debug, Default)]
struct Cost {
    last: Duration,
}

impl Cost {
    /// The shorter one of the processor times of this answer and of the one before; the first answer costs nothing.
    fn of(&mut self, used: Duration) -> Duration {
        std::mem::replace(&mut self.last, used).min(used)
    }
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
        let flows = path.flows.iter().map(|flow| flow.name.clone()).collect();
        let mut readings = Readings::new(flows);
        let mut watched = Vec::new();
        for node in nodes {
            let sockets = topology.node(node).run(TcpSockets::open)?;
            let sockets = sockets.map_err(failed)?;
            sockets
                .each(|socket| readings.ignore(&socket))
                .map_err(failed)?;
            watched.push(Watched {
                sockets,
                ends: ends
                    .iter()
                    .filter(|end| end.node == node)
                    .cloned()
                    .collect(),
                active: Vec::new(),
            });
        }
        Ok(Prepared { watched, readings })
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

/// The sockets of a node.
struct Watched {
    sockets: TcpSockets,
    ends: Vec<SendingEnd>,
    /// The connections that are read, each with its leg.
    active: Vec<(SocketName, usize)>,
}

impl Prepared {
    /// Starts to read, at most once in `interval`. The run begins now.
    pub fn start(self, interval: TimeSpan) -> Result<Sampler, LabError> {
        let (stop, stopped) = channel();
        let start = Instant::now();
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || self.read_until(&stopped, start, interval.into()))
            .map_err(failed)?;
        Ok(Sampler { stop, thread })
    }

    fn read_until(
        mut self,
        stopped: &Receiver<()>,
        start: Instant,
        interval: Duration,
    ) -> io::Result<SocketSeries> {
        let (mut before, mut next_list) = (start, start);
        let (mut of_lists, mut of_reads) = (Cost::default(), Cost::default());
        loop {
            let (begin, used) = (Instant::now(), processor_time());
            let at = Time::ZERO + TimeSpan::from(begin.duration_since(start));
            self.readings.gap(begin.duration_since(before));
            before = begin;
            let wait = if begin >= next_list {
                self.list(at)?;
                let now = Instant::now();
                let taken = now.duration_since(begin);
                let used = of_lists.of(processor_time() - used);
                next_list = now + pause(LIST_INTERVAL, taken, used * LIST_PAUSE);
                interval.saturating_sub(taken)
            } else {
                self.read(at)?;
                let used = of_reads.of(processor_time() - used);
                pause(interval, begin.elapsed(), used * PAUSE)
            };
            match stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(self.readings.finish()),
            }
        }
    }

    /// Queries the list of all connections.
    fn list(&mut self, at: Time) -> io::Result<()> {
        for node in &mut self.watched {
            let Watched {
                sockets,
                ends,
                active,
            } = node;
            sockets.each(|socket| {
                let leg = self.readings.list(at, ends, &socket);
                active.extend(leg.map(|leg| (socket.name, leg)));
            })?;
        }
        Ok(())
    }

    /// Queries the known connections, one after another.
    fn read(&mut self, at: Time) -> io::Result<()> {
        for node in &mut self.watched {
            let mut place = 0;
            while let Some((name, leg)) = node.active.get(place) {
                match node.sockets.read(name)? {
                    Some(socket) => {
                        self.readings.add(at, *leg, &socket.information);
                        place += 1;
                    }
                    // The connection has ended.
                    None => {
                        node.active.swap_remove(place);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The pause after a query whose answer took `taken`, so that the next one comes after `interval`, but not before `least`.
fn pause(interval: Duration, taken: Duration, least: Duration) -> Duration {
    interval.saturating_sub(taken).max(least)
}

/// The processor time of this thread. Unlike real time, it does not grow while other programs run.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
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
    fn an_answer_that_takes_long_makes_the_pause_long() {
        let ms = Duration::from_millis;
        let us = Duration::from_micros;
        assert_eq!(pause(ms(10), us(10), us(10) * PAUSE), us(9_990));
        assert_eq!(pause(ms(10), us(100), us(100) * PAUSE), us(9_900));
        // A hundredth of the time, and a twenty-fifth.
        assert_eq!(pause(ms(10), ms(1), ms(1) * PAUSE), ms(99));
        assert_eq!(pause(LIST_INTERVAL, ms(6), ms(6) * LIST_PAUSE), ms(144));
        // Another program had the processor meanwhile.
        assert_eq!(pause(LIST_INTERVAL, ms(20), us(100) * LIST_PAUSE), ms(30));
        assert_eq!(
            pause(LIST_INTERVAL, ms(80), us(100) * LIST_PAUSE),
            us(2_400)
        );
    }

    #[test]
    fn one_long_answer_makes_no_pause_long() {
        let us = Duration::from_micros;
        let mut cost = Cost::default();
        let costs = [9_000, 100, 20_000, 110, 700, 800].map(|used| cost.of(us(used)));
        assert_eq!(costs, [0, 100, 100, 110, 110, 700].map(us));
    }

    #[test]
    fn sleep_takes_no_processor_time() {
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(50));
        assert!(processor_time() - before < Duration::from_millis(40));
    }
}
