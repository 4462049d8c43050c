//! Threads of the relay that are stuck.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use midspan_proxy::client;
use midspan_proxy::command::{LateThreadStatus, Request, UpgradeState};
use midspan_testbed::testing::bounded;

use super::support::*;
use crate::common::held_thread::HeldThread;

fn proxy(watchdog_timeout: &str) -> Midspan {
    let text = format!(
        "{RELAY}drain_timeout = \"2 s\"\n[admin]\nlisten = \"{ADMIN}\"\n\
         [interception]\nwatchdog_timeout = \"{watchdog_timeout}\"\n{}\
         [[listener]]\nname = \"requests\"\nmode = \"http\"\nlisten = \"{}\"\n\
         access = [{{ allow = \"127.0.0.1\" }}]\n",
        listener("web", loopback(8080), loopback(9090)),
        loopback(8081)
    );
    wait_until("the last relay has gone", || {
        is_refused(loopback(8080)) && is_refused(ADMIN)
    });
    Midspan::here(&text)
}

fn health() -> (u16, String) {
    client::get(crate::common::admin(), "/health").unwrap()
}

/// The late threads in the status.
fn late(proxy: &Midspan) -> Vec<LateThreadStatus> {
    proxy.status().late_threads
}

/// Number of threads that have been replaced, by the log.
fn replaced(proxy: &Midspan) -> usize {
    proxy.log().matches("a new thread replaces it").count()
}

/// A stuck thread is reported, first as late and then as stuck. A new thread replaces it.
#[kernel_test]
fn a_stuck_thread() {
    let proxy = proxy("3 s");
    assert_eq!(health(), (200, "ok\n".to_owned()));
    assert!(late(&proxy).is_empty());
    let listener = TcpListener::bind(loopback(9090)).unwrap();
    let session = || {
        let client = connect(loopback(8080));
        (client, bounded(listener.accept().unwrap().0))
    };
    // These sessions belong to all threads, and some to the stuck thread.
    let mut sessions: Vec<_> = (0..20).map(|_| session()).collect();
    let relay = proxy.status().relay_pid;
    let held = HeldThread::hold(relay, "relay 1");
    let start = Instant::now();
    wait_until("late", || !late(&proxy).is_empty());
    let after = start.elapsed();
    let found = late(&proxy);
    assert_eq!(found.len(), 1);
    assert!(found[0].thread == "relay 1" && !found[0].stuck);
    assert!(found[0].still_milliseconds >= 1000);
    // The relay itself reports its health; at this point it is still healthy.
    let (status, said) = health();
    assert_eq!(status, 200);
    assert!(said.starts_with("ok\nthread relay 1 is late: "), "{said}");
    println!("    late after {:.2} s", after.as_secs_f64());
    // The thread is stuck, which lasts only a moment because the thread is then replaced.
    wait_until("stuck", || {
        let answer = client::get(crate::common::admin(), "/health");
        answer.is_ok_and(|(status, said)| status == 503 && said.contains("relay 1 is stuck"))
    });
    println!("    stuck after {:.2} s", start.elapsed().as_secs_f64());
    wait_until("replaced", || replaced(&proxy) == 1);
    println!("    replaced after {:.2} s", start.elapsed().as_secs_f64());
    wait_until("well again", || health() == (200, "ok\n".to_owned()));
    // The sessions of the stuck thread are reset, and the others continue.
    let is_alive = |(client, server): &mut (TcpStream, TcpStream)| {
        client.write_all(b"x").is_ok() && server.read(&mut [0]).is_ok_and(|count| count == 1)
    };
    sessions.retain_mut(is_alive);
    let alive = sessions.len();
    assert!((1..20).contains(&alive), "{alive} of 20");
    let mut more: Vec<_> = (0..20).map(|_| session()).collect();
    assert!(more.iter_mut().all(is_alive));
    assert_eq!(crate::common::metric("midspan_threads_replaced_total"), 1.0);
    assert_eq!(crate::common::metric("midspan_threads"), 2.0);
    assert_eq!(proxy.status().relay_pid, relay);
    // The thread continues, and ends.
    drop(held);
    wait_until("ended", || {
        proxy
            .log()
            .contains("the former relay thread 1 goes on, and ends")
    });
    assert!(sessions.iter_mut().chain(&mut more).all(is_alive));
    assert_eq!(health(), (200, "ok\n".to_owned()));
    drop((sessions, more));
    let log = proxy.log();
    for text in ["thread relay 1 is late", "thread relay 1 is stuck"] {
        assert!(log.contains(text), "{text}: {log}");
    }
    proxy.stop();
}

