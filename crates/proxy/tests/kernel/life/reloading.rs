//! Reloads of forward listeners.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;

use midspan_linux::tcp;
use midspan_proxy::command::Request;
use rustix::process::Signal;

use super::support::*;
use super::transfers::*;

/// Transfers continue during all reloads and lose no byte; new connections are never refused.
#[kernel_test]
fn twenty_reloads() {
    let (a, b) = (server(b'a'), server(b'b'));
    let web = loopback(8080);
    let text = |to: SocketAddr, more: &str, others: &[u16]| {
        let others: String = others
            .iter()
            .map(|port| listener(&format!("other {port}"), loopback(*port), a))
            .collect();
        format!("{RELAY}{others}{}{more}", listener("web", web, to))
    };
    let proxy = Midspan::here(&text(a, "", &[]));
    let relay = proxy.status().relay_pid;
    let counts = during(web, |Counts { connections, .. }| {
        for number in 0..20 {
            let before = connections.load(Ordering::Relaxed);
            let to = if number % 2 == 0 { b } else { a };
            let more = match number % 4 {
                0 => {
                    "client_leg = { receive_buffer = \"100 KiB\", congestion_control = \"reno\" }\n"
                }
                1 => "connect_timeout = \"5 s\"\n",
                2 => "client_leg = { keepalive = \"60 s\" }\n",
                _ => "",
            };
            let others: &[u16] = match number % 3 {
                0 => &[8081, 8082],
                1 => &[8082],
                _ => &[],
            };
            proxy.reload_by_signal(&text(to, more, others));
            // At once: every connection from here on reaches the new server.
            assert_eq!(
                name(&mut connect(web)),
                if number % 2 == 0 { b'b' } else { b'a' }
            );
            for other in [8081, 8082] {
                // The proxy closes the port a moment after the reload.
                let expected = !others.contains(&other);
                wait_until("as listed", || is_refused(loopback(other)) == expected);
            }
            wait_until("connections", || {
                connections.load(Ordering::Relaxed) > before + 5
            });
        }
    });
    let status = proxy.status();
    assert_eq!((status.reloads, status.relay_pid), (20, relay));
    println!("    {counts:?}");
    proxy.stop();
}

#[kernel_test]
fn listeners_come_and_go() {
    let (a, b) = (server(b'a'), server(b'b'));
    let (one, two) = (loopback(8080), loopback(8081));
    let proxy = Midspan::here(&format!("{RELAY}{}", listener("one", one, a)));
    let mut old = connect(one);
    assert_eq!(name(&mut old), b'a');
    // A new name, a new server, and another address for the old name.
    proxy.reload_by_signal(&format!(
        "{RELAY}{}{}",
        listener("two", one, b),
        listener("one", two, a)
    ));
    assert_eq!(name(&mut connect(one)), b'b');
    assert_eq!(name(&mut connect(two)), b'a');
    // From one address to all addresses.
    proxy.reload_by_signal(&format!(
        "{RELAY}{}",
        listener("all", "0.0.0.0:8080".parse().unwrap(), b)
    ));
    wait_until("refused", || is_refused(two));
    assert_eq!(name(&mut connect(one)), b'b');
    assert_eq!(name(&mut connect("127.0.0.9:8080")), b'b');
    proxy.reload_by_signal(&format!("{RELAY}{}", listener("one", one, a)));
    wait_until("refused", || is_refused("127.0.0.9:8080"));
    assert_eq!(name(&mut connect(one)), b'a');
    let sum = checksum();
    assert_sum(old, &sum);
    // The address is free for other programs at once.
    assert!(TcpListener::bind(two).is_ok());
    proxy.stop();
}

/// Settings that connections inherit from the listening socket change, and change back.
#[kernel_test]
fn legs_change() {
    let upstream = TcpListener::bind(loopback(0)).unwrap();
    let to = upstream.local_addr().unwrap();
    let web = loopback(8080);
    let text = |leg: &str| {
        format!(
            "{RELAY}{}server_leg = {{ {leg} }}\nclient_leg = {{ {leg} }}\n",
            listener("web", web, to)
        )
    };
    let default = || {
        let listener = TcpListener::bind(loopback(0)).unwrap();
        tcp::congestion_control(&listener).unwrap()
    };
    let proxy = Midspan::here(&text(""));
    let relay = proxy.status().relay_pid;
    let controls = || {
        let client = connect(web);
        let (server, _) = upstream.accept().unwrap();
        let port = client.local_addr().unwrap().port();
        let text = std::process::Command::new("ss")
            .args(["-tniH", "state", "established"])
            .output();
        drop(server);
        let text = String::from_utf8(text.ok()?.stdout).ok()?;
        // The proxy's socket of the client leg, and the line that follows it.
        let mut lines = text.lines();
        let ends = [loopback(8080).to_string(), loopback(port).to_string()];
        lines.find(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            columns.get(2..4) == Some(&[&ends[0][..], &ends[1]])
        })?;
        Some(lines.next()?.split_whitespace().next()?.to_owned())
    };
    let Some(before) = controls() else {
        return skip("there is no program ss");
    };
    assert_eq!(before, default());
    proxy.reload_by_signal(&text("congestion_control = \"reno\""));
    assert_eq!(controls().unwrap(), "reno");
    proxy.reload_by_signal(&text(""));
    assert_eq!(controls().unwrap(), default());
    assert_eq!(proxy.status().relay_pid, relay);
    proxy.stop();
}

