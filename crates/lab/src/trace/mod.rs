//! Time series and captures of runs.
//!
//! A thread reads the sockets; queues, rates and captures come from the emulator, whose threads see
//! every frame anyway ([`emulator::Recording`](crate::emulator::Recording)). All lists have limits; a trace
//! that is not complete has [`notes`](RunTrace::notes).

mod legs;
mod plots;
mod readings;
mod sampler;

use std::io::{self, Write};
use std::path::Path as FilePath;

use midspan_path::{Direction, LinkIndex, NodeIndex, Path};
use midspan_units::TimeSpan;

use crate::emulator::frame_capture::{self, CaptureWriter};
use crate::emulator::{CaptureCounts, Recorded, Recording, SeriesIntervals};
use crate::error::at;
use crate::topology::Topology;
use crate::{Case, LabError};
pub use plots::sections;
pub use readings::{SocketSample, SocketSeries};
use sampler::{Prepared, Sampler};

/// The intervals of rates, unless those of the other series are longer.
const RATE_INTERVAL: TimeSpan = TimeSpan::from_milliseconds(100);

/// What is recorded of each run.
#[derive(Default)]
pub struct Tracing<'a> {
    /// Read the sockets that send data.
    pub sockets: bool,
    /// Record the queue and the rate of each direction of each link.
    pub links: bool,
    /// The shortest time between two samples.
    pub interval: TimeSpan,
    /// Where captures are written; `None`: there are none.
    pub captures: Option<OpenCapture<'a>>,
}

/// Opens the output of a capture. For a run that is repeated it is called again, and the earlier output
/// does not count.
pub type OpenCapture<'a> = &'a mut dyn FnMut(&CaptureName<'_>) -> io::Result<Box<dyn Write + Send>>;

/// Which run a trace is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunName {
    /// The case's name.
    pub case: &'static str,
    /// The flows that run at the same time, by their place among those of the path, from 0.
    pub group: usize,
    /// The number of the repetition, from 0.
    pub repetition: u32,
    /// Seed of the links' random draws.
    pub seed: u64,
}

/// Which capture of a run.
#[derive(Debug, Clone, Copy)]
pub struct CaptureName<'a> {
    /// The run.
    pub run: &'a RunName,
    /// The node at whose interface packets are captured.
    pub node: &'a str,
    /// The link of the interface.
    pub link: &'a str,
}

/// A connection's leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegName {
    /// The flow's position in the path file.
    pub flow: usize,
    /// The flow's name; from the second connection on with `/` and a number.
    pub name: String,
    /// The number of the leg, from 1, in the direction of the data.
    pub leg: usize,
}

/// The traces of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTrace {
    /// The run.
    pub run: RunName,
    /// The flows that ran, by their positions in the path file.
    pub flows: Vec<usize>,
    /// What was read of sockets.
    pub sockets: SocketSeries,
    /// What each link recorded, in the order of the path file.
    pub links: Vec<Recorded>,
    /// What is missing, in one sentence each.
    pub notes: Vec<String>,
    /// The first recording that has failed; the run counts nevertheless.
    pub failure: Option<String>,
}

impl Tracing<'_> {
    /// Whether nothing is recorded.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.sockets && !self.links && self.captures.is_none()
    }
}

/// The recording of one run.
pub(crate) struct RunRecording {
    run: RunName,
    flows: Vec<usize>,
    interval: TimeSpan,
    sampler: Option<Sampler>,
    /// Each with its name for errors.
    writers: Vec<(String, CaptureWriter)>,
    has_links: bool,
}

impl RunRecording {
    /// Restarts the links of a run, and begins to record.
    pub fn begin(
        tracing: &mut Tracing<'_>,
        run: RunName,
        topology: &Topology,
        (path, case, group): (&Path, &Case, &[usize]),
    ) -> Result<Self, LabError> {
        let prepared: Option<Prepared> = tracing
            .sockets
            .then(|| Sampler::prepare(topology, path, case.kind, group))
            .transpose()?;
        let series = tracing.links.then(|| SeriesIntervals {
            queue: tracing.interval,
            rate: tracing.interval.max(RATE_INTERVAL),
        });
        let mut writers = Vec::new();
        topology.reset_links_recording(path, run.seed, |link| {
            let captures = match &mut tracing.captures {
                Some(open) => Some(captures(&mut **open, &run, path, link, &mut writers)?),
                None => None,
            };
            Ok(Recording { series, captures })
        })?;
        Ok(Self {
            sampler: prepared
                .map(|prepared| prepared.start(tracing.interval))
                .transpose()?,
            flows: group.to_vec(),
            interval: tracing.interval,
            writers,
            has_links: series.is_some() || tracing.captures.is_some(),
            run,
        })
    }