/// Two threads that are stuck and replaced, and 20 sessions.
fn after_two_stuck_threads(proxy: &Midspan) -> (Vec<HeldThread>, Vec<(TcpStream, TcpStream)>) {
    let listener = TcpListener::bind(loopback(9090)).unwrap();
    let relay = proxy.status().relay_pid;
    let mut held = Vec::new();
    for number in 1..=2 {
        held.push(HeldThread::hold(relay, "relay 1"));
        wait_until("replaced", || replaced(proxy) == number);
    }
    let sessions = (0..20).map(|_| {
        let client = connect(loopback(8080));
        (client, bounded(listener.accept().unwrap().0))
    });
    (held, sessions.collect())
}

/// After two stuck threads, a new process takes over with the third one.
#[kernel_test]
fn the_third_stuck_thread() {
    let proxy = proxy("1 s");
    let relay = proxy.status().relay_pid;
    let (mut held, mut sessions) = after_two_stuck_threads(&proxy);
    // Clients that negotiate stay with the former relay, but do not keep its stuck threads alive.
    let mut negotiating: Vec<_> = (0..20).map(|_| connect(loopback(8081))).collect();
    for client in &mut negotiating {
        client.write_all(b"CONNECT 127.0.0.1:9090 ").unwrap();
    }
    held.push(HeldThread::hold(relay, "relay 0"));
    wait_until("another relay", || {
        // The connection is lost when the process executes its program again.
        let answer = midspan_proxy::command::ask(&proxy.socket(), &Request::Status);
        let status = answer.ok().and_then(|answer| answer.status);
        status.is_some_and(|status| status.relay_pid != relay)
    });
    let upgrade = proxy.status().upgrade.unwrap();
    assert_eq!(upgrade.state, UpgradeState::Done, "{upgrade:?}");
    // Only the sessions of the third thread were reset.
    sessions.retain_mut(|(client, server)| {
        client.write_all(b"x").is_ok() && server.read(&mut [0]).is_ok_and(|count| count == 1)
    });
    let alive = sessions.len();
    assert!((1..20).contains(&alive), "{alive} of 20");
    let listener = TcpListener::bind(loopback(9090)).unwrap();
    let mut client = connect(loopback(8080));
    client.write_all(b"x").unwrap();
    let mut server = bounded(listener.accept().unwrap().0);
    assert_eq!(server.read(&mut [0]).unwrap(), 1);
    assert_eq!(health(), (200, "ok\n".to_owned()));
    // The former relay ends although three of its threads never continue.
    proxy.wait_for_line("drain_timeout is over");
    proxy.wait_for_line("relay ends");
    // The kernel keeps a process whose threads have a tracer.
    drop(held);
    wait_until("the former relay has ended", || {
        proxy.status().former_relay_pids.is_empty()
    });
    drop((sessions, client, server));
    proxy.stop();
}

/// If no new process can take over, the third stuck thread ends the relay.
#[kernel_test]
fn the_third_stuck_thread_without_a_new_process() {
    let mut proxy = proxy("1 s");
    let relay = proxy.status().relay_pid;
    let (mut held, mut sessions) = after_two_stuck_threads(&proxy);
    proxy.write("[relay]\nthreads = \"many\"\n");
    held.push(HeldThread::hold(relay, "relay 0"));
    // All sessions are reset, those of the other thread too.
    for (client, _) in &mut sessions {
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    drop(held);
    assert_eq!(proxy.wait().code(), Some(1));
    let log = proxy.log();
    for text in [
        "no upgrade, the present program continues: the program's trial failed",
        "error: thread relay 0 of the relay process made no turn for 1 s",
    ] {
        assert!(log.contains(text), "{text}: {log}");
    }
}

/// A thread that is stopped for less than the limit only causes this delay.
#[kernel_test]
fn a_late_thread_goes_on() {
    let proxy = proxy("1 h");
    let listener = TcpListener::bind(loopback(9090)).unwrap();
    let mut sessions: Vec<_> = (0..10)
        .map(|_| {
            let client = connect(loopback(8080));
            (client, listener.accept().unwrap().0)
        })
        .collect();
    for thread in ["relay 0", "relay 1"] {
        let held = HeldThread::hold(proxy.status().relay_pid, thread);
        wait_until("late", || {
            let late = late(&proxy);
            late.iter().any(|late| late.thread == thread)
        });
        drop(held);
        wait_until("well again", || late(&proxy).is_empty());
        assert_eq!(health(), (200, "ok\n".to_owned()));
        for (client, server) in &mut sessions {
            client.write_all(b"x").unwrap();
            assert_eq!(server.read(&mut [0]).unwrap(), 1);
        }
    }
    drop(sessions);
    proxy.stop();
}