#[kernel_test]
fn a_wrong_file() {
    let a = server(b'a');
    let web = loopback(8080);
    let right = format!("{RELAY}{}", listener("web", web, a));
    let proxy = Midspan::here(&right);
    let mut session = connect(web);
    let occupied = TcpListener::bind(loopback(8090)).unwrap();
    let in_use = format!(
        "{right}{}{}",
        listener("new", loopback(8091), a),
        listener("busy", loopback(8090), a)
    );
    for (text, error) in [
        (
            "[[listener]]\nname = \"web\"\n".to_owned(),
            "midspan.toml:2:8: missing key `listen`",
        ),
        (
            right.replace("threads = 2", "threads = \"two\""),
            "midspan.toml:2:11: ",
        ),
        (
            right.replace(&a.to_string(), &web.to_string()),
            "forwards to itself",
        ),
        (in_use, "127.0.0.1:8090 is in use by another program"),
        (
            format!("{right}client_leg = {{ congestion_control = \"nonsuch\" }}\n"),
            "this kernel does not offer it",
        ),
    ] {
        proxy.write(&text);
        let answer = proxy.ask(&Request::Reload);
        let said = answer.error.unwrap();
        assert!(!answer.ok && said.contains(error), "{said}");
        assert!(
            said.contains("the old configuration stays in force"),
            "{said}"
        );
        wait_until("logged", || proxy.log().contains(error));
        assert!(proxy.status().reload_error.unwrap().contains(error));
        assert_eq!(name(&mut connect(web)), b'a');
        assert!(is_refused(loopback(8091)));
    }
    drop(occupied);
    assert_eq!(name(&mut session), b'a');
    drop(session);
    proxy.reload_by_signal(&right);
    assert_eq!(proxy.status().reload_error, None);
    proxy.stop();
}

#[kernel_test]
fn what_needs_a_restart() {
    let (a, b) = (server(b'a'), server(b'b'));
    let web = loopback(8080);
    let proxy = Midspan::here(&format!("{RELAY}{}", listener("web", web, a)));
    let other = RELAY.replace("threads = 2", "threads = 1\ndrain_timeout = \"200 ms\"");
    proxy.write(&format!(
        "[log]\nlevel = \"debug\"\n{other}{}",
        listener("web", web, b)
    ));
    let answer = proxy.ask(&Request::Reload);
    assert!(answer.ok);
    let notes = answer.notes.join("\n");
    assert_eq!(
        notes,
        "relay.threads has changed in the file: it needs a restart\n\
         log.level has changed in the file: it needs a restart"
    );
    wait_until("logged", || {
        proxy.log().contains("relay.threads has changed")
    });
    // The other changes are in force: the server, and the time to drain.
    let mut session = connect(web);
    assert_eq!(name(&mut session), b'b');
    let mut proxy = proxy;
    proxy.signal(Signal::TERM);
    assert!(proxy.wait().success());
    let error = session.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(
        proxy.log().contains("drain_timeout=200 ms"),
        "{}",
        proxy.log()
    );
}

#[kernel_test]
fn time_outs_change() {
    let listen = loopback(8080);
    let listener = format!("{RELAY}{}", listener("test", listen, server(b'a')));
    let proxy = Midspan::here(&listener);
    let mut before = connect(listen);
    assert_eq!(name(&mut before), b'a');
    proxy.reload_by_signal(&format!("{listener}idle_timeout = \"1500 ms\"\n"));
    let mut after = connect(listen);
    assert_eq!(name(&mut after), b'a');
    let reset = after.read(&mut [0; 1]).unwrap_err();
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
    // This session was accepted with the earlier time-out.
    assert_sum(before, &checksum());
    proxy.stop();
}
