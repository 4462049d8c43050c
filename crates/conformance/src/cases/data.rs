//! Every byte has to arrive, in order and in time.

use std::time::Duration;

use super::at_once;
use crate::case::Case;
use crate::end::{End, WHILE};
use crate::error::{Error, Played};
use crate::stage::Stage;

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("one-byte writes, each answered", answered_bytes),
    Case::new("one-byte writes in a row", bytes_in_a_row),
    Case::new("tail behind bulk", tail_behind_bulk),
    Case::new("bulk both ways at once", both_ways).heavy(),
    Case::new("zero window, upload", |stage| {
        let quick = stage.quick;
        zero_window(stage.pair()?, quick)
    }),
    Case::new("zero window, download", |stage| {
        let quick = stage.quick;
        let (client, server) = stage.pair()?;
        zero_window((server, client), quick)
    }),
    Case::new("urgent byte", urgent_byte),
    Case::new("urgent byte in line", urgent_byte_in_line),
    Case::new("urgent byte amid bulk", urgent_byte_amid_bulk),
];

fn answered_bytes(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    let count = stage.amount(1000, 200);
    at_once(
        &mut client,
        &mut server,
        |client| client.ping(count),
        |server| server.echo(count),
    )?;
    client.close();
    server.receive_to_end()
}

/// Nothing follows the last byte. A relay that waits for more data before it sends would hold this
/// byte.
fn bytes_in_a_row(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    at_once(
        &mut client,
        &mut server,
        |client| client.send_singly(1000),
        |server| server.receive(1000),
    )?;
    at_once(
        &mut client,
        &mut server,
        |client| client.receive(1000),
        |server| server.send_singly(1000),
    )
}

/// A bulk transfer whose last bytes do not fill a segment, followed by a question that needs an
/// answer.
fn tail_behind_bulk(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    let rounds = stage.amount(20, 8);
    at_once(
        &mut client,
        &mut server,
        |client| {
            for _ in 0..rounds {
                client.receive(300_001)?;
                client.ping(1)?;
            }
            Ok(())
        },
        |server| {
            for _ in 0..rounds {
                server.send(300_001)?;
                server.echo(1)?;
            }
            Ok(())
        },
    )
}

/// Each end sends and receives at the same time.
fn both_ways(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    let size = stage.amount(1_000_000_000, 64_000_000);
    at_once(
        &mut client,
        &mut server,
        |client| client.exchange(size),
        |server| server.exchange(size),
    )
}

/// The receiver reads nothing until the sender has filled all buffers on the path.
fn zero_window((mut sends, mut receives): (End, End), quick: bool) -> Played {
    sends.fill()?;
    let rest = if quick { 2 } else { 10 };
    std::thread::sleep(Duration::from_secs(rest));
    let sent = sends.sent();
    at_once(
        &mut sends,
        &mut receives,
        |sends| {
            sends.finish()?;
            sends.receive_to_end()
        },
        |receives| {
            receives.receive_all_to_end(sent)?;
            receives.send(100)?;
            receives.finish()
        },
    )
}

/// The default of a socket: the urgent byte is not part of the stream.
fn urgent_byte(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    client.send(1000)?;
    server.receive(1000)?;
    client.send_urgent()?;
    server.receive_urgent()?;
    client.send(1000)?;
    client.finish()?;
    server.receive_to_end()
}

/// As RFC 6093 recommends: the urgent byte stays at its place in the stream.
fn urgent_byte_in_line(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    let in_line = server.socket().set_out_of_band_inline(true);
    in_line.map_err(Error::system("set SO_OOBINLINE"))?;
    client.send(1000)?;
    client.send_urgent()?;
    server.expect_urgent()?;
    client.send(1000)?;
    client.finish()?;
    server.receive_to_end()
}

fn urgent_byte_amid_bulk(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    let in_line = server.socket().set_out_of_band_inline(true);
    in_line.map_err(Error::system("set SO_OOBINLINE"))?;
    at_once(
        &mut client,
        &mut server,
        |client| {
            client.send(1_000_000)?;
            client.send_urgent()?;
            client.send(1_000_000)?;
            client.finish()
        },
        |server| {
            std::thread::sleep(WHILE);
            server.receive_to_end()
        },
    )
}
