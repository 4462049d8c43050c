//! The proxies under test: how each is started, reached and stopped.
//!
//! To add a proxy, add a file with a type that implements [`Proxy`], and a line in [`known`].

mod haproxy;
pub mod midspan;
mod negotiation;
mod nginx;
mod overlay;
mod without;

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::program::{Launch, Program};
use rustix::io::Errno;
use rustix::process::Signal;
use socket2::Socket;

use crate::Error;
use crate::network::{Family, Network, Target};
use crate::transcript::errno;

/// How long a proxy may take to start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// What a case needs in the proxy's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conditions {
    /// Few descriptors: enough for some tens of sessions.
    pub few_descriptors: bool,
    /// Pipes for at most two directions at a time.
    pub few_pipes: bool,
    /// Keep-alive probes on both legs.
    pub keepalive: bool,
}

/// The limit of descriptors for cases that need a low limit.
const FEW_DESCRIPTORS: u64 = 128;

/// Why a client has no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unconnected {
    /// `connect` failed, or the proxy reported a status that stands for this one error.
    Error(Errno),
    /// The proxy reported this status, which stands for several errors.
    Status(u16),
}

impl From<io::Error> for Unconnected {
    fn from(error: io::Error) -> Self {
        Self::Error(errno(&error))
    }
}

/// A proxy that can run on the gateway.
pub trait Proxy: Send + Sync {
    /// The name, as on the command line.
    fn name(&self) -> String;

    /// The product and its version.
    ///
    /// # Errors
    /// The program is missing; the text contains the reason.
    fn describe(&self) -> Result<String, String>;

    /// Whether the client is answered before the server is.
    fn answers_early(&self) -> bool;

    /// Whether the proxy is Midspan, so that Midspan's documented differences apply.
    fn is_midspan(&self) -> bool {
        false
    }

    /// Whether further nodes of an overlay are behind the gateway ([`NODES`](crate::network::NODES)).
    fn is_overlay(&self) -> bool {
        false
    }

    /// Whether the proxy's clients get an HTTP status if there is no connection.
    fn reports_http_status(&self) -> bool {
        false
    }

    /// Connects a client's socket to a target, as a client of this proxy does. By default, it
    /// connects to the gateway's port with the target's number.
    ///
    /// # Errors
    /// There is no connection.
    fn connect(&self, socket: &Socket, family: Family, target: Target) -> Result<(), Unconnected> {
        Ok(socket.connect(&Network::gateway_address(family, target).into())?)
    }

    /// Reads the header that the proxy sends to the server before any data, if it sends one, and
    /// checks the header.
    ///
    /// # Errors
    /// Reading fails, or `InvalidData` if the header is wrong.
    fn check_header(&self, _: &Socket, _: Family) -> io::Result<()> {
        Ok(())
    }

    /// Starts the proxy; `None` if there is nothing to start.
    ///
    /// # Errors
    /// The proxy does not start.
    fn start(&self, network: &Network, conditions: Conditions) -> Result<Option<Running>, Error>;
}

/// The signals that control a program.
#[derive(Debug, Clone, Copy)]
struct Signals {
    /// Reads the configuration again.
    reload: Signal,
    /// Ends when the last session has ended.
    drain: Signal,
    /// Ends now. If this is the same signal as [`Self::drain`], it is sent after it.
    stop: Signal,
}

/// A running proxy; it is stopped when this value is dropped.
#[derive(Debug)]
pub struct Running {
    /// The program on the gateway first.
    programs: Vec<Program>,
    signals: Signals,
    // Keeps the proxy's files while it runs, if the program has no folder of its own.
    _folder: Option<tempfile::TempDir>,
}

impl Running {
    /// Signals the proxy to read its configuration again.
    pub fn reload(&mut self) {
        self.signal(self.signals.reload);
    }

    /// Signals the proxy to end after its last session.
    pub fn drain(&mut self) {
        self.signal(self.signals.drain);
    }

    /// Signals the proxy to end now.
    pub fn stop(&mut self) {
        self.signal(self.signals.stop);
    }

    /// Sends a signal, unless the process has ended.
    fn signal(&self, signal: Signal) {
        for program in &self.programs {
            let _ = program.signal(signal);
        }
    }

