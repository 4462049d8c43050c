//! Connections that end with a FIN in each direction.

use std::sync::Barrier;
use std::time::Duration;

use super::{at_once, transfer};
use crate::case::Case;
use crate::end::{End, WHILE};
use crate::error::{Error, Played};
use crate::network::Target;
use crate::stage::Stage;

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("half-close by client, data back", half_close_by_client),
    Case::new("half-close by server, data back", half_close_by_server),
    Case::new("answer after the FIN of the client", answer_after_fin),
    Case::new(
        "half-close while data flows the other way",
        half_close_in_the_flow,
    ),
    Case::new("FIN right after connect", fin_right_after_connect),
    Case::new("FIN behind data not yet read", fin_behind_unread_data),
    Case::new("request, then close at once", request_then_close),
    Case::new("simultaneous close", simultaneous_close),
    Case::new("simultaneous half-closes", simultaneous_half_closes),
    Case::new("large write, then close", large_write_then_close),
    Case::new("close that waits for the receiver", lingering_close),
    Case::new("many short connections from one port", one_port),
    Case::new("many connections reset from one port", one_port_reset),
];

const MEGABYTE: u64 = 1_000_000;

fn half_close_by_client(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    client.send(1000)?;
    client.finish()?;
    server.receive_to_end()?;
    transfer(&mut server, &mut client, 3 * MEGABYTE)?;
    server.close();
    client.receive_to_end()
}

fn half_close_by_server(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    server.send(1000)?;
    server.finish()?;
    client.receive_to_end()?;
    transfer(&mut client, &mut server, 3 * MEGABYTE)?;
    client.close();
    server.receive_to_end()
}

/// The client ends its data; the server answers after a while.
fn answer_after_fin(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    client.send(300)?;
    client.finish()?;
    server.receive_to_end()?;
    client.expect_silence(4 * WHILE)?;
    server.send(64_000)?;
    server.finish()?;
    client.receive_to_end()
}

/// One end's FIN arrives while the other end is still sending.
fn half_close_in_the_flow(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    at_once(
        &mut client,
        &mut server,
        |client| {
            client.receive(MEGABYTE)?;
            client.finish()?;
            client.receive_to_end()
        },
        |server| {
            server.send(3 * MEGABYTE)?;
            server.receive_to_end()?;
            server.send(3 * MEGABYTE)?;
            server.finish()
        },
    )
}

fn fin_right_after_connect(stage: &mut Stage<'_>) -> Played {
    let listener = stage.listen(Target::Open)?;
    let client = stage.connect(Target::Open)?;
    client.close();
    let mut server = stage.accept(&listener)?;
    server.receive_to_end()
}

fn fin_behind_unread_data(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    at_once(
        &mut client,
        &mut server,
        |client| {
            client.send(2 * MEGABYTE)?;
            client.finish()?;
            client.receive_to_end()
        },
        |server| {
            std::thread::sleep(2 * WHILE);
            server.receive_to_end()?;
            server.send(2 * MEGABYTE)?;
            server.finish()
        },
    )
}

/// The server answers after the client has closed its socket.
fn request_then_close(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    client.send(100)?;
    client.close();
    server.receive_to_end()?;
    server.flood()
}

fn simultaneous_close(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    client.send(1000)?;
    server.send(1000)?;
    client.receive(1000)?;
    server.receive(1000)?;
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            barrier.wait();
            client.close();
        });
        barrier.wait();
        server.close();
    });
    Ok(())
}

fn simultaneous_half_closes(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    let barrier = Barrier::new(2);
    let act = |end: &mut End| {
        end.send(100_000)?;
        barrier.wait();
        end.finish()?;
        end.receive_to_end()
    };
    at_once(&mut client, &mut server, act, act)
}

/// The sender writes everything into the kernel's buffers and closes its socket; the receiver reads
/// slowly.
fn large_write_then_close(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    server.send(100)?;
    client.receive(100)?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            server.send(3 * MEGABYTE)?;
            server.close();
            Ok(())
        });
        std::thread::sleep(2 * WHILE);
        client.receive_to_end()?;
        sender
            .join()
            .map_err(|_| Error::Unknown("a thread panicked".to_owned()))?
    })
}

/// `SO_LINGER` with a time: `close` returns when all data is acknowledged.
fn lingering_close(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    let linger = server.socket().set_linger(Some(Duration::from_secs(20)));
    linger.map_err(Error::system("set SO_LINGER"))?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            server.send(MEGABYTE)?;
            server.close();
            Ok(())
        });
        client.receive_to_end()?;
        client.close();
        sender
            .join()
            .map_err(|_| Error::Unknown("a thread panicked".to_owned()))?
    })
}

const CONNECTIONS: u32 = 20;

/// Connections one after another with the same addresses and ports. The server closes each one
/// first, so its kernel has the socket in TIME-WAIT and the client may use the port again.
fn one_port(stage: &mut Stage<'_>) -> Played {
    from_one_port(stage, |mut client, mut server| {
        client.send(100)?;
        server.receive(100)?;
        server.send(10_000)?;
        server.close();
        client.receive_to_end()?;
        client.close();
        Ok(())
    })
}

fn one_port_reset(stage: &mut Stage<'_>) -> Played {
    from_one_port(stage, |mut client, mut server| {
        client.send(100)?;
        server.receive(100)?;
        client.reset()?;
        server.wait_until_failed()?;
        server.receive_to_end()
    })
}

fn from_one_port(stage: &mut Stage<'_>, session: impl Fn(End, End) -> Played) -> Played {
    let listener = stage.listen(Target::Open)?;
    for _ in 0..stage.amount(CONNECTIONS, CONNECTIONS / 2) {
        let client = stage.connect_from(40_000, Target::Open)?;
        let server = stage.accept(&listener)?;
        session(client, server)?;
    }
    Ok(())
}
