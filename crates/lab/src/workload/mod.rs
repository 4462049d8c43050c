//! Workloads on a path: real clients and real servers.

pub mod command;
pub mod curl;
pub mod iperf3;
pub mod web_server;

use std::fmt::Display;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::program::Program;

use crate::LabError;

/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Waits until a server on `host` accepts connections. If the server ends instead, the error
/// contains its log.
pub(crate) fn wait_until_listening(
    host: &NetworkNamespace,
    address: SocketAddr,
    name: &str,
    program: &mut Program,
) -> Result<(), LabError> {
    // The address is the host's own, so this connection does not use an emulated link.
    let connects = move || TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
    wait_until_ready(host, &address, name, program, connects)
}

/// Waits until a program on `host` listens on `address`, which `is_ready` decides on this host. If
/// the program ends instead, the error contains its log.
pub(crate) fn wait_until_ready(
    host: &NetworkNamespace,
    address: &dyn Display,
    name: &str,
    program: &mut Program,
    is_ready: impl Fn() -> bool + Clone + Send + 'static,
) -> Result<(), LabError> {
    let start = Instant::now();
    let failed = |reason: String| LabError::Program {
        program: name.to_owned(),
        reason,
    };
    loop {
        if host.run(is_ready.clone())? {
            return Ok(());
        }
        if let Some(status) = program.wait_for(Duration::from_millis(20)) {
            let log = program.log();
            return Err(failed(format!(
                "it ended with {status} at start: {}",
                log.trim()
            )));
        }
        if start.elapsed() > START_LIMIT {
            return Err(failed(format!(
                "it does not listen on {address} after {START_LIMIT:?}"
            )));
        }
    }
}
