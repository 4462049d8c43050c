//! How a connection is opened, or fails to open.

use std::time::Duration;

use midspan_linux::tcp;

use super::healed_while;
use crate::case::Case;
use crate::end::WHILE;
use crate::error::{Error, Played};
use crate::network::{Place, Target};
use crate::stage::Stage;

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("refused", |stage| fails(stage, Target::Closed)),
    Case::new("host unreachable", |stage| {
        fails(stage, Target::HostUnreachable)
    }),
    Case::new("net unreachable", |stage| {
        fails(stage, Target::NetUnreachable)
    }),
    Case::new("port unreachable", |stage| {
        fails(stage, Target::PortUnreachable)
    }),
    Case::new("administratively prohibited", |stage| {
        fails(stage, Target::Prohibited)
    }),
    Case::new("no answer to a SYN", |stage| {
        fails(stage, Target::BlackHole)
    }),
    Case::new("refused, then open", refused_then_open),
    Case::new("first SYN lost", first_syn_lost),
    Case::new("data before the server answers", data_before_the_server),
    Case::new("data in the SYN", data_in_the_syn),
    Case::new("early data", early_data),
    Case::new("early data and FIN", early_data_and_fin),
    Case::new("server speaks first", server_speaks_first),
    Case::new("silent client", silent_client),
    Case::new("idle, then data", idle_then_data),
];

/// Packets to the server's open port.
const TO_SERVER: &str = "tcp dport 80 drop";

/// `net.ipv4.tcp_fastopen` of a client that sends data without a cookie, and of a server that needs
/// no cookie and accepts such data at every listener.
const FAST_OPEN_CLIENT: &str = "5";
const FAST_OPEN_SERVER: &str = "1538";

fn fails(stage: &mut Stage<'_>, target: Target) -> Played {
    if target == Target::BlackHole {
        stage.network.give_up_early()?;
    }
    stage.network.refuse(target)?;
    let mut client = stage.connect(target)?;
    // A proxy that answers before the server can report the failure only later, as a reset.
    client.receive_to_end()
}

fn refused_then_open(stage: &mut Stage<'_>) -> Played {
    if let Ok(mut client) = stage.connect(Target::Open) {
        client.receive_to_end()?;
    }
    let (mut client, mut server) = stage.pair()?;
    client.send(100)?;
    server.receive(100)?;
    client.close();
    server.receive_to_end()
}

/// The path drops the first SYN; the client sends the SYN again after a second.
fn first_syn_lost(stage: &mut Stage<'_>) -> Played {
    let listener = stage.listen(Target::Open)?;
    let mut client = healed_while(stage, Place::Router, TO_SERVER, 2 * WHILE, || {
        stage.connect(Target::Open)
    })?;
    client.send(100)?;
    let mut server = stage.accept(&listener)?;
    server.receive(100)?;
    server.send(100)?;
    client.receive(100)
}

/// The first SYN to the server is lost. If a proxy has answered the client nevertheless, the client
/// sends all its data before the server has a connection.
fn data_before_the_server(stage: &mut Stage<'_>) -> Played {
    let listener = stage.listen(Target::Open)?;
    let mut client = healed_while(stage, Place::Router, TO_SERVER, 2 * WHILE, || {
        let mut client = stage.connect(Target::Open)?;
        client.send(100_000)?;
        client.finish()?;
        Ok(client)
    })?;
    let mut server = stage.accept(&listener)?;
    server.receive_to_end()?;
    server.send(100)?;
    server.close();
    client.receive_to_end()
}

/// TCP Fast Open (RFC 7413) without cookies: the SYN carries the client's first bytes, and the
/// server reads them from there.
fn data_in_the_syn(stage: &mut Stage<'_>) -> Played {
    let (client, server) = (&stage.network.client, &stage.network.server);
    client.set_parameter("net/ipv4/tcp_fastopen", FAST_OPEN_CLIENT)?;
    server.set_parameter("net/ipv4/tcp_fastopen", FAST_OPEN_SERVER)?;
    let listener = stage.listen(Target::Open)?;
    let socket = stage.client_socket()?;
    tcp::set_fast_open(&socket).map_err(Error::system("set TCP_FASTOPEN_CONNECT"))?;
    let mut client = stage.connect_with(socket, Target::Open, stage.client_log())?;
    client.send(1000)?;
    let mut server = stage.accept(&listener)?;
    server.receive(1000)?;
    if !stage.has_proxy() && taken_from_syns(stage)? == 0 {
        return Err(Error::Unknown("the SYN had no data".to_owned()).into());
    }
    client.send(1000)?;
    client.finish()?;
    server.receive_to_end()?;
    server.send(1000)?;
    server.close();
    client.receive_to_end()
}

/// Number of the server's connections whose SYN carried data.
fn taken_from_syns(stage: &Stage<'_>) -> Result<u64, Error> {
    let table = stage
        .network
        .server
        .run(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))?;
    let table = table.map_err(Error::system("read the server's counters"))?;
    // A line of names, followed by a line of numbers.
    let mut lines = table.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = lines.next().unwrap_or_default().split_whitespace();
    let numbers = lines.next().unwrap_or_default().split_whitespace();
    let mut counters = names.zip(numbers);
    let found = counters.find(|(name, _)| *name == "TCPFastOpenPassive");
    Ok(found.map_or(0, |(_, number)| number.parse().unwrap_or(0)))
}

/// The client writes at once; the server accepts the connection a while later.
fn early_data(stage: &mut Stage<'_>) -> Played {
    let listener = stage.listen(Target::Open)?;
    let mut client = stage.connect(Target::Open)?;
    client.send(10_000)?;
    std::thread::sleep(WHILE);
    let mut server = stage.accept(&listener)?;
    server.receive(10_000)?;
    client.send(10_000)?;
    server.receive(10_000)?;
    server.send(100)?;
    client.receive(100)
}

fn early_data_and_fin(stage: &mut Stage<'_>) -> Played {
    let listener = stage.listen(Target::Open)?;
    let mut client = stage.connect(Target::Open)?;
    client.send(10_000)?;
    client.finish()?;
    std::thread::sleep(WHILE);
    let mut server = stage.accept(&listener)?;
    server.receive_to_end()?;
    server.send(10_000)?;
    server.close();
    client.receive_to_end()
}

fn server_speaks_first(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    server.send(200)?;
    client.receive(200)?;
    client.send(50)?;
    server.receive(50)?;
    server.close();
    client.receive_to_end()
}

fn silent_client(stage: &mut Stage<'_>) -> Played {
    let (client, mut server) = stage.pair()?;
    server.expect_silence(4 * WHILE)?;
    client.close();
    server.receive_to_end()
}

fn idle_then_data(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    client.send(100)?;
    server.receive(100)?;
    let idle = stage.amount(Duration::from_secs(8), Duration::from_secs(1));
    server.expect_silence(idle)?;
    client.expect_silence(WHILE)?;
    server.send(100)?;
    client.receive(100)?;
    client.send(100)?;
    server.receive(100)
}
