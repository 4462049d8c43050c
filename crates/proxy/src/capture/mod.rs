//! `midspan capture`: the packets of both legs of one session.
//!
//! | module | content |
//! | --- | --- |
//! | `legs` | the leg to which a packet belongs |
//!
//! The process of this command reads the packets. The relay may not read packets; it only reports the
//! addresses of the session.

mod legs;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use midspan_linux::netlink::{Netlink, NetlinkError};
use midspan_linux::packet_filter;
use midspan_linux::packet_socket::{PacketSocket, Received, Sight};
use midspan_policy::Leg;
use midspan_wire::capture::{InterfacePacket, PcapngWriter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use crate::client::{self, ClientError, Place as Proxy};
use legs::{Legs, Segment};

/// Longest part of a packet that can be kept: a packet socket's slot without its header.
pub const SNAP_LIMIT: usize = 1900;

/// Packets that may wait in the kernel for each interface.
const RING_SLOTS: usize = 16_384;
/// How often the capture checks whether the session still exists.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Time for the last ACKs after the session's end.
const LAST_PACKETS: Duration = Duration::from_millis(500);
/// Packets read from one interface before the other has its turn.
const PACKETS_PER_TURN: usize = 256;
/// Time between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// What to capture.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// Where the running Midspan answers.
    pub proxy: Proxy,
    /// Number of the session.
    pub session: u64,
    /// The file to write.
    pub output: PathBuf,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Stop after this many packets.
    pub packets: u64,
    /// Keep this many bytes of each packet, at most [`SNAP_LIMIT`].
    pub snap: usize,
    /// Interface of the client leg; `None`: from the routing table.
    pub client_interface: Option<String>,
    /// Interface of the server leg; `None`: from the routing table.
    pub server_interface: Option<String>,
}

/// The progress of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Interface of the client leg, and of the server leg.
    pub interfaces: [String; 2],
    /// Packets of the client leg, and of the server leg.
    pub packets: [u64; 2],
    /// Size of the file.
    pub bytes: u64,
    /// Packets that could not be kept because they arrived too fast, of all connections between the
    /// same ports.
    pub missed: u64,
}

/// Why a capture ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureEnd {
    /// The session has ended.
    SessionEnded,
    /// The proxy no longer answers.
    ProxyGone,
    /// The user has stopped it.
    Stopped,
    /// [`CaptureOptions::duration`] is over.
    TimeOver,
    /// [`CaptureOptions::packets`] are written.
    PacketLimit,
}

/// Why a capture cannot be made.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The proxy does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no such session.
    #[error("session {0} does not exist, or has ended (GET /sessions shows the live ones)")]
    NoSession(u64),
    /// The addresses of the session are unknown.
    #[error("session {0} has no two connected legs: it is being opened, or about to end")]
    NotConnected(u64),
    /// The interface of a leg is unknown.
    #[error("{0} (name the interfaces: --client-interface, --server-interface)")]
    Route(#[from] NetlinkError),
    /// Packets cannot be captured.
    #[error("cannot capture at {interface}: {source}{}", hint(.source))]
    Interface {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", .file.display())]
    Output {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another call of the system failed.
    #[error("cannot wait for packets: {0}")]
    Wait(#[source] io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (run as root, or give the program the capability: setcap cap_net_raw+ep)"
        }
        _ => "",
    }
}

/// Captures until the session ends, a limit is reached or `stop` is set.
///
/// # Errors
/// The capture cannot begin; later, the file cannot be written.
pub fn capture(
    options: &CaptureOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Captured),
) -> Result<(Captured, CaptureEnd), CaptureError> {
    let session = client::session(&options.proxy, options.session)?
        .ok_or(CaptureError::NoSession(options.session))?;
    let legs = Legs::of(&session)?;
    let interfaces = interfaces(options, &legs)?;
    let places = open(&interfaces, &legs)?;
    let mut run = Run::begin(options, legs, interfaces)?;
    let (_running, ended) = watch(options.proxy.clone(), options.session);
    let result = run.take_all(places, stop, &ended, progress);
    let end = result?;
    let captured = run.captured.clone();
    run.writer.finish().map_err(output_failed(options))?;
    Ok((captured, end))
}

