//! Midspan in its modes, started as an operator starts it.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::program::{Launch, LaunchError};
use rustix::process::Signal;
use socket2::Socket;

use super::{
    Conditions, Proxy, Running, Signals, Unconnected, did_not_start, first_line, forwards,
    negotiation, on_gateway,
};
use crate::Error;
use crate::network::{CLIENT_SIDE, Family, Network, Target};

/// The signals of `midspan run`.
pub(super) const SIGNALS: Signals = Signals {
    reload: Signal::HUP,
    drain: Signal::TERM,
    stop: Signal::TERM,
};

/// How connections reach Midspan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Clients connect to the gateway's own address.
    Forward,
    /// Connections are intercepted, with the handshake end to end.
    Transparent,
    /// Connections are intercepted, with the handshake early.
    Early,
    /// The same, with a cache of the firewall's verdicts.
    Express,
    /// Clients request a destination by SOCKS5, with name and password.
    Socks5,
    /// Clients request a destination by HTTP `CONNECT`.
    Http,
    /// As forward, with PROXY headers: Midspan receives one on the client leg and sends one on the
    /// server leg.
    ProxyProtocol,
}

impl Mode {
    /// All modes, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Forward,
        Self::Transparent,
        Self::Early,
        Self::Express,
        Self::Socks5,
        Self::Http,
        Self::ProxyProtocol,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Forward => "midspan-forward",
            Self::Transparent => "midspan-transparent",
            Self::Early => "midspan-early",
            Self::Express => "midspan-express",
            Self::Socks5 => "midspan-socks5",
            Self::Http => "midspan-http",
            Self::ProxyProtocol => "midspan-proxy-protocol",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Forward => "forward listeners",
            Self::Transparent => "transparent listener, handshake end to end",
            Self::Early => "transparent listener, early handshake",
            Self::Express => "transparent listener, early handshake, firewall_cache",
            Self::Socks5 => "SOCKS5, with name and password",
            Self::Http => "CONNECT of HTTP",
            Self::ProxyProtocol => "forward listeners, PROXY protocol version 1 in, version 2 out",
        }
    }

    /// The listeners of the configuration file. `leg` contains further lines for each listener.
    fn listeners(self, leg: &str) -> String {
        let clients = [Family::V4, Family::V6].map(Network::client_address);
        let clients = format!("[\"{}\", \"{}\"]", clients[0], clients[1]);
        match self {
            Self::Forward => forward(leg),
            Self::ProxyProtocol => forward(&format!(
                "accept_proxy_protocol = true\nproxy_protocol_from = {clients}\n\
                 send_proxy_protocol = \"v2\"\n{leg}"
            )),
            Self::Transparent => transparent("end-to-end", leg),
            Self::Early => transparent("early", leg),
            Self::Express => transparent("early", &format!("firewall_cache = \"60 s\"\n{leg}")),
            Self::Socks5 => {
                let (user, password) = negotiation::USER;
                explicit(
                    "socks5",
                    &format!("users = {{ {user} = \"{password}\" }}\n{leg}"),
                )
            }
            Self::Http => explicit("http", &format!("clients = {clients}\n{leg}")),
        }
    }
}

fn forward(more: &str) -> String {
    let mut text = String::new();
    for (index, (listen, to)) in forwards().enumerate() {
        let _ = write!(
            text,
            "[[listener]]\nname = \"l{index}\"\nlisten = \"{listen}\"\nto = \"{to}\"\n{more}"
        );
    }
    text
}

pub(super) fn transparent(handshake: &str, more: &str) -> String {
    format!(
        "[[listener]]\nname = \"gateway\"\nmode = \"transparent\"\n\
         interfaces = [\"{CLIENT_SIDE}\"]\nhandshake = \"{handshake}\"\n{more}"
    )
}

fn explicit(mode: &str, more: &str) -> String {
    let mut text = String::new();
    for family in [Family::V4, Family::V6] {
        let (name, listen) = (family.name(), Network::explicit_address(family));
        let _ = write!(
            text,
            "[[listener]]\nname = \"{name}\"\nmode = \"{mode}\"\nlisten = \"{listen}\"\n{more}"
        );
    }
    text
}

