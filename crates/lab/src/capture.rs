//! Packet captures by tcpdump: a clock that is not the emulator's.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::process::RunningProgram;
use pcap_file::pcap::PcapReader;
use rustix::process::Signal;

use crate::LabError;
use crate::error::at;
use crate::programs::Program;

/// A running capture of one interface.
pub struct Capture {
    program: RunningProgram,
    messages: BufReader<std::process::ChildStderr>,
    file: PathBuf,
}

/// One captured packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// When, on the real-time clock, since 1970.
    pub at: Duration,
    /// Its length at the network layer in bytes.
    pub length: u32,
    /// Its first bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
}

const ETHERNET_HEADER: u32 = 14;

impl Capture {
    /// Starts to capture what passes `interface` of `node` and matches `filter`
    /// (pcap-filter(7)); returns once packets are being taken.
    pub fn start(
        node: &NetworkNamespace,
        interface: &str,
        filter: &str,
        file: &Path,
    ) -> Result<Self, LabError> {
        let mut command = Program::Tcpdump.command()?;
        command
            .args(["-i", interface, "-n", "-U", "--immediate-mode"])
            // Enough for headers and the sequence numbers of probes; a buffer for bursts.
            .args(["-s", "96", "-B", "32768", "--time-stamp-precision=nano"])
            // No change of user: in a user namespace there is only one.
            .args(["-Z", "root", "-w"])
            .arg(file)
            .arg(filter)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = node.spawn(command)?;
        let messages = child
            .stderr
            .take()
            .ok_or_else(|| failed("no error output".into()))?;
        let mut capture = Self {
            program: RunningProgram::new(child, Duration::from_secs(2)),
            messages: BufReader::new(messages),
            file: file.to_owned(),
        };
        capture.wait_until_started()?;
        Ok(capture)
    }

    fn wait_until_started(&mut self) -> Result<(), LabError> {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let read = self.messages.read_line(&mut line);
            if read.unwrap_or(0) == 0 {
                return Err(failed(said.trim().to_owned()));
            }
            if line.contains("listening on") {
                return Ok(());
            }
            said.push_str(&line);
        }
    }

    /// Ends the capture and reads it. Packets that tcpdump itself missed are an error: a clock
    /// with holes proves nothing.
    pub fn finish(mut self) -> Result<Vec<Captured>, LabError> {
        // What passed just now still has to reach tcpdump.
        std::thread::sleep(Duration::from_millis(100));
        self.program.signal(Signal::INT);
        if self.program.wait_for(Duration::from_secs(10)).is_none() {
            return Err(failed("it does not end".into()));
        }
        for line in self.messages.lines().map_while(Result::ok) {
            if let Some(count) = line.strip_suffix(" packets dropped by kernel")
                && count != "0"
            {
                return Err(failed(format!("{count} packets were not captured")));
            }
        }
        read(&self.file)
    }
}

fn read(path: &Path) -> Result<Vec<Captured>, LabError> {
    let file = BufReader::new(File::open(path).map_err(at(path))?);
    let unreadable = |error: pcap_file::PcapError| LabError::Output {
        program: "tcpdump",
        reason: error.to_string(),
    };
    let mut reader = PcapReader::new(file).map_err(unreadable)?;
    let mut packets = Vec::new();
    // Raw packets: the library's checked ones refuse those that the capture cut short.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.map_err(unreadable)?;
        packets.push(Captured {
            at: Duration::new(packet.ts_sec.into(), packet.ts_frac),
            length: packet.orig_len.saturating_sub(ETHERNET_HEADER),
            bytes: packet.data.into_owned(),
        });
    }
    Ok(packets)
}

fn failed(reason: String) -> LabError {
    LabError::Program {
        program: "tcpdump".into(),
        reason,
    }
}
