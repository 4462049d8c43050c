//! A link between two namespaces: packet sockets before and behind the stages of the link crate.
//!
//! Each node's interface is one end of a veth pair. The other end, its *tap*, is in the emulator's
//! namespace. A frame that a node sends arrives at the node's tap, passes the stages of its
//! direction in real time, and leaves through the other node's tap. One thread serves one link.
//!
//! The time of arrival is the kernel's stamp, not the time at which the thread reads the frame, so
//! a thread that wakes up late does not add to the delay. The emulator records how late each frame
//! left.

mod direction;
mod frame;
pub mod frame_capture;
mod packet;
mod seconds;
mod series;
mod thread;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use midspan_link::Configuration;
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::packet_socket::{PacketSocket, Sight};
use midspan_units::TimeSpan;
use rustix::event::EventfdFlags;
use serde::{Deserialize, Serialize};

use direction::Direction;
pub use direction::{BIN, DirectionReport, Lateness};
pub use frame_capture::{CaptureCounts, EndCapture};
pub use seconds::Second;
pub use series::{DirectionSeries, QueueSample};

use crate::LabError;

/// Frames that may wait at a tap for the emulator: 32 MiB of ring buffer.
const RING_SLOTS: usize = 16_384;

/// The configuration of both directions of a link, and the seed of their random streams.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The link's name; part of the seed.
    pub name: String,
    /// From the first node to the second.
    pub up: Configuration,
    /// From the second node to the first.
    pub down: Configuration,
    /// Seed of the run.
    pub seed: u64,
}

/// The traffic of a link since its last reset.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LinkReport {
    /// From the first node to the second.
    pub up: DirectionReport,
    /// From the second node to the first.
    pub down: DirectionReport,
    /// Frames that the kernel dropped because the emulator did not keep up.
    pub kernel_drops: u64,
}

/// What a link records in addition to its report.
#[derive(Debug, Default)]
pub struct Recording {
    /// The series of both directions, in these intervals.
    pub series: Option<SeriesIntervals>,
    /// A capture at the end of the first node, and at the end of the second.
    pub captures: Option<[EndCapture; 2]>,
}

/// The intervals of series.
#[derive(Debug, Clone, Copy)]
pub struct SeriesIntervals {
    /// Of queues.
    pub queue: TimeSpan,
    /// Of rates.
    pub rate: TimeSpan,
}

/// What a link has recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    /// From the first node to the second.
    pub up: DirectionSeries,
    /// From the second node to the first.
    pub down: DirectionSeries,
    /// The captures at the end of the first node, and at the end of the second.
    pub captures: [CaptureCounts; 2],
}

enum Command {
    /// Discard all frames on the link and start again.
    Reset(
        Box<(Direction, Direction)>,
        Box<Recording>,
        mpsc::Sender<()>,
    ),
    Report(mpsc::Sender<LinkReport>),
    /// End the recording.
    Recorded(mpsc::Sender<Recorded>),
    Stop,
}

/// A running link.
pub struct LinkEmulator {
    name: String,
    commands: mpsc::Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl LinkEmulator {
    /// Starts the link between two taps in the emulator's namespace.
    pub fn start(
        namespace: &NetworkNamespace,
        first_tap: &str,
        second_tap: &str,
        setup: Setup,
    ) -> Result<Self, LabError> {
        let directions = prepare(&setup)?;
        let name = setup.name.clone();
        let failed = |action| {
            let link = name.clone();
            move |source| LabError::Emulator {
                link,
                action,
                source,
            }
        };
        let open = |tap: &str| {
            let tap = tap.to_owned();
            namespace
                .run(move || PacketSocket::open(&tap, RING_SLOTS, Sight::Incoming))?
                .map_err(failed("open a packet socket"))
        };
        let (first, second) = (open(first_tap)?, open(second_tap)?);
        let wake = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| failed("open an event descriptor")(error.into()))?;
        let wake = Arc::new(wake);
        let (commands, queue) = mpsc::channel();
        let thread = thread::LinkThread::new(directions, first, second, Arc::clone(&wake), queue);
        let thread = std::thread::Builder::new()
            .name(format!("link {name}"))
            .spawn(move || thread.run())
            .map_err(failed("start a thread"))?;
        Ok(Self {
            name,
            commands,
            wake,
            thread: Some(thread),
        })
    }

    /// Discards all frames on the link and starts again with `setup`: clocks, counters, random
    /// streams, `recording`.
    pub fn reset(&self, setup: &Setup, recording: Recording) -> Result<(), LabError> {
        let (done, wait) = mpsc::channel();
        let mut directions = prepare(setup)?;
        if let Some(intervals) = recording.series {
            directions.0.record(intervals);
            directions.1.record(intervals);
        }
        self.send(Command::Reset(directions, Box::new(recording), done))?;
        wait.recv().map_err(|_| self.ended())
    }

    /// Ends the recording that began with the last reset, and returns it.
    pub fn recorded(&self) -> Result<Recorded, LabError> {
        let (recorded, wait) = mpsc::channel();
        self.send(Command::Recorded(recorded))?;
        wait.recv().map_err(|_| self.ended())
    }

    /// The traffic since the last reset.
    pub fn report(&self) -> Result<LinkReport, LabError> {
        let (report, wait) = mpsc::channel();
        self.send(Command::Report(report))?;
        wait.recv().map_err(|_| self.ended())
    }

    fn send(&self, command: Command) -> Result<(), LabError> {
        self.commands.send(command).map_err(|_| self.ended())?;
        // If the counter is full, it wakes the thread as well.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        Ok(())
    }

    fn ended(&self) -> LabError {
        LabError::EmulatorEnded(self.name.clone())
    }
}

fn prepare(setup: &Setup) -> Result<Box<(Direction, Direction)>, LabError> {
    Direction::pair(setup)
        .map_err(|error| LabError::Unsupported(format!("link \"{}\": {error}", setup.name)))
}

impl Drop for LinkEmulator {
    fn drop(&mut self) {
        let _ = self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
