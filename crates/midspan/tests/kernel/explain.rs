//! `midspan explain` and `midspan bugreport`, with a running `midspan run`.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::{MIDSPAN, midspan};
use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::kernel_test;
use midspan_testbed::network::Node;
use midspan_testbed::program::{Launch, Program};
use midspan_testbed::testing::wait_until;

const CONFIGURATION: &str = r#"
[[listener]]
name = "web"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
[listener.client_leg]
congestion_control = "cubic"

[[listener]]
name = "lan"
mode = "transparent"
interfaces = ["lan0"]
ports = [443]
except = ["192.0.2.0/24"]
"#;

fn started() -> (NetworkNamespace, Program) {
    let namespace = Node::host("explain").make().unwrap();
    for arguments in [
        "link add lan0 type veth peer name lan1",
        "link set lan1 up",
        "addr add 10.0.0.1/24 dev lan0",
        "link set lan0 up",
    ] {
        let mut ip = Command::new("ip");
        ip.args(arguments.split(' '));
        assert!(namespace.spawn(ip).unwrap().wait().unwrap().success());
    }
    let launch = Launch::midspan(MIDSPAN).configuration(CONFIGURATION);
    let proxy = launch.inside(&namespace).ready().unwrap();
    (namespace, proxy)
}

/// What a command prints, or its error.
fn run(namespace: &NetworkNamespace, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(MIDSPAN);
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let program = namespace.spawn(command).unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = program.wait_with_output().unwrap();
    match status.success() {
        true => Ok(String::from_utf8(stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&stderr).into_owned()),
    }
}

#[track_caller]
fn text(namespace: &NetworkNamespace, arguments: &[&str]) -> String {
    run(namespace, arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// Lets connections of a host or prefix pass untouched. On a busy machine, the answer may be that Midspan is still at
/// it.
fn bypass(namespace: &NetworkNamespace, whose: &str, socket: &str) {
    let arguments = ["bypass", "on", whose, "--socket", socket];
    wait_until("bypassed", || match run(namespace, &arguments) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.contains("Midspan will try again"), "{error}");
            false
        }
    });
}

