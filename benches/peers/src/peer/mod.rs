//! What stands on the gateway.

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
    ) -> Result<Option<Program>, Failure> {
        let launch = match self {
            Self::Routing => return Ok(None),
            Self::MidspanForward | Self::MidspanEarly | Self::MidspanEndToEnd => {
                midspan::launch(self, arguments.midspan.as_deref())?
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

/// All that a proxy which is called by its own address has to lead: from, to.
fn forwards() -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
    (0..).zip(SERVICES).flat_map(|(number, port)| {
        (0..usize::from(ADDRESSES))
            .map(move |index| (network::proxy(index, number), network::server(index, port)))
    })
}

/// Starts a program, and waits until it listens at the last of its ports.
fn start_listening(peer: Peer, launch: Launch<'_>, network: &Network) -> Result<Program, Failure> {
    let last = network::proxy(usize::from(ADDRESSES) - 1, (SERVICES.len() - 1) as u16);
    let mut program = launch.start()?;
    let began = Instant::now();
    loop {
        if !program.is_running() || began.elapsed() > START_LIMIT {
            let said = program.log();
            return Err(format!("{} does not start: {}", peer.name(), said.trim()).into());
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
