//! Connections that end with a reset.

use std::sync::mpsc;

use super::transfer;
use crate::case::Case;
use crate::end::{End, WHILE};
use crate::error::{Error, Played, Stop};
use crate::network::Target;
use crate::stage::Stage;
use crate::transcript::Log;

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("reset by client before data", |stage| {
        before_data(stage.pair()?)
    }),
    Case::new("reset by server before data", |stage| {
        before_data(swapped(stage.pair()?))
    }),
    Case::new("reset by client who receives", |stage| {
        by_receiver(stage.pair()?)
    }),
    Case::new("reset by server who receives", |stage| {
        by_receiver(swapped(stage.pair()?))
    }),
    Case::new("reset by client who sends", |stage| {
        by_sender(stage.pair()?)
    }),
    Case::new("reset by server who sends", |stage| {
        by_sender(swapped(stage.pair()?))
    }),
    Case::new("reset by client after data", |stage| {
        after_data(stage.pair()?)
    }),
    Case::new("reset by server after data", |stage| {
        after_data(swapped(stage.pair()?))
    }),
    Case::new("reset by client right behind data", |stage| {
        right_behind_data(stage, false)
    }),
    Case::new("reset by server right behind data", |stage| {
        right_behind_data(stage, true)
    }),
    Case::new("reset by client after its FIN", |stage| {
        after_own_fin(stage.pair()?)
    }),
    Case::new("reset by server after its FIN", |stage| {
        after_own_fin(swapped(stage.pair()?))
    }),
    Case::new("reset by client after the FIN of the server", |stage| {
        after_fin(stage.pair()?)
    }),
    Case::new("reset by server after the FIN of the client", |stage| {
        after_fin(swapped(stage.pair()?))
    }),
    Case::new("client closes with data unread", |stage| {
        unread_data(stage.pair()?)
    }),
    Case::new("server closes with data unread", |stage| {
        unread_data(swapped(stage.pair()?))
    }),
    Case::new("reset before accept", before_accept),
    Case::new("bulk, then reset by client", |stage| {
        bulk_then_reset(stage.pair()?)
    }),
    Case::new("bulk, then reset by server", |stage| {
        bulk_then_reset(swapped(stage.pair()?))
    }),
];

fn swapped((client, server): (End, End)) -> (End, End) {
    (server, client)
}

fn before_data((one, mut other): (End, End)) -> Played {
    one.reset()?;
    other.wait_until_failed()?;
    other.receive_to_end()
}

/// An end resets the connection while the other end sends without pause.
fn by_receiver((mut one, mut other): (End, End)) -> Played {
    std::thread::scope(|scope| {
        let resets = scope.spawn(move || {
            for _ in 0..20 {
                one.receive_some()?;
            }
            one.reset()
        });
        other.flood()?;
        joined(resets)
    })
}

/// An end sends without pause and then resets the connection.
fn by_sender((mut one, mut other): (End, End)) -> Played {
    one.send(300_000)?;
    std::thread::scope(|scope| {
        let (say, hear) = mpsc::channel();
        let resets = scope.spawn(move || {
            // Enough data that the buffers on the path are not empty.
            one.fill()?;
            let _ = say.send(());
            one.reset()
        });
        let _ = hear.recv();
        let drained = other.drain_to_end();
        joined(resets)?;
        drained
    })
}

/// Data that arrived before a reset can still be read.
fn after_data((mut one, mut other): (End, End)) -> Played {
    one.send(1000)?;
    one.wait_until_acknowledged()?;
    other.wait_until_held(1000)?;
    one.reset()?;
    other.wait_until_failed()?;
    other.receive_to_end()
}

/// Data that was acknowledged has arrived, even if a reset follows at once. The case repeats this
/// several times, because the reset has to arrive while the relay holds data.
fn right_behind_data(stage: &mut Stage<'_>, by_server: bool) -> Played {
    let listener = stage.listen(Target::Open)?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..stage.amount(100, 40) {
        let (client, server) = (Log::default(), Log::default());
        let mut pair = stage.pair_with(&listener, &client, &server)?;
        if by_server {
            pair = swapped(pair);
        }
        near.push(client);
        far.push(server);
        if reset_behind_data(pair).is_err() {
            break;
        }
    }
    stage.client_log().add_many(&near);
    stage.server_log().add_many(&far);
    Ok(())
}

fn reset_behind_data((mut one, mut other): (End, End)) -> Played {
    one.send(40_000)?;
    one.wait_until_acknowledged()?;
    one.reset()?;
    other.wait_until_failed()?;
    other.receive_to_end()
}

fn after_own_fin((mut one, mut other): (End, End)) -> Played {
    one.send(1000)?;
    one.finish()?;
    other.receive_to_end()?;
    one.reset()?;
    other.wait_until_failed()?;
    other.flood()
}

fn after_fin((mut one, mut other): (End, End)) -> Played {
    other.send(1000)?;
    other.finish()?;
    one.receive_to_end()?;
    one.reset()?;
    other.wait_until_failed()?;
    other.receive_to_end()
}

/// If a program closes a socket that has unread data, the kernel resets the connection (RFC 1122,
/// 4.2.2.13).
fn unread_data((one, mut other): (End, End)) -> Played {
    other.send(5000)?;
    one.wait_until_held(5000)?;
    one.close();
    other.wait_until_failed()?;
    other.receive_to_end()
}

/// The connection is established, but the server has not yet accepted it.
fn before_accept(stage: &mut Stage<'_>) -> Played {
    let listener = stage.listen(Target::Open)?;
    let client = stage.connect(Target::Open)?;
    stage.wait_until_arrived(&listener)?;
    client.reset()?;
    std::thread::sleep(WHILE);
    let mut server = stage.accept(&listener)?;
    server.wait_until_failed()?;
    server.receive_to_end()
}

/// A reset follows a bulk transfer that was read to its last byte.
fn bulk_then_reset((mut one, mut other): (End, End)) -> Played {
    transfer(&mut one, &mut other, 2_000_000)?;
    one.reset()?;
    other.wait_until_failed()?;
    other.receive_to_end()
}

fn joined(thread: std::thread::ScopedJoinHandle<'_, Played>) -> Played {
    let panicked = |_| Stop::Failed(Error::Unknown("a thread panicked".to_owned()));
    thread.join().map_err(panicked)?
}
