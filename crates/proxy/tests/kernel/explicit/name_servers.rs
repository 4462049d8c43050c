//! Names in a zone whose name server does not answer, and other names.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

use socket2::{Domain, Socket, Type};

use midspan_testbed::program::Launch;

use super::support::*;

/// Names that were queried, and how often for an IPv4 address.
type Asked = Arc<Mutex<BTreeMap<String, usize>>>;

/// A name server that answers for `live.example` (RFC 1035), and does not answer for other names.
fn serve_names() -> Asked {
    let asked = Asked::default();
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((count, from)) = socket.recv_from(&mut question) {
            let Some((name, kind, end)) = read_question(&question[..count]) else {
                continue;
            };
            if kind == 1 {
                *noted.lock().unwrap().entry(name.clone()).or_default() += 1;
            }
            if !name.ends_with("live.example") {
                continue;
            }
            let mut answer = question[..end].to_vec();
            let answers = u8::from(kind == 1);
            // A response, recursion desired and available; one question, `answers` answers.
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]);
            if kind == 1 {
                // The name of the question, an address, lifetime 0, 127.0.0.1.
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    asked
}

/// The name in lower case, the type, and the position behind the question.
fn read_question(packet: &[u8]) -> Option<(String, u16, usize)> {
    let (mut place, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*packet.get(place)?);
        place += 1;
        if length == 0 {
            break;
        }
        let label = packet.get(place..place + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        place += length;
    }
    let kind = packet.get(place..place + 2)?;
    let kind = u16::from_be_bytes([kind[0], kind[1]]);
    Some((labels.join("."), kind, place + 4))
}

fn ask(source: &str, name: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source: SocketAddr = format!("{source}:0").parse().unwrap();
    let to: SocketAddr = SOCKS.parse().unwrap();
    socket.bind(&source.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut client = bounded(socket.into());
    client.write_all(b"\x05\x01\x00").unwrap();
    exactly::<2>(&mut client);
    let length = [u8::try_from(name.len()).unwrap()];
    let request = [
        &b"\x05\x01\x00\x03"[..],
        &length,
        name.as_bytes(),
        b"\x23\x82",
    ]
    .concat();
    client.write_all(&request).unwrap();
    client
}

fn dark(asked: &Asked) -> usize {
    let asked = asked.lock().unwrap();
    asked
        .keys()
        .filter(|name| name.ends_with("dark.example"))
        .count()
}

#[kernel_test]
fn a_dead_zone_delays_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    // Only the name server resolves names.
    let files = [
        ("resolv.conf", "nameserver 127.0.0.1\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
    ];
    let paths = files.map(|(name, content)| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    });
    let places = ["/etc/resolv.conf", "/etc/nsswitch.conf"];
    let probe = std::process::Command::new("unshare")
        .args(["-m", "mount", "--bind"])
        .arg(&paths[0])
        .arg(places[0])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skip("/etc/resolv.conf cannot be replaced here");
    }
    let asked = serve_names();
    let mut launch = Launch::this_program("run").configuration(&each_mode(""));
    for (file, place) in paths.iter().zip(places) {
        launch = launch.in_place_of(file, place);
    }
    let _proxy = Midspan::of(launch);
    let _listener = TcpListener::bind(SERVER).unwrap();
    let dead: Vec<TcpStream> = (0..60)
        .map(|number| ask("127.0.0.7", &format!("{number}.dark.example")))
        .collect();
    wait_until("asked", || dark(&asked) == 4);
    // Names of another client are looked up at once. Meanwhile no further name of the first client
    // is looked up.
    for name in ["one.live.example", "two.live.example"] {
        assert_eq!(exactly::<10>(&mut ask("127.0.0.8", name))[1], 0);
    }
    assert_eq!(dark(&asked), 4);
    // A cached name is not queried again, in upper or lower case.
    assert_eq!(
        exactly::<10>(&mut ask("127.0.0.9", "ONE.Live.Example"))[1],
        0
    );
    assert_eq!(asked.lock().unwrap()["one.live.example"], 1);
    // Clients whose name server does not answer have no answer yet.
    for mut client in dead {
        client.set_nonblocking(true).unwrap();
        assert!(client.read(&mut [0]).is_err());
    }
}
