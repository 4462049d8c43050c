//! The control socket.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use midspan_proxy::command::Request;
use midspan_testbed::program::Launch;
use rustix::process::Signal;

use super::support::*;

fn configuration() -> String {
    format!("{RELAY}{}", listener("web", loopback(8080), loopback(9090)))
}

#[kernel_test]
fn status_and_refusals() {
    let proxy = Midspan::here(&configuration());
    let mode = fs::metadata(proxy.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let status = proxy.status();
    assert_eq!(status.version, env!("CARGO_PKG_VERSION"));
    assert_eq!((status.state.as_str(), status.pid), ("running", proxy.id()));
    let web = &status.listeners[0];
    assert_eq!((web.name.as_str(), web.mode.as_str()), ("web", "forward"));
    assert_eq!(web.to.as_deref(), Some("127.0.0.1:9090"));
    // With this configuration, no prefix can be bypassed.
    for prefix in [None, Some("192.0.2.0/24".to_owned())] {
        let answer = proxy.ask(&Request::BypassOn { prefix });
        assert!(answer.error.unwrap().contains("no listener is transparent"));
    }
    let answer = proxy.ask(&Request::BypassList);
    assert!(answer.ok && answer.notes[0].contains("these listeners cannot be bypassed"));
    // A proxy that drains answers with this state, and refuses a reload.
    let upstream = TcpListener::bind(loopback(9090)).unwrap();
    let session = connect(loopback(8080));
    let served = upstream.accept().unwrap();
    let mut proxy = proxy;
    proxy.signal(Signal::TERM);
    wait_until("draining", || proxy.status().state == "draining");
    assert!(
        proxy
            .ask(&Request::Reload)
            .error
            .unwrap()
            .contains("about to end")
    );
    proxy.signal(Signal::HUP);
    drop((session, served));
    assert!(proxy.wait().success(), "{}", proxy.log());
    assert!(!proxy.socket().exists());
}

fn has(program: &str) -> bool {
    let found = std::process::Command::new(program)
        .arg("--version")
        .output();
    found.is_ok_and(|output| output.status.success())
}

fn say(proxy: &Midspan, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(proxy.socket()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    // The proxy may close the connection before it has read all of it.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[kernel_test]
fn hostile_clients() {
    let proxy = Midspan::here(&configuration());
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let fields = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(40));
    for (request, status) in [
        ("GET /shutdown HTTP/1.1\r\n\r\n", 404),
        ("POST /shutdown HTTP/1.1\r\n\r\n", 405),
        ("GET /reload HTTP/1.1\r\n\r\n", 405),
        ("POST /kick HTTP/1.1\r\n\r\n", 400),
        ("POST /bypass?prefixes=10.0.0.1 HTTP/1.1\r\n\r\n", 400),
        ("POST /bypass?prefix=10.0.0.1 HTTP/1.1\r\n\r\n", 409),
        ("\r\n{\"command\":\"status\"}\r\n\r\n", 400),
        ("GET /\u{0} HTTP/1.1\r\n\r\n", 400),
        (&long, 431),
        (&fields, 431),
    ] {
        let answer = say(&proxy, request.as_bytes());
        let begin = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&begin), "{request:.80}: {answer}");
    }
    // Half a request, followed by the end of the connection.
    let mut stream = UnixStream::connect(proxy.socket()).unwrap();
    stream.write_all(b"POST /reload HT").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "");
    // A request in pieces, with another one behind it, which is not answered.
    let mut stream = UnixStream::connect(proxy.socket()).unwrap();
    for byte in b"GET /status HTTP/1.1\r\n\r\nPOST /reload HTTP/1.1\r\n\r\n" {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
    }
    // Clients that send nothing use all places for commands. They lose their places after a time;
    // meanwhile only other clients of the control socket have to wait.
    let silent: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect(proxy.socket()).unwrap())
        .collect();
    let start = Instant::now();
    let upstream = TcpListener::bind(loopback(9090)).unwrap();
    let mut client = connect(loopback(8080));
    let (mut server, _) = upstream.accept().unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    assert!(start.elapsed() < Duration::from_secs(4));
    drop(silent.into_iter().take(10).collect::<Vec<_>>());
    assert_eq!(proxy.status().reloads, 0);
    drop((client, server));
    proxy.stop();
}

