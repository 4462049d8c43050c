//! Upgrades: another program in the same process takes over.

use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use midspan_proxy::client;
use midspan_proxy::command::{Request, UpgradeState, ask, upgrade};
use rustix::process::Signal;

use super::support::*;
use super::transfers::*;
use crate::common::assert_upgraded;

/// Transfers continue during all upgrades and lose no byte; new connections are never refused.
#[kernel_test]
fn ten_upgrades() {
    let (a, web) = (server(b'a'), loopback(8080));
    let admin = format!("[admin]\nlisten = \"{ADMIN}\"\n");
    let text = format!(
        "{RELAY}drain_timeout = \"10 s\"\n{admin}{}",
        listener("web", web, a)
    );
    let proxy = Midspan::here(&text);
    let before = proxy.status();
    let counts = during(web, |Counts { connections, .. }| {
        for number in 1..=10 {
            let relay = proxy.status().relay_pid;
            let before = connections.load(Ordering::Relaxed);
            let status = proxy.upgrade(None);
            assert_upgraded(&status);
            assert_eq!(status.upgrade.unwrap().number, number);
            assert_ne!(status.relay_pid, relay);
            assert_eq!(name(&mut connect(web)), b'a');
            wait_until("connections", || {
                connections.load(Ordering::Relaxed) > before + 5
            });
            let (code, _) =
                client::get(ADMIN.parse::<std::net::SocketAddr>().unwrap(), "/health").unwrap();
            assert_eq!(code, 200);
            wait_until("the former relay has ended", || {
                proxy.status().former_relay_pids.is_empty()
            });
        }
    });
    println!("    {counts:?}");
    let after = proxy.status();
    assert_eq!(after.pid, before.pid);
    assert!(after.uptime_seconds >= before.uptime_seconds);
    // The process still reloads, and drains.
    proxy.reload_by_signal(&format!("{RELAY}{}", listener("web", web, server(b'b'))));
    assert_eq!(name(&mut connect(web)), b'b');
    proxy.stop();
}

/// Bytes that wait in the proxy, because the client does not read, arrive after an upgrade.
#[kernel_test]
fn waiting_data_moves() {
    let (web, count) = (loopback(8080), 20 << 20);
    let listening = std::net::TcpListener::bind(loopback(0)).unwrap();
    let proxy = Midspan::here(&format!(
        "{RELAY}{}",
        listener("web", web, listening.local_addr().unwrap())
    ));
    let mut client = BufReader::new(connect(web));
    let mut stream = BufWriter::new(listening.accept().unwrap().0);
    let sender = std::thread::spawn(move || {
        for index in 0..count / 4_u32 {
            stream.write_all(&index.to_be_bytes()).unwrap();
        }
        stream.flush().unwrap();
    });
    assert_upgraded(&proxy.upgrade(None));
    assert_upgraded(&proxy.upgrade(None));
    for index in 0..count / 4 {
        let mut word = [0; 4];
        client.read_exact(&mut word).unwrap();
        assert_eq!(u32::from_be_bytes(word), index);
    }
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    sender.join().unwrap();
    proxy.stop();
}

/// Keys that need a restart otherwise change by an upgrade, also the address of a listener.
#[kernel_test]
fn the_file_is_read_again() {
    let (a, one, two) = (server(b'a'), loopback(8080), loopback(8081));
    let proxy = Midspan::here(&format!("{RELAY}{}", listener("web", one, a)));
    let mut session = connect(one);
    assert_eq!(name(&mut session), b'a');
    proxy.write(&format!(
        "[relay]\nthreads = 3\npipe_size = \"128 KiB\"\n[admin]\nlisten = \"{ADMIN}\"\n{}{}",
        listener("web", one, a),
        listener("more", two, a)
    ));
    assert_upgraded(&proxy.upgrade(None));
    assert_eq!(name(&mut connect(two)), b'a');
    assert_eq!(name(&mut connect(one)), b'a');
    let (code, text) =
        client::get(ADMIN.parse::<std::net::SocketAddr>().unwrap(), "/metrics").unwrap();
    assert_eq!(code, 200);
    assert!(text.contains("midspan_threads 3"), "{text}");
    assert_sum(session, &checksum());
    proxy.stop();
}

