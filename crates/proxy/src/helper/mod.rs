//! The privileged helper: owns routes, rules and what needs capabilities, starts the relay
//! process, and watches over it.
//!
//! It handles no traffic and reads nothing that comes from the network.

mod guard;
mod interception;
mod listening;
mod relay_process;
mod signals;
mod supervision;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use midspan_linux::capability::{self, Capability};
use midspan_linux::initial_window::{self, InitialWindows};
use midspan_linux::interception::Interception;
use midspan_linux::tcp;
use midspan_policy::LegStart;
use tracing::{info, warn};

use crate::configuration::{Configuration, Mode};
use crate::{Error, logging};
pub use interception::describe_rules;
use interception::{CLIENT_LEG, FORWARD, SERVER_LEG, leg_mark};
use listening::Listening;
use relay_process::RelayProcess;
use signals::Signals;

/// What `midspan run` is started with.
#[derive(Debug)]
pub struct RunOptions {
    /// The configuration file.
    pub configuration: PathBuf,
    /// Arguments with which this program, run again, calls [`relay_main`](crate::relay_main).
    pub relay_arguments: Vec<String>,
    /// Gets one byte, and is closed, when connections are accepted.
    pub ready: Option<OwnedFd>,
}

/// Runs the proxy until a signal ends it.
///
/// Call it while the process has one thread, with signals as they are by default. SIGTERM, SIGINT
/// and SIGHUP let the sessions end, for at most `drain_timeout`; a second one ends them at once,
/// with a reset.
///
/// # Errors
/// What keeps the proxy from starting, or from going on; see [`Error`]. Routes and rules are
/// removed on every way out.
pub fn run(options: RunOptions) -> Result<(), Error> {
    let configuration = Configuration::load(&options.configuration)?;
    logging::start(configuration.log);
    // Before the first route, so that no signal leaves one behind.
    let signals = Signals::catch().map_err(Error::system("catch signals"))?;
    check_machine(&configuration)?;
    let windows = install_initial_windows(&configuration)?;
    raise_descriptor_limit();
    let listening = listen(&configuration, windows.as_ref())?;
    let mut interception = install_interception(&configuration, &listening, windows.as_ref())?;
    let arguments = &options.relay_arguments;
    let mut relay = start_relay(&configuration, arguments, listening, windows.as_ref())?;
    // Routes can be changed with this one; ports, sockets and the relay are there.
    capability::give_up_all_but(&[Capability::CAP_NET_ADMIN])?;
    supervision::wait_until_ready(&mut relay, &signals)?;
    if let Some(interception) = &mut interception {
        interception.set_taking(true)?;
    }
    info!(
        listeners = configuration.listeners.len(),
        threads = configuration.relay.threads,
        "ready"
    );
    if let Some(ready) = options.ready {
        announce(ready);
    }
    supervision::supervise(&mut relay, &signals, windows, interception, &configuration)
}

/// What cannot be known from the file alone.
fn check_machine(configuration: &Configuration) -> Result<(), Error> {
    configuration
        .check_addresses(is_local)
        .map_err(midspan_document::Error::from)?;
    for (listener, leg, settings) in configuration.legs() {
        tcp::check(&LegStart::from(settings)).map_err(|error| {
            midspan_document::Error::from(configuration.leg_error(
                listener,
                leg,
                error.key(),
                &error,
            ))
        })?;
    }
    Ok(())
}

/// Towards an address of its own the kernel sends from that very address; towards 127.0.0.9 from
/// 127.0.0.1. Nothing is sent here.
fn is_local(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(SocketAddr::new(address, 9))?;
        Ok(socket.local_addr()?.ip())
    };
    address.is_loopback() || source().is_ok_and(|source| source == address)
}

