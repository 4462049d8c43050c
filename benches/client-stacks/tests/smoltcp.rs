//! smoltcp as the client, which puts fragments of IPv4 together and none of IPv6: Midspan tries
//! oversized segments, and every download finishes.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::ExitCode;

use client_stacks::download::download;
use client_stacks::midspan::{self, Midspan};
use client_stacks::network::{Family, Network};
use client_stacks::server::serve;

const PROGRAM: &str = env!("CARGO_BIN_EXE_smoltcp-client");
const BYTES: usize = 1_000_000;
const SIZE: usize = 4420;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match midspan::main(&arguments) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(failure)) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
        None => test(),
    }
}

fn test() -> ExitCode {
    // An ordinary user may not always open it.
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    if let Err(error) = device {
        println!("left out: /dev/net/tun: {error}");
        return ExitCode::SUCCESS;
    }
    midspan_linux::namespace::isolate().unwrap();
    for family in Family::ALL {
        for dropped in [false, true] {
            finishes(family, dropped);
            let path = if dropped { ", no fragments arrive" } else { "" };
            println!("test smoltcp over {}{path} ... ok", family.name());
        }
    }
    ExitCode::SUCCESS
}

fn finishes(family: Family, dropped: bool) {
    let rate = "50 Mbit/s".parse().unwrap();
    let network = Network::build(false, rate).unwrap();
    serve(&network.server, BYTES).unwrap();
    if dropped {
        network.drop_fragments().unwrap();
    }
    let midspan = Midspan::start(&network.gateway, Some(SIZE), rate).unwrap();
    let program = Some(Path::new(PROGRAM));
    let downloads = [0; 3].map(|_| {
        download(&network, program, family, BYTES)
            .unwrap_or_else(|failure| panic!("{failure}: {}", midspan.log().unwrap()))
    });
    let sessions = midspan.sessions(downloads.len()).unwrap();
    let sum = |name: &str| -> u64 { sessions.iter().filter_map(|one| one.get(name)).sum() };
    // How a probe ends depends on how late a loaded machine is; that the download goes on does not.
    assert!(sum("oversized_probes") >= 1, "{sessions:?}");
    midspan.end().unwrap();
}
