//! A gateway whose log has no reader.

use std::io::PipeReader;

use midspan_testbed::program::Launch;
use rustix::process::{Signal, kill_process};

use super::support::*;

/// Starts Midspan with a full pipe as its log.
fn unread(network: &Network, listener: &std::net::TcpListener) -> (Midspan, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let text = format!(
        "[interception]\nopening_limit_per_client = 1\nwatchdog_timeout = \"2 min\"\n{TRANSPARENT}"
    );
    let midspan = Midspan::of(
        Launch::this_program("run")
            .configuration(&text)
            .inside(&network.gateway)
            .log_to(writer),
    );
    for _ in 0..20 {
        let near = network.connect(SERVER, PORT).unwrap();
        let (far, _) = accept(listener);
        abort(near);
        drop(far);
    }
    (midspan, reader)
}

const DARK: u16 = 82;

/// A socket whose SYN is in flight.
fn begin_to_connect(network: &Network, port: u16) -> socket2::Socket {
    let socket = socket(&network.client, SERVER);
    socket.set_nonblocking(true).unwrap();
    let address = std::net::SocketAddr::new(SERVER.parse().unwrap(), port);
    assert!(socket.connect(&address.into()).is_err());
    socket
}

/// The gate writes a warning, and intercepts connections nevertheless. The helper lets connections
/// pass when the relay is stopped.
#[kernel_test]
fn nobody_reads_the_log() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let (mut midspan, reader) = unread(&network, &listener);
    network.filter_port(DARK);
    // With a limit of one per client, a second connection at the same time is one too many.
    let dark: Vec<_> = (0..2).map(|_| begin_to_connect(&network, DARK)).collect();
    for (server, _) in BOTH {
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        abort(near);
    }
    drop(dark);
    network.unfilter();
    network.wait_until_taken(&listener, SERVER, true, 0);
    let relay = midspan.relay();
    stop_process(relay);
    network.wait_until_taken(&listener, SERVER, false, 0);
    kill_process(relay, Signal::CONT).unwrap();
    // Until the relay has noticed the end of the connections before, one more connection of the client is one too many.
    wait_until("taken again", || {
        matches!(network.is_taken(&listener, SERVER, 0), Ok(true))
    });
    kill_process(midspan.helper(), Signal::TERM).unwrap();
    assert!(midspan.wait().success());
    drop(reader);
}
