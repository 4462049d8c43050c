//! Hops with TLS.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use midspan_proxy::overlay::{NodeRow, OverlayReport};
use midspan_tls::Codec;

use super::support::*;

/// What a node reports of another one.
fn seen(midspan: &Midspan, node: &str) -> NodeRow {
    let report: OverlayReport = page(midspan, "/overlay");
    let mut nodes = report.nodes.into_iter();
    nodes.find(|row| row.name == node).unwrap()
}

#[kernel_test]
fn data_passes_both_ways() {
    let sites = Sites::encrypted("");
    let nodes = sites.all();
    // The server sends first: its bytes follow the answer of the nodes in the same record.
    let (mut client, mut server) = session(&sites);
    server.write_all(b"banner").unwrap();
    assert_eq!(&exactly::<6>(&mut client), b"banner");
    echoes(&mut client, &mut server);
    let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    carries(from_server, to_client, 30_000_000);
    carries(client, server, 30_000_000);
    for node in nodes {
        let log = node.end();
        for fault in ["hop refused", "client refused", "route broken"] {
            assert!(!log.contains(fault), "{log}");
        }
    }
}

/// A receiver that reads nothing for a while stops the sender through all hops, and gets everything later.
#[kernel_test]
fn a_slow_receiver_gets_everything() {
    const TOTAL: usize = 30_000_000;
    let sites = Sites::encrypted("");
    let _nodes = sites.all();
    let (mut client, mut server) = session(&sites);
    let sending = std::thread::spawn(move || {
        let piece: Vec<u8> = (0..=250).cycle().take(251 * 400).collect();
        let mut sent = 0;
        while sent < TOTAL {
            let most = piece.len().min(TOTAL - sent);
            server.write_all(&piece[..most]).unwrap();
            sent += most;
        }
    });
    std::thread::sleep(Duration::from_secs(2));
    let all = rest(&mut client);
    sending.join().unwrap();
    assert_eq!(all.len(), TOTAL);
    let expected = (0..=250_u8).cycle();
    assert!(
        all.iter()
            .zip(expected)
            .all(|(found, expected)| *found == expected)
    );
}

#[kernel_test]
fn half_close_passes_three_hops() {
    let sites = Sites::encrypted("");
    let _nodes = sites.all();
    assert_half_closes_pass(|| session(&sites));
}

#[kernel_test]
fn a_reset_passes_three_hops() {
    let sites = Sites::encrypted("");
    let _nodes = sites.all();
    assert_resets_pass(|| session(&sites));
}

#[kernel_test]
fn a_killed_transit_node_resets_its_sessions() {
    let sites = Sites::encrypted("");
    let [_sin, fra, ams] = sites.all();
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    drop(fra);
    assert!(is_reset(&mut client) && is_reset(&mut server));
    assert_eq!(socks(&sites, &address(2, PORT)).1, 1);
    wait_until("logged", || ams.log().contains("route broken"));
    let _fra = sites.fra();
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
}

#[kernel_test]
fn warm_connections_are_encrypted_and_used() {
    let sites = Sites::encrypted("");
    let [_sin, fra, ams] = sites.all();
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    for (midspan, next) in [(&ams, "fra"), (&fra, "sin")] {
        wait_until("there are warm connections", || {
            seen(midspan, next).warm.ready >= 2
        });
    }
    for host in [&sites.fra, &sites.sin] {
        rules(host, NO_NEW_ONES);
    }
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    carries(server, client, 1_000_000);
    let row = seen(&ams, "fra");
    assert_eq!((row.warm.used, row.warm.missed), (1, 1), "{row:?}");
}

#[kernel_test]
fn nodes_exchange_measurements() {
    let sites = Sites::encrypted("");
    let measuring = |block: &str| {
        let text = sites.text(block);
        text.replace("[overlay]\n", "[overlay]\nmeasure = true\n")
    };
    let _fra = Midspan::ready(&sites.fra, &measuring(&blocks()[2]));
    let ams = Midspan::ready(&sites.ams, &measuring(&blocks()[1]));
    // A node that has answered is on probation for 30 s.
    wait_within(Duration::from_secs(60), "the node has answered", || {
        ["probation", "up"].contains(&seen(&ams, "fra").health.as_str())
    });
}

/// A node that is none of Midspan's programs, with the key of a member.
struct Caller {
    stream: TcpStream,
    codec: Codec,
}

impl Caller {
    /// fra, or a program at its address with another key, calls sin.
    fn new(sites: &Sites, secret: [u8; 32]) -> Self {
        let stream = from(&sites.fra, "10.3.0.2", 7704);
        stream.set_nonblocking(true).unwrap();
        let codec = Codec::client(&secret, *sites.key("sin").bytes()).unwrap();
        Self { stream, codec }
    }

    fn send(&mut self, bytes: &[u8]) {
        let count = self.codec.send(&mut self.stream, bytes).unwrap();
        assert_eq!(count, bytes.len());
    }

