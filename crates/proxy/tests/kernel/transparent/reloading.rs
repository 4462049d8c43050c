//! Reloads, bypasses, and leftovers of a crash.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use midspan_proxy::command::Request;
use rustix::process::{Signal, kill_process};

use super::failing::no_trace;
use super::support::*;

const WINDOWS: &str =
    "client_leg = { initial_window = 30 }\nserver_leg = { initial_window = 20 }\n";

fn on(prefix: Option<&str>) -> Request {
    let prefix = prefix.map(str::to_owned);
    Request::BypassOn { prefix }
}

fn off(prefix: Option<&str>) -> Request {
    let prefix = prefix.map(str::to_owned);
    Request::BypassOff { prefix }
}

/// Ends the thread that makes connections, also after a failure.
#[derive(Default)]
pub struct EndTraffic(Arc<AtomicBool>);

impl EndTraffic {
    /// Whether the thread is to end.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for EndTraffic {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// New connections, one after the other, while other listeners are added and removed.
#[kernel_test]
fn listeners_change_under_traffic() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let relay = midspan.relay();
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    let count = AtomicUsize::new(0);
    let other = "[[listener]]\nname = \"other\"\nmode = \"transparent\"\ninterfaces = [\"acc2\"]\n";
    let early = early();
    let before = format!("{other}{TRANSPARENT_LISTENER}");
    std::thread::scope(|scope| {
        let end = EndTraffic::default();
        let (stop, count, network, listener) = (end.flag(), &count, &network, &listener);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for server in [SERVER, SERVER6] {
                    let mut near = network.connect(server, PORT).unwrap();
                    let (mut far, _) = accept(listener);
                    echoes(&mut near, &mut far);
                    abort(near);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        for text in [
            format!("{TRANSPARENT}{other}"),
            format!("{RELAY}{before}"),
            TRANSPARENT.to_owned(),
            early.clone(),
            format!("{TRANSPARENT}{WINDOWS}{other}{WINDOWS}"),
            format!("{TRANSPARENT}{other}"),
            TRANSPARENT.to_owned(),
        ] {
            let seen = count.load(Ordering::Relaxed);
            let answer = midspan.reload(&text);
            assert!(answer.ok, "{:?}: {}", answer.error, midspan.log());
            wait_until("connections", || count.load(Ordering::Relaxed) > seen + 3);
            echoes(&mut near, &mut far);
        }
        let failed = midspan.reload("[[listener]]\nname = 1\n");
        assert!(failed.error.unwrap().contains("midspan.toml:2:8"));
    });
    println!("    {} connections", count.load(Ordering::Relaxed));
    assert_eq!(midspan.relay(), relay);
    // The listener is removed; its sessions continue.
    let forward = "[[listener]]\nname = \"f\"\nlisten = \"127.0.0.1:8080\"\nto = \"10.3.0.2:80\"\n";
    let answer = midspan.reload(&format!("{RELAY}{forward}"));
    assert!(answer.ok, "{:?}", answer.error);
    wait_until("closed", || network.taken(PORT) == 1);
    let mut untouched = network.connect(SERVER, PORT).unwrap();
    let (mut served, _) = accept(&listener);
    echoes(&mut untouched, &mut served);
    assert_eq!(network.taken(PORT), 1, "{}", midspan.log());
    std::thread::sleep(Duration::from_millis(700));
    // The listener is added again.
    assert!(midspan.reload(TRANSPARENT).ok);
    let mut again = network.connect(SERVER, PORT).unwrap();
    let (mut served_again, _) = accept(&listener);
    echoes(&mut again, &mut served_again);
    assert_eq!(network.taken(PORT), 2, "{}", midspan.log());
    carries(near, far, 500_000);
    for stream in [untouched, again] {
        abort(stream);
    }
    midspan.stop();
    no_trace(&network);
}

/// From only forward listeners to transparent ones with initial windows, and back.
#[kernel_test]
fn windows_and_listeners_come_and_go() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let forward = format!(
        "{RELAY}[[listener]]\nname = \"f\"\nlisten = \"127.0.0.1:8080\"\nto = \"10.3.0.2:80\"\n"
    );
    let midspan = Midspan::ready(&network.gateway, &forward);
    let routes = |table: &str| {
        let four = output(&network.gateway, "ip", &["route", "show", "table", table]);
        let six = output(
            &network.gateway,
            "ip",
            &["-6", "route", "show", "table", table],
        );
        (four, six)
    };
    let mut sessions = Vec::new();
    for window in [30, 40, 50] {
        let legs = format!("client_leg = {{ initial_window = {window} }}\n");
        let answer = midspan.reload(&format!("{TRANSPARENT}{legs}"));
        assert!(answer.ok, "{:?}: {}", answer.error, midspan.log());
        let (four, six) = routes("7700");
        let expected = format!("initcwnd {window}");
        assert!(
            four.contains(&expected) && six.contains(&expected),
            "{four}{six}"
        );
        for (server, _) in BOTH {
            let mut near = network.connect(server, PORT).unwrap();
            let (mut far, _) = accept(&listener);
            echoes(&mut near, &mut far);
            sessions.push((near, far));
        }
        for (near, far) in &mut sessions {
            echoes(near, far);
        }
    }
    assert_eq!(network.taken(PORT), 6);
    let answer = midspan.reload(&forward);
    assert!(answer.ok, "{:?}", answer.error);
    for (near, far) in &mut sessions {
        echoes(near, far);
    }
    // If the mark field is too small, the reload changes nothing.
    let many: String = (0..13)
        .map(|number| TRANSPARENT_LISTENER.replace("test", &format!("test{number}")))
        .collect();
    let failed = midspan.reload(&format!("{RELAY}{many}"));
    assert!(failed.error.unwrap().contains("widen marks.mask"));
    for (near, far) in sessions {
        carries(near, far, 100_000);
    }
    midspan.stop();
    no_trace(&network);
}

