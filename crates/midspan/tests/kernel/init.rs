//! `midspan init` as a user runs it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use midspan_testbed::kernel_test;

fn midspan(arguments: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midspan"))
        .args(arguments)
        .arg("--output")
        .arg(file)
        .output()
        .unwrap()
}

#[kernel_test]
fn without_an_interface_all_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("midspan.toml");
    let status = Command::new("ip")
        .args([
            "link", "add", "clients0", "type", "veth", "peer", "servers0",
        ])
        .status();
    assert!(status.unwrap().success());
    let output = midspan(&["init"], &file);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("clients0") && text.contains("servers0"),
        "{text}"
    );
    assert!(!file.exists());
    let output = midspan(&["init", "--interface", "client0"], &file);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("did you mean \"clients0\"?"), "{text}");
    assert!(!file.exists());
}

#[kernel_test]
fn the_file_is_written_once_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new/midspan.toml");
    let arguments = ["init", "--interface", "eth1", "--interface", "ppp*"];
    let status = Command::new("ip")
        .args(["link", "add", "eth1", "type", "veth", "peer", "eth0"])
        .status();
    assert!(status.unwrap().success());
    let output = midspan(&arguments, &file);
    let text = String::from_utf8(output.stdout).unwrap();
    // This namespace forwards nothing, which the check reports.
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("sysctl -w net.ipv4.ip_forward=1"), "{text}");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.ends_with("policy = \"auto\"\n"), "{written}");
    fs::write(&file, "mine").unwrap();
    let output = midspan(&arguments, &file);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}
