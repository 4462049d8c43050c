//! Ends that are killed or vanish from the network.

use std::process::{Command, Stdio};
use std::time::Duration;

use midspan_linux::process::RunningProgram;

use crate::case::Case;
use crate::end::{End, WHILE};
use crate::error::{Error, Played, Stop};
use crate::network::Place;
use crate::proxies::Conditions;
use crate::stage::Stage;

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("server process killed while it sends", killed_while_sending),
    Case::new(
        "server process killed with data unread",
        killed_with_unread_data,
    ),
    Case::new("server vanishes while the client sends", server_vanishes).leaves_connections(),
    Case::new("client vanishes while the server sends", client_vanishes).leaves_connections(),
    Case::new("client vanishes, keep-alive finds out", |stage| {
        keepalive(stage, false)
    })
    .under(KEEPALIVE)
    .leaves_connections(),
    Case::new("server vanishes, keep-alive finds out", |stage| {
        keepalive(stage, true)
    })
    .under(KEEPALIVE)
    .leaves_connections(),
    Case::new("idle for longer than keep-alive takes", idle).under(KEEPALIVE),
];

const KEEPALIVE: Conditions = Conditions {
    few_descriptors: false,
    few_pipes: false,
    keepalive: true,
};

const NOTHING_PASSES: &str = "meta l4proto { tcp, icmp, ipv6-icmp } drop";

/// The server's socket is only open in a program that sends zeros without end; this program is
/// killed.
fn killed_while_sending(stage: &mut Stage<'_>) -> Played {
    let (mut client, server) = stage.pair()?;
    let mut program = Command::new("cat");
    program.arg("/dev/zero").stdin(Stdio::null());
    program.stdout(Stdio::from(server.into_descriptor()));
    let mut program = started(stage, program)?;
    client.wait_until_readable()?;
    kill(&mut program)?;
    client.drain_foreign_to_end()
}

/// The server's socket is only open in a program that does nothing; this program is killed.
fn killed_with_unread_data(stage: &mut Stage<'_>) -> Played {
    let (mut client, server) = stage.pair()?;
    client.send(5000)?;
    server.wait_until_held(5000)?;
    let mut program = Command::new("sleep");
    program.arg("600").stdout(Stdio::null());
    program.stdin(Stdio::from(server.into_descriptor()));
    let mut program = started(stage, program)?;
    kill(&mut program)?;
    client.wait_until_failed()?;
    client.receive_to_end()
}

fn server_vanishes(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = established(stage)?;
    stage.network.filter(Place::Router, NOTHING_PASSES)?;
    client.send(5000)?;
    client.receive_to_end()?;
    // The server was unreachable meanwhile. It gets a reset as soon as it sends something.
    stage.network.heal(Place::Router)?;
    server.flood()
}

fn client_vanishes(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = established(stage)?;
    stage.network.filter(Place::Access, NOTHING_PASSES)?;
    server.send(5000)?;
    server.receive_to_end()?;
    stage.network.heal(Place::Access)?;
    client.flood()
}

/// The remaining end has nothing to send; its keep-alive probes find out that the other end has
/// vanished.
fn keepalive(stage: &mut Stage<'_>, server_goes: bool) -> Played {
    let (client, server) = established(stage)?;
    let (place, mut stays, gone) = if server_goes {
        (Place::Router, client, server)
    } else {
        (Place::Access, server, client)
    };
    let result = stays.socket().set_keepalive(true);
    result.map_err(Error::system("set SO_KEEPALIVE"))?;
    stage.network.filter(place, NOTHING_PASSES)?;
    stays.receive_to_end()?;
    drop(gone);
    Ok(())
}

/// Every keep-alive probe is answered, so the connection stays open.
fn idle(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = established(stage)?;
    for end in [&client, &server] {
        let result = end.socket().set_keepalive(true);
        result.map_err(Error::system("set SO_KEEPALIVE"))?;
    }
    let time = stage.amount(Duration::from_secs(10), Duration::from_secs(4));
    server.expect_silence(time)?;
    client.expect_silence(WHILE)?;
    client.send(100)?;
    client.finish()?;
    server.receive_to_end()?;
    server.send(100)?;
    server.close();
    client.receive_to_end()
}

fn established(stage: &mut Stage<'_>) -> Result<(End, End), Stop> {
    stage.network.give_up_early()?;
    let (mut client, mut server) = stage.pair()?;
    client.send(100)?;
    server.receive(100)?;
    server.send(100)?;
    client.receive(100)?;
    Ok((client, server))
}

fn started(stage: &Stage<'_>, program: Command) -> Result<RunningProgram, Stop> {
    let child = stage.network.server.spawn(program)?;
    Ok(RunningProgram::new(child, Duration::ZERO))
}

fn kill(program: &mut RunningProgram) -> Played {
    let child = program.child();
    child
        .kill()
        .map_err(Error::system("kill the server's program"))?;
    child
        .wait()
        .map_err(Error::system("wait for the server's program"))?;
    Ok(())
}