/// `None` where no leg has an initial window.
fn install_initial_windows(configuration: &Configuration) -> Result<Option<InitialWindows>, Error> {
    // Before anything is installed: whether there are marks enough for all.
    interception::marks(configuration)?;
    let windows = interception::windows(configuration);
    if !windows.is_empty() {
        let place = configuration.marks;
        return Ok(Some(InitialWindows::install_groups(place, &windows)?));
    }
    if capability::is_held(Capability::CAP_NET_ADMIN)? {
        match initial_window::remove_leftovers(configuration.marks) {
            Ok(0) => {}
            Ok(removed) => info!(removed, "removed rules and routes of an earlier run"),
            Err(error) => warn!("rules and routes of an earlier run may be left: {error}"),
        }
    }
    Ok(None)
}

/// Opens the sockets of all listeners.
fn listen<'a>(
    configuration: &'a Configuration,
    windows: Option<&InitialWindows>,
) -> Result<Vec<Listening<'a>>, Error> {
    let marks = interception::marks(configuration)?;
    let mut all = Vec::with_capacity(configuration.listeners.len());
    for listener in &configuration.listeners {
        let window = listener.session.client.initial_window;
        let mark = match &listener.mode {
            Mode::Forward(_) => leg_mark(windows, FORWARD, window),
            Mode::Transparent(_) => leg_mark(windows, CLIENT_LEG, window)
                .or(marks.as_ref().map(|marks| marks.client_leg)),
        };
        let threads = configuration.relay.threads;
        let opened = listening::open(listener, mark, threads).map_err(|error| {
            midspan_document::Error::from(configuration.listen_error(listener, error))
        })?;
        all.extend(opened);
        match &listener.mode {
            Mode::Forward(forward) => {
                info!(listener = %listener.name, listen = %forward.listen, to = %forward.to, "listening");
            }
            Mode::Transparent(transparent) => {
                let interfaces = transparent.interfaces.join(" ");
                info!(listener = %listener.name, interfaces, "transparent");
            }
        }
    }
    Ok(all)
}

/// `None` without transparent listeners. Takes nothing yet.
fn install_interception(
    configuration: &Configuration,
    listening: &[Listening<'_>],
    windows: Option<&InitialWindows>,
) -> Result<Option<Interception>, Error> {
    if configuration.transparent().next().is_some() {
        let plan = interception::plan(configuration, listening, windows);
        return Ok(Some(Interception::install(plan)?));
    }
    if capability::is_held(Capability::CAP_NET_ADMIN)? {
        let place = &configuration.interception.place;
        match midspan_linux::interception::remove_leftovers(place) {
            Ok(false) => {}
            Ok(true) => info!("removed the rules of an earlier run's transparent listeners"),
            Err(error) => warn!("rules of an earlier run may be left: {error}"),
        }
    }
    Ok(None)
}

fn start_relay(
    configuration: &Configuration,
    arguments: &[String],
    listening: Vec<Listening<'_>>,
    windows: Option<&InitialWindows>,
) -> Result<RelayProcess, Error> {
    let marks = interception::marks(configuration)?;
    let server_mark = |listening: &Listening<'_>| {
        let window = listening.listener.session.server.initial_window;
        match listening.listener.mode {
            Mode::Forward(_) => leg_mark(windows, FORWARD, window),
            Mode::Transparent(_) => leg_mark(windows, SERVER_LEG, window)
                .or(marks.as_ref().map(|marks| marks.server_leg)),
        }
    };
    let listening = listening
        .into_iter()
        .map(|listening| {
            let mark = server_mark(&listening);
            (listening, mark)
        })
        .collect();
    let gate = interception::gate(configuration, windows)?;
    RelayProcess::start(configuration, arguments, listening, gate)
}

/// Every session needs two descriptors and its pipes; the soft limit is often 1024.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!("cannot raise the limit of open descriptors: {error}");
    }
}

/// Whoever waits may be gone; the proxy runs all the same.
fn announce(ready: OwnedFd) {
    if let Err(error) = std::fs::File::from(ready).write_all(b"\n") {
        warn!("cannot say that the proxy is ready: {error}");
    }
}
