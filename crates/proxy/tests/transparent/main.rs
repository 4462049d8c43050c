//! Transparent listeners on a gateway, in network namespaces that look like one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod failing;
mod handshake;
mod passing;
mod support;
mod untaken;

use std::os::fd::AsFd;
use std::time::Instant;

use midspan_linux::namespace;
use midspan_proxy::{RunOptions, relay_main, run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["relay"] => end(relay_main()),
        ["measure"] => handshake::measure(),
        ["run", file] => end(run(RunOptions {
            configuration: file.into(),
            relay_arguments: vec!["relay".to_owned()],
            ready: Some(std::io::stdout().as_fd().try_clone_to_owned().unwrap()),
        })),
        [filter] if !filter.starts_with('-') => test(filter),
        _ => test(""),
    }
}

fn end(result: Result<(), midspan_proxy::Error>) {
    if let Err(error) = result {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn test(filter: &str) {
    let privilege = match namespace::isolate() {
        Ok(privilege) => privilege,
        Err(error) => return println!("skipped: {error}"),
    };
    if std::process::Command::new("nft")
        .arg("-v")
        .output()
        .is_err()
    {
        return println!("skipped: there is no program nft");
    }
    println!("in network namespaces of its own, as {privilege:?}");
    let tests: [(&str, fn()); 24] = [
        ("addresses are kept", passing::addresses_are_kept),
        (
            "behind NAT and a strict firewall",
            passing::a_strict_gateway,
        ),
        (
            "what the host refuses is refused",
            untaken::forward_is_obeyed,
        ),
        (
            "the gateway's own services",
            untaken::own_services_are_left_alone,
        ),
        ("a closed port refuses", handshake::a_closed_port_refuses),
        (
            "a filtered port times out",
            handshake::a_filtered_port_times_out,
        ),
        (
            "an unreachable host is reported",
            handshake::an_unreachable_host_is_reported,
        ),
        ("early data is kept", handshake::early_data_is_kept),
        (
            "ports and hosts are left alone",
            untaken::exceptions_are_left_alone,
        ),
        ("path MTU", passing::the_path_mtu_is_found),
        ("two uplinks", passing::marks_of_others_choose_the_way),
        (
            "redirected connections",
            untaken::what_the_host_redirects_is_left_alone,
        ),
        ("a port used again", passing::a_port_is_used_again),
        (
            "several listeners and initial windows",
            passing::listeners_and_windows,
        ),
        (
            "the internal listener",
            untaken::the_internal_listener_serves_nobody,
        ),
        ("SIGTERM", failing::sessions_go_on_while_it_drains),
        ("flows under way go on", untaken::flows_under_way_go_on),
        ("a SYN under way goes on", untaken::a_syn_under_way_goes_on),
        ("a firewall reload", failing::rules_are_put_back),
        ("a killed relay", failing::a_killed_relay_fails_open),
        (
            "a killed helper",
            failing::a_killed_helper_leaves_nothing_closed,
        ),
        ("a stopped relay", failing::a_stopped_relay_fails_open),
        ("spoofed SYNs", handshake::spoofed_syns_stop_nobody),
        ("nothing is left behind", failing::nothing_is_left_behind),
    ];
    for (name, test) in tests {
        if !name.contains(filter) {
            continue;
        }
        let start = Instant::now();
        test();
        println!(
            "test {name} ... ok ({:.1} s)",
            start.elapsed().as_secs_f64()
        );
    }
}