/// A build of Midspan in one mode.
pub struct Midspan {
    program: PathBuf,
    mode: Mode,
}

impl Midspan {
    /// Midspan from the executable `program`.
    pub fn new(program: &Path, mode: Mode) -> Self {
        Self {
            program: program.to_owned(),
            mode,
        }
    }

    fn configuration(&self, conditions: Conditions) -> String {
        head(conditions) + &self.mode.listeners(leg(conditions))
    }
}

/// The tables of the configuration file before the listeners.
pub(super) fn head(conditions: Conditions) -> String {
    // With few pipes, the pool has one pipe for each thread. Otherwise it is large enough for
    // the cases, and leaves pipes for other runs on the machine.
    let pipes = if conditions.few_pipes {
        "128 KiB"
    } else {
        "4 MiB"
    };
    // All sessions of a case are those of one client. By default, it gets a quarter of the
    // sessions for which the process has descriptors, which may be less than a case has.
    format!(
        "[limits]\nsessions_per_client = 20000\n[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"{pipes}\"\n\
             drain_timeout = \"60 s\"\n"
    )
}

/// Lines for each listener.
pub(super) const fn leg(conditions: Conditions) -> &'static str {
    match conditions.keepalive {
        true => "client_leg = { keepalive = \"1 s\" }\nserver_leg = { keepalive = \"1 s\" }\n",
        false => "",
    }
}

impl Proxy for Midspan {
    fn name(&self) -> String {
        self.mode.name().to_owned()
    }

    fn describe(&self) -> Result<String, String> {
        let version = first_line(Command::new(&self.program).arg("--version"));
        let version = version.ok_or_else(|| format!("{} does not run", self.program.display()))?;
        Ok(format!("{version}, {}", self.mode.description()))
    }

    fn answers_early(&self) -> bool {
        matches!(
            self.mode,
            Mode::Forward | Mode::Early | Mode::Express | Mode::ProxyProtocol
        )
    }

    fn is_midspan(&self) -> bool {
        true
    }

    fn reports_http_status(&self) -> bool {
        self.mode == Mode::Http
    }

    fn connect(&self, socket: &Socket, family: Family, target: Target) -> Result<(), Unconnected> {
        let server = Network::server_address(family, target);
        let address = match self.mode {
            Mode::Forward | Mode::ProxyProtocol => Network::gateway_address(family, target),
            Mode::Transparent | Mode::Early | Mode::Express => server,
            Mode::Socks5 | Mode::Http => Network::explicit_address(family),
        };
        socket.connect(&address.into())?;
        match self.mode {
            Mode::Forward | Mode::Transparent | Mode::Early | Mode::Express => Ok(()),
            Mode::Socks5 => negotiation::by_socks5(socket, server),
            Mode::Http => negotiation::by_http(socket, server),
            Mode::ProxyProtocol => negotiation::send_header(socket, family),
        }
    }

    fn check_header(&self, socket: &Socket, family: Family) -> io::Result<()> {
        match self.mode {
            Mode::ProxyProtocol => negotiation::read_header(socket, family),
            _ => Ok(()),
        }
    }

    fn start(&self, network: &Network, conditions: Conditions) -> Result<Option<Running>, Error> {
        let configuration = self.configuration(conditions);
        start(
            &self.program,
            &self.name(),
            &network.gateway,
            conditions,
            &configuration,
        )
        .map(Some)
    }
}

/// Starts Midspan with this configuration on a gateway, and waits until it is ready.
///
/// # Errors
/// Midspan does not become ready: the error contains `name` and Midspan's log. Or the program cannot
/// be started.
pub fn start(
    program: &Path,
    name: &str,
    gateway: &NetworkNamespace,
    conditions: Conditions,
    configuration: &str,
) -> Result<Running, Error> {
    let launch = Launch::midspan(program).configuration(configuration);
    let program = match on_gateway(launch, gateway, conditions).ready() {
        Ok(program) => program,
        Err(LaunchError::NotReady { log, .. }) => return Err(did_not_start(name, &log)),
        Err(error) => return Err(error.into()),
    };
    Ok(Running {
        programs: vec![program],
        signals: SIGNALS,
        _folder: None,
    })
}
