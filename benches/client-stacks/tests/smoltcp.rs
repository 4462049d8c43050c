//! smoltcp as the client. It reassembles fragments of IPv4 but not of IPv6. Midspan probes with
//! oversized segments, and every download finishes.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::ExitCode;

use client_stacks::download::download;
use client_stacks::midspan::{self, Midspan};
use client_stacks::network::{Family, Network};
use client_stacks::server::serve;
use midspan_testbed::kernel_tests::Command;
use midspan_testbed::program::AS;
use midspan_testbed::{KernelTests, kernel_test};

const PROGRAM: &str = env!("CARGO_BIN_EXE_smoltcp-client");
const BYTES: usize = 1_000_000;
const SIZE: usize = 4420;

const COMMANDS: &[Command] = &[
    ("run", |arguments| be_midspan(&[AS, "run", arguments[0]])),
    ("relay", |_| be_midspan(&[AS, "relay"])),
];

fn be_midspan(arguments: &[&str]) -> ExitCode {
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    match midspan::main(&arguments) {
        Some(Ok(())) => ExitCode::SUCCESS,
        other => {
            eprintln!("{other:?}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    KernelTests::new().commands(COMMANDS).needs(device).main()
}

/// Opens a TUN device, which an ordinary user may not be allowed to do.
fn device() -> Result<(), String> {
    let mut options = std::fs::File::options();
    let opened = options.read(true).write(true).open("/dev/net/tun");
    opened
        .map(|_| ())
        .map_err(|error| format!("/dev/net/tun: {error}"))
}

#[kernel_test]
fn downloads_over_ipv4_finish() {
    finishes(Family::Ipv4, false);
}

#[kernel_test]
fn downloads_over_ipv4_finish_though_no_fragments_arrive() {
    finishes(Family::Ipv4, true);
}

#[kernel_test]
fn downloads_over_ipv6_finish() {
    finishes(Family::Ipv6, false);
}

#[kernel_test]
fn downloads_over_ipv6_finish_though_no_fragments_arrive() {
    finishes(Family::Ipv6, true);
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
            .unwrap_or_else(|failure| panic!("{failure}: {}", midspan.log()))
    });
    let sessions = midspan.sessions(downloads.len()).unwrap();
    let sum = |name: &str| -> u64 { sessions.iter().filter_map(|one| one.get(name)).sum() };
    // On a busy machine a probe may end in different ways, but the download continues in all of
    // them.
    assert!(sum("oversized_probes") >= 1, "{sessions:?}");
    midspan.end().unwrap();
}
