//! What stands on the gateway.

mod haproxy;
mod midspan;
mod nginx;

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use midspan_linux::process::RunningProgram;
use serde::{Deserialize, Serialize};

use crate::load::Target;
use crate::network::{self, ADDRESSES, Network};
use crate::server::SERVICES;
use crate::{Arguments, Failure, server};

/// Longest time until a proxy listens.
const START_LIMIT: Duration = Duration::from_secs(10);

/// What is compared.
#[derive(ValueEnum, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// Plain routing, no proxy
    Routing,
    /// Midspan, called by its own address
    MidspanForward,
    /// Midspan, transparent, client and server joined early
    MidspanEarly,
    /// Midspan, transparent, the handshake end to end
    MidspanEndToEnd,
    /// HAProxy with splicing forced and pipes of 1 MB
    HaproxyTuned,
    /// HAProxy as it comes
    Haproxy,
    /// nginx's stream module as it comes
    Nginx,
}

impl Peer {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Routing,
        Self::MidspanForward,
        Self::MidspanEarly,
        Self::MidspanEndToEnd,
        Self::HaproxyTuned,
        Self::Haproxy,
        Self::Nginx,
    ];

    /// Name in tables and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Routing => "routing",
            Self::MidspanForward => "midspan forward",
            Self::MidspanEarly => "midspan transparent early",
            Self::MidspanEndToEnd => "midspan transparent end to end",
            Self::HaproxyTuned => "haproxy tuned",
            Self::Haproxy => "haproxy default",
            Self::Nginx => "nginx stream",
        }
    }

    /// Whether clients call the server's own address.
    const fn is_transparent(self) -> bool {
        matches!(
            self,
            Self::Routing | Self::MidspanEarly | Self::MidspanEndToEnd
        )
    }

    /// Where clients call for a service.
    pub fn target(self, service: u16) -> Target {
        match (self.is_transparent(), service) {
            (true, server::ECHO) => |number| network::server(number, server::ECHO),
            (true, server::HOLD) => |number| network::server(number, server::HOLD),
            (true, _) => |number| network::server(number, server::SINK),
            (false, server::ECHO) => |number| network::proxy(number, 0),
            (false, server::HOLD) => |number| network::proxy(number, 1),
            (false, _) => |number| network::proxy(number, 2),
        }
    }

    /// Starts it on the gateway; nothing for plain routing.
    pub fn start(
        self,
        network: &Network,
        arguments: &Arguments,
        folder: &Path,
    ) -> Result<Option<RunningProgram>, Failure> {
        let command = match self {
            Self::Routing => return Ok(None),
            Self::MidspanForward | Self::MidspanEarly | Self::MidspanEndToEnd => {
                midspan::command(self, arguments.midspan.as_deref(), folder)?
            }
            Self::HaproxyTuned => haproxy::command(true, folder)?,
            Self::Haproxy => haproxy::command(false, folder)?,
            Self::Nginx => nginx::command(folder)?,
        };
        start(self, command, network, folder).map(Some)
    }
}

/// All that a proxy which is called by its own address has to lead: from, to.
fn forwards() -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
    (0..).zip(SERVICES).flat_map(|(number, port)| {
        (0..usize::from(ADDRESSES))
            .map(move |index| (network::proxy(index, number), network::server(index, port)))
    })
}

fn start(
    peer: Peer,
    mut command: Command,
    network: &Network,
    folder: &Path,
) -> Result<RunningProgram, Failure> {
    let log = folder.join("peer.log");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?);
    let child = network.gateway.spawn(command)?;
    let mut program = RunningProgram::new(child, Duration::from_secs(2));
    let began = Instant::now();
    loop {
        if program.child().try_wait()?.is_some() || began.elapsed() > START_LIMIT {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("{} does not start: {}", peer.name(), said.trim()).into());
        }
        if is_ready(peer, network, folder)? {
            return Ok(program);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_ready(peer: Peer, network: &Network, folder: &Path) -> Result<bool, Failure> {
    if peer.is_transparent() {
        return Ok(midspan::is_ready(folder));
    }
    let last = network::proxy(usize::from(ADDRESSES) - 1, (SERVICES.len() - 1) as u16);
    let attempt = network
        .gateway
        .run(move || TcpStream::connect_timeout(&last, Duration::from_secs(1)))?;
    Ok(attempt.is_ok())
}
