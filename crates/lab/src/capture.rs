//! Captures at a node's own interface, with a clock that is not the emulator's.
//!
//! The kernel stamps each packet when it enters or leaves the node; the emulator is not involved.
//! The capture works for an ordinary user; tcpdump does not, because it always changes its user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::packet_socket::{PacketSocket, Received, Sight};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::LabError;

/// Frames that may wait for the capturing thread.
const RING_SLOTS: usize = 8_192;
/// Bytes kept of each frame: its headers and a probe's number.
const SNAP_LENGTH: usize = 96;
/// Most packets kept. If more arrive, the capture fails.
const PACKET_LIMIT: usize = 2_000_000;
/// How long a packet that has just passed the interface may take to reach the thread.
const LAST_WAIT: Duration = Duration::from_millis(100);
const ETHERNET_HEADER: usize = 14;

/// Selects the packets to keep, by their first bytes from the Ethernet header on.
pub type Filter = fn(&[u8]) -> bool;

/// One captured packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Time of capture on the real-time clock, since 1970.
    pub at: Duration,
    /// Its length at the network layer in bytes.
    pub length: usize,
    /// Its first bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// A running capture of one interface.
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<Vec<Captured>>>>,
}

impl Capture {
    /// Starts to keep the packets that pass `interface` of `node` in either direction and match
    /// `filter`.
    pub fn start(
        node: &NetworkNamespace,
        interface: &str,
        filter: Filter,
    ) -> Result<Self, LabError> {
        let interface = interface.to_owned();
        let socket = node
            .run(move || PacketSocket::open(&interface, RING_SLOTS, Sight::Both))?
            .map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || keep(socket, filter, &stopped))
            .map_err(failed)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the capture. If packets are missing, this is an error, because an incomplete capture
    /// proves nothing.
    pub fn finish(mut self) -> Result<Vec<Captured>, LabError> {
        std::thread::sleep(LAST_WAIT);
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        thread.map_or_else(
            || Ok(Vec::new()),
            |thread| {
                let kept = thread.join();
                kept.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    .map_err(failed)
            },
        )
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(
    mut socket: PacketSocket,
    filter: Filter,
    stop: &AtomicBool,
) -> std::io::Result<Vec<Captured>> {
    let mut kept = Vec::new();
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    while !stop.load(Ordering::Relaxed) {
        while let Some(packet) = socket.receive(|received| captured(received, filter)) {
            kept.extend(packet);
            if kept.len() > PACKET_LIMIT {
                return Err(std::io::Error::other(
                    "more packets than a capture may keep",
                ));
            }
        }
        let mut waited = [PollFd::new(&socket, PollFlags::IN)];
        match rustix::event::poll(&mut waited, Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match socket.take_drops()? {
        0 => Ok(kept),
        missed => Err(std::io::Error::other(format!(
            "{missed} packets were not captured"
        ))),
    }
}

fn captured(received: Received<'_>, filter: Filter) -> Option<Captured> {
    let bytes = &received.frame[..received.frame.len().min(SNAP_LENGTH)];
    filter(bytes).then(|| Captured {
        at: received.at,
        length: received.length.saturating_sub(ETHERNET_HEADER),
        bytes: bytes.to_vec(),
    })
}

fn failed(source: std::io::Error) -> LabError {
    LabError::Program {
        program: "capture".into(),
        reason: source.to_string(),
    }
}
