//! Everything that goes wrong in the life of a gateway, one fault after the other.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::FORWARD;
use crate::common::assert_upgraded;
use crate::transparent::support::*;

/// How long a fault lasts that has an end.
const LASTS: Duration = Duration::from_millis(1200);
/// Open files and sockets that a relay may have during [`Fault::NoDescriptors`].
const FEW_DESCRIPTORS: u64 = 40;
/// Memory that a relay may use in addition during [`Fault::NoMemory`].
const LITTLE_MEMORY: &str = "262144";
/// Where control groups (version 1) limit memory.
const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The configuration is reloaded with other values.
    Reload,
    /// The limit of sessions is reached.
    FullTable,
    /// The program takes its own place.
    Upgrade,
    /// The relay is stopped (SIGSTOP), and continues.
    StoppedRelay,
    /// The helper is stopped, and continues.
    StoppedHelper,
    /// The relay gets no more descriptors.
    NoDescriptors,
    /// The relay gets no more memory, by a control group. The kernel may kill the relay.
    NoMemory,
    /// The clients' interface is deleted, and made again.
    NoInterface,
    /// All rules of the firewall are removed, those of Midspan included.
    FlushedRules,
    /// The relay is killed.
    KilledRelay,
    /// The helper is killed.
    KilledHelper,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Reload,
        Self::FullTable,
        Self::Upgrade,
        Self::StoppedRelay,
        Self::StoppedHelper,
        Self::NoDescriptors,
        Self::NoMemory,
        Self::NoInterface,
        Self::FlushedRules,
        Self::KilledRelay,
        Self::KilledHelper,
    ];
}

/// A Midspan to which everything happens.
pub struct Victim<'a> {
    network: &'a Network,
    midspan: Midspan,
    reloads: usize,
    /// Starts after the first one.
    pub restarts: usize,
}

/// What happened.
pub enum Struck {
    /// The fault was there.
    Done,
    /// This machine cannot have the fault.
    Impossible(io::Error),
}

impl fmt::Display for Struck {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => to.write_str("done"),
            Self::Impossible(error) => write!(to, "skipped: {error}"),
        }
    }
}

impl<'a> Victim<'a> {
    /// Starts Midspan.
    pub fn start(network: &'a Network) -> Self {
        Self {
            network,
            midspan: Midspan::ready(&network.gateway, &configuration(20, None)),
            reloads: 0,
            restarts: 0,
        }
    }

    /// The relay's process.
    pub fn relay(&self) -> Pid {
        let pid = i32::try_from(self.midspan.status().relay_pid).unwrap();
        Pid::from_raw(pid).unwrap()
    }

    /// Ends Midspan.
    pub fn stop(self) {
        self.midspan.stop();
    }

    /// Lets a fault happen, and starts Midspan again if the fault ends it.
    pub fn strike(&mut self, fault: Fault) -> Struck {
        let relay = self.relay();
        let struck = self.try_strike(fault);
        let struck = struck.map_or_else(Struck::Impossible, |()| Struck::Done);
        let ends = match fault {
            Fault::KilledRelay | Fault::KilledHelper => true,
            Fault::NoMemory => has_ended(relay),
            _ => false,
        };
        if ends {
            let _ = self.midspan.wait();
            self.midspan = Midspan::ready(&self.network.gateway, &configuration(20, None));
            self.restarts += 1;
        }
        struck
    }

    fn try_strike(&mut self, fault: Fault) -> io::Result<()> {
        let gateway = &self.network.gateway;
        match fault {
            Fault::Reload => {
                self.reloads += 1;
                self.reload(&configuration(20 + self.reloads % 2, None));
            }
            Fault::FullTable => {
                self.reload(&configuration(20, Some(30)));
                sleep(LASTS);
                self.reload(&configuration(20, None));
            }
            Fault::Upgrade => assert_upgraded(&self.midspan.upgrade(None)),
            Fault::StoppedRelay => stop_for_a_while(self.relay())?,
            Fault::StoppedHelper => stop_for_a_while(self.midspan.helper())?,
            Fault::NoDescriptors => {
                let before = self.set_descriptors(FEW_DESCRIPTORS)?;
                sleep(LASTS);
                self.set_descriptors(before)?;
            }
            Fault::NoMemory => self.with_little_memory()?,
            Fault::NoInterface => {
                output(gateway, "ip", &["link", "del", "acc"]);
                sleep(LASTS / 4);
                link(&self.network.client, "eth", gateway, "acc", 1);
                route(&self.network.client, "0.0.0.0/0", GATEWAY, "eth");
            }
            Fault::FlushedRules => {
                output(gateway, "nft", &["flush", "ruleset"]);
                sleep(LASTS);
            }
            Fault::KilledRelay => kill_process(self.relay(), Signal::KILL)?,
            Fault::KilledHelper => kill_process(self.midspan.helper(), Signal::KILL)?,
        }
        Ok(())
    }