#[kernel_test]
fn bypassed_connections_pass_untouched() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    let is_taken = |server| {
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        let taken = network.taken(PORT) == 2;
        abort(near);
        wait_until("closed", || network.taken(PORT) == 1);
        taken
    };
    assert!(is_taken(SERVER) && is_taken(SERVER6));
    for (request, four, six) in [
        (on(Some("10.3.0.0/16")), false, true),
        (on(Some("fd01::/64")), false, false),
        (on(Some("fd03::2")), false, false),
        (off(Some("10.3.0.99/16")), true, false),
        (off(None), true, true),
        (on(None), false, false),
        (off(Some("::/0")), false, true),
    ] {
        let answer = midspan.ask(&request);
        assert!(answer.ok, "{request:?}: {:?}", answer.error);
        assert_eq!(
            (is_taken(SERVER), is_taken(SERVER6)),
            (four, six),
            "{request:?}"
        );
        // Live sessions are kept.
        echoes(&mut near, &mut far);
    }
    let list = || midspan.ask(&Request::BypassList).bypasses.unwrap();
    assert_eq!(list(), ["0.0.0.0/0"]);
    // The bypass stays in force after a firewall reload and after a reload of the configuration.
    rules(&network.gateway, "flush ruleset\n");
    std::thread::sleep(Duration::from_secs(1));
    wait_until("taken again", || is_taken(SERVER6));
    assert!(!is_taken(SERVER));
    assert!(midspan.reload(&early()).ok);
    assert!(!is_taken(SERVER) && is_taken(SERVER6));
    let status = midspan.ask(&Request::Status).status.unwrap();
    assert_eq!((status.bypasses, status.reloads), (list(), 1));
    for (request, error) in [
        (on(Some("10.0.0.0/33")), "not an address"),
        (on(Some("; flush ruleset")), "not an address"),
        (off(Some("10.9.0.0/16")), "is not bypassed"),
    ] {
        let answer = midspan.ask(&request);
        assert!(!answer.ok && answer.error.unwrap().contains(error));
    }
    abort(near);
    midspan.stop();
    no_trace(&network);
}