fn interfaces(options: &CaptureOptions, legs: &Legs) -> Result<[String; 2], CaptureError> {
    let netlink = Netlink::open()?;
    let find = |given: &Option<String>, peer: SocketAddr| match given {
        Some(name) => Ok(name.clone()),
        None => netlink.interface_towards(peer.ip()),
    };
    Ok([
        find(&options.client_interface, legs.client.peer)?,
        find(&options.server_interface, legs.server.peer)?,
    ])
}

/// A place at which packets are captured.
struct Place {
    socket: PacketSocket,
    /// The leg whose packets are captured here; `None`: both legs.
    leg: Option<Leg>,
}

/// One socket for each leg. If both legs have the same addresses and are on one interface, one
/// socket for both.
fn open(interfaces: &[String; 2], legs: &Legs) -> Result<Vec<Place>, CaptureError> {
    let is_one = legs.are_alike() && interfaces[0] == interfaces[1];
    let mut places = Vec::new();
    for (interface, (leg, ends)) in interfaces
        .iter()
        .zip([(Leg::Client, legs.client), (Leg::Server, legs.server)])
        .take(if is_one { 1 } else { 2 })
    {
        let filter = packet_filter::tcp_between(ends.local.port(), ends.peer.port());
        let socket = PacketSocket::open_filtered(interface, RING_SLOTS, Sight::Both, &filter);
        let socket = socket.map_err(|source| CaptureError::Interface {
            interface: interface.clone(),
            source,
        })?;
        let leg = (!is_one).then_some(leg);
        places.push(Place { socket, leg });
    }
    Ok(places)
}

/// Queries the session repeatedly, in a thread of its own, which ends with the returned sender. The
/// receiver gets the reason for the end of the capture.
fn watch(proxy: Proxy, session: u64) -> (Sender<()>, Receiver<CaptureEnd>) {
    let (running, stopped) = channel();
    let (found, ended) = channel();
    std::thread::spawn(move || {
        while stopped.recv_timeout(WATCH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let end = match client::session(&proxy, session) {
                Ok(Some(_)) => continue,
                Ok(None) => CaptureEnd::SessionEnded,
                Err(_) => CaptureEnd::ProxyGone,
            };
            // The receiver may have ended meanwhile.
            let _ = found.send(end);
            return;
        }
    });
    (running, ended)
}

fn output_failed(options: &CaptureOptions) -> impl Fn(io::Error) -> CaptureError + use<> {
    let file = options.output.clone();
    move |source| CaptureError::Output {
        file: file.clone(),
        source,
    }
}

/// Makes the file. It contains the data of clients and servers, so only its owner may read it. An
/// existing file, or a link to one, is not changed.
fn create(path: &Path) -> io::Result<File> {
    let options = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    options.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => io::Error::new(
            ErrorKind::AlreadyExists,
            "it is there already: remove it, or name another one",
        ),
        _ => error,
    })
}

/// A capture that is running.
struct Run<'a> {
    options: &'a CaptureOptions,
    legs: Legs,
    writer: PcapngWriter<BufWriter<File>>,
    captured: Captured,
}

impl<'a> Run<'a> {
    fn begin(
        options: &'a CaptureOptions,
        legs: Legs,
        interfaces: [String; 2],
    ) -> Result<Self, CaptureError> {
        let failed = output_failed(options);
        let file = create(&options.output).map_err(&failed)?;
        let mut writer = PcapngWriter::begin(BufWriter::new(file)).map_err(&failed)?;
        let ends = [legs.client, legs.server];
        for ((name, interface), ends) in ["client leg", "server leg"]
            .iter()
            .zip(&interfaces)
            .zip(ends)
        {
            let description = format!("{interface}: {} to {}", ends.local, ends.peer);
            let snap = u32::try_from(options.snap).unwrap_or(u32::MAX);
            writer.describe(name, &description, snap).map_err(&failed)?;
        }
        let bytes = writer.written();
        Ok(Self {
            options,
            legs,
            writer,
            captured: Captured {
                interfaces,
                packets: [0; 2],
                bytes,
                missed: 0,
            },
        })
    }

