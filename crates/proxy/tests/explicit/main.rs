//! Listeners that speak with their clients first: SOCKS5, HTTP and the PROXY protocol, by curl and
//! HAProxy and by clients that break the rules; names, access rules, reloads.
//!
//! Everything happens on the interfaces of a network namespace of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod closing;
mod hostile;
mod names;
mod proxy_protocol;
mod serving;
mod support;

use std::os::fd::AsFd;

use midspan_linux::namespace;
use midspan_proxy::{RunOptions, relay_main, run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["relay"] => end(relay_main()),
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
    println!("in a network namespace of its own, as {privilege:?}");
    support::set_up_network();
    let tests: [(&str, fn()); 16] = [
        ("curl by SOCKS5", serving::curl_by_socks5),
        ("curl by HTTP", serving::curl_by_http),
        ("names and passwords", serving::names_and_passwords),
        ("many at once", serving::many_at_once),
        ("a reload keeps sessions", serving::a_reload_keeps_sessions),
        ("ends and answers", closing::half_close_in_each_mode),
        ("resets", closing::resets_in_each_mode),
        ("early data", closing::early_data_is_kept),
        ("failures have their codes", closing::failures_have_codes),
        ("own addresses", access::own_addresses_are_out_of_reach),
        ("access rules", access::rules_decide),
        ("hostile clients", hostile::clients_that_break_rules),
        ("slow clients", hostile::slow_clients_are_sent_away),
        ("names", names::names_are_raced_and_missed),
        (
            "the client that a proxy tells counts",
            proxy_protocol::the_told_client_counts,
        ),
        ("the PROXY protocol", proxy_protocol::with_haproxy),
    ];
    let mut failed = 0;
    for (name, test) in tests {
        if !name.contains(filter) {
            continue;
        }
        match std::panic::catch_unwind(test) {
            Ok(()) => println!("test {name} ... ok"),
            Err(_) => {
                failed += 1;
                println!("test {name} ... FAILED");
            }
        }
    }
    assert_eq!(failed, 0, "tests failed");
}
