//! `midspan check` as a user runs it: its exit status and its output.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs a command with this configuration.
fn midspan(command: &[&str], text: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("midspan.toml");
    fs::write(&file, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_midspan"))
        .args(command)
        .arg("--config")
        .arg(file)
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs `midspan check` with a forward listener on a port of this machine.
fn check(port: u16, more: &str, arguments: &[&str]) -> Output {
    let text = format!(
        "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:{port}\"\nto = \"192.0.2.1:80\"\n{more}"
    );
    midspan(&["check"], &text, arguments)
}

#[test]
fn all_is_there() {
    // The kernel gives this port to no other program soon, unless a program requests this number.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let output = check(port, "", &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    let checks = report["checks"].as_array().unwrap();
    let names: Vec<&str> = checks
        .iter()
        .map(|c| c["check"].as_str().unwrap())
        .collect();
    for name in ["file", "kernel", "privileges", "port of \"test\""] {
        assert!(names.contains(&name), "{names:?}");
    }
    // Checks that only transparent listeners need are not made.
    assert!(!names.contains(&"firewall"), "{names:?}");
}

#[test]
fn something_is_missing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let output = check(port, "", &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    let process = format!("process {}", std::process::id());
    assert!(text.contains(&process), "{text}");
    assert!(text.contains("Missing, and how to fix it:"), "{text}");
}

#[test]
fn a_wrong_file_is_an_error_at_its_place() {
    let output = check(8080, "unknown_key = 1\n", &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("unknown_key"), "{text}");
    assert!(text.contains("midspan.toml:5"), "{text}");
}

/// A configuration with explicit listeners, and with proxies before and behind Midspan.
fn explicit(ports: [u16; 3]) -> String {
    let [socks, http, web] = ports;
    format!(
        "[[listener]]\nname = \"socks\"\nmode = \"socks5\"\nlisten = \"127.0.0.1:{socks}\"\n\
         [[listener]]\nname = \"http\"\nmode = \"http\"\nlisten = \"127.0.0.1:{http}\"\n\
         users = {{ alice = \"secret\" }}\n\
         [[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:{web}\"\nto = \"192.0.2.1:443\"\n\
         accept_proxy_protocol = true\nproxy_protocol_from = [\"198.51.100.0/24\"]\n\
         send_proxy_protocol = \"v2\"\n"
    )
}

#[test]
fn explicit_listeners_are_looked_at() {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = [0, 1, 2].map(|index: usize| listeners[index].local_addr().unwrap().port());
    let text = explicit(ports);
    // One port is in use, two are free.
    let [taken, second, third] = listeners;
    drop((second, third));
    let output = midspan(&["check"], &text, &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{report:#}");
    let state = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["check"] == name);
        found.unwrap_or_else(|| panic!("{name}: {report:#}"))["state"].clone()
    };
    assert_eq!(state("port of \"socks\""), "missing");
    for name in [
        "port of \"http\"",
        "port of \"web\"",
        "server_leg of \"web\"",
    ] {
        assert_eq!(state(name), "ok", "{name}");
    }
    drop(taken);
    let output = midspan(&["check"], &text, &["--json"]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_dry_run_of_explicit_listeners_sets_nothing() {
    let output = midspan(&["run", "--dry-run"], &explicit([8080, 8081, 8082]), &[]);
    assert_eq!(output.status.code(), Some(0));
    // Only transparent listeners need rules.
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.is_empty(), "{text}");
}

#[test]
fn a_proxy_for_everybody_is_an_error_at_its_place() {
    for (mode, port) in [("socks5", 1080), ("http", 3128)] {
        let text = format!(
            "[[listener]]\nname = \"open\"\nmode = \"{mode}\"\nlisten = \"0.0.0.0:{port}\"\n"
        );
        for command in [&["check"][..], &["run", "--dry-run"]] {
            let output = midspan(command, &text, &[]);
            assert_eq!(output.status.code(), Some(1));
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(errors.contains("midspan.toml:4"), "{errors}");
            assert!(errors.contains("users = "), "{errors}");
        }
    }
}

/// The rows contain numbers of this machine, and the JSON object has the same numbers.
#[test]
fn the_memory_table_adds_up() {
    let output = check(1, "[limits]\nmemory = \"96 MiB\"\n", &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        let row = checks.iter().find(|row| row["check"] == name);
        let row = row.unwrap_or_else(|| panic!("no row {name}: {report:#}"));
        row["found"].as_str().unwrap().to_owned()
    };
    let capacity = &report["capacity"];
    let bytes = |name: &str| capacity[name].as_u64().unwrap();
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);

    let table = fs::read_to_string("/proc/meminfo").unwrap();
    let total = table
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 = total
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(bytes("machine_bytes"), kib * 1024 / 4);
    assert_eq!(found("memory: a quarter of the machine's"), mib(kib * 256));

    let group = found("memory: three quarters of the control group's");
    match capacity["control_group_bytes"].as_u64() {
        Some(part) => assert!(group.starts_with(&mib(part)), "{group}"),
        None => assert_eq!(group, "no limit"),
    }
    let queues = found("memory: queues, half of TCP's pressure");
    assert!(queues.starts_with(&mib(bytes("queues_bytes"))), "{queues}");

    assert_eq!(capacity["memory_bound"], "configuration");
    assert_eq!(bytes("memory_budget_bytes"), 96 << 20);
    let sessions = bytes("sessions_by_memory");
    let budget = found("memory: budget");
    let expected = format!("96 MiB, by limits.memory: {sessions} idle sessions at a time");
    assert!(budget.starts_with(&expected), "{budget}");
    // A client of forward listeners may use at most a quarter of all sessions.
    let one = bytes("sessions_of_one_client");
    assert!(one <= (sessions / 4).max(100), "{one} of {sessions}");
}
