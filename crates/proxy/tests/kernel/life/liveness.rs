//! Threads of the relay that are stuck.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use midspan_proxy::client;
use midspan_proxy::command::LateThreadStatus;

use super::support::*;
use crate::common::held_thread::HeldThread;

fn proxy(watchdog_timeout: &str) -> Midspan {
    let text = format!(
        "{RELAY}[admin]\nlisten = \"{ADMIN}\"\n\
         [interception]\nwatchdog_timeout = \"{watchdog_timeout}\"\n{}",
        listener("web", loopback(8080), loopback(9090))
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

/// A stuck thread is reported, first as late and then as stuck, and the relay is ended.
#[kernel_test]
fn a_stuck_thread() {
    let mut proxy = proxy("3 s");
    assert_eq!(health(), (200, "ok\n".to_owned()));
    assert!(late(&proxy).is_empty());
    let listener = TcpListener::bind(loopback(9090)).unwrap();
    // These sessions belong to all threads, and some to the stuck thread.
    let mut clients: Vec<_> = (0..20).map(|_| connect(loopback(8080))).collect();
    let _servers: Vec<_> = (0..20).map(|_| listener.accept().unwrap()).collect();
    let held = HeldThread::hold(proxy.status().relay_pid, "relay 1");
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
    // The thread is stuck, which lasts only a moment because the relay is then ended.
    wait_until("stuck", || {
        let answer = client::get(crate::common::admin(), "/health");
        answer.is_ok_and(|(status, said)| status == 503 && said.contains("relay 1 is stuck"))
    });
    println!("    stuck after {:.2} s", start.elapsed().as_secs_f64());
    // All sessions are reset, those of the stuck thread too.
    for client in &mut clients {
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    println!("    ended after {:.2} s", start.elapsed().as_secs_f64());
    drop(held);
    assert_eq!(proxy.wait().code(), Some(1));
    let log = proxy.log();
    for text in [
        "thread relay 1 is late",
        "thread relay 1 is stuck",
        "error: thread relay 1 of the relay process made no turn for 3 s",
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