#[kernel_test]
fn live_and_new_connections_are_explained() {
    let (namespace, proxy) = started();
    let socket = proxy.socket().unwrap().to_str().unwrap().to_owned();
    let explain = |client: &str, server: &str| {
        let arguments = ["explain", client, server, "--socket", &socket];
        text(&namespace, &arguments)
    };
    let _session = namespace
        .run(|| {
            let listener = TcpListener::bind("127.0.0.1:9090").unwrap();
            let client = TcpStream::connect("127.0.0.1:8080").unwrap();
            (client, listener.accept().unwrap())
        })
        .unwrap();
    let said = explain("127.0.0.1", "127.0.0.1:9090");
    for part in [
        "live: session 1 is split",
        "listener web",
        "client leg: cubic because: configured",
        "would pass untouched",
        "the server is this machine",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = explain("127.0.0.1", "127.0.0.1:8080");
    assert!(
        said.contains("would be split") && said.contains("forwards to 127.0.0.1:9090"),
        "{said}"
    );
    // By the routing table, 10.0.0.2 is behind lan0.
    let said = explain("10.0.0.2", "198.51.100.1:443");
    assert!(
        said.contains("would be split") && said.contains("listener \"lan\" intercepts at lan0"),
        "{said}"
    );
    let said = explain("10.0.0.2", "198.51.100.1:80");
    assert!(said.contains("ports does not contain 80"), "{said}");
    let said = explain("10.0.0.2", "192.0.2.7:443");
    assert!(said.contains("except contains 192.0.2.0/24"), "{said}");
    // The state of the running proxy counts, too.
    bypass(&namespace, "198.51.100.0/24", &socket);
    let said = explain("10.0.0.2", "198.51.100.1:443");
    assert!(
        said.contains("would pass untouched")
            && said.contains("midspan bypass off 198.51.100.0/24"),
        "{said}"
    );
    let arguments = [
        "explain",
        "10.0.0.2",
        "198.51.100.1:443",
        "--json",
        "--socket",
        &socket,
    ];
    let json: serde_json::Value = serde_json::from_str(&text(&namespace, &arguments)).unwrap();
    assert_eq!(json["new"]["decision"], "untouched");
    let output = midspan(&["explain", "127.0.0.1", "[::1]:80", "--socket", &socket]);
    assert_eq!(output.status.code(), Some(1));
}

const LEARNING: &str = r#"
[[listener]]
name = "web"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
policy = "auto"
"#;

/// A session teaches the path to its client; what is forgotten is no longer listed.
#[kernel_test]
fn what_was_learned_is_listed_and_forgotten() {
    let namespace = Node::host("learned").make().unwrap();
    let launch = Launch::midspan(MIDSPAN).configuration(LEARNING);
    let proxy = launch.inside(&namespace).ready().unwrap();
    let socket = proxy.socket().unwrap().to_str().unwrap().to_owned();
    let learned = |arguments: &[&str]| {
        let all: Vec<&str> = [&["learned", "--socket", &socket], arguments].concat();
        text(&namespace, &all)
    };
    assert!(learned(&[]).contains("nothing is learned"));
    let download = || {
        namespace.run(|| {
            let listener = TcpListener::bind("127.0.0.1:9090").unwrap();
            let mut client = TcpStream::connect("127.0.0.1:8080").unwrap();
            let mut server = listener.accept().unwrap().0;
            let sending = std::thread::spawn(move || {
                // Long enough to be measured.
                for _ in 0..20 {
                    server.write_all(&[7; 100_000]).unwrap();
                    std::thread::sleep(Duration::from_millis(25));
                }
                server.shutdown(Shutdown::Write).unwrap();
                // Until the client has closed its end.
                let _ = server.read(&mut [0]);
            });
            client.read_to_end(&mut Vec::new()).unwrap();
            drop(client);
            sending.join().unwrap();
        })
    };
    let paths = || {
        let json: serde_json::Value = serde_json::from_str(&learned(&["--json"])).unwrap();
        json["paths"].as_array().unwrap().len()
    };
    wait_until("learned", || {
        download().unwrap();
        paths() > 0
    });
    let said = learned(&["127.0.0.0/8"]);
    for part in ["Paths", "127.0.0.1/32", "bit/s", " ms", "segments"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(learned(&["192.0.2.1"]).contains("nothing is learned"));
    assert!(learned(&["--forget", "192.0.2.1"]).contains("forgotten: paths 0,"));
    assert!(paths() > 0);
    assert!(learned(&["--forget", "--all"]).contains("forgotten: paths 1,"));
    assert_eq!(paths(), 0);
    // Neither too little nor too much.
    for wrong in [
        &["--forget"][..],
        &["--all"],
        &["--forget", "--all", "192.0.2.1"],
    ] {
        let all: Vec<&str> = [&["learned", "--socket", &socket], wrong].concat();
        assert_eq!(midspan(&all).status.code(), Some(2), "{wrong:?}");
    }
    let output = midspan(&["learned", "lan", "--socket", &socket]);
    assert_eq!(output.status.code(), Some(1));
}

/// The report contains the state and the checks, but no address of a host.
#[kernel_test]
fn a_bugreport_masks_addresses() {
    let (namespace, proxy) = started();
    let socket = proxy.socket().unwrap().to_str().unwrap().to_owned();
    bypass(&namespace, "198.51.100.7", &socket);
    let report = text(&namespace, &["bugreport", "--socket", &socket]);
    for part in [
        "# Midspan ",
        "Linux",
        "## midspan status",
        "\"running\"",
        "ipv4-1/32",
        "## midspan check",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(!report.contains("198.51.100.7"), "{report}");
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy().to_ascii_lowercase();
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let mut words = report.split(|letter| !is_part(letter));
    assert!(
        host == "midspan" || !words.any(|word| word.eq_ignore_ascii_case(&host)),
        "{host}: {report}"
    );
    // Without a running Midspan, there is still a report.
    drop(proxy);
    let report = text(&namespace, &["bugreport", "--socket", &socket]);
    assert!(report.contains("no Midspan answers"), "{report}");
}

/// The log of `midspan run` with an option, and a reload between start and end.
fn log_with(option: Option<&str>) -> String {
    let namespace = Node::host("levels").make().unwrap();
    let launch = Launch::new(MIDSPAN)
        .args(option)
        .args(["run", "--ready-fd", "1", "--config"])
        .configuration(
            "[[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:8080\"\nto = \"127.0.0.1:9090\"\n",
        )
        // No process listens there: a detail for the log at each start, reload and end.
        .environment("NOTIFY_SOCKET", "/nowhere/notify")
        .inside(&namespace);
    let proxy = launch.ready().unwrap();
    let socket = proxy.socket().unwrap().to_str().unwrap().to_owned();
    text(&namespace, &["reload", "--socket", &socket]);
    proxy.end().unwrap()
}

#[kernel_test]
fn quiet_and_verbose_set_the_log_level() {
    for (option, has_info, details) in [
        (None, true, 0),
        (Some("--quiet"), false, 0),
        (Some("--verbose"), true, 3),
    ] {
        let log = log_with(option);
        assert_eq!(log.contains(" INFO "), has_info, "{option:?}: {log}");
        let found = log.matches(" DEBUG ").count();
        assert!(
            found >= details && (details > 0 || found == 0),
            "{option:?}: {log}"
        );
    }
}
