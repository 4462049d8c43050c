//! How a connection comes about, or does not.

use std::time::Duration;

use crate::case::Case;
use crate::end::WHILE;
use crate::error::Played;
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
    Case::new("early data", early_data),
    Case::new("early data and FIN", early_data_and_fin),
    Case::new("server speaks first", server_speaks_first),
    Case::new("silent client", silent_client),
    Case::new("idle, then data", idle_then_data),
];

fn fails(stage: &mut Stage<'_>, target: Target) -> Played {
    if target == Target::BlackHole {
        stage.network.give_up_early()?;
    }
    stage.network.refuse(target)?;
    let mut client = stage.connect(target)?;
    // A proxy that answers before the server does has to show the failure in another way.
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

/// The path drops the first SYN; the client sends it again after a second.
fn first_syn_lost(stage: &mut Stage<'_>) -> Played {
    stage.network.filter(Place::Router, "tcp dport 80 drop")?;
    let listener = stage.listen(Target::Open)?;
    let network = stage.network;
    let (client, healed) = std::thread::scope(|scope| {
        let healed = scope.spawn(|| {
            std::thread::sleep(2 * WHILE);
            network.heal(Place::Router)
        });
        (stage.connect(Target::Open), healed.join())
    });
    healed.map_err(|_| crate::Error::Unknown("a thread panicked".to_owned()))??;
    let mut client = client?;
    client.send(100)?;
    let mut server = stage.accept(&listener)?;
    server.receive(100)?;
    server.send(100)?;
    client.receive(100)
}

/// The client writes at once; the server accepts a while later.
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
