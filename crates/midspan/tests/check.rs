//! `midspan check` as a user runs it: its exit status, and what it prints.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::Value;

/// A forward listener at a port of this machine.
fn check(port: u16, more: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("midspan.toml");
    let text = format!(
        "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:{port}\"\nto = \"192.0.2.1:80\"\n{more}"
    );
    fs::write(&file, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_midspan"))
        .args(["check", "--config"])
        .arg(file)
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn all_is_there() {
    // Nobody gets it again so soon, unless by its number.
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
    // What only transparent listeners need is not looked at.
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
    assert!(text.contains("Missing, and how to mend it:"), "{text}");
}

#[test]
fn a_wrong_file_is_an_error_at_its_place() {
    let output = check(8080, "unknown_key = 1\n", &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("unknown_key"), "{text}");
    assert!(text.contains("midspan.toml:5"), "{text}");
}