/// Only new connections of drained clients pass untouched; their sessions continue.
#[kernel_test]
fn connections_of_drained_clients_pass_untouched() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    echoes(&mut near, &mut far);
    let is_taken = |server| network.is_taken(&listener, server, 1).unwrap();
    let drain = |clients: &str| Request::DrainOn {
        listener: "test".to_owned(),
        clients: vec![clients.to_owned()],
    };
    let end = |clients: &[&str]| Request::DrainOff {
        listener: Some("test".to_owned()),
        clients: clients.iter().map(|it| (*it).to_owned()).collect(),
    };
    for (request, four, six) in [
        (drain("10.9.0.0/16"), true, true),
        (drain("10.1.0.0/24"), false, true),
        (drain("fd01::2"), false, false),
        (Request::Reload, false, false),
        (end(&["10.1.0.0/24"]), true, false),
        (end(&[]), true, true),
    ] {
        let answer = midspan.ask(&request);
        assert!(answer.ok, "{request:?}: {:?}", answer.error);
        let found = (is_taken(SERVER), is_taken(SERVER6));
        assert_eq!(found, (four, six), "{request:?}: {}", midspan.log());
        echoes(&mut near, &mut far);
    }
    abort(near);
    midspan.stop();
    no_trace(&network);
}

fn renamed(text: &str) -> String {
    format!(
        "[marks]\nmask = 0x00f00000\ntable = 8800\n[interception]\ntable = \"other\"\n\
         routing_table = 8790\nrule_priority = 90\nzone = 8800\nqueue = 8800\n{text}"
    )
}

/// Rules, routes and tables of a killed run are removed, although the new configuration has other
/// names.
#[kernel_test]
fn leftovers_are_found_under_other_names() {
    let network = Network::new();
    let forward =
        "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:8080\"\nto = \"10.3.0.2:80\"\n";
    let mut midspan = Midspan::ready(
        &network.gateway,
        &renamed(&format!("{TRANSPARENT}{WINDOWS}")),
    );
    kill_process(midspan.helper(), Signal::KILL).unwrap();
    midspan.wait();
    let tables = output(&network.gateway, "nft", &["list", "tables"]);
    let rules = output(&network.gateway, "ip", &["rule", "show"]);
    assert!(
        tables.contains("inet other") && rules.contains("8790"),
        "{tables}{rules}"
    );
    let before = [tables, rules];
    // Another running Midspan keeps its own.
    let running = Midspan::ready(&network.gateway, &format!("{TRANSPARENT}{WINDOWS}"));
    assert!(!before[0].is_empty());
    let third = forward.replace("8080", "8081");
    Midspan::ready(&network.gateway, &third).stop();
    let listener = network.listen(PORT);
    let near = network.connect(SERVER, PORT).unwrap();
    let (_far, _) = accept(&listener);
    assert_eq!(network.taken(PORT), 1);
    abort(near);
    running.stop();
    no_trace(&network);
    for family in ["-4", "-6"] {
        let rules = output(&network.gateway, "ip", &[family, "rule", "show"]);
        assert!(!rules.contains("proto 77"), "{rules}");
        let ours = ["route", "show", "table", "all", "proto", "77"];
        let ours = output(&network.gateway, "ip", &[&[family][..], &ours].concat());
        assert_eq!(ours, "");
    }
    let tables = output(&network.gateway, "nft", &["list", "tables"]);
    assert!(!tables.contains("other"), "{tables}");
}

#[kernel_test]
fn the_parameter_comes_back_after_a_crash() {
    let forward =
        "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:8080\"\nto = \"10.3.0.2:80\"\n";
    for (was, next) in [("1", forward), ("1", TRANSPARENT), ("0", TRANSPARENT)] {
        crash_and_run("net/ipv4/tcp_early_demux", [was, "0"], [TRANSPARENT, next]);
    }
    let counting = format!("{TRANSPARENT}policy = \"auto\"\ncontrol_group = \"50 %\"\n");
    for (was, next) in [("0", forward), ("0", &*counting), ("1", TRANSPARENT)] {
        crash_and_run(
            "net/netfilter/nf_conntrack_acct",
            [was, "1"],
            [&counting, next],
        );
    }
}

