//! Errors and losses on the path between the ends.

use super::transfer;
use crate::case::Case;
use crate::end::WHILE;
use crate::error::Played;
use crate::network::{Place, Target};
use crate::stage::Stage;

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("smaller MTU behind the proxy", |stage| {
        smaller_mtu(stage, Place::Router)
    }),
    Case::new("smaller MTU before the proxy", |stage| {
        smaller_mtu(stage, Place::Access)
    }),
    Case::new("smaller MTU in the middle of a transfer", mtu_shrinks),
    Case::new("host unreachable for a while, upload", |stage| {
        unreachable_for_a_while(stage, UPLOAD, "host-unreachable")
    }),
    Case::new("host unreachable for a while, download", |stage| {
        unreachable_for_a_while(stage, DOWNLOAD, "host-unreachable")
    }),
    Case::new("port unreachable for a while, upload", |stage| {
        unreachable_for_a_while(stage, UPLOAD, "port-unreachable")
    }),
    Case::new("port unreachable for a while, download", |stage| {
        unreachable_for_a_while(stage, DOWNLOAD, "port-unreachable")
    }),
    Case::new("no route for a while, upload", |stage| {
        unreachable_for_a_while(stage, UPLOAD, "no-route")
    }),
    Case::new("prohibited for a while, download", |stage| {
        unreachable_for_a_while(stage, DOWNLOAD, "admin-prohibited")
    }),
    Case::new("path dead for a while", path_dead_for_a_while),
];

/// The client's segments, and the server's segments.
const UPLOAD: &str = "tcp dport 80";
const DOWNLOAD: &str = "tcp sport 80";

const SIZE: u64 = 500_000;
const MTU: u32 = 1300;

fn smaller_mtu(stage: &mut Stage<'_>, place: Place) -> Played {
    stage.network.narrow(place, MTU)?;
    let (mut client, mut server) = stage.pair()?;
    transfer(&mut client, &mut server, SIZE)?;
    transfer(&mut server, &mut client, SIZE)?;
    client.close();
    server.receive_to_end()
}

fn mtu_shrinks(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = stage.pair()?;
    for narrow in [false, true] {
        if narrow {
            stage.network.narrow(Place::Access, MTU)?;
            stage.network.narrow(Place::Router, MTU)?;
        }
        transfer(&mut client, &mut server, SIZE)?;
        transfer(&mut server, &mut client, SIZE)?;
    }
    client.close();
    server.receive_to_end()
}

/// An error that the network reports in the middle of a connection does not end the connection (RFC
/// 1122, 4.2.3.9): the data arrives when the path works again.
fn unreachable_for_a_while(stage: &mut Stage<'_>, segments: &str, reason: &str) -> Played {
    let (mut client, mut server) = stage.pair()?;
    client.send(100)?;
    server.receive(100)?;
    server.send(100)?;
    client.receive(100)?;
    let rule = format!("{segments} reject with icmpx type {reason}");
    stage.network.filter(Place::Router, &rule)?;
    let (sends, receives) = if segments == UPLOAD {
        (&mut client, &mut server)
    } else {
        (&mut server, &mut client)
    };
    sends.send(5000)?;
    receives.expect_silence(2 * WHILE)?;
    stage.network.heal(Place::Router)?;
    receives.receive(5000)?;
    receives.send(100)?;
    sends.receive(100)?;
    client.close();
    server.receive_to_end()
}

/// No packet passes, and no ICMP error is sent.
fn path_dead_for_a_while(stage: &mut Stage<'_>) -> Played {
    let port = Target::Open.port();
    let (mut client, mut server) = stage.pair()?;
    client.send(100)?;
    server.receive(100)?;
    stage.network.filter(
        Place::Router,
        &format!("tcp dport {port} drop; tcp sport {port} drop"),
    )?;
    client.send(5000)?;
    server.send(5000)?;
    server.expect_silence(4 * WHILE)?;
    client.expect_silence(WHILE)?;
    stage.network.heal(Place::Router)?;
    server.receive(5000)?;
    client.receive(5000)?;
    client.close();
    server.receive_to_end()
}