/// The control socket changes its place by an upgrade. The former one remains for the result of the command.
#[kernel_test]
fn the_control_socket_moves() {
    let folder = tempfile::tempdir().unwrap();
    let [former, place] = ["former", "present"].map(|name| folder.path().join(name));
    let listener = listener("web", loopback(8080), server(b'a'));
    let with = |socket: &str| format!("[control]\nsocket = \"{socket}\"\n{RELAY}{listener}");
    let at = |place: &Path| with(place.to_str().unwrap());
    let upgraded = |socket: &Path| {
        let (status, _) = upgrade(socket, None, LIMIT).unwrap();
        assert_upgraded(&status);
        status
    };
    let proxy = Midspan::here(&at(&former));
    let mut session = connect(loopback(8080));
    assert_eq!(name(&mut session), b'a');
    proxy.write(&at(&place));
    let status = upgraded(&former);
    assert_eq!(status.pid, proxy.id());
    let answer = ask(&place, &Request::Status).unwrap();
    assert_eq!(answer.status.unwrap().pid, proxy.id());
    assert!(former.exists());
    // The next upgrade, by a command over the new socket, is the end of the former one.
    upgraded(&place);
    assert!(!former.exists());
    // Without a control socket, the present one remains for the result, too.
    proxy.write(&with("none"));
    upgraded(&place);
    assert_sum(session, &checksum());
    proxy.stop();
    assert!(!place.exists());
}

/// A program that is none, that fails its trial, or that fails when it runs changes nothing.
#[kernel_test]
fn a_program_that_cannot_take_over_changes_nothing() {
    let (a, web) = (server(b'a'), loopback(8080));
    let text = format!("{RELAY}{}", listener("web", web, a));
    let proxy = Midspan::here(&text);
    let before = proxy.status();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    let mut session = connect(web);
    assert_eq!(name(&mut session), b'a');
    let refused = |program: &str| {
        let program = Some(program.to_owned());
        let answer = proxy.ask(&Request::Upgrade { program });
        assert!(!answer.ok);
        answer.error.unwrap()
    };
    assert!(refused("midspan").contains("not an absolute path"));
    assert!(refused("/no/such/program").contains("No such file"));
    let text_file = path("text");
    std::fs::write(&text_file, "text").unwrap();
    std::fs::set_permissions(&text_file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(text_file.to_str().unwrap()).contains("not a program"));
    let other = path("other");
    std::fs::copy("/bin/true", &other).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).unwrap();
    let status = proxy.upgrade(Some(other.to_str().unwrap()));
    let last = status.upgrade.unwrap();
    assert_eq!(last.state, UpgradeState::Failed);
    assert!(last.error.unwrap().contains("no Midspan"));
    std::fs::copy("/bin/false", &other).unwrap();
    let last = proxy
        .upgrade(Some(other.to_str().unwrap()))
        .upgrade
        .unwrap();
    assert!(last.error.unwrap().contains("trial failed"));
    // A configuration that no longer parses.
    proxy.write("[relay]\nthreads = \"many\"\n");
    let last = proxy.upgrade(None).upgrade.unwrap();
    assert!(last.error.unwrap().contains("trial failed"));
    // One that parses, and cannot be put in force.
    let taken = std::net::TcpListener::bind(loopback(8082)).unwrap();
    let more = listener("taken", loopback(8082), a);
    proxy.write(&format!("{text}{more}"));
    let last = proxy.upgrade(None).upgrade.unwrap();
    assert_eq!(last.state, UpgradeState::Failed);
    let error = last.error.unwrap();
    assert!(error.contains("8082"), "{error}");
    drop(taken);
    let after = proxy.status();
    assert_eq!((after.pid, after.relay_pid), (before.pid, before.relay_pid));
    assert_eq!(name(&mut connect(web)), b'a');
    assert_sum(session, &checksum());
    // The next one succeeds.
    assert_upgraded(&proxy.upgrade(None));
    assert_eq!(name(&mut connect(loopback(8082))), b'a');
    proxy.stop();
}

/// What an operator has set outlives an upgrade.
#[kernel_test]
fn drained_listeners_stay_drained() {
    let (a, one, two) = (server(b'a'), loopback(8080), loopback(8081));
    let proxy = Midspan::here(&format!(
        "{RELAY}lame_duck_time = \"0 s\"\n{}{}",
        listener("one", one, a),
        listener("two", two, a)
    ));
    let answer = proxy.ask(&Request::DrainOn {
        listener: "one".to_owned(),
        clients: Vec::new(),
    });
    assert!(answer.ok, "{answer:?}");
    wait_until("drained", || is_refused(one));
    let status = proxy.upgrade(None);
    assert_upgraded(&status);
    assert_eq!(status.drained.len(), 1);
    assert!(is_refused(one));
    assert_eq!(name(&mut connect(two)), b'a');
    let answer = proxy.ask(&Request::DrainOff {
        listener: None,
        clients: Vec::new(),
    });
    assert!(answer.ok, "{answer:?}");
    assert_eq!(name(&mut connect(one)), b'a');
    proxy.stop();
}

