//! The peers: the programs on the gateway that are compared.

mod haproxy;
mod midspan;
mod nginx;

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use midspan_testbed::program::{Launch, Program};
use serde::{Deserialize, Serialize};

use crate::load::Target;
use crate::network::{self, ADDRESSES, Network};
use crate::server::SERVICES;
use crate::{Arguments, Failure, server};

/// Time limit of a proxy's start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A peer.
#[derive(ValueEnum, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// Plain routing, no proxy
    Routing,
    /// Midspan with forward listeners: clients connect to its own address
    MidspanForward,
    /// The same with limits for the rates of each client, which no client of the bench reaches
    MidspanClientRates,
    /// Midspan with transparent listeners, the handshake early
    MidspanEarly,
    /// The same; the firewall is asked once about a client, a server and its port (firewall_cache)
    MidspanExpress,
    /// Midspan with transparent listeners, the handshake end to end
    MidspanEndToEnd,
    /// The build that --other-build names, with forward listeners
    OtherForward,
    /// The build that --other-build names, with transparent listeners, the handshake early
    OtherEarly,
    /// HAProxy with splicing forced and pipes of 1 MB
    HaproxyTuned,
    /// HAProxy with default settings
    Haproxy,
    /// nginx's stream module with default settings
    Nginx,
}

impl Peer {
    /// All peers, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Routing,
        Self::MidspanForward,
        Self::MidspanClientRates,
        Self::MidspanEarly,
        Self::MidspanExpress,
        Self::MidspanEndToEnd,
        Self::OtherForward,
        Self::OtherEarly,
        Self::HaproxyTuned,
        Self::Haproxy,
        Self::Nginx,
    ];

    /// Name in tables and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Routing => "routing",
            Self::MidspanForward => "midspan forward",
            Self::MidspanClientRates => "midspan client rates",
            Self::MidspanEarly => "midspan transparent early",
            Self::MidspanExpress => "midspan transparent express",
            Self::MidspanEndToEnd => "midspan transparent end to end",
            Self::OtherForward => "other build forward",
            Self::OtherEarly => "other build transparent early",
            Self::HaproxyTuned => "haproxy tuned",
            Self::Haproxy => "haproxy default",
            Self::Nginx => "nginx stream",
        }
    }

    /// Whether the program is the one of `--other-build`.
    pub const fn is_other_build(self) -> bool {
        matches!(self, Self::OtherForward | Self::OtherEarly)
    }

    /// Whether the peer takes part if no peers are named.
    pub const fn is_usual(self) -> bool {
        !self.is_other_build() && !matches!(self, Self::MidspanClientRates)
    }

    /// Whether clients connect to the server's own address.
    const fn is_transparent(self) -> bool {
        matches!(
            self,
            Self::Routing
                | Self::MidspanEarly
                | Self::MidspanExpress
                | Self::MidspanEndToEnd
                | Self::OtherEarly
        )
    }

    /// The addresses to which clients connect for a service.
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

    /// Starts the peer on the gateway; plain routing starts nothing.
    pub fn start(
        self,
        network: &Network,
        arguments: &Arguments,
        folder: &Path,
    ) -> Result<Option<Program>, Failure> {
        let launch = match self {
            Self::Routing => return Ok(None),
            Self::MidspanForward
            | Self::MidspanClientRates
            | Self::MidspanEarly
            | Self::MidspanExpress
            | Self::MidspanEndToEnd => midspan::launch(self, arguments.midspan.as_deref())?,
            Self::OtherForward | Self::OtherEarly => {
                midspan::launch(self, arguments.other_build.as_deref())?
            }
            Self::HaproxyTuned => haproxy::launch(true, folder)?,
            Self::Haproxy => haproxy::launch(false, folder)?,
            Self::Nginx => nginx::launch(folder)?,
        };
        let launch = launch
            .folder(folder)
            .inside(&network.gateway)
            .grace(Duration::from_secs(2));
        let is_midspan = !matches!(self, Self::HaproxyTuned | Self::Haproxy | Self::Nginx);
        Ok(Some(match is_midspan {
            true => launch.ready()?,
            false => start_listening(self, launch.without_output(), network)?,
        }))
    }
}

/// For a proxy to whose own address clients connect: each listening address, with the server's
/// address behind it.
fn forwards() -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
    (0..).zip(SERVICES).flat_map(|(number, port)| {
        (0..usize::from(ADDRESSES))
            .map(move |index| (network::proxy(index, number), network::server(index, port)))
    })
}

/// Starts a program, and waits until it listens on the last of its ports.
fn start_listening(peer: Peer, launch: Launch<'_>, network: &Network) -> Result<Program, Failure> {
    let last = network::proxy(usize::from(ADDRESSES) - 1, (SERVICES.len() - 1) as u16);
    let mut program = launch.start()?;
    let began = Instant::now();
    loop {
        if !program.is_running() || began.elapsed() > START_LIMIT {
            let log = program.log();
            return Err(format!("{} does not start: {}", peer.name(), log.trim()).into());
        }
        let attempt = network
            .gateway
            .run(move || TcpStream::connect_timeout(&last, Duration::from_secs(1)))?;
        if attempt.is_ok() {
            return Ok(program);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
