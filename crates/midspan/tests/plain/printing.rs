//! Commands whose output has no reader, or whose reader ends early.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const MIDSPAN: &str = env!("CARGO_BIN_EXE_midspan");

/// The write end of a pipe whose read end is closed.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn run(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let child = Command::new(MIDSPAN)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn();
    child.unwrap().wait_with_output().unwrap()
}

/// The command ends as with a reader, and prints no error.
fn ends_quietly(arguments: &[&str]) {
    let read = run(arguments, Stdio::piped(), Stdio::piped());
    assert!(!read.stdout.is_empty(), "{arguments:?} prints nothing");
    let output = run(arguments, unread(), Stdio::piped());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        read.status.code(),
        "{arguments:?}: {errors}"
    );
    for complaint in ["panicked", "Broken pipe", "standard output"] {
        assert!(!errors.contains(complaint), "{arguments:?}: {errors}");
    }
    // Neither standard output nor standard error has a reader.
    let output = run(arguments, unread(), unread());
    assert_eq!(output.status.code(), read.status.code(), "{arguments:?}");
}

#[test]
fn commands_end_quietly_where_nobody_reads_what_they_print() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let transparent = file(
        "transparent.toml",
        "[[listener]]\nname = \"all\"\nmode = \"transparent\"\ninterfaces = [\"eth1\"]\n",
    );
    let forward = file(
        "forward.toml",
        "[[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:1\"\nto = \"192.0.2.1:80\"\n",
    );
    let commands: &[&[&str]] = &[
        &["paths"],
        &["paths", "--json"],
        &["plan", "geo"],
        &["plan", "geo", "--json"],
        &["plan", "geo", "--write-config", "-"],
        &["plan", "whatif", "geo", "link.satellite.loss=1 %"],
        &["plan", "buffers", "geo"],
        &["plan", "place", "geo"],
        &["sim", "dsl", "--flows", "page"],
        &["sim", "dsl", "--flows", "page", "--json"],
        &[
            "sim",
            "dsl",
            "--flows",
            "page",
            "--sweep",
            "link.line.loss=0 %,1 %",
            "--csv",
        ],
        &["conformance", "--list"],
        &["check", "--config", &forward],
        &["check", "--config", &forward, "--json"],
        &["run", "--config", &transparent, "--dry-run"],
        &["thin", "--interface", "lo", "--dry-run"],
        &["--help"],
        &["--version"],
    ];
    for command in commands {
        ends_quietly(command);
    }
}

/// A proxy that is stopped when this value is dropped.
struct Proxy(Child);

impl Proxy {
    fn start(file: &Path) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" run --config \"$1\" --ready-fd 1"])
            .arg(MIDSPAN)
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let proxy = Self(child);
        let mut ready = Vec::new();
        stdout.take(1).read_to_end(&mut ready).unwrap();
        assert_eq!(ready, b"\n");
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let process = Pid::from_child(&self.0);
        let _ = kill_process(process, Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn commands_to_a_running_proxy_end_quietly_too() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("m.toml"), folder.path().join("socket"));
    // The kernel gives this port to no other program soon, unless a program requests this number.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = listener.local_addr().unwrap();
    drop(listener);
    let text = format!(
        "[control]\nsocket = \"{}\"\n[[listener]]\nname = \"web\"\nlisten = \"{listen}\"\n\
         to = \"192.0.2.1:80\"\n",
        socket.display()
    );
    fs::write(&file, text).unwrap();
    let _proxy = Proxy::start(&file);
    let config = ["--config", file.to_str().unwrap()];
    for command in [
        &["status"][..],
        &["bypass"],
        &["kick", "192.0.2.7"],
        &["reload"],
    ] {
        for more in [&[][..], &["--json"]] {
            ends_quietly(&[command, &config, more].concat());
        }
    }
}

#[test]
fn output_that_is_not_taken_is_an_error() {
    let full = || {
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let output = run(&["paths"], full().into(), Stdio::piped());
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("cannot write to standard output: No space left on device"),
        "{errors}"
    );
}
