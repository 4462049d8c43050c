//! `midspan capture` with a running `midspan run`, in a network namespace.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::{MIDSPAN, midspan};
use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::kernel_test;
use midspan_testbed::network::Node;
use midspan_testbed::program::Launch;
use midspan_testbed::testing::wait_until;

const CONFIGURATION: &str = r#"
[[listener]]
name = "web"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
"#;

fn run(namespace: &NetworkNamespace, arguments: &[&str]) -> Output {
    let mut command = Command::new(MIDSPAN);
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = namespace.spawn(command).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[kernel_test]
fn a_session_is_captured_by_its_number() {
    let namespace = Node::host("capture").make().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::midspan(MIDSPAN).configuration(CONFIGURATION);
    let proxy = launch
        .folder(folder.path())
        .inside(&namespace)
        .ready()
        .unwrap();
    let file = folder.path().join("midspan.toml");
    let configuration = file.to_str().unwrap();
    let (mut client, mut server, _listener) = namespace
        .run(|| {
            let listener = TcpListener::bind("127.0.0.1:9090").unwrap();
            let client = TcpStream::connect("127.0.0.1:8080").unwrap();
            let server = listener.accept().unwrap().0;
            (client, server, listener)
        })
        .unwrap();
    let talking = std::thread::spawn(move || {
        // Data flows until the capture has enough packets.
        for _ in 0..12_000 {
            client.write_all(b"ping").unwrap();
            server.read_exact(&mut [0; 4]).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let output = folder.path().join("legs.pcapng");
    let arguments = ["capture", "1", "-c", configuration, "--packets", "40"];
    let captured = run(
        &namespace,
        &[&arguments[..], &["--output", output.to_str().unwrap()]].concat(),
    );
    let errors = text(&captured.stderr);
    assert!(captured.status.success(), "{errors}");
    let printed = text(&captured.stdout);
    assert!(
        printed.contains("the number of packets is reached"),
        "{printed}"
    );
    let bytes = std::fs::read(&output).unwrap();
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert!(
        printed.contains(&format!("{} bytes", bytes.len())),
        "{printed}"
    );

    let missing = run(&namespace, &["capture", "99", "-c", configuration]);
    assert_eq!(missing.status.code(), Some(1));
    let errors = text(&missing.stderr);
    assert!(errors.contains("session 99 does not exist"), "{errors}");
    drop(proxy);
    // The relay ends a moment after its helper.
    wait_until("nobody answers", || {
        let gone = run(&namespace, &["capture", "1", "-c", configuration]);
        text(&gone.stderr).contains("no Midspan answers at")
    });
    // The proxy has ended, and with it the session.
    let _ = talking.join();
}

#[kernel_test]
fn what_is_missing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("midspan.toml");
    let socket = folder.path().join("control");
    let control = format!("[control]\nsocket = \"{}\"\n", socket.display());
    std::fs::write(&file, format!("{control}{CONFIGURATION}")).unwrap();
    let output = midspan(&["capture", "1", "-c", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("no Midspan answers at"), "{errors}");
    assert!(errors.contains("is it running?"), "{errors}");
}
