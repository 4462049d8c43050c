//! Forward listeners with several servers.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use midspan_testbed::program::Launch;

use super::support::*;
use crate::common::get;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn forwarding(to: &str) -> String {
    with_head(&format!(
        "[[listener]]\nname = \"web\"\nlisten = \"{FORWARD}\"\nto = {to}\n\
         connect_timeout = \"20 s\"\nhealth_check = \"200 ms\"\n"
    ))
}

/// A new session, and the name of its server.
fn session() -> (std::net::TcpStream, u8) {
    let mut stream = connect(FORWARD);
    let name = name_of_server(&mut stream);
    (stream, name)
}

fn is_in_state(server: &str, state: &str) -> bool {
    let labels = format!("listener=\"web\",server=\"{server}\",state=\"{state}\"");
    metric(&format!("midspan_server_state{{{labels}}}")) == 1.0
}

fn sessions(server: &str) -> f64 {
    let labels = format!("listener=\"web\",server=\"{server}\"");
    metric(&format!("midspan_server_sessions{{{labels}}}"))
}

#[kernel_test]
fn a_dead_server_loses_its_new_sessions_only_and_comes_back() {
    let [first, second] = ["127.0.0.1:9001", "127.0.0.1:9002"];
    let _first = NamedServer::start(address(first), 1);
    let killed = NamedServer::start(address(second), 2);
    let proxy = Midspan::here(&forwarding(&format!("[\"{first}\", \"{second}\"]")));
    let mut live: Vec<_> = (0..8).map(|_| session()).collect();
    assert_eq!((sessions(first), sessions(second)), (4.0, 4.0));
    assert_eq!(live.iter().filter(|(_, name)| *name == 1).count(), 4);
    killed.stop();
    // At once, and before a check has found it.
    for _ in 0..4 {
        assert_eq!(session().1, 1);
    }
    wait_until("down", || is_in_state(second, "down"));
    let log = proxy.log();
    assert!(log.contains("server is down"), "{log}");
    for _ in 0..4 {
        assert_eq!(session().1, 1);
    }
    for (stream, _) in &mut live {
        assert!(is_answered(stream));
    }
    let _second = NamedServer::start(address(second), 2);
    wait_until("up", || is_in_state(second, "up"));
    wait_until("only the first ones", || sessions(first) == 4.0);
    let next: Vec<_> = (0..4).map(|_| session()).collect();
    assert_eq!(next.iter().filter(|(_, name)| *name == 2).count(), 2);
    let (status, text) = get("/servers");
    let servers: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &servers["web"][1]["state"]), (200, &"up".into()));
    let (_, text) = get("/summary?by=listener");
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(summary["listeners"][0]["servers"], servers["web"]);
    assert!(servers["web"][1]["failed_checks"].as_u64().unwrap() >= 3);
    drop((live, next));
    wait_until("over", || (sessions(first), sessions(second)) == (0.0, 0.0));
}

/// The server at 2001:db8::9 never answers: no host has this address.
#[kernel_test]
fn a_silent_server_costs_half_of_the_time() {
    let _second = NamedServer::start(address("127.0.0.1:9002"), 2);
    let text = forwarding("[\"[2001:db8::9]:9001\", \"127.0.0.1:9002\"]");
    let text = text
        .replace("20 s", "2 s")
        .replace("health_check = \"200 ms\"", "");
    let _proxy = Midspan::here(&text);
    assert_eq!(session().1, 2);
    wait_until("suspect", || is_in_state("[2001:db8::9]:9001", "suspect"));
}

#[kernel_test]
fn a_name_that_changes_its_address_is_followed() {
    let Some(directory) = folder_for_hosts() else {
        return skip("/etc/hosts cannot be replaced here");
    };
    let hosts = directory.path().join("hosts");
    // The same file each time, because the mount leads to it.
    let write = |hosts: &Path, text: &str| fs::write(hosts, text).unwrap();
    write(&hosts, "127.0.0.1 web.example\n");
    let _first = NamedServer::start(address("127.0.0.1:9001"), 1);
    let _second = NamedServer::start(address("127.0.0.2:9001"), 2);
    let launch = Launch::this_program("run")
        .configuration(&forwarding("[\"web.example:9001\"]"))
        .in_place_of(&hosts, "/etc/hosts");
    let proxy = Midspan::of(launch);
    let mut before = session();
    assert_eq!(before.1, 1);
    write(&hosts, "127.0.0.2 web.example\n");
    // Names are looked up every 30 s.
    wait_until("followed", || session().1 == 2);
    assert!(is_answered(&mut before.0));
    drop(before);
    wait_until("named in the log", || {
        let lines = proxy.ended_sessions();
        lines
            .iter()
            .any(|line| line["destination"] == "web.example:9001")
    });
}

#[kernel_test]
fn a_listener_is_no_server_of_its_own() {
    let _server = NamedServer::start(address("127.0.0.1:9001"), 1);
    // The name has an address of this machine, and the listener is at this port of all of them.
    let text = forwarding("[\"localhost:8080\", \"127.0.0.1:9001\"]");
    let _proxy = Midspan::here(&text.replace(FORWARD, "0.0.0.0:8080"));
    for _ in 0..4 {
        assert_eq!(session().1, 1);
    }
    wait_until("found out", || is_in_state("localhost:8080", "down"));
    let opened = metric("midspan_sessions_opened_total{listener=\"web\"}");
    assert!(opened <= 4.0, "{opened}");
}