    /// The relay's new memory counts for a group with a small limit.
    fn with_little_memory(&self) -> io::Result<()> {
        let relay = self.relay().as_raw_nonzero().to_string();
        let before = group_of(&relay)?;
        let group = Path::new(MEMORY_GROUPS).join(format!("midspan-test-{relay}"));
        fs::create_dir(&group)?;
        let limited = fs::write(group.join("memory.limit_in_bytes"), LITTLE_MEMORY)
            .and_then(|()| fs::write(group.join("cgroup.procs"), &relay));
        sleep(LASTS);
        // If the kernel has killed the relay, the group is empty.
        let _ = fs::write(group.join("memory.limit_in_bytes"), "-1");
        let _ = fs::write(before.join("cgroup.procs"), &relay);
        wait_until("the group is empty", || fs::remove_dir(&group).is_ok());
        limited
    }

    /// Changes how many descriptors the relay may have, as its own user: root needs a capability for this. How many they
    /// were.
    fn set_descriptors(&self, most: u64) -> io::Result<u64> {
        let relay = self.relay().as_raw_nonzero().to_string();
        let status = fs::read_to_string(format!("/proc/{relay}/status"))?;
        let id = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next())
        };
        let limits = fs::read_to_string(format!("/proc/{relay}/limits"))?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"));
        let before = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        let (Some(user), Some(group), Some(before)) = (id("Uid:"), id("Gid:"), before) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let limit = format!("--nofile={most}:");
        let arguments = [
            "--reuid",
            user,
            "--regid",
            group,
            "--clear-groups",
            "prlimit",
            "--pid",
            &relay,
            &limit,
        ];
        let done = Command::new("setpriv").args(arguments).output()?;
        match done.status.success() {
            true => Ok(before),
            false => Err(io::Error::other(
                String::from_utf8_lossy(&done.stderr).into_owned(),
            )),
        }
    }

    fn reload(&self, text: &str) {
        let answer = self.midspan.reload(text);
        assert!(answer.ok, "{answer:?}");
    }
}

/// Whether a process has ended.
fn has_ended(process: Pid) -> bool {
    let file = format!("/proc/{}/stat", process.as_raw_nonzero());
    // proc_pid_stat(5): the state follows the name, which may contain any character.
    let state = fs::read_to_string(file).unwrap_or_default();
    state
        .rsplit(") ")
        .next()
        .is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
}

fn stop_for_a_while(process: Pid) -> io::Result<()> {
    kill_process(process, Signal::STOP)?;
    sleep(LASTS);
    Ok(kill_process(process, Signal::CONT)?)
}

/// The folder of the group that limits the memory of a process.
fn group_of(process: &str) -> io::Result<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
    let mut lines = groups
        .lines()
        .filter_map(|line| line.split_once(":memory:"));
    let (_, path) = lines.next().ok_or(io::ErrorKind::Unsupported)?;
    Ok(Path::new(MEMORY_GROUPS).join(path.trim_start_matches('/')))
}

/// Both handshakes, a value that reloads change, and perhaps a limit of sessions.
fn configuration(seconds: usize, sessions: Option<usize>) -> String {
    let limit = sessions.map_or(String::new(), |limit| {
        format!("[limits]\nsessions = {limit}\n")
    });
    format!(
        "[log]\nlevel = \"warn\"\n{limit}[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n\
         drain_timeout = \"2 s\"\n{TRANSPARENT_LISTENER}connect_timeout = \"{seconds} s\"\n\
         [[listener]]\nname = \"forward\"\nlisten = \"{FORWARD}\"\nto = \"{SERVER}:{PORT}\"\n"
    )
}
