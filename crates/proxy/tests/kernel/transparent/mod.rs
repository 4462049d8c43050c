//! Transparent listeners on a gateway, in network namespaces that look like one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod accounting;
mod admission;
mod ahead_long_leg;
mod ahead_loss;
mod ahead_restart;
mod asymmetric;
mod busy;
mod capture;
mod check;
mod express_lane;
mod failing;
mod firewall;
mod flood;
mod fragment_loss;
mod full_table;
mod handshake;
mod hanging;
mod hanging_thread;
mod health;
mod keepalive;
mod learned;
mod learning;
mod limits;
mod load;
mod making_room;
mod many_routes;
mod multipath;
mod narrow;
mod no_ipv6;
mod passing;
mod path_mtu;
mod power_loss;
mod quic;
mod raised_window;
mod reloading;
mod service_class;
mod signed;
mod soak;
mod support;
mod takeover;
mod towards_servers;
mod tracking;
mod unread_log;
mod untaken;
mod upgraded_numbers;
mod upgrading;
mod upgrading_oversized;
mod uplinks;

use std::process::ExitCode;

use midspan_proxy::check::{CheckOptions, Expected, check as check_all, kernel_main};
use midspan_proxy::cleanup;
use midspan_testbed::KernelTests;
use midspan_testbed::kernel_tests::Command;
use midspan_testbed::program::AS;

use crate::common::{exit_code, run};

const COMMANDS: &[Command] = &[
    ("run-without-ipv6", |arguments| {
        no_ipv6::refuse_sockets();
        exit_code(run(arguments[0]))
    }),
    ("check", |arguments| print_check(arguments)),
    ("check-without-ipv6", |arguments| {
        no_ipv6::refuse_sockets();
        print_check(arguments)
    }),
    ("check-kernel", |arguments| {
        exit_code(kernel_main(arguments[0].as_ref()))
    }),
    ("remove-leftovers", |_| {
        exit_code(cleanup().map(|cleaned| println!("{}", cleaned.rules_and_routes)))
    }),
];

/// These tests, with their needs.
pub const TESTS: KernelTests = KernelTests::new()
    .commands(COMMANDS)
    .before_namespaces(full_table::stay_in_first_namespace)
    .needs(nft);

fn nft() -> Result<(), String> {
    let found = std::process::Command::new("nft").arg("-v").output();
    found
        .map(|_| ())
        .map_err(|_| "there is no program nft".to_owned())
}

/// Prints one line for each finding, with tabs between its parts. The arguments are the file and,
/// optionally before it, a rate of new connections.
fn print_check(arguments: &[&str]) -> ExitCode {
    let (rate, file) = match *arguments {
        [rate, file] => (Some(rate.parse().unwrap()), file),
        _ => (None, arguments[0]),
    };
    let options = CheckOptions {
        configuration: file.into(),
        kernel_arguments: [AS, "check-kernel", file].map(str::to_owned).to_vec(),
        expected: Expected {
            rate,
            sessions: None,
        },
    };
    for finding in check_all(&options).unwrap().checks {
        let state = format!("{:?}", finding.state).to_lowercase();
        let parts = [
            state,
            finding.check,
            finding.found,
            finding.mend.unwrap_or_default(),
        ];
        println!("{}", parts.map(|part| part.replace('\n', " ")).join("\t"));
    }
    ExitCode::SUCCESS
}