/// As an operator uses the socket, without `[admin]`.
#[kernel_test]
fn curl_uses_the_socket() {
    if !has("curl") {
        return skip("there is no curl");
    }
    let proxy = Midspan::here(&configuration());
    let upstream = TcpListener::bind(loopback(9090)).unwrap();
    let mut client = connect(loopback(8080));
    let (mut server, _) = upstream.accept().unwrap();
    client.write_all(b"hello").unwrap();
    server.read_exact(&mut [0; 5]).unwrap();
    let curl = |arguments: &[&str]| {
        let output = std::process::Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "60",
                "--unix-socket",
            ])
            .arg(proxy.socket())
            .args(arguments)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    };
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&curl(arguments)).unwrap()
    };
    let status = json(&["http://midspan/status"]);
    assert_eq!(status["status"]["state"], "running");
    let sessions = json(&["http://midspan/sessions"]);
    assert_eq!(sessions["sessions"][0]["bytes_to_server"], 5);
    let one = json(&["http://midspan/sessions/1"]);
    assert_eq!(one["server"], "127.0.0.1:9090");
    assert!(
        curl(&["http://midspan/metrics"]).contains("midspan_sessions_active{listener=\"web\"} 1")
    );
    assert!(curl(&["--head", "http://midspan/health"]).starts_with("HTTP/1.1 200 "));
    let kicked = json(&["-X", "POST", "http://midspan/kick?target=127.0.0.1/32"]);
    assert_eq!(kicked["kicked"]["sessions"], 1);
    let reloaded = json(&["-X", "POST", "http://midspan/reload"]);
    assert_eq!(reloaded["ok"], true);
    assert_eq!(proxy.status().reloads, 1);
    proxy.stop();
}

/// The summary of real sessions: a download that its client does not read, one that has ended its
/// data, and a client without data.
#[kernel_test]
fn sessions_are_summarised() {
    let proxy = Midspan::here(&configuration());
    let upstream = TcpListener::bind(loopback(9090)).unwrap();
    let open = |from: u8| {
        let near = connect_from(from, loopback(8080));
        let (far, _) = upstream.accept().unwrap();
        (near, far)
    };
    // The client reads nothing, so its window closes.
    let (unread, mut busy) = open(2);
    busy.set_nonblocking(true).unwrap();
    let idle = [open(3), open(3)];
    let place = midspan_proxy::client::Place::Socket(proxy.socket());
    let summary = |query: &str| -> midspan_proxy::summary::Summary {
        let target = format!("/summary?{query}");
        let (status, text) = midspan_proxy::client::get(place.clone(), &target).unwrap();
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let data = vec![0; 1 << 20];
    wait_until("the client's window is the limit", || {
        let _ = busy.write(&data);
        let clients = summary("by=client").clients;
        let row = clients
            .iter()
            .find(|row| row.client.to_string() == "127.0.0.2");
        row.is_some_and(|row| row.figures.held == Some(midspan_relay::observation::Limit::Window))
    });
    let all = summary("by=client&sort=sessions");
    assert!(all.complete && all.state.state == "running");
    assert_eq!((all.totals.sessions, all.matched.clients), (3, 2));
    assert_eq!(all.totals.untouched, None);
    let [three, two] = &all.clients[..] else {
        panic!("{all:?}");
    };
    assert_eq!(
        (three.client.to_string().as_str(), three.sessions),
        ("127.0.0.3", 2)
    );
    assert_eq!(three.figures.rate_to_client_bits_per_second, Some(0));
    assert_eq!(three.figures.held_by, None);
    assert!(two.figures.bytes_to_client > 0 && two.figures.client_leg.rtt_seconds.is_some());
    assert_eq!(all.cost.scanned, 3);
    let sessions = summary("by=session&client=127.0.0.2").sessions;
    // Threads number their new sessions at the same time.
    assert!(sessions.len() == 1 && (1..=3).contains(&sessions[0].id));
    assert_eq!(sessions[0].server, loopback(9090));
    let (status, text) = midspan_proxy::client::get(place.clone(), "/summary?sort=up").unwrap();
    assert!(status == 400 && text.contains("known parameters"), "{text}");
    drop((unread, idle));
    proxy.stop();
}

/// Another user gets no answer, even if the file's mode would let it connect.
#[kernel_test]
fn another_user_is_not_answered() {
    if !has("curl") || !has("setpriv") {
        return skip("there is no curl, or no setpriv");
    }
    if !midspan_linux::user_map::UserMap::read().has_all() {
        return skip("this user namespace has only one user");
    }
    let proxy = Midspan::here(&configuration());
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let socket = proxy.socket();
    open(socket.parent().unwrap(), 0o755);
    open(&socket, 0o666);
    let answer = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "curl"])
        .args([
            "--silent",
            "--max-time",
            "60",
            "http://midspan/status",
            "--unix-socket",
        ])
        .arg(&socket)
        .output()
        .unwrap();
    assert!(!answer.status.success() && answer.stdout.is_empty());
    wait_until("logged", || proxy.log().contains("another user is refused"));
    assert_eq!(proxy.status().state, "running");
    proxy.stop();
}