    /// Ends the recording. A recording that has failed does not make the run fail.
    pub fn finish(self, topology: &Topology, path: &Path) -> Result<RunTrace, LabError> {
        let sockets = self.sampler.map(Sampler::finish).transpose();
        let mut failure = sockets.as_ref().err().map(ToString::to_string);
        let sockets = sockets.ok().flatten().unwrap_or_default();
        let links: Vec<Recorded> = if self.has_links {
            topology
                .links()
                .map(crate::emulator::LinkEmulator::recorded)
                .collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        // All writers end, also after the first failure.
        for (place, writer) in self.writers {
            if let Err(error) = writer.finish() {
                failure.get_or_insert(format!("{place}: {error}"));
            }
        }
        let notes = notes(path, &sockets, &links, self.interval);
        Ok(RunTrace {
            run: self.run,
            flows: self.flows,
            sockets,
            links,
            notes,
            failure,
        })
    }
}

/// The captures at both ends of a link.
fn captures(
    open: &mut dyn FnMut(&CaptureName<'_>) -> io::Result<Box<dyn Write + Send>>,
    run: &RunName,
    path: &Path,
    link: LinkIndex,
    writers: &mut Vec<(String, CaptureWriter)>,
) -> Result<[frame_capture::EndCapture; 2], LabError> {
    let link = path.link(link);
    let mut begin = |node: NodeIndex| -> Result<_, LabError> {
        let node = &path.node(node).name;
        let name = CaptureName {
            run,
            node,
            link: &link.name,
        };
        let place = format!("capture at {node}, {}", link.name);
        let begun = open(&name).and_then(frame_capture::begin);
        let (end, writer) = begun.map_err(at(FilePath::new(&place)))?;
        writers.push((place, writer));
        Ok(end)
    };
    let [first, second] = link.between;
    Ok([begin(first)?, begin(second)?])
}

/// What is missing in the traces of a run.
fn notes(
    path: &Path,
    sockets: &SocketSeries,
    links: &[Recorded],
    interval: TimeSpan,
) -> Vec<String> {
    let mut notes = Vec::new();
    if sockets.left_out > 0 {
        notes.push(format!(
            "the traces of sockets are cut: {} samples found no room",
            sockets.left_out
        ));
    }
    if sockets.has_left_out_connections {
        notes.push("the traces of sockets lack connections: there were too many".to_owned());
    }
    if sockets.longest_gap > interval * 10 {
        let gap = midspan_report::units::format(sockets.longest_gap.as_seconds(), "s");
        notes.push(format!(
            "the traces of sockets have gaps of up to {gap} instead of {interval}: the machine was busy, \
             or there were many connections"
        ));
    }
    for (link, recorded) in path.links.iter().zip(links) {
        let name = &link.name;
        for (series, direction) in [
            (&recorded.up, Direction::Up),
            (&recorded.down, Direction::Down),
        ] {
            if series.left_out > 0 {
                let direction = direction.name();
                notes.push(format!(
                    "the traces of link \"{name}\", {direction}, are cut: {} samples found no room",
                    series.left_out
                ));
            }
        }
        for (CaptureCounts { missing, .. }, node) in recorded.captures.iter().zip(link.between) {
            if *missing > 0 {
                notes.push(format!(
                    "the capture at {}, {name}, lacks {missing} packets: the disk was too slow, or there \
                     were too many",
                    path.node(node).name
                ));
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told() {
        let path = Path::load("geo").unwrap();
        let interval = TimeSpan::from_milliseconds(10);
        let mut sockets = SocketSeries::default();
        let mut links = vec![Recorded::default(), Recorded::default()];
        assert_eq!(
            notes(&path, &sockets, &links, interval),
            Vec::<String>::new()
        );
        sockets.left_out = 3;
        sockets.has_left_out_connections = true;
        sockets.longest_gap = TimeSpan::from_milliseconds(250);
        links[0].down.left_out = 7;
        links[1].captures[0].missing = 9;
        let notes = notes(&path, &sockets, &links, interval);
        assert_eq!(notes.len(), 5);
        let all = notes.join("\n");
        for part in [
            "3 samples",
            "250 ms instead of 10 ms",
            "down, are cut: 7",
            "lacks 9 packets",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
    }
}