/// A session to one server is reset and a session to another one continues; the same for clients
/// whose SYN is held.
#[kernel_test]
fn kicked_connections_are_reset() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut gone = network.connect(SERVER, PORT).unwrap();
    let (mut served, _) = accept(&listener);
    let mut stays = network.connect(SERVER6, PORT).unwrap();
    let (mut served6, _) = accept(&listener);
    echoes(&mut gone, &mut served);
    echoes(&mut stays, &mut served6);
    network.filter_port(81);
    let waiting = {
        let socket = socket(&network.client, SERVER);
        let address: SocketAddr = format!("{SERVER}:81").parse().unwrap();
        std::thread::spawn(move || socket.connect_timeout(&address.into(), LIMIT))
    };
    let calls = || output(&network.gateway, "ss", &["-Htn", "state", "syn-sent"]);
    wait_until("the server is called", || calls().contains(":81"));
    let target = SERVER.to_owned();
    let answer = midspan.ask(&Request::Kick { target });
    let kicked = answer.kicked.unwrap();
    assert_eq!((kicked.sessions, kicked.held), (1, 1), "{kicked:?}");
    assert!(is_reset(&mut gone) && is_reset(&mut served));
    let error = waiting.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    echoes(&mut stays, &mut served6);
    let target = CLIENT6.to_owned();
    let answer = midspan.ask(&Request::Kick { target });
    assert_eq!(answer.kicked.unwrap().sessions, 1);
    assert!(is_reset(&mut stays) && is_reset(&mut served6));
    midspan.stop();
    no_trace(&network);
}

/// The first Midspan sets a parameter to `now` and is killed. When the next one has ended, the
/// parameter is as it `was`, and there are no leftovers.
fn crash_and_run(parameter: &str, [was, now]: [&str; 2], [first, next]: [&str; 2]) {
    let network = Network::new();
    let file = format!("/proc/sys/{parameter}");
    let is = |expected: &str| output(&network.gateway, "cat", &[&file]).trim() == expected;
    network.gateway.set_parameter(parameter, was).unwrap();
    let mut midspan = Midspan::ready(&network.gateway, first);
    wait_until("changed", || is(now));
    kill_process(midspan.helper(), Signal::KILL).unwrap();
    midspan.wait();
    assert!(is(now), "{parameter}");
    Midspan::ready(&network.gateway, next).stop();
    assert!(is(was), "{parameter}");
    no_trace(&network);
}

/// With the restored parameter, the kernel does not forward packets that belong to a socket of
/// Midspan in TIME-WAIT.
#[kernel_test]
fn ports_are_free_after_the_end() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let gateway = &network.gateway;
    (gateway.set_parameter("net/ipv4/tcp_early_demux", "1")).unwrap();
    let midspan = Midspan::ready(gateway, TRANSPARENT);
    let call = |server: &'static str, from: &str| {
        let socket = socket(&network.client, server);
        socket.set_reuse_address(true).unwrap();
        let from = SocketAddr::new(from.parse().unwrap(), 40_000);
        socket.bind(&from.into()).unwrap();
        let to = SocketAddr::new(server.parse().unwrap(), PORT);
        (socket.connect_timeout(&to.into(), Duration::from_secs(20))).unwrap();
        let mut near = bounded(socket.into());
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        // The end that closes first gets the socket in TIME-WAIT: on the client leg, this is
        // Midspan's.
        drop(far);
        assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
    };
    let waiting = || output(gateway, "ss", &["-Htan", "state", "time-wait"]);
    for (server, client) in BOTH {
        call(server, client);
    }
    wait_until("two sockets wait", || waiting().lines().count() == 2);
    midspan.stop();
    for (server, client) in BOTH {
        call(server, client);
    }
}