#[kernel_test]
fn the_socket_is_ours() {
    let proxy = Midspan::here(&configuration());
    // A second Midspan does not take over the socket of a running one.
    let other = configuration().replace("8080", "8081");
    let text = format!(
        "[control]\nsocket = \"{}\"\n{other}",
        proxy.socket().display()
    );
    let directory = tempfile::tempdir().unwrap();
    let fails = |text: &str, expected: &str| {
        let launch = Launch::this_program("run").configuration(text);
        let finished = launch.finish().unwrap();
        assert_eq!(finished.status.code(), Some(1));
        assert!(finished.log.contains(expected), "{}", finished.log);
    };
    fails(&text, "another Midspan answers there");
    assert_eq!(proxy.status().state, "running");
    // It does not replace a file either.
    let plain = directory.path().join("plain");
    fs::write(&plain, "important").unwrap();
    let text = format!("[control]\nsocket = \"{}\"\n{other}", plain.display());
    fails(&text, "a file that is not a socket");
    assert_eq!(fs::read_to_string(&plain).unwrap(), "important");
    // It replaces the socket of a killed Midspan.
    let socket = proxy.socket();
    let mut proxy = proxy;
    proxy.kill();
    assert!(
        fs::symlink_metadata(&socket)
            .unwrap()
            .file_type()
            .is_socket()
    );
    wait_until("refused", || is_refused(loopback(8080)));
    drop(UnixListener::bind(directory.path().join("stale")).unwrap());
    let text = format!(
        "[control]\nsocket = \"{}\"\n{other}",
        directory.path().join("stale").display()
    );
    let _second = Midspan::here(&text);
    let answer = midspan_proxy::command::ask(&directory.path().join("stale"), &Request::Status);
    assert!(answer.unwrap().ok);
}

