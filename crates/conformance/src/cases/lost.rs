//! Single packets that are lost while almost nothing else is in flight.

use std::time::Duration;

use super::healed_while;
use crate::case::Case;
use crate::end::{End, WHILE};
use crate::error::Played;
use crate::network::{Place, Target};
use crate::stage::Stage;
use crate::transcript::Event;

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("first answer to the SYN lost", first_answer_lost),
    Case::new("last part of the handshake lost", last_part_lost),
    Case::new("FIN lost before the proxy", |stage| {
        fin_lost(stage, Place::Access)
    }),
    Case::new("FIN lost behind the proxy", |stage| {
        fin_lost(stage, Place::Router)
    }),
    Case::new("reset by client lost, data shows it", |stage| {
        let (client, server) = stage.pair()?;
        reset_lost(stage, Place::Access, client, server)
    }),
    Case::new("reset by server lost, data shows it", |stage| {
        let (client, server) = stage.pair()?;
        reset_lost(stage, Place::Router, server, client)
    }),
];

/// How long packets of one kind are dropped: less than the second after which a SYN is sent again.
const LOST_FOR: Duration = WHILE.saturating_mul(2);

/// The client sends its SYN again. Both SYNs must lead to a single connection.
fn first_answer_lost(stage: &mut Stage<'_>) -> Played {
    let listener = stage.listen(Target::Open)?;
    let answers = "tcp flags & (syn | ack) == (syn | ack) drop";
    let mut client = healed_while(stage, Place::Access, answers, LOST_FOR, || {
        let mut client = stage.connect(Target::Open)?;
        client.send(100)?;
        Ok(client)
    })?;
    let mut server = stage.accept(&listener)?;
    server.receive(100)?;
    if stage.try_accept(&listener, WHILE)?.is_some() {
        server.note(Event::Other("a second connection"));
    }
    answer_half_closed(&mut client, server)
}

/// The last ACK of the handshake is lost: the client has a connection before the other end has one,
/// and all data that the client sends is lost at first.
fn last_part_lost(stage: &mut Stage<'_>) -> Played {
    let listener = stage.listen(Target::Open)?;
    let from_client = "iifname \"in\" tcp flags & (syn | ack) == ack drop";
    let mut client = healed_while(stage, Place::Access, from_client, LOST_FOR, || {
        let mut client = stage.connect(Target::Open)?;
        client.send(10_000)?;
        Ok(client)
    })?;
    let mut server = stage.accept(&listener)?;
    server.receive(10_000)?;
    answer_half_closed(&mut client, server)
}

/// Each end's FIN is lost, one after the other, and sent again when it can pass.
fn fin_lost(stage: &mut Stage<'_>, place: Place) -> Played {
    let (mut client, mut server) = stage.pair()?;
    client.send(1000)?;
    server.receive(1000)?;
    lost_fin(stage, place, &mut client, &mut server)?;
    server.send(5000)?;
    client.receive(5000)?;
    lost_fin(stage, place, &mut server, &mut client)
}

fn lost_fin(stage: &Stage<'_>, place: Place, from: &mut End, to: &mut End) -> Played {
    from.wait_until_acknowledged()?;
    (stage.network).filter(place, "tcp flags & fin == fin drop")?;
    from.finish()?;
    to.expect_silence(LOST_FOR)?;
    stage.network.heal(place)?;
    to.receive_to_end()
}

/// A reset is lost. The remaining end finds out when it sends.
fn reset_lost(stage: &Stage<'_>, place: Place, mut goes: End, mut stays: End) -> Played {
    goes.send(100)?;
    stays.receive(100)?;
    goes.wait_until_acknowledged()?;
    stage.network.filter(place, "tcp flags & rst == rst drop")?;
    goes.reset()?;
    stays.expect_silence(LOST_FOR)?;
    stage.network.heal(place)?;
    stays.send(5000)?;
    stays.receive_to_end()
}

/// The client ends its data; then the server answers and ends its data too.
fn answer_half_closed(client: &mut End, mut server: End) -> Played {
    client.finish()?;
    server.receive_to_end()?;
    server.send(100)?;
    server.close();
    client.receive_to_end()
}