/// A client that negotiates stays with the relay of the former program. At the end of Midspan, its session has as much
/// time as all others.
#[kernel_test]
fn sessions_of_a_former_relay_have_their_time_at_the_end() {
    let (target, web) = (loopback(9090), loopback(8080));
    let server_socket = std::net::TcpListener::bind(target).unwrap();
    let mut proxy = Midspan::here(&format!(
        "{RELAY}[[listener]]\nname = \"web\"\nmode = \"http\"\nlisten = \"{web}\"\n\
         access = [{{ allow = \"127.0.0.1\" }}]\n"
    ));
    let mut client = connect(web);
    client
        .write_all(b"CONNECT 127.0.0.1:9090 HTTP/1.1\r\n")
        .unwrap();
    assert_upgraded(&proxy.upgrade(None));
    client.write_all(b"Host: 127.0.0.1:9090\r\n\r\n").unwrap();
    let mut server_end = server_socket.accept().unwrap().0;
    let mut head = [0; 12];
    client.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(proxy.status().former_relay_pids.len(), 1);
    proxy.signal(Signal::TERM);
    wait_until("drains", || is_refused(web));
    // Longer than the new relay takes to end, which has no session.
    std::thread::sleep(Duration::from_secs(2));
    server_end.write_all(b"still here").unwrap();
    drop(server_end);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"still here"));
    drop(client);
    assert!(proxy.wait().success());
}

/// What stays with the relay of the former program has the time of `upgrade_timeout`, not that of `drain_timeout`.
#[kernel_test]
fn sessions_of_a_former_relay_continue_for_upgrade_timeout() {
    let (target, web) = (loopback(9090), loopback(8080));
    let server_socket = std::net::TcpListener::bind(target).unwrap();
    let configuration = |upgrade_timeout: &str| {
        format!(
            "{RELAY}drain_timeout = \"100 ms\"\nupgrade_timeout = \"{upgrade_timeout}\"\n\
             [[listener]]\nname = \"web\"\nmode = \"http\"\nlisten = \"{web}\"\n\
             access = [{{ allow = \"127.0.0.1\" }}]\n"
        )
    };
    for (upgrade_timeout, is_kept) in [("1 h", true), ("300 ms", false)] {
        let proxy = Midspan::here(&configuration(upgrade_timeout));
        let mut client = connect(web);
        client
            .write_all(b"CONNECT 127.0.0.1:9090 HTTP/1.1\r\n")
            .unwrap();
        assert_upgraded(&proxy.upgrade(None));
        if is_kept {
            // Longer than `drain_timeout`.
            std::thread::sleep(Duration::from_secs(1));
            client.write_all(b"Host: 127.0.0.1:9090\r\n\r\n").unwrap();
            let mut server_end = server_socket.accept().unwrap().0;
            server_end.write_all(b"still here").unwrap();
            drop(server_end);
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).unwrap();
            assert!(rest.ends_with(b"still here"), "{rest:?}");
        } else {
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest);
            assert_eq!(rest, b"");
        }
        drop(client);
        wait_until("the former relay ends", || {
            proxy.status().former_relay_pids.is_empty()
        });
        proxy.stop();
    }
}

/// A signal ends no program that has not yet a handler for it, and none is lost.
#[kernel_test]
fn signals_wait_for_the_next_program() {
    let (a, web) = (server(b'a'), loopback(8080));
    let text = format!("{RELAY}{}", listener("web", web, a));
    let proxy = Midspan::here(&text);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                proxy.signal(Signal::HUP);
                std::thread::sleep(Duration::from_millis(25));
            }
        });
        for _ in 0..3 {
            assert_upgraded(&proxy.upgrade(None));
            assert_eq!(name(&mut connect(web)), b'a');
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    proxy.stop();
    for hundredths in 0..12 {
        let proxy = Midspan::here(&text);
        assert!(proxy.ask(&Request::Upgrade { program: None }).ok);
        std::thread::sleep(Duration::from_millis(hundredths * 50));
        proxy.stop();
    }
}