    /// The next bytes of the connection.
    fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let begin = Instant::now();
        let mut buffer = [0; 4096];
        loop {
            match self.codec.receive(&mut self.stream, &mut buffer) {
                Ok(count) => return Ok(buffer[..count].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(begin.elapsed() < LIMIT, "nothing arrives");
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn request(&mut self, via: &str) {
        let head = format!("CONNECT 10.4.0.2:80 HTTP/1.1\r\nHost: 10.4.0.2:80\r\n{via}\r\n");
        self.send(head.as_bytes());
    }
}

#[kernel_test]
fn an_end_without_its_record_is_a_reset() {
    let sites = Sites::encrypted("");
    let _sin = sites.sin();
    for is_complete in [true, false] {
        let mut caller = Caller::new(&sites, *sites.secret("fra").bytes());
        caller.request("Via: 1.1 ams, 1.1 fra\r\n");
        let answer = caller.receive().unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
        let (mut server, _) = accept(&sites.listener);
        caller.send(b"all of it?");
        assert_eq!(&exactly::<10>(&mut server), b"all of it?");
        if is_complete {
            caller.codec.end_writing(&mut caller.stream).unwrap();
        }
        caller.stream.shutdown(Shutdown::Write).unwrap();
        match is_complete {
            true => assert_eq!(rest(&mut server), b""),
            false => assert!(is_reset(&mut server)),
        }
    }
}

#[kernel_test]
fn strangers_and_wrong_keys_are_refused() {
    let sites = Sites::encrypted("");
    let sin = sites.sin();
    let is_logged = |why: &str| {
        wait_until(why, || {
            let log = sin.log();
            let mut lines = log.lines();
            lines.any(|line| line.contains("hop refused") && line.contains(why))
        });
    };
    // A key of no member, and the key of another member than the one at this address.
    for secret in [
        midspan_tls::new_secret().unwrap(),
        *sites.secret("ams").bytes(),
    ] {
        let mut caller = Caller::new(&sites, secret);
        caller.request("Via: 1.1 fra\r\n");
        assert!(caller.receive().is_err());
    }
    is_logged("it does not have the key of the member at its address");
    // The right key, in the name of another node, and in a loop.
    for (via, error, why) in [
        (
            "Via: 1.1 ams\r\n",
            "http_request_denied",
            "its Via ends with another node",
        ),
        (
            "Via: 1.1 sin, 1.1 fra\r\n",
            "proxy_loop_detected",
            "has passed this node already",
        ),
    ] {
        let mut caller = Caller::new(&sites, *sites.secret("fra").bytes());
        caller.request(via);
        let answer = String::from_utf8(caller.receive().unwrap()).unwrap();
        assert!(answer.contains(error), "{answer}");
        is_logged(why);
    }
    // No TLS.
    let mut plain = from(&sites.fra, "10.3.0.2", 7704);
    plain
        .write_all(b"CONNECT 10.4.0.2:80 HTTP/1.1\r\nHost: 10.4.0.2:80\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let read = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{read:?} {answer:?}");
    is_logged("it does not use TLS as a node does");
    let metrics = text_of(&sin, "/metrics");
    for (reason, count) in [
        ("access", 2),
        ("malformed", 1),
        ("forged", 1),
        ("looping", 1),
    ] {
        let line = format!("midspan_refusals_total{{reason=\"{reason}\"}} {count}");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[kernel_test]
fn a_plain_node_refuses_tls() {
    let sites = Sites::new("");
    let sin = sites.sin();
    let mut stream = from(&sites.fra, "10.3.0.2", 7704);
    let secret = midspan_tls::new_secret().unwrap();
    let mut codec = Codec::client(&secret, [0; 32]).unwrap();
    stream.set_nonblocking(true).unwrap();
    codec.send(&mut stream, b"request").unwrap();
    let begin = Instant::now();
    loop {
        match codec.receive(&mut stream, &mut [0; 100]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(begin.elapsed() < LIMIT, "nothing arrives");
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => break,
            Ok(count) => panic!("{count} bytes"),
        }
    }
    wait_until("logged", || {
        sin.log().contains("hop refused: its request is malformed")
    });
}

/// The transit node has another key than the others expect of it.
#[kernel_test]
fn a_node_with_another_key_is_not_used() {
    let sites = Sites::encrypted("");
    let _sin = sites.sin();
    let ams = sites.ams();
    let changed = vec![
        NodeFile::new("ams"),
        NodeFile::new("fra"),
        NodeFile::new("sin"),
    ];
    let members = readable(&members_with(&changed));
    let text = sites.text_with(&blocks()[2], &members, &changed);
    let _fra = Midspan::ready(&sites.fra, &text);
    assert_eq!(socks(&sites, &address(2, PORT)).1, 1);
    wait_until("logged", || {
        ams.log()
            .lines()
            .any(|line| line.contains("route broken") && line.contains("tls_"))
    });
}

#[kernel_test]
fn nothing_of_a_session_is_readable_between_nodes() {
    let sites = Sites::encrypted("");
    let _nodes = sites.all();
    let capture = tempfile::NamedTempFile::new().unwrap();
    let output = File::create(capture.path()).unwrap();
    let tcpdump = sites.fra.run(move || {
        std::process::Command::new("tcpdump")
            .args(["-i", "ams", "-U", "-w", "-", "tcp"])
            .stdout(output)
            .stderr(std::process::Stdio::null())
            .spawn()
    });
    let Ok(Ok(mut tcpdump)) = tcpdump else {
        return skip("tcpdump is not installed");
    };
    wait_until("tcpdump has begun", || {
        capture.path().metadata().unwrap().len() >= 24
    });
    let (mut client, mut server) = session(&sites);
    client.write_all(b"a secret of the client").unwrap();
    exactly::<22>(&mut server);
    wait_until("the session is captured", || {
        capture.path().metadata().unwrap().len() > 2000
    });
    let bytes = std::fs::read(capture.path()).unwrap();
    tcpdump.kill().unwrap();
    tcpdump.wait().unwrap();
    for word in [&b"a secret"[..], b"CONNECT", b"10.4.0.2"] {
        let has = bytes.windows(word.len()).any(|bytes| bytes == word);
        assert!(!has, "{}", String::from_utf8_lossy(word));
    }
}
