//! The privileged helper: owns routes, rules and what needs capabilities, starts the relay
//! process, and watches over it.
//!
//! It handles no traffic and reads nothing that comes from the network.

mod listening;
mod relay_process;
mod signals;
mod supervision;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use midspan_linux::capability::{self, Capability};
use midspan_linux::initial_window::{self, InitialWindows};
use midspan_linux::tcp;
use midspan_policy::LegStart;
use tracing::{info, warn};

use crate::configuration::Configuration;
use crate::{Error, logging};
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
    let mut relay = start_relay(&configuration, &options.relay_arguments, windows.as_ref())?;
    // Routes can be changed with this one; ports, sockets and the relay are there.
    capability::give_up_all_but(&[Capability::CAP_NET_ADMIN])?;
    supervision::wait_until_ready(&mut relay, &signals)?;
    info!(
        listeners = configuration.listeners.len(),
        threads = configuration.relay.threads,
        "ready"
    );
    if let Some(ready) = options.ready {
        announce(ready);
    }
    supervision::supervise(&mut relay, &signals, windows, &configuration.relay)
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
    let windows: BTreeSet<u32> = configuration
        .legs()
        .filter_map(|(_, _, leg)| leg.initial_window)
        .collect();
    if !windows.is_empty() {
        return Ok(Some(InitialWindows::install(
            configuration.marks,
            &windows,
        )?));
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

fn start_relay(
    configuration: &Configuration,
    arguments: &[String],
    windows: Option<&InitialWindows>,
) -> Result<RelayProcess, Error> {
    let mark = |window: Option<u32>| window.and_then(|window| windows?.mark(window));
    let mut listening = Vec::with_capacity(configuration.listeners.len());
    for listener in &configuration.listeners {
        let client_mark = mark(listener.session.client.initial_window);
        let threads = configuration.relay.threads;
        let sockets = listening::open(listener, client_mark, threads).map_err(|error| {
            midspan_document::Error::from(configuration.listen_error(listener, error))
        })?;
        let server_mark = mark(listener.session.server.initial_window);
        info!(listener = %listener.name, listen = %listener.listen, to = %listener.to, "listening");
        listening.push((listener, server_mark, sockets));
    }
    RelayProcess::start(configuration, arguments, listening)
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
