//! The life of a running proxy: reloads, commands, the service manager.
//!
//! Everything happens on the loopback interface of a network namespace of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
mod notifying;
mod reloading;
mod support;

use std::os::fd::AsFd;

use midspan_linux::namespace;
use midspan_linux::netlink::Netlink;
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
    Netlink::open().unwrap().set_up("lo").unwrap();
    let tests: [(&str, fn()); 11] = [
        ("twenty reloads under traffic", reloading::twenty_reloads),
        ("listeners come and go", reloading::listeners_come_and_go),
        ("legs change", reloading::legs_change),
        ("a wrong file changes nothing", reloading::a_wrong_file),
        ("what needs a restart", reloading::what_needs_a_restart),
        ("status and refusals", commands::status_and_refusals),
        ("hostile clients", commands::hostile_clients),
        ("whose socket it is", commands::the_socket_is_ours),
        ("the service manager", notifying::the_manager_is_told),
        ("the unit file", notifying::the_unit_file_is_right),
        ("the watchdog", notifying::a_still_relay_is_not_vouched_for),
    ];
    for (name, test) in tests {
        if !name.contains(filter) {
            continue;
        }
        test();
        println!("test {name} ... ok");
    }
}
