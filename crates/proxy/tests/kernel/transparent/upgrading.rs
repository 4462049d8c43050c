//! Upgrades of a gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use midspan_proxy::command::{Request, UpgradeState};

use super::failing::no_trace;
use super::support::*;
use crate::common::assert_upgraded;

/// Sessions of both handshakes and IP versions continue through upgrades. New connections, one after the other, are
/// served at any time, and are intercepted again after each upgrade.
#[kernel_test]
fn sessions_and_rules_stay() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    for text in [TRANSPARENT.to_owned(), early()] {
        let midspan = Midspan::ready(&network.gateway, &text);
        let mut sessions: Vec<_> = BOTH
            .into_iter()
            .map(|(server, _)| {
                let near = network.connect(server, PORT).unwrap();
                (near, accept(&listener).0)
            })
            .collect();
        let (stop, count) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let (stopped, count, network, listener) = (&stop, &count, &network, &listener);
            let opening = scope.spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    for server in [SERVER, SERVER6] {
                        let mut near = network.connect(server, PORT).unwrap();
                        let (mut far, _) = accept(listener);
                        echoes(&mut near, &mut far);
                        abort(near);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            for _ in 0..4 {
                let seen = count.load(Ordering::Relaxed);
                let status = midspan.upgrade(None);
                assert_upgraded(&status);
                assert!(status.passing.is_empty(), "{:?}", status.passing);
                wait_until("connections", || {
                    count.load(Ordering::Relaxed) > seen + 6 || opening.is_finished()
                });
                for (near, far) in &mut sessions {
                    echoes(near, far);
                }
            }
            stop.store(true, Ordering::Relaxed);
            opening.join().unwrap();
        });
        println!("    {} connections", count.into_inner());
        let taken = network.taken(PORT);
        let mut near = network.connect(SERVER, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        assert_eq!(network.taken(PORT), taken + 1, "{}", midspan.log());
        for (near, far) in sessions {
            carries(near, far, 500_000);
        }
        abort(near);
        midspan.stop();
        no_trace(&network);
    }
}

/// If the new program fails after it has replaced the rules, the former one continues with its sessions and rules.
#[kernel_test]
fn the_former_program_gets_rules_and_sessions_back() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let forward = "[[listener]]\nname = \"f\"\nlisten = \"127.0.0.1:8080\"\nto = \"10.3.0.2:80\"\n";
    // With this key, the forward listener has a socket for each thread.
    let text = TRANSPARENT.replace("threads = 2", "threads = 2\npin_threads = true") + forward;
    let midspan = Midspan::ready(&network.gateway, &text);
    let relay = midspan.relay();
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    let answer = midspan.ask(&Request::BypassOn {
        prefix: Some("192.0.2.0/24".to_owned()),
    });
    assert!(answer.ok, "{:?}", answer.error);
    // The new relay cannot get the sockets of the former one: it has fewer threads.
    midspan.write(&text.replace("threads = 2", "threads = 1"));
    let status = midspan.upgrade(None);
    let last = status.upgrade.unwrap();
    assert_eq!(last.state, UpgradeState::Failed, "{:?}", last.error);
    assert_eq!(midspan.relay(), relay);
    assert_eq!(status.bypasses, ["192.0.2.0/24"]);
    echoes(&mut near, &mut far);
    let taken = network.taken(PORT);
    let mut again = network.connect(SERVER, PORT).unwrap();
    let (mut far_again, _) = accept(&listener);
    echoes(&mut again, &mut far_again);
    assert_eq!(network.taken(PORT), taken + 1, "{}", midspan.log());
    // Transparent listeners get other sockets.
    midspan.write(&TRANSPARENT.replace("threads = 2", "threads = 1"));
    assert_upgraded(&midspan.upgrade(None));
    let taken = network.taken(PORT);
    let last = network.connect(SERVER, PORT).unwrap();
    let (_far_last, _) = accept(&listener);
    assert_eq!(network.taken(PORT), taken + 1, "{}", midspan.log());
    abort(last);
    carries(near, far, 500_000);
    abort(again);
    midspan.stop();
    no_trace(&network);
}

/// Windows of sessions keep their marks, and the routes are there after an upgrade.
#[kernel_test]
fn initial_windows_stay() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let text = format!("{TRANSPARENT}client_leg = {{ initial_window = 30 }}\n");
    let midspan = Midspan::ready(&network.gateway, &text);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    midspan.write(&text.replace("30", "40"));
    let start = Instant::now();
    assert_upgraded(&midspan.upgrade(None));
    println!("    {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(60));
    let routes = output(&network.gateway, "ip", &["route", "show", "table", "7700"]);
    assert!(routes.contains("initcwnd 40"), "{routes}");
    echoes(&mut near, &mut far);
    carries(near, far, 500_000);
    midspan.stop();
    no_trace(&network);
}