    /// Kills all processes of the proxy.
    pub fn kill(&mut self) {
        self.programs.iter_mut().for_each(Program::kill_group);
    }

    /// Whether the proxy ends by itself within this time.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        self.wait_for(limit).is_some()
    }

    /// Waits until the proxy ends, at most for this time; `None` if it still runs then. The status is that of the first
    /// program that has failed.
    pub fn wait_for(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        let mut status = None;
        for program in &mut self.programs {
            let ended = program.wait_for(end.saturating_duration_since(Instant::now()))?;
            status = status
                .filter(|status: &ExitStatus| !status.success())
                .or(Some(ended));
        }
        status
    }

    /// The proxy's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.programs.iter().map(Program::log).collect()
    }
}

/// All proxies that can be named on the command line, in the order of tables. `program` is
/// Midspan's executable.
#[must_use]
pub fn known(program: &Path) -> Vec<Box<dyn Proxy>> {
    let mut proxies: Vec<Box<dyn Proxy>> = vec![Box::new(without::WithoutProxy)];
    for mode in midspan::Mode::ALL {
        proxies.push(Box::new(midspan::Midspan::new(program, mode)));
    }
    for kind in overlay::Kind::ALL {
        proxies.push(Box::new(overlay::OverlayProxies::new(program, kind)));
    }
    proxies.push(Box::new(haproxy::Haproxy));
    proxies.push(Box::new(nginx::Nginx));
    proxies
}

/// The run without a proxy, with which the other runs are compared.
#[must_use]
pub fn without() -> Box<dyn Proxy> {
    Box::new(without::WithoutProxy)
}

/// The launch of every proxy: on the gateway, with some time to end when it is no longer needed.
fn on_gateway<'a>(
    launch: Launch<'a>,
    gateway: &'a NetworkNamespace,
    conditions: Conditions,
) -> Launch<'a> {
    let launch = launch.inside(gateway).grace(Duration::from_secs(2));
    match conditions.few_descriptors {
        true => launch.open_files(FEW_DESCRIPTORS),
        false => launch,
    }
}

/// Starts a program, and waits until it listens on all targets' ports of the gateway.
fn start_listening(
    name: &str,
    gateway: &NetworkNamespace,
    launch: Launch<'_>,
) -> Result<Program, Error> {
    let mut program = launch.without_output().start()?;
    let begin = Instant::now();
    while !listens(gateway)? {
        let ended = program.wait_for(Duration::from_millis(10)).is_some();
        if ended || begin.elapsed() > START_LIMIT {
            return Err(did_not_start(name, &program.log()));
        }
    }
    Ok(program)
}

fn listens(gateway: &NetworkNamespace) -> Result<bool, Error> {
    let ports: Vec<String> = (Target::ALL.iter())
        .map(|target| format!(":{:04X}", target.port()))
        .collect();
    let complete = gateway.run(move || {
        let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
        let mut complete = true;
        for table in tables {
            let text = std::fs::read_to_string(table)?;
            complete &= ports.iter().all(|port| {
                text.lines().any(|line| {
                    let fields: Vec<&str> = line.split_whitespace().take(4).collect();
                    fields.len() == 4 && fields[1].ends_with(port) && fields[3] == "0A"
                })
            });
        }
        Ok::<_, io::Error>(complete)
    })?;
    complete.map_err(Error::system("read the gateway's listening sockets"))
}

fn did_not_start(name: &str, log: &str) -> Error {
    Error::Start {
        proxy: name.to_owned(),
        reason: log.trim().to_owned(),
    }
}

/// A folder for a proxy's configuration and log.
fn folder() -> Result<tempfile::TempDir, Error> {
    tempfile::tempdir().map_err(Error::system("make a temporary folder"))
}

/// Both families' listening and server addresses of all targets.
fn forwards() -> impl Iterator<Item = (std::net::SocketAddr, std::net::SocketAddr)> {
    [Family::V4, Family::V6].into_iter().flat_map(|family| {
        Target::ALL.into_iter().map(move |target| {
            (
                Network::gateway_address(family, target),
                Network::server_address(family, target),
            )
        })
    })
}

/// The first line that a program prints if it is started to print its version.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().next().map(str::to_owned)
}
