//! A log whose reader has ended, or does not read: no part of the proxy waits for it.
//!
//! All tests use the loopback interface of a network namespace of their own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::ExitStatus;
use std::time::Duration;

use midspan_linux::netlink::Netlink;
use midspan_testbed::program::Launch;
use midspan_testbed::testing::{LIMIT, Midspan, bounded, connect, echoes, wait_until};
use midspan_testbed::{KernelTests, kernel_test};
use rustix::process::{Signal, kill_process};

use crate::common::{ADMIN, Control, get, metric};

const LISTEN: &str = "127.0.0.1:8080";
const SERVER: &str = "127.0.0.1:9090";

/// These tests, with their set-up.
pub const TESTS: KernelTests =
    KernelTests::new().set_up(|| Netlink::open().unwrap().set_up("lo").unwrap());

/// A running proxy, and a socket that receives its messages like the service manager.
struct Proxy {
    midspan: Midspan,
    _directory: tempfile::TempDir,
    manager: UnixDatagram,
}

/// A pipe with a small buffer.
fn small_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    (reader, writer)
}

fn configuration(sessions: u64) -> String {
    format!(
        "[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\ndrain_timeout = \"0 s\"\n\
         [limits]\nsessions = {sessions}\n[admin]\nlisten = \"{ADMIN}\"\n\
         [[listener]]\nname = \"test\"\nlisten = \"{LISTEN}\"\nto = \"{SERVER}\"\n"
    )
}

impl Proxy {
    fn ready(sessions: u64, log: PipeWriter) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let notify = directory.path().join("notify");
        let manager = UnixDatagram::bind(&notify).unwrap();
        manager.set_read_timeout(Some(LIMIT)).unwrap();
        let midspan = Midspan::of(
            Launch::this_program("run")
                .configuration(&configuration(sessions))
                .environment("NOTIFY_SOCKET", notify)
                .environment("WATCHDOG_USEC", "400000")
                .log_to(log),
        );
        Self {
            midspan,
            _directory: directory,
            manager,
        }
    }

    /// Reloads, so that the helper also writes to the log.
    fn reload(&self, sessions: u64) {
        let answer = self.midspan.reload(&configuration(sessions));
        assert!(answer.ok, "{answer:?}");
    }

    /// From now on, the service manager receives signs of life.
    fn is_vouched_for(&self) {
        self.manager.set_nonblocking(true).unwrap();
        while self.manager.recv(&mut [0; 4096]).is_ok() {}
        self.manager.set_nonblocking(false).unwrap();
        for _ in 0..3 {
            let mut buffer = [0; 4096];
            let count = self.manager.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], b"WATCHDOG=1");
        }
    }

    fn terminate(&mut self) -> ExitStatus {
        self.midspan.signal(Signal::TERM);
        self.midspan.wait()
    }
}

fn session(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = connect(LISTEN);
    let server = bounded(listener.accept().unwrap().0);
    (client, server)
}

fn exchange((client, server): &mut (TcpStream, TcpStream)) {
    echoes(client, server);
}

fn close((client, mut server): (TcpStream, TcpStream)) {
    drop(client);
    assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
}

/// Opens a connection for which there is no place; the proxy logs a warning.
fn one_too_many() {
    if let Ok(stream) = TcpStream::connect(LISTEN) {
        assert!(bounded(stream).read_exact(&mut [0; 1]).is_err());
    }
}

const RELAY_LOST: &str = "midspan_log_lines_lost_total{process=\"relay\"}";

#[kernel_test]
fn the_reader_goes() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut proxy = Proxy::ready(1, writer);
    let listener = TcpListener::bind(SERVER).unwrap();
    let mut first = session(&listener);
    exchange(&mut first);
    drop(reader);
    one_too_many();
    proxy.reload(1);
    exchange(&mut first);
    wait_until("counted", || metric(RELAY_LOST) >= 1.0);
    let helper_lost = "midspan_log_lines_lost_total{process=\"helper\"}";
    wait_until("counted of the helper", || metric(helper_lost) >= 1.0);
    proxy.is_vouched_for();
    close(first);
    wait_until("free again", || {
        let Ok(client) = TcpStream::connect(LISTEN) else {
            return false;
        };
        listener.set_nonblocking(true).unwrap();
        let accepted = wait_a_little(|| listener.accept().ok());
        drop(client);
        accepted.is_some()
    });
    assert!(proxy.terminate().success());
}

fn wait_a_little<T>(mut get: impl FnMut() -> Option<T>) -> Option<T> {
    (0..50).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        get()
    })
}

/// Fills the pipe, so that the log threads of both processes are blocked in the middle of a line.
fn fill(proxy: &Proxy, listener: &TcpListener) {
    for _ in 0..20 {
        close(session(listener));
    }
    proxy.reload(40);
    one_too_many_of(listener, 40);
}

/// Opens `count` sessions, which continue, and one more, for which there is no place.
fn one_too_many_of(listener: &TcpListener, count: usize) {
    // A session that has just ended may still have its place.
    wait_until("none", || {
        metric("midspan_sessions_active{listener=\"test\"}") == 0.0
    });
    let mut sessions: Vec<_> = (0..count).map(|_| session(listener)).collect();
    sessions.iter_mut().for_each(exchange);
    one_too_many();
    sessions.iter_mut().for_each(exchange);
    sessions.into_iter().for_each(close);
}

#[kernel_test]
fn nobody_reads() {
    let (reader, writer) = small_pipe();
    let mut proxy = Proxy::ready(40, writer);
    let listener = TcpListener::bind(SERVER).unwrap();
    fill(&proxy, &listener);
    let mut one = session(&listener);
    exchange(&mut one);
    proxy.is_vouched_for();
    assert_eq!(proxy.midspan.status().state, "running");
    assert_eq!(get("/health").0, 200);
    assert!(proxy.terminate().success());
    drop(reader);
}

#[kernel_test]
fn a_killed_relay_unread() {
    let (reader, writer) = small_pipe();
    let mut proxy = Proxy::ready(40, writer);
    let listener = TcpListener::bind(SERVER).unwrap();
    fill(&proxy, &listener);
    kill_process(proxy.midspan.relay(), Signal::KILL).unwrap();
    assert_eq!(proxy.midspan.wait().code(), Some(1));
    drop(reader);
}

#[kernel_test]
fn lost_lines_are_told() {
    let (reader, writer) = small_pipe();
    let mut proxy = Proxy::ready(1000, writer);
    let listener = TcpListener::bind(SERVER).unwrap();
    // The log queue holds 4096 lines.
    wait_until("more lines than the queue takes", || {
        for _ in 0..200 {
            close(session(&listener));
        }
        metric(RELAY_LOST) >= 100.0
    });
    let lost = metric("midspan_session_lines_lost_total");
    assert!(lost >= 100.0, "{lost}");
    let mut told = 0.0;
    let mut ended = 0;
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    for line in lines.by_ref() {
        if line.contains("session ended") {
            ended += 1;
        }
        if let Some((before, _)) = line.split_once(" lines of the log were lost") {
            let count = before.rsplit(' ').next().unwrap();
            told += count.parse::<f64>().unwrap();
        }
        if told >= metric(RELAY_LOST) {
            break;
        }
    }
    assert!(ended >= 4000, "{ended}");
    // From here on no line is missing.
    close(session(&listener));
    assert!(lines.any(|line| line.contains("session ended")));
    let rest = std::thread::spawn(move || lines.count());
    assert!(proxy.terminate().success());
    drop(proxy);
    rest.join().unwrap();
}
