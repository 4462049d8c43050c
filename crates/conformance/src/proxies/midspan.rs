//! Midspan in its modes, as an operator would run it.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use midspan_linux::namespace::NetworkNamespace;
use rustix::process::Signal;
use socket2::Socket;

use super::{
    Conditions, Proxy, Running, Signals, did_not_start, first_line, folder, forwards, spawn,
};
use crate::Error;
use crate::network::{CLIENT_SIDE, Family, Network, Target};

/// How connections come to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Clients connect to the gateway's own address.
    Forward,
    /// Connections are taken, and the server is called first.
    Transparent,
    /// Connections are taken and answered at once.
    Early,
}

impl Mode {
    /// In the order of tables.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Transparent, Self::Early];
}

/// A build of Midspan in one mode.
pub struct Midspan {
    program: PathBuf,
    mode: Mode,
}

impl Midspan {
    /// Of this program.
    pub fn new(program: &Path, mode: Mode) -> Self {
        Self {
            program: program.to_owned(),
            mode,
        }
    }

    fn configuration(&self, conditions: Conditions) -> String {
        // A pool of pipes that leaves others theirs, or one pipe for each thread.
        let pipes = if conditions.few_pipes {
            "128 KiB"
        } else {
            "4 MiB"
        };
        let mut text = format!(
            "[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"{pipes}\"\n\
             drain_timeout = \"60 s\"\n"
        );
        let leg = if conditions.keepalive {
            "client_leg = { keepalive = \"1 s\" }\nserver_leg = { keepalive = \"1 s\" }\n"
        } else {
            ""
        };
        if self.mode == Mode::Forward {
            for (index, (listen, to)) in forwards().enumerate() {
                let _ = write!(
                    text,
                    "[[listener]]\nname = \"l{index}\"\nlisten = \"{listen}\"\nto = \"{to}\"\n{leg}"
                );
            }
        } else {
            let handshake = if self.mode == Mode::Early {
                "early"
            } else {
                "end-to-end"
            };
            let _ = write!(
                text,
                "[[listener]]\nname = \"gateway\"\nmode = \"transparent\"\n\
                 interfaces = [\"{CLIENT_SIDE}\"]\nhandshake = \"{handshake}\"\n{leg}"
            );
        }
        text
    }
}

impl Proxy for Midspan {
    fn name(&self) -> String {
        match self.mode {
            Mode::Forward => "midspan-forward",
            Mode::Transparent => "midspan-transparent",
            Mode::Early => "midspan-early",
        }
        .to_owned()
    }

    fn describe(&self) -> Result<String, String> {
        let version = first_line(Command::new(&self.program).arg("--version"));
        let version = version.ok_or_else(|| format!("{} does not run", self.program.display()))?;
        let mode = match self.mode {
            Mode::Forward => "forward listeners",
            Mode::Transparent => "transparent listener, handshake end to end",
            Mode::Early => "transparent listener, early handshake",
        };
        Ok(format!("{version}, {mode}"))
    }

    fn answers_early(&self) -> bool {
        self.mode != Mode::Transparent
    }

    fn is_midspan(&self) -> bool {
        true
    }

    fn connect(&self, socket: &Socket, family: Family, target: Target) -> io::Result<()> {
        let address = match self.mode {
            Mode::Forward => Network::gateway_address(family, target),
            Mode::Transparent | Mode::Early => Network::server_address(family, target),
        };
        socket.connect(&address.into())
    }

    fn start(
        &self,
        gateway: &NetworkNamespace,
        conditions: Conditions,
    ) -> Result<Option<Running>, Error> {
        let folder = folder()?;
        let file = folder.path().join("midspan.toml");
        std::fs::write(&file, self.configuration(conditions)).map_err(Error::file(&file))?;
        let mut command = Command::new(&self.program);
        // Ready is said on standard output: one byte.
        command
            .args(["run", "--ready-fd", "1", "--config"])
            .arg(&file)
            .stdout(Stdio::piped());
        let (mut program, log) = spawn(gateway, command, conditions, folder.path())?;
        let ready = program.child().stdout.take();
        match ready.map(|mut ready| ready.read(&mut [0])) {
            Some(Ok(1)) => Ok(Some(Running {
                program,
                signals: Signals {
                    reload: Signal::HUP,
                    drain: Signal::TERM,
                    stop: Signal::TERM,
                },
                _folder: folder,
            })),
            _ => Err(did_not_start(&self.name(), &log)),
        }
    }
}