    fn take_all(
        &mut self,
        mut places: Vec<Place>,
        stop: &AtomicBool,
        ended: &Receiver<CaptureEnd>,
        progress: &mut dyn FnMut(&Captured),
    ) -> Result<CaptureEnd, CaptureError> {
        let start = Instant::now();
        let mut next_progress = start;
        let mut last: Option<(CaptureEnd, Instant)> = None;
        loop {
            let is_full = self.take_some(&mut places)?;
            let now = Instant::now();
            if now >= next_progress {
                next_progress = now + PROGRESS_INTERVAL;
                self.count_missed(&places);
                progress(&self.captured);
            }
            if last.is_none()
                && let Ok(end) = ended.try_recv()
            {
                last = Some((end, now + LAST_PACKETS));
            }
            let is_over = |limit: Duration| now.duration_since(start) >= limit;
            let end = if is_full {
                CaptureEnd::PacketLimit
            } else if stop.load(Ordering::Relaxed) {
                CaptureEnd::Stopped
            } else if self.options.duration.is_some_and(is_over) {
                CaptureEnd::TimeOver
            } else if let Some((end, at)) = last
                && now >= at
            {
                end
            } else {
                wait(&places)?;
                continue;
            };
            self.count_missed(&places);
            return Ok(end);
        }
    }

    /// Writes waiting packets, a limited number of each socket; returns whether the limit is
    /// reached.
    fn take_some(&mut self, places: &mut [Place]) -> Result<bool, CaptureError> {
        for Place { socket, leg } in places {
            for _ in 0..PACKETS_PER_TURN {
                match socket.receive(|received| self.take(&received, *leg)) {
                    None => break,
                    Some(written) => written.map_err(output_failed(self.options))?,
                }
                if self.captured.packets.iter().sum::<u64>() >= self.options.packets {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn take(&mut self, received: &Received<'_>, only: Option<Leg>) -> io::Result<()> {
        let bytes = received.frame.get(received.network..).unwrap_or_default();
        let leg = Segment::read(bytes, received.is_outgoing)
            .and_then(|segment| self.legs.leg_of(&segment))
            .filter(|leg| only.is_none_or(|only| only == *leg));
        let place = match leg {
            None => return Ok(()),
            Some(Leg::Client) => 0,
            Some(Leg::Server) => 1,
        };
        self.captured.packets[place] += 1;
        self.writer.write(&InterfacePacket {
            interface: if place == 0 { 0 } else { 1 },
            at: received.at,
            is_outgoing: received.is_outgoing,
            length: received.length.saturating_sub(received.network),
            bytes: &bytes[..bytes.len().min(self.options.snap)],
        })?;
        self.captured.bytes = self.writer.written();
        Ok(())
    }

    fn count_missed(&mut self, places: &[Place]) {
        for place in places {
            self.captured.missed += place.socket.take_drops().map_or(0, u64::from);
        }
    }
}

fn wait(places: &[Place]) -> Result<(), CaptureError> {
    let mut descriptors: Vec<PollFd<'_>> = places
        .iter()
        .map(|place| PollFd::new(&place.socket, PollFlags::IN))
        .collect();
    match poll(&mut descriptors, Some(&WAIT)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(CaptureError::Wait(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_for_its_owner_and_replaces_no_file() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new.pcapng");
        let created = create(&file).unwrap();
        assert_eq!(
            created.metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
        std::fs::write(&file, "precious").unwrap();
        let link = directory.path().join("link.pcapng");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let dangling = directory.path().join("dangling.pcapng");
        std::os::unix::fs::symlink(directory.path().join("target"), &dangling).unwrap();
        for path in [&file, &link, &dangling] {
            let error = create(path).unwrap_err();
            assert!(error.to_string().contains("there already"), "{error}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        assert!(!directory.path().join("target").exists());
    }
}
