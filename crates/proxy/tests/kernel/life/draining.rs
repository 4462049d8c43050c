//! Listeners are drained, and the end of the proxy is announced.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use midspan_proxy::command::Request;
use midspan_testbed::testing::{accept, connect_as, echoes};
use rustix::process::Signal;

use super::support::*;

fn configuration(more: &str) -> String {
    format!(
        "{}[admin]\nlisten = \"{ADMIN}\"\n{}{}",
        RELAY.replace("threads = 2", &format!("threads = 2\n{more}")),
        listener("web", loopback(8080), loopback(9090)),
        listener("mail", loopback(8081), loopback(9090))
    )
}

/// The status of a page of the admin listener.
fn status(page: &str) -> u16 {
    let (status, _) = crate::common::get(page);
    status
}

/// A new session. Connections that wait at the server have other clients.
fn session(listener: &TcpListener, at: SocketAddr) -> (TcpStream, TcpStream) {
    listener.set_nonblocking(true).unwrap();
    while listener.accept().is_ok() {}
    listener.set_nonblocking(false).unwrap();
    let mut client = connect(at);
    let (mut server, _) = accept(listener);
    echoes(&mut client, &mut server);
    (client, server)
}

fn drain(proxy: &Midspan, name: &str) -> midspan_proxy::command::Answer {
    proxy.ask(&Request::DrainOn {
        listener: name.to_owned(),
        clients: Vec::new(),
    })
}

/// Ends the draining of a listener, or of all.
fn off(proxy: &Midspan, listener: Option<&str>) -> midspan_proxy::command::Answer {
    proxy.ask(&Request::DrainOff {
        listener: listener.map(str::to_owned),
        clients: Vec::new(),
    })
}

#[kernel_test]
fn a_drained_listener_takes_nothing_more() {
    let server = TcpListener::bind(loopback(9090)).unwrap();
    let proxy = Midspan::here(&configuration(""));
    let (mut near, mut far) = session(&server, loopback(8080));
    let answer = drain(&proxy, "web");
    assert!(answer.ok, "{answer:?}");
    wait_until("refused", || is_refused(loopback(8080)));
    echoes(&mut near, &mut far);
    session(&server, loopback(8081));
    assert_eq!(proxy.status().drained[0].name, "web");
    wait_until("red", || status("/health?listener=web") == 503);
    assert_eq!(status("/health?listener=mail"), 200);
    assert_eq!(status("/health"), 200);
    assert_eq!(status("/health?listen=web"), 400);
    assert_eq!(status("/health?listener=nonsuch"), 404);
    // A reload leaves it drained, and a second command changes nothing.
    assert!(proxy.ask(&Request::Reload).ok);
    assert!(drain(&proxy, "web").ok);
    assert!(is_refused(loopback(8080)));
    assert!(!drain(&proxy, "ftp").ok);
    let off = |listener: Option<&str>| off(&proxy, listener);
    assert!(!off(Some("mail")).ok);
    // Both are drained: no listener is left.
    assert!(drain(&proxy, "mail").ok);
    wait_until("refused too", || is_refused(loopback(8081)));
    assert!(off(None).ok);
    session(&server, loopback(8080));
    session(&server, loopback(8081));
    echoes(&mut near, &mut far);
    assert!(proxy.status().drained.is_empty());
    // Another program has the port meanwhile: the listener stays drained.
    assert!(drain(&proxy, "web").ok);
    wait_until("free", || TcpListener::bind(loopback(8080)).is_ok());
    let other = TcpListener::bind(loopback(8080)).unwrap();
    assert!(!off(Some("web")).ok);
    assert_eq!(proxy.status().drained.len(), 1);
    drop(other);
    assert!(off(Some("web")).ok);
    session(&server, loopback(8080));
}