/// One of two clients is kicked: by its address, by the server's address, or by the session's
/// number. The other one's session continues.
#[kernel_test]
fn kicked_sessions_are_reset() {
    let socks = "[[listener]]\nname = \"socks\"\nmode = \"socks5\"\nlisten = \"127.0.0.1:1080\"\n";
    let proxy = Midspan::here(&format!("{}{socks}", configuration()));
    let upstream = TcpListener::bind(loopback(9090)).unwrap();
    let open = |from: u8| {
        let near = connect_from(from, loopback(8080));
        let (far, _) = upstream.accept().unwrap();
        far.set_read_timeout(Some(LIMIT)).unwrap();
        (near, far)
    };
    let passes = |(near, far): &mut (TcpStream, TcpStream)| {
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        far.write_all(b"y").unwrap();
        near.read_exact(&mut [0]).unwrap();
    };
    let is_reset = |stream: &mut TcpStream| {
        let error = stream.read_exact(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    };
    let kick = |target: &str| {
        let target = target.to_owned();
        proxy.ask(&Request::Kick { target })
    };
    let mut stays = open(3);
    passes(&mut stays);
    // This client has sent half of its request.
    let mut talking = connect_from(2, loopback(1080));
    talking.write_all(&[5]).unwrap();
    for target in ["127.0.0.2", "127.0.0.2/32"] {
        let mut goes = open(2);
        passes(&mut goes);
        let mut more = open(2);
        passes(&mut more);
        let answer = kick(target);
        assert!(answer.ok, "{:?}", answer.error);
        let kicked = answer.kicked.unwrap();
        assert_eq!(kicked.sessions, 2, "{target}");
        assert_eq!(kicked.negotiations, u64::from(target == "127.0.0.2"));
        for stream in [&mut goes.0, &mut goes.1, &mut more.0, &mut more.1] {
            is_reset(stream);
        }
        passes(&mut stays);
    }
    is_reset(&mut talking);
    // New connections are accepted as before; a number selects a single session.
    // Sessions are numbered from 1, in the order in which they begin.
    let mut goes = open(2);
    passes(&mut goes);
    let mut other = open(2);
    passes(&mut other);
    let kicked = kick("6").kicked.unwrap();
    assert_eq!((kicked.sessions, kicked.negotiations), (1, 0));
    is_reset(&mut goes.0);
    is_reset(&mut goes.1);
    passes(&mut other);
    assert_eq!(kick("6").kicked.unwrap().sessions, 0);
    // All sessions have this server's address.
    assert_eq!(kick("::/0").kicked.unwrap().sessions, 0);
    assert_eq!(kick("127.0.0.1/32").kicked.unwrap().sessions, 2);
    is_reset(&mut stays.0);
    is_reset(&mut other.0);
    for nonsense in ["", "example.org", "10.0.0.0/33", "-1"] {
        let answer = kick(nonsense);
        assert!(
            !answer.ok && answer.error.unwrap().contains("neither"),
            "{nonsense}"
        );
    }
    wait_until("logged", || proxy.log().contains("kicked"));
    proxy.stop();
}

/// Thousands of sessions at once: all are reset, and the relay is not assumed to be stuck.
#[kernel_test]
fn many_are_kicked() {
    let proxy = Midspan::here(&configuration());
    let upstream = TcpListener::bind(loopback(9090)).unwrap();
    let sessions: Vec<_> = (0..1500)
        .map(|_| {
            (
                connect_from(2, loopback(8080)),
                upstream.accept().unwrap().0,
            )
        })
        .collect();
    let mut stays = (
        connect_from(3, loopback(8080)),
        upstream.accept().unwrap().0,
    );
    let answer = proxy.ask(&Request::Kick {
        target: "127.0.0.2".to_owned(),
    });
    if let Some(kicked) = answer.kicked {
        assert_eq!(kicked.sessions, 1500);
    }
    for (mut near, mut far) in sessions {
        near.set_read_timeout(Some(LIMIT)).unwrap();
        far.set_read_timeout(Some(LIMIT)).unwrap();
        assert!(near.read_exact(&mut [0]).is_err() && far.read_exact(&mut [0]).is_err());
    }
    stays.0.write_all(b"x").unwrap();
    stays.1.read_exact(&mut [0]).unwrap();
    drop(stays);
    proxy.stop();
}

fn connect_from(client: u8, to: std::net::SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let from = std::net::SocketAddr::from(([127, 0, 0, client], 0));
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}
