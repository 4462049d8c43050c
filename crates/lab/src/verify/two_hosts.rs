//! Two hosts on one link, with captures at both ends.

use std::net::SocketAddr;
use std::time::Duration;

use midspan_path::{Direction, Link, LinkIndex, NodeIndex, Path};
use tempfile::TempDir;

use crate::capture::{Capture, Captured, Filter};
use crate::emulator::LinkReport;
use crate::error::at;
use crate::load::{Ticks, other_load};
use crate::topology::{Topology, interface};
use crate::validity::{Disturbance, Purpose, judge};
use crate::verify::probe::{self, Probe, Sink};
use crate::{LabError, Validity};

/// The host at the first end of the link.
pub const CLIENT: NodeIndex = NodeIndex(0);
/// The host at the second end.
pub const SERVER: NodeIndex = NodeIndex(1);
const LINK: LinkIndex = LinkIndex(0);

/// The running network.
pub struct TwoHosts {
    path: Path,
    topology: Topology,
    folder: TempDir,
}

/// The packets captured at both ends.
pub struct Seen {
    /// Packets at the sender's interface.
    pub sent: Vec<Captured>,
    /// Packets at the receiver's interface.
    pub received: Vec<Captured>,
    /// Whether the run is valid.
    pub validity: Validity,
}

impl TwoHosts {
    /// Builds the network; `link` is the lines of the path file's `[[link]]`.
    pub fn build(link: &str) -> Result<Self, LabError> {
        Self::build_with(link, |_| {})
    }

    /// Builds the network with a link that `change` has changed.
    pub fn build_with(link: &str, change: impl FnOnce(&mut Link)) -> Result<Self, LabError> {
        let text = format!(
            "[[host]]\nname = \"client\"\n[[host]]\nname = \"server\"\n\
             [[link]]\nname = \"link\"\nbetween = [\"client\", \"server\"]\n{link}\n\
             [[flow]]\nname = \"probe\"\nfrom = \"client\"\nto = \"server\"\n\
             workload = \"bulk-download\"\nduration = \"5 s\"\n"
        );
        let source = midspan_document::Source::new("verify", text);
        let mut path =
            Path::read(&source).map_err(|error| LabError::Unsupported(error.to_string()))?;
        change(&mut path.links[LINK.0]);
        let folder = tempfile::Builder::new()
            .prefix("midspan-verify-")
            .tempdir()
            .map_err(at(&std::env::temp_dir()))?;
        Ok(Self {
            topology: Topology::build(&path)?,
            path,
            folder,
        })
    }

    /// The network.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// A folder that is removed with this network.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Restarts the link with `seed`.
    pub fn reset(&self, seed: u64) -> Result<(), LabError> {
        self.topology.reset_links(&self.path, seed)
    }

    /// The traffic of the link.
    pub fn report(&self) -> Result<LinkReport, LabError> {
        self.topology.link(LINK).report()
    }

    /// Runs `work` while both ends capture the packets that match `filter`. Returns the result of
    /// `work`, the captures of client and server, and whether the run is valid.
    pub fn captured<T>(
        &self,
        filter: Filter,
        work: impl FnOnce() -> Result<T, LabError>,
    ) -> Result<(T, Vec<Captured>, Vec<Captured>, Validity), LabError> {
        let load = other_load();
        let ticks = Ticks::now();
        let start =
            |node: NodeIndex| Capture::start(self.topology.node(node), &interface(LINK), filter);
        let client = start(CLIENT)?;
        let server = start(SERVER)?;
        let result = work()?;
        let stolen = Ticks::now().stolen_since(ticks);
        let report = self.report()?;
        let disturbance = Disturbance::of_link(&report, load, stolen);
        let validity = judge(Purpose::Measurement, &disturbance);
        Ok((result, client.finish()?, server.finish()?, validity))
    }

    /// Sends probes in one direction and captures them at both ends.
    pub fn probe(
        &self,
        direction: Direction,
        probe: Probe,
        wait: Duration,
    ) -> Result<Seen, LabError> {
        let (from, to) = match direction {
            Direction::Up => (CLIENT, SERVER),
            Direction::Down => (SERVER, CLIENT),
        };
        let source = SocketAddr::new(self.topology.address(from), probe::PORT + 1);
        let target = SocketAddr::new(self.topology.address(to), probe::PORT);
        let _sink = Sink::open(self.topology.node(to), target)?;
        let is_probe: Filter = |bytes| probe::number(bytes).is_some();
        let ((), client, server, validity) = self.captured(is_probe, || {
            let sender = probe::send(self.topology.node(from), source, target, probe)?;
            let sent = sender
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.map_err(|source| LabError::Program {
                program: "UDP probe".into(),
                reason: source.to_string(),
            })?;
            std::thread::sleep(wait);
            Ok(())
        })?;
        let (sent, received) = match direction {
            Direction::Up => (client, server),
            Direction::Down => (server, client),
        };
        Ok(Seen {
            sent,
            received,
            validity,
        })
    }
}