/// Whether a client at this address gets a reset; it may arrive before `connect` returns.
fn is_turned_away(source: &str, to: SocketAddr) -> bool {
    let read = connect_as(source, to).and_then(|mut client| client.read_exact(&mut [0]));
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

#[kernel_test]
fn drained_clients_get_no_new_connections() {
    let server = TcpListener::bind(loopback(9090)).unwrap();
    let proxy = Midspan::here(&configuration("lame_duck_time = \"1 h\""));
    let connected = |source: &str, port: u16| {
        let mut client = connect_as(source, loopback(port)).unwrap();
        let (mut served, _) = accept(&server);
        echoes(&mut client, &mut served);
        (client, served)
    };
    let mut kept = connected("127.0.7.1:0", 8080);
    let mut other = connected("127.0.8.1:0", 8080);
    let clients = |prefixes: &[&str]| -> Vec<String> {
        prefixes.iter().map(|prefix| (*prefix).to_owned()).collect()
    };
    let on = |listener: &str, prefixes: &[&str]| {
        proxy.ask(&Request::DrainOn {
            listener: listener.to_owned(),
            clients: clients(prefixes),
        })
    };
    let off_clients = |prefixes: &[&str]| {
        proxy.ask(&Request::DrainOff {
            listener: Some("web".to_owned()),
            clients: clients(prefixes),
        })
    };
    // In spite of the time for announcements, this is in force with the answer.
    let answer = on("web", &["127.0.7.0/24", "2001:db8::/32"]);
    assert!(answer.ok, "{answer:?}");
    assert!(is_turned_away("127.0.7.1:0", loopback(8080)));
    assert!(is_turned_away("127.0.7.9:0", loopback(8080)));
    connected("127.0.8.1:0", 8080);
    connected("127.0.7.1:0", 8081);
    echoes(&mut kept.0, &mut kept.1);
    echoes(&mut other.0, &mut other.1);
    assert_eq!(status("/health?listener=web"), 200);
    let shown = proxy.status();
    assert!(shown.drained.is_empty());
    let rows: Vec<(&str, &str)> = (shown.drained_clients.iter())
        .map(|row| (row.listener.as_str(), row.clients.as_str()))
        .collect();
    assert_eq!(rows, [("web", "127.0.7.0/24"), ("web", "2001:db8::/32")]);
    let left = || {
        let (_, text) = crate::common::get("/summary?client=127.0.8.1");
        let summary: midspan_proxy::summary::Summary = serde_json::from_str(&text).unwrap();
        let rows = summary.drained_clients.iter();
        rows.map(|row| row.sessions).collect::<Vec<_>>()
    };
    wait_until("one session is left", || left() == [Some(1), Some(0)]);
    let refused = "midspan_refusals_total{reason=\"drained\"}";
    wait_until("counted", || crate::common::metric(refused) >= 2.0);
    // A reload leaves them drained, and a second command changes nothing.
    assert!(proxy.ask(&Request::Reload).ok);
    assert!(on("web", &["127.0.7.0/24"]).ok);
    assert!(is_turned_away("127.0.7.1:0", loopback(8080)));
    // Wrong commands change nothing.
    assert!(!on("ftp", &["127.0.7.0/24"]).ok);
    assert!(!on("web", &["127.0.9.0/24", "example.org"]).ok);
    assert!(!off_clients(&["127.0.7.0/25"]).ok);
    let many: Vec<String> = (0..70)
        .map(|number| format!("10.0.{number}.0/24"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(!on("web", &many).ok);
    assert_eq!(proxy.status().drained_clients.len(), 2);
    assert!(off_clients(&["127.0.7.0/24"]).ok);
    connected("127.0.7.1:0", 8080);
    // The listener as a whole ends all of its draining.
    assert!(on("web", &["127.0.7.0/24"]).ok);
    assert!(on("mail", &["127.0.7.0/24"]).ok);
    assert!(off(&proxy, Some("web")).ok);
    connected("127.0.7.1:0", 8080);
    assert!(is_turned_away("127.0.7.1:0", loopback(8081)));
    assert!(off(&proxy, None).ok);
    connected("127.0.7.1:0", 8081);
    assert!(proxy.status().drained_clients.is_empty());
    wait_until("no row", || left().is_empty());
    echoes(&mut kept.0, &mut kept.1);
}

#[kernel_test]
fn what_is_announced_still_accepts() {
    let server = TcpListener::bind(loopback(9090)).unwrap();
    let mut proxy = Midspan::here(&configuration("lame_duck_time = \"2 s\""));
    let begin = Instant::now();
    assert!(drain(&proxy, "web").ok);
    wait_until("red", || status("/health?listener=web") == 503);
    if begin.elapsed() < Duration::from_secs(1) {
        session(&server, loopback(8080));
    }
    wait_until("refused", || is_refused(loopback(8080)));
    assert!(begin.elapsed() >= Duration::from_secs(2));
    // The whole proxy: the same, and then it ends.
    let begin = Instant::now();
    proxy.signal(Signal::TERM);
    wait_until("red", || status("/health") == 503);
    if begin.elapsed() < Duration::from_secs(1) {
        assert_eq!(proxy.status().state, "ending");
        assert!(!proxy.ask(&Request::Reload).ok);
        session(&server, loopback(8081));
    }
    assert!(proxy.wait().success());
    assert!(begin.elapsed() >= Duration::from_secs(2));
}

/// The announcement of a drained listener ends while the whole proxy drains already: sessions still have the whole
/// `drain_timeout`.
#[kernel_test]
fn an_announcement_does_not_end_a_drain() {
    let server = TcpListener::bind(loopback(9090)).unwrap();
    let mut proxy = Midspan::here(&configuration(
        "lame_duck_time = \"3 s\"\ndrain_timeout = \"1 min\"",
    ));
    let (mut near, mut far) = session(&server, loopback(8081));
    let begin = Instant::now();
    assert!(drain(&proxy, "web").ok);
    proxy.signal(Signal::TERM);
    wait_until("announced", || status("/health") == 503);
    proxy.signal(Signal::TERM);
    wait_until("draining", || is_refused(loopback(8081)));
    // The helper would wait 5 s for an answer of the relay.
    while begin.elapsed() < Duration::from_secs(12) {
        echoes(&mut near, &mut far);
        std::thread::sleep(Duration::from_millis(200));
    }
    drop((near, far));
    assert!(proxy.wait().success());
}

/// A second signal ends the announcement.
#[kernel_test]
fn a_second_signal_drains_at_once() {
    let _server = TcpListener::bind(loopback(9090)).unwrap();
    let mut proxy = Midspan::here(&configuration("lame_duck_time = \"1 h\""));
    proxy.signal(Signal::TERM);
    wait_until("announced", || status("/health") == 503);
    assert_eq!(proxy.status().state, "ending");
    proxy.signal(Signal::TERM);
    assert!(proxy.wait().success());
}
